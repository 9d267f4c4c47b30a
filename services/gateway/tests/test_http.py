import asyncio
import json

import aiohttp
import pytest

from tau2eval_gateway.model_list import Deployment


def events(text):
    return [line[6:] for line in text.split("\n") if line.startswith("data: ")]


async def one_row(gateway):
    rows = await gateway.rows()
    assert len(rows) == 1
    return rows[0]


async def test_plain_goes_through_unchanged(gateway, upstream, h):
    answer = h.completion()
    upstream.replies["scripted/x"] = upstream.answer(answer)
    raw = b'{ "model":"scripted/x",  "messages":[{"role":"user","content":"\\u00e9"}],"zzz":1.50}'
    headers = {
        "x-tau2eval-run": "r1",
        "x-tau2eval-scenario": "s1",
        "x-tau2eval-trial": "3",
        "x-tau2eval-role": "agent",
        "x-marina-session": "sess",
    }
    async with gateway.post(raw, headers=headers) as response:
        assert response.status == 200
        assert await response.json() == answer
        assert len(response.headers["x-request-id"]) == 32
        assert response.headers["x-marina-upstream-model"] == "scripted/x"
        assert response.headers["x-marina-cost-usd"] == "0.0"
        assert response.headers["x-marina-session"] == "sess"
    assert upstream.bodies == [raw]
    sent = upstream.headers[0]
    assert {k: v for k, v in sent.items() if k.startswith("x-tau2eval")} == {
        "x-tau2eval-run": "r1",
        "x-tau2eval-scenario": "s1",
        "x-tau2eval-trial": "3",
        "x-tau2eval-role": "agent",
        "x-tau2eval-session": "sess",
    }
    assert "authorization" not in sent
    row = await one_row(gateway)
    assert (row["status"], row["model"], row["model_served"]) == ("ok", "scripted/x", "served-1")
    assert (row["run_id"], row["scenario"], row["trial"], row["role"]) == ("r1", "s1", 3, "agent")
    assert (row["prompt_tokens"], row["completion_tokens"]) == (12, 4)
    assert row["cost_usd"] == 0.0
    assert row["key_id"] == "open"
    assert row["arm"] == "single"
    assert not row["streamed"]
    assert not row["estimated"]


async def test_alias_changes_the_model_and_nothing_else(gateway, upstream, h):
    upstream.replies["m"] = upstream.answer(h.completion(usage={"prompt_tokens": 1}))
    raw = b'{"tools":[{"model":"ext/m"}],"model" : "ext/m","messages":[{"content":"\\"model\\""}]}'
    headers = {"x-tau2eval-run": "r1", "Authorization": "Bearer callers-own"}
    async with gateway.post(raw, headers=headers) as response:
        assert response.status == 200
        assert "x-marina-cost-usd" not in response.headers
    assert upstream.bodies == [raw.replace(b'"model" : "ext/m"', b'"model" : "m"')]
    assert upstream.headers[0]["authorization"] == "Bearer very-secret-value"
    assert not [name for name in upstream.headers[0] if name.startswith("x-tau2eval")]
    assert (await one_row(gateway))["cost_usd"] is None


async def test_stream_is_passed_on_byte_for_byte(gateway, upstream, h):
    pieces = [
        b": a comment\n\n",
        h.sse(h.chunk({"role": "assistant"})),
        b"data: " + json.dumps(h.chunk({"content": "Hel", "reasoning_content": "hm"})).encode(),
        b"\r\n\r\n",
        h.sse(h.chunk({"content": "lo"}, "stop")),
        h.sse({**h.chunk({}), "choices": [], "usage": h.usage}),
    ]
    upstream.replies["scripted/x"] = upstream.stream(*pieces)
    async with gateway.post(h.ask("scripted/x", stream=True)) as response:
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        assert await response.read() == b"".join(pieces) + b"data: [DONE]\n\n"
    row = await one_row(gateway)
    assert (row["status"], row["streamed"], row["prompt_tokens"]) == ("ok", True, 12)
    assert row["first_byte_seconds"] <= row["latency_seconds"]


async def test_parallel_tool_call_deltas_are_kept(gateway, upstream, h):
    deltas = [
        {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 1, "id": "b", "function": {"name": "f", "arguments": "{}"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"x":'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]},
    ]
    chunks = [h.chunk(delta) for delta in deltas] + [h.chunk({}, "tool_calls")]
    upstream.replies["scripted/x"] = upstream.stream(*chunks)
    async with gateway.post(h.ask("scripted/x", stream=True, tools=[{}])) as response:
        found = events(await response.text())
    assert [json.loads(item) for item in found[:-1]] == chunks
    assert found[-1] == "[DONE]"
    row = await one_row(gateway)
    assert row["estimated"]
    assert row["completion_tokens"] > 0


async def test_stream_that_finishes_without_done_is_whole(gateway, upstream, h):
    upstream.replies["scripted/x"] = upstream.stream(h.chunk({"content": "a"}, "stop"), done=False)
    async with gateway.post(h.ask("scripted/x", stream=True)) as response:
        assert events(await response.text())[-1] == "[DONE]"


@pytest.mark.parametrize(
    ("more", "options", "code"),
    [
        ([], {"done": False}, "upstream_truncated"),
        ([], {"cut": True}, "upstream_connection_error"),
        ([b"data: {not json\n\n"], {}, "upstream_invalid_response"),
        ([{"error": {"message": "overloaded", "code": 503}}], {}, "upstream_error"),
    ],
)
async def test_a_broken_stream_never_looks_whole(gateway, upstream, h, more, options, code):
    upstream.replies["scripted/x"] = upstream.stream(
        h.chunk({"content": "Half a sen"}), *more, **options
    )
    async with gateway.post(h.ask("scripted/x", stream=True)) as response:
        assert response.status == 200
        found = events(await response.text())
    assert "[DONE]" not in found
    assert json.loads(found[0])["choices"][0]["delta"]["content"] == "Half a sen"
    assert json.loads(found[-1])["error"]["code"] == code
    row = await one_row(gateway)
    assert row["status"] == code
    assert row["estimated"]


async def test_a_stall_in_mid_stream_is_an_error(upstream, h, tmp_path):
    own = Deployment("m", "openai/m", f"http://{upstream.address}/v1")
    upstream.replies["m"] = upstream.stream(h.chunk({"content": "a"}), {}, pause_after=1)
    async with h.gateway(tmp_path, [own], idle_timeout_seconds=0.2) as gateway:
        async with gateway.post(h.ask("m", stream=True)) as response:
            found = events(await response.text())
        assert json.loads(found[-1])["error"]["code"] == "upstream_timeout_idle"
        assert (await one_row(gateway))["http_status"] == 504
    await asyncio.wait_for(upstream.cancelled.wait(), 10)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "body", "seen", "code"),
    [
        (400, {"message": "too long", "code": "context_length_exceeded"}, 400,
         "context_length_exceeded"),
        (400, {"message": "This model's maximum context length is 8 tokens"}, 400,
         "context_length_exceeded"),
        (422, {"message": "bad tools", "type": "invalid_request_error"}, 422,
         "invalid_request_error"),
        (404, {"message": "no model"}, 404, "model_not_found"),
        (401, {"message": "Incorrect key"}, 502, "provider_auth_failed"),
        (403, {"message": "no"}, 502, "provider_auth_failed"),
        (429, {"message": "slow down", "code": "rate_limit_exceeded"}, 429,
         "rate_limit_exceeded"),
        (500, {"message": "oops"}, 500, "upstream_error"),
        (503, {"message": "overloaded"}, 503, "upstream_error"),
    ],
)  # fmt: skip
async def test_provider_errors(gateway, upstream, h, status, body, seen, code, stream):
    upstream.replies["scripted/x"] = upstream.answer({"error": body}, status, {"Retry-After": "7"})
    async with gateway.post(h.ask("scripted/x", stream=stream)) as response:
        error = (await response.json())["error"]
        assert (response.status, error["code"]) == (seen, code)
        assert set(error) == {"message", "type", "code", "param"}
        assert body["message"] in error["message"]
        assert response.headers["x-request-id"]
        assert (response.headers.get("Retry-After") == "7") == (status in (429, 500, 503))
    row = await one_row(gateway)
    assert (row["status"], row["http_status"], row["cost_usd"]) == (code, seen, None)


async def test_a_404_without_an_error_body_is_not_the_callers_fault(gateway, upstream, h):
    upstream.replies["scripted/x"] = upstream.answer({"detail": "Not Found"}, 404)
    async with gateway.post(h.ask("scripted/x")) as response:
        assert response.status == 502
        assert (await response.json())["error"]["code"] == "upstream_not_found"


async def test_reset_refused_connection_and_slow_answer(gateway, upstream, h, tmp_path):
    async def reset(request, body):
        request.transport.abort()

    async def slow(request, body):
        await asyncio.sleep(30)

    upstream.replies["scripted/reset"] = reset
    upstream.replies["scripted/slow"] = slow
    async with gateway.post(h.ask("scripted/reset")) as response:
        assert response.status == 502
        assert (await response.json())["error"]["code"] == "upstream_connection_error"
    async with gateway.post(h.ask("gone")) as response:
        assert response.status == 502
        assert "127.0.0.1" not in await response.text()
    own = Deployment("scripted/*", "openai/scripted/*", f"http://{upstream.address}/v1", own=True)
    limits = {"total_timeout_seconds": 0.5, "first_byte_timeout_seconds": 0.2}
    codes = {False: "upstream_timeout_total", True: "upstream_timeout_first_byte"}
    async with h.gateway(tmp_path / "2", [own], **limits) as hasty:
        for stream, code in codes.items():
            async with hasty.post(h.ask("scripted/slow", stream=stream)) as response:
                assert response.status == 504
                assert (await response.json())["error"]["code"] == code
        await asyncio.wait_for(upstream.cancelled.wait(), 10)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_ends_the_upstream_call(gateway, upstream, h, stream):
    if stream:
        upstream.replies["scripted/x"] = upstream.stream(
            h.chunk({"content": "a" * 40}), h.chunk({}), pause_after=1
        )
    else:

        async def slow(request, body):
            await asyncio.sleep(30)

        upstream.replies["scripted/x"] = slow
    async with aiohttp.ClientSession() as leaving:
        request = leaving.post(
            f"http://{gateway.http}/v1/chat/completions", json=h.ask("scripted/x", stream=stream)
        )
        if stream:
            response = await request
            await response.content.readany()
            response.close()
        else:
            task = asyncio.ensure_future(request)
            await asyncio.wait_for(upstream.arrived.wait(), 10)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    await asyncio.wait_for(upstream.cancelled.wait(), 10)
    row = await gateway.first_row()
    assert row["status"] == "cancelled"
    # The provider may bill what it has read until then.
    assert row["estimated"]
    assert row["prompt_tokens"] > 0
    assert (row["completion_tokens"] == 10) == stream


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b"\xff", 400, "invalid_json"),
        (b"[]", 400, "invalid_json"),
        (b"[" * 5000, 400, "invalid_json"),
        (b'{"messages":[{}]}', 400, "invalid_request_error"),
        (b'{"model":"","messages":[{}]}', 400, "invalid_request_error"),
        (b'{"model":"scripted/x"}', 400, "invalid_request_error"),
        (b'{"model":"scripted/x","messages":[]}', 400, "invalid_request_error"),
        (b'{"model":"scripted/x","messages":["a"]}', 400, "invalid_request_error"),
        (b'{"model":"scripted/x","messages":[{}],"stream":"yes"}', 400, "invalid_request_error"),
        (b'{"model":"nobody","messages":[{}]}', 404, "model_not_found"),
        (b'{"model":"scripted/*","messages":[{}]}', 404, "model_not_found"),
        (b'{"model":"marina/verify:scripted/x+a","messages":[{}]}', 404, "model_not_found"),
        (b'{"model":"marina/obligations:a","messages":[{}]}', 404, "model_not_found"),
        (b'{"model":"marina/argcheck:","messages":[{}]}', 400, "invalid_model"),
        (b'{"model":"marina:crew","messages":[{}]}', 404, "model_not_found"),
        (b'{"model":"scripted/x","messages":[{"content":"' + b"a" * 10_000_001 + b'"}]}', 413,
         "request_too_large"),
    ],
)  # fmt: skip
async def test_bad_requests_cost_nothing(gateway, upstream, body, status, code):
    async with gateway.post(body) as response:
        error = (await response.json())["error"]
        assert (response.status, error["code"]) == (status, code)
    assert not upstream.bodies
    assert not await gateway.rows()


async def test_header_bounds(gateway, upstream, h):
    for headers in (
        {"x-tau2eval-run": "r" * 201},
        {"x-tau2eval-trial": "-1"},
        {"x-tau2eval-role": "Not A Role"},
    ):
        async with gateway.post(h.ask("scripted/x"), headers=headers) as response:
            assert response.status == 400
            assert (await response.json())["error"]["code"] == "invalid_context"
    assert not upstream.bodies


async def test_missing_variable_is_named(gateway, upstream, h):
    async with gateway.post(h.ask("nokey")) as response:
        assert response.status == 500
        assert "UNSET_NAME" in (await response.json())["error"]["message"]
    assert not upstream.bodies


async def test_keys_and_prompt_text_do_not_come_back(gateway, upstream, h, caplog):
    prompt = "My secret reservation is under the name of Somebody Important."
    message = f"bad key sk-abcdef123456 Bearer zzz very-secret-value; you said: {prompt}"
    upstream.replies["x"] = upstream.answer(h.error_body(message), 401)
    body = {"model": "ext/x", "messages": [{"role": "user", "content": prompt}]}
    async with gateway.post(body) as response:
        text = await response.text()
    for hidden in ("sk-abcdef", "zzz", "very-secret", "Somebody Important"):
        assert hidden not in text
        assert hidden not in caplog.text
    assert "bad key" in text


async def test_models_health_and_unknown_paths(gateway):
    base = f"http://{gateway.http}"
    async with gateway.session.get(f"{base}/v1/models") as response:
        ids = [item["id"] for item in (await response.json())["data"]]
        assert ids == ["gone", "nokey", "scripted/gold"]
    async with gateway.session.get(f"{base}/v1/health") as response:
        assert (await response.json())["status"] == "ok"
    async with gateway.session.get(f"{base}/nowhere") as response:
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "not_found"
        assert response.headers["x-request-id"]
    async with gateway.session.get(f"{base}/v1/chat/completions") as response:
        assert response.status == 405
        assert response.headers["Allow"] == "POST"


@pytest.mark.parametrize(
    ("seed", "key", "status"),
    [
        ({"MODEL_API_KEYS": " one-key-1 ,two-key-2,"}, "two-key-2", 200),
        ({"MODEL_API_KEYS": "one-key-1"}, "wrong", 401),
        ({"MODEL_API_KEYS": "one-key-1"}, None, 401),
        ({"MODEL_API_KEYS": "one-key-1", "MARINA_OPEN_API": "true"}, None, 401),
        ({"MARINA_OPEN_API": "true"}, None, 200),
        ({"MARINA_OPEN_API": "false"}, None, 401),
        ({"MODEL_API_KEYS": " , "}, "", 401),
    ],
)
async def test_keys(upstream, h, tmp_path, seed, key, status):
    upstream.replies["m"] = upstream.answer(h.completion())
    own = Deployment("m", "openai/m", f"http://{upstream.address}/v1")
    async with h.gateway(tmp_path, [own], seed=seed) as gateway:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        async with gateway.post(h.ask("m"), headers=headers) as response:
            assert response.status == status
            if status == 401:
                assert (await response.json())["error"]["type"] == "authentication_error"
        async with gateway.session.get(f"http://{gateway.http}/v1/models", headers=headers) as got:
            assert got.status == status
        assert len(upstream.bodies) == (status == 200)
        rows = await gateway.rows()
        if rows:
            assert rows[0]["key_id"].startswith("key_" if key else "open")
            assert key is None or key not in rows[0]["key_id"]


async def test_one_call_too_many(upstream, h, tmp_path):
    upstream.replies["m"] = upstream.stream(h.chunk({"content": "a"}), pause_after=0)
    own = Deployment("m", "openai/m", f"http://{upstream.address}/v1")
    async with h.gateway(tmp_path, [own], max_sessions=1) as gateway:
        held = asyncio.ensure_future(gateway.post(h.ask("m", stream=True)).__aenter__())
        await asyncio.wait_for(upstream.arrived.wait(), 10)
        async with gateway.post(h.ask("m")) as response:
            assert response.status == 429
            assert (await response.json())["error"]["code"] == "too_many_calls"
        held.cancel()
        await asyncio.gather(held, return_exceptions=True)
        await asyncio.wait_for(upstream.cancelled.wait(), 10)
        upstream.replies["m"] = upstream.answer(h.completion())
        async with asyncio.timeout(10):
            while True:
                async with gateway.post(h.ask("m")) as response:
                    if response.status == 200:
                        break
