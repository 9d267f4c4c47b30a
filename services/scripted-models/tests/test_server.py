"""The HTTP surface: streaming, errors, determinism, and the process."""

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path

import aiohttp
import pytest

from tau2eval_scripted.models import EXPECTED_OUTCOMES, markdown_table

NAME = "tau2_airline__11"
SYSTEM = {"role": "system", "content": "policy"}
HELLO = {"role": "user", "content": "Hello"}
README = Path(__file__).parents[1] / "README.md"


def body(model="scripted/gold", messages=(SYSTEM, HELLO), **more):
    return {"model": model, "messages": list(messages), **more}


async def every_request(client, tools, agent="scripted/gold"):
    """The requests of a call: body and headers."""
    seen = []

    async def ask(request, headers):
        seen.append((json.loads(json.dumps(request)), headers))
        return await client.ask(request, headers)

    await tools.hold_call(ask, NAME, agent)
    return seen


def joined(data):
    """Puts a stream together again, as a client does: content, tool calls, finish, usage."""
    events = data.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    content, calls, finish, usage, ids = "", {}, None, None, set()
    for event in events[:-2]:
        chunk = json.loads(event.removeprefix("data: "))
        assert chunk["object"] == "chat.completion.chunk"
        ids.add(chunk["id"])
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            delta = choice["delta"]
            content += delta.get("content") or ""
            for part in delta.get("tool_calls", ()):
                call = calls.setdefault(part["index"], {"arguments": ""})
                call["id"] = part.get("id", call.get("id"))
                call["name"] = part["function"].get("name", call.get("name"))
                call["arguments"] += part["function"].get("arguments", "")
            finish = choice["finish_reason"] or finish
    assert len(ids) == 1
    return content, list(calls.values()), finish, usage


async def test_a_stream_says_what_the_plain_answer_says(client, tools):
    requests = await every_request(client, tools)
    assert len(requests) > 6
    for request, headers in requests:
        plain = json.loads((await client.raw(request, headers))[1])
        choice = plain["choices"][0]
        streaming = {**request, "stream": True, "stream_options": {"include_usage": True}}
        status, data = await client.raw(streaming, headers)
        assert status == 200
        content, calls, finish, usage = joined(data)
        assert content == (choice["message"]["content"] or "")
        expected = [
            {"id": c["id"], **c["function"]} for c in choice["message"].get("tool_calls", ())
        ]
        assert calls == expected
        assert finish == choice["finish_reason"] == ("tool_calls" if expected else "stop")
        assert usage == plain["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert usage["completion_tokens"] > 0
        assert usage["prompt_tokens"] > 0
        assert usage["cost"] == 0.0


async def test_without_include_usage_a_stream_has_no_usage(client, tools):
    _, data = await client.raw(body(stream=True), tools.headers_of(NAME, "agent"))
    assert joined(data)[3] is None
    assert b"usage" not in data


async def test_silent_streams_an_empty_answer(client, tools):
    headers = tools.headers_of(NAME, "agent")
    _, data = await client.raw(body("scripted/silent", stream=True), headers)
    assert joined(data)[:3] == ("", [], "stop")
    _, data = await client.raw(body("scripted/silent"), headers)
    choice = json.loads(data)["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("", "stop")


@pytest.mark.parametrize("stream", [False, True])
async def test_the_same_request_gets_the_same_bytes_in_any_order(client, tools, stream):
    requests = await every_request(client, tools)
    requests = [({**request, "stream": stream}, headers) for request, headers in requests]
    forth = [await client.raw(*each) for each in requests]
    back = [await client.raw(*each) for each in reversed(requests)]
    together = await asyncio.gather(*(client.raw(*each) for each in requests))
    assert forth == back[::-1] == together


async def test_the_tool_calls_of_two_sessions_have_different_ids(client, tools):
    call = await tools.hold_call(client.ask, NAME, "scripted/gold")
    at = next(i for i, m in enumerate(call.messages) if m.get("tool_calls"))
    request = body(messages=call.messages[:at])
    ids = set()
    for session in ("one", "two"):
        message = await client.ask(request, tools.headers_of(NAME, "agent", session))
        ids.add(message["tool_calls"][0]["id"])
    assert len(ids) == 2


async def refused(client, request, headers):
    status, data = await client.raw(request, headers)
    error = json.loads(data)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return status, error


async def test_a_missing_scenario_header_is_explained(client, tools):
    for headers in ({}, {"x-tau2eval-role": "agent"}, {"x-tau2eval-scenario": ""}):
        status, error = await refused(client, body(), headers)
        assert (status, error["code"]) == (400, "scenario_header_missing")
        assert "upstreams that are marked as its own" in error["message"]


@pytest.mark.parametrize(
    ("request_body", "change", "status", "code"),
    [
        (body("scripted/none"), {}, 404, "model_not_found"),
        (body(n=2), {}, 400, "invalid_n"),
        (body(n="1"), {}, 400, "invalid_n"),
        (body(messages=()), {}, 400, "invalid_messages"),
        ({"model": "scripted/gold"}, {}, 400, "invalid_messages"),
        (body(messages=[{"role": "wizard", "content": "x"}]), {}, 400, "invalid_messages"),
        (body(messages=[{"role": "user", "content": 5}]), {}, 400, "invalid_messages"),
        ({"messages": [HELLO]}, {}, 400, "invalid_model"),
        ({"model": ["scripted/gold"], "messages": [HELLO]}, {}, 400, "invalid_model"),
        (b"{", {}, 400, "invalid_json"),
        (b"[]", {}, 400, "invalid_json"),
        (b"\xff\xfe", {}, 400, "invalid_json"),
        (body(), {"x-tau2eval-scenario": "tau2_airline__50"}, 400, "scenario_not_found"),
        (body(), {"x-tau2eval-role": "user"}, 400, "role_mismatch"),
        (body("scripted/caller"), {}, 400, "role_mismatch"),
    ],
)
async def test_wrong_requests_get_openai_errors(client, tools, request_body, change, status, code):
    for more in ({}, {"stream": True}):
        sent = {**request_body, **more} if isinstance(request_body, dict) else request_body
        headers = {**tools.headers_of(NAME, "agent"), **change}
        got, error = await refused(client, sent, headers)
        assert (got, error["code"]) == (status, code)


async def test_n_one_and_unknown_members_are_accepted(client, tools):
    headers = tools.headers_of(NAME, "agent")
    status, _ = await client.raw(body(n=1, temperature=0.0, reasoning_effort="high"), headers)
    assert status == 200
    status, _ = await client.raw(body(n=None, stream_options=None), headers)
    assert status == 200


async def test_crash_is_an_openai_error_also_in_a_stream(client, tools):
    turns = [
        HELLO,
        {"role": "assistant", "content": "a"},
        HELLO,
        {"role": "assistant", "content": "b"},
    ]
    for more in ({}, {"stream": True}):
        status, error = await refused(
            client,
            body("scripted/crash", [SYSTEM, *turns], **more),
            tools.headers_of(NAME, "agent"),
        )
        assert (status, error["type"], error["code"]) == (500, "server_error", "scripted_crash")


async def test_models_health_and_unknown_paths(client):
    async with client.session.get(f"{client.url}/v1/models") as response:
        listed = await response.json()
    assert [model["id"] for model in listed["data"]] == list(EXPECTED_OUTCOMES)
    async with client.session.get(f"{client.url}/v1/health") as response:
        assert (response.status, await response.json()) == (200, {"status": "ok"})
    for path, status in (("/v1/none", 404), ("/v1/chat/completions", 405)):
        async with client.session.get(f"{client.url}{path}") as response:
            assert response.status == status
            assert (await response.json())["error"]["message"]


def test_the_readme_shows_the_table():
    assert markdown_table() in README.read_text()


async def start(**settings):
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("TAU2EVAL_SCRIPTED_")
    }
    environment |= {f"TAU2EVAL_SCRIPTED_{key.upper()}": value for key, value in settings.items()}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tau2eval_scripted",
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def listening(process):
    line = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
    assert line.keys() == {"event", "service", "http"}
    assert (line["event"], line["service"]) == ("listening", "scripted-models")
    return f"http://{line['http']}"


async def test_sigterm_lets_an_answer_in_progress_end(tools):
    process = await start(port="0", slow_seconds="1.5")
    url = await listening(process)
    async with aiohttp.ClientSession() as session:
        asked = asyncio.ensure_future(
            session.post(
                f"{url}/v1/chat/completions",
                json=body("scripted/slow"),
                headers=tools.headers_of(NAME, "agent"),
            )
        )
        await asyncio.sleep(0.5)  # Until the request is in the server.
        process.send_signal(signal.SIGTERM)
        response = await asyncio.wait_for(asked, 60)
        assert response.status == 200
        assert (await response.json())["choices"][0]["message"]["content"].startswith("Hello")
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert (process.returncode, out) == (0, b"")
    assert b"Traceback" not in err


async def test_it_ends_with_its_parent_at_once_also_with_an_answer_in_progress(tools):
    process = await start(port="0", slow_seconds="600", exit_with_parent="true")
    url = await listening(process)
    async with aiohttp.ClientSession() as session:
        asked = asyncio.ensure_future(
            session.post(
                f"{url}/v1/chat/completions",
                json=body("scripted/slow"),
                headers=tools.headers_of(NAME, "agent"),
            )
        )
        await asyncio.sleep(0.3)
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), 60) == 0
        with pytest.raises(aiohttp.ClientError):
            await asked


async def test_a_port_in_use_and_a_wrong_setting_are_told():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = await start(port=str(taken.getsockname()[1]))
        _, err = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 2
        assert b"scripted-models: " in err
        assert b"Traceback" not in err
    for wrong in ({"prot": "1"}, {"port": "-1"}, {"slow_seconds": "soon"}):
        process = await start(**wrong)
        _, err = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 2
        assert f"TAU2EVAL_SCRIPTED_{next(iter(wrong)).upper()}".encode() in err
