"""What the HTTP API bounds: bodies in size and time, heads, connections, paths and methods."""

from __future__ import annotations

import asyncio
import json
import logging

import aiohttp
import pytest

from tau2eval_gateway import http_api
from tau2eval_gateway.openapi import openapi_document


async def opened(gateway):
    host, _, port = gateway.http.rpartition(":")
    return await asyncio.open_connection(host, int(port))


def head(*lines, method="POST", path="/v1/chat/completions"):
    text = "\r\n".join([f"{method} {path} HTTP/1.1", "Host: gateway", *lines])
    return text.encode("latin-1") + b"\r\n\r\n"


async def answer(reader):
    """Reads one answer: status, headers and body."""
    async with asyncio.timeout(20):
        raw = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status, *lines = raw.strip().split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return int(status.split()[1]), headers, body


async def test_a_large_body_is_refused_before_it_is_read(gateway):
    reader, writer = await opened(gateway)
    writer.write(head("Content-Length: 50000000"))
    status, headers, body = await answer(reader)
    assert status == 413
    assert json.loads(body)["error"]["code"] == "request_too_large"
    assert len(headers["x-request-id"]) == 32
    writer.close()


async def test_a_large_body_in_chunks_is_refused_too(gateway):
    reader, writer = await opened(gateway)
    writer.write(head("Transfer-Encoding: chunked"))
    piece = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    for _ in range(12):
        writer.write(piece)
        try:
            await asyncio.wait_for(writer.drain(), 5)
        except (ConnectionError, TimeoutError):
            break
    status, _, body = await answer(reader)
    assert status == 413
    assert json.loads(body)["error"]["code"] == "request_too_large"
    writer.close()


async def test_a_body_that_never_comes_is_408(gateway, monkeypatch):
    monkeypatch.setattr(http_api, "_MAX_BODY_SECONDS", 0.2)
    reader, writer = await opened(gateway)
    writer.write(head("Content-Length: 100") + b'{"model":')
    status, _, body = await answer(reader)
    assert status == 408
    assert json.loads(body)["error"]["code"] == "request_timeout"
    writer.close()


async def test_a_client_that_leaves_in_its_body_costs_nothing(gateway, upstream, h):
    _, writer = await opened(gateway)
    writer.write(head("Content-Length: 100") + b'{"model":')
    await writer.drain()
    writer.transport.abort()
    upstream.replies["scripted/x"] = upstream.answer(h.completion())
    async with gateway.post(h.ask("scripted/x")) as response:
        assert response.status == 200
    assert len(upstream.bodies) == 1


async def test_long_heads_are_refused_and_not_logged(gateway, caplog):
    caplog.set_level(logging.DEBUG)
    for line in (
        "Authorization: Bearer sk-secret-word" + "x" * 9000,
        "Authorization: Bearer sk-secret-word\x00",
        "Bad header sk-secret-word",
    ):
        reader, writer = await opened(gateway)
        writer.write(head(line))
        status, _, _ = await answer(reader)
        assert status == 400
        writer.close()
    reader, writer = await opened(gateway)
    writer.write(head(*(f"x-more-{number}: y" for number in range(300))))
    assert (await answer(reader))[0] == 400
    writer.close()
    assert "sk-secret-word" not in caplog.text


async def test_many_silent_connections_do_not_keep_others_out(gateway, upstream, h):
    upstream.replies["scripted/x"] = upstream.answer(h.completion())
    lines = [await opened(gateway) for _ in range(300)]
    for _, writer in lines[::2]:
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nX-Slow")
    answers = await asyncio.gather(*(_status(gateway, h) for _ in range(50)))
    assert answers == [200] * 50
    for _, writer in lines:
        writer.transport.abort()


async def _status(gateway, h):
    async with gateway.post(h.ask("scripted/x")) as response:
        await response.read()
        return response.status


async def test_pipelined_requests_are_answered_in_order(gateway, upstream, h):
    for name in ("a", "b"):
        upstream.replies[f"scripted/{name}"] = upstream.answer(h.completion(name))
    reader, writer = await opened(gateway)
    for name in ("a", "b"):
        body = json.dumps(h.ask(f"scripted/{name}")).encode()
        writer.write(head(f"Content-Length: {len(body)}") + body)
    for name in ("a", "b"):
        status, _, body = await answer(reader)
        assert status == 200
        assert json.loads(body)["choices"][0]["message"]["content"] == name
    writer.close()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("HEAD", "/v1/models", 200),
        ("HEAD", "/v1/health", 200),
        ("HEAD", "/v1/chat/completions", 405),
        ("OPTIONS", "/v1/chat/completions", 405),
        ("PUT", "/v1/chat/completions", 405),
        ("TRACE", "/v1/models", 405),
        ("POST", "/v1/models", 405),
        ("GET", "/v1/openapi.json", 200),
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("POST", "/v1/chat/completions/", 404),
        ("POST", "/v1/completions", 404),
        ("GET", "/v1/models/%2e%2e/health", 404),
        ("GET", "/v1/%00", 404),
        ("GET", "/" + "a" * 5000, 404),
    ],
)
async def test_paths_and_methods(gateway, method, path, status):
    reader, writer = await opened(gateway)
    writer.write(head(method=method, path=path))
    if method == "HEAD":
        line = await asyncio.wait_for(reader.readline(), 20)
        assert int(line.split()[1]) == status
    else:
        found, headers, body = await answer(reader)
        assert found == status
        assert headers["content-type"].startswith("application/json")
        assert len(headers["x-request-id"]) == 32
        if status != 200:
            code = json.loads(body)["error"]["code"]
            assert code == ("method_not_allowed" if status == 405 else "not_found")
        assert ("allow" in headers) == (status == 405)
    writer.close()


async def test_a_slow_reader_holds_back_its_upstream_and_nothing_else(gateway, upstream, h):
    """Nothing piles up in the gateway for a client that does not read."""
    sent = 0

    async def flood(request, body):
        nonlocal sent
        response = aiohttp.web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        event = h.sse(h.chunk({"content": "x" * 100_000}))
        for _ in range(1000):
            await response.write(event)
            sent += len(event)
        await response.write(h.sse(h.chunk({}, "stop")))
        return response

    upstream.replies["scripted/x"] = flood
    reader, writer = await opened(gateway)
    body = json.dumps(h.ask("scripted/x", stream=True)).encode()
    writer.write(head(f"Content-Length: {len(body)}") + body)
    await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
    before = -1
    while sent != before:
        before = sent
        await asyncio.sleep(0.3)
    assert sent < 50_000_000
    writer.transport.abort()
    await asyncio.wait_for(upstream.cancelled.wait(), 10)
    assert (await gateway.first_row())["status"] == "cancelled"


async def test_a_reader_that_stops_is_left_behind(gateway, upstream, h, monkeypatch):
    monkeypatch.setattr(http_api, "_MAX_SEGMENT_SECONDS", 0.3)

    async def flood(request, body):
        response = aiohttp.web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while True:
            await response.write(h.sse(h.chunk({"content": "x" * 100_000})))

    upstream.replies["scripted/x"] = flood
    reader, writer = await opened(gateway)
    body = json.dumps(h.ask("scripted/x", stream=True)).encode()
    writer.write(head(f"Content-Length: {len(body)}") + body)
    await asyncio.wait_for(upstream.cancelled.wait(), 20)
    assert (await gateway.first_row())["status"] == "cancelled"
    assert gateway.service._core._calls == 0
    writer.transport.abort()
    del reader


def test_the_document_names_every_route():
    app = http_api.HttpApi(None, None, 1000).application()
    routes = {
        (route.method.lower(), resource.canonical)
        for resource in app.router.resources()
        for route in resource
        if route.method != "HEAD"
    }
    documented = {
        (method, path) for path, item in openapi_document()["paths"].items() for method in item
    }
    assert documented == routes
