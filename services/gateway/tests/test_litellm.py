"""The LiteLLM path, against the scripted upstream."""

import asyncio
import json

import pytest

from tau2eval_gateway.model_list import Deployment
from tau2eval_gateway.prices import Prices


@pytest.fixture
async def gateway(upstream, h, tmp_path):
    base = f"http://{upstream.address}/v1"
    lite = Deployment("vllm/*", "hosted_vllm/*", base, api_key="os.environ/VLLM_KEY")
    environ = {"VLLM_KEY": "vllm-secret-value"}
    async with h.gateway(tmp_path, [lite], environ, total_timeout_seconds=60.0) as found:
        yield found


async def test_plain_forwards_unknown_members(gateway, upstream, h):
    upstream.replies["m"] = upstream.answer(h.completion(usage={
        "prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 4},
    }))  # fmt: skip
    body = h.ask(
        "vllm/m",
        temperature=0.5,
        reasoning_effort="high",
        some_new_member={"a": 1},
        api_base="http://elsewhere.invalid",
        api_key="callers",
    )
    async with gateway.post(body, headers={"x-tau2eval-run": "r"}) as response:
        answer = await response.json()
        assert response.status == 200, answer
        assert "x-marina-cost-usd" not in response.headers
    assert answer["choices"][0]["message"]["content"] == "Hello."
    assert answer["choices"][0]["finish_reason"] == "stop"
    sent = json.loads(upstream.bodies[0])
    assert sent["model"] == "m"
    assert sent["reasoning_effort"] == "high"
    assert sent["some_new_member"] == {"a": 1}
    assert sent["temperature"] == 0.5
    assert upstream.headers[0]["authorization"] == "Bearer vllm-secret-value"
    assert not [name for name in upstream.headers[0] if name.startswith("x-tau2eval")]
    (row,) = await gateway.rows()
    assert (row["provider"], row["status"]) == ("hosted_vllm", "ok")
    assert (row["prompt_tokens"], row["cached_tokens"], row["cost_usd"]) == (9, 4, None)


async def test_stream_with_parallel_tool_calls(gateway, upstream, h):
    deltas = [
        {"role": "assistant", "content": None},
        {"tool_calls": [{"index": 0, "id": "a", "type": "function",
                         "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 1, "id": "b", "type": "function",
                         "function": {"name": "g", "arguments": "{}"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"x":1}'}}]},
    ]  # fmt: skip
    upstream.replies["m"] = upstream.stream(
        *(h.chunk(delta) for delta in deltas),
        h.chunk({}, "tool_calls"),
        {**h.chunk({}), "choices": [], "usage": h.usage},
    )
    body = h.ask("vllm/m", stream=True, stream_options={"include_usage": True})
    async with gateway.post(body) as response:
        lines = [line[6:] for line in (await response.text()).split("\n") if line[:6] == "data: "]
    assert lines[-1] == "[DONE]"
    calls, finish, usage = {}, [], None
    for line in lines[:-1]:
        chunk = json.loads(line)
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            assert "finish_reason" in choice
            finish.append(choice["finish_reason"])
            for part in choice["delta"].get("tool_calls") or []:
                call = calls.setdefault(part["index"], ["", ""])
                call[0] += part.get("id") or ""
                call[1] += part["function"].get("arguments") or ""
    assert calls == {0: ["a", '{"x":1}'], 1: ["b", "{}"]}
    assert [item for item in finish if item] == ["tool_calls"]
    assert usage["prompt_tokens"] == 12
    (row,) = await gateway.rows()
    assert (row["prompt_tokens"], row["estimated"], row["streamed"]) == (12, False, True)


@pytest.mark.parametrize("options", [{"done": False}, {"cut": True}])
async def test_truncated_stream(gateway, upstream, h, options):
    upstream.replies["m"] = upstream.stream(h.chunk({"content": "Half"}), **options)
    async with gateway.post(h.ask("vllm/m", stream=True)) as response:
        text = await response.text()
    assert "[DONE]" not in text
    last = json.loads(text.strip().split("\n\n")[-1][6:])
    assert last["error"]["code"] in (
        "upstream_truncated", "upstream_connection_error", "upstream_error"
    )  # fmt: skip
    assert '"finish_reason":"stop"' not in text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "code", "seen", "seen_code"),
    [
        (400, "context_length_exceeded", 400, "context_length_exceeded"),
        (400, "invalid_value", 400, "invalid_value"),
        (401, "invalid_api_key", 502, "provider_auth_failed"),
        (404, "model_not_found", 404, "model_not_found"),
        (422, "bad", 422, "bad"),
        (429, "rate_limit_exceeded", 429, "rate_limit_exceeded"),
        (500, None, 500, "upstream_error"),
        (503, None, 503, "upstream_error"),
    ],
)
async def test_errors(gateway, upstream, h, status, code, seen, seen_code, stream):
    message = "context length exceeded" if code == "context_length_exceeded" else "some text"
    upstream.replies["m"] = upstream.answer(
        h.error_body(f"{message} vllm-secret-value", code), status, {"Retry-After": "7"}
    )
    async with gateway.post(h.ask("vllm/m", stream=stream)) as response:
        error = (await response.json())["error"]
        assert (response.status, error["code"]) == (seen, seen_code), error
        assert "vllm-secret-value" not in error["message"]
        if status == 429:
            assert response.headers["Retry-After"] == "7"
    # No retry of LiteLLM's own: 7 seconds are too long for ours.
    assert len(upstream.bodies) == 1
    (row,) = await gateway.rows()
    assert row["status"] == seen_code


@pytest.mark.parametrize("stream", [False, True])
async def test_transport_faults_name_no_address(upstream, h, tmp_path, stream):
    async def reset(request, body):
        request.transport.abort()

    upstream.replies["m"] = reset
    gone = Deployment("gone/*", "hosted_vllm/*", "http://127.0.0.1:1/v1", api_key="some-key")
    there = Deployment("m", "hosted_vllm/m", f"http://{upstream.address}/v1", api_key="some-key")
    async with h.gateway(tmp_path, [gone, there]) as gateway:
        for model, attempts in (("gone/m", 3), ("m", 1)):
            before = len(await gateway.rows())
            async with gateway.post(h.ask(model, stream=stream)) as response:
                text = await response.text()
                assert response.status == 502
                assert json.loads(text)["error"]["code"] == "upstream_connection_error"
                assert "127.0.0.1" not in text
            # Where no connection comes about, another attempt is safe; after a reset it is not.
            assert len(await gateway.rows()) - before == attempts


async def test_503_is_asked_again(gateway, upstream, h):
    async def away_once(request, body):
        reply = upstream.answer(h.completion()) if len(upstream.bodies) > 1 else (
            upstream.answer(h.error_body("overloaded"), 503)
        )  # fmt: skip
        return await reply(request, body)

    upstream.replies["m"] = away_once
    async with gateway.post(h.ask("vllm/m")) as response:
        assert response.status == 200
    assert sorted(row["status"] for row in await gateway.rows()) == ["ok", "upstream_error"]


async def test_cancel(gateway, upstream, h):
    async def slow(request, body):
        await asyncio.sleep(30)

    upstream.replies["m"] = slow
    task = asyncio.ensure_future(gateway.post(h.ask("vllm/m")).__aenter__())
    await asyncio.wait_for(upstream.arrived.wait(), 60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.wait_for(upstream.cancelled.wait(), 10)


async def test_price_table_subtracts_cached_tokens(upstream, h, tmp_path):
    # The figures of a public bug: cached tokens must not be billed twice.
    upstream.replies["gemini-2.5-pro"] = upstream.answer(h.completion(usage={
        "prompt_tokens": 262960, "completion_tokens": 1744, "total_tokens": 264704,
        "prompt_tokens_details": {"cached_tokens": 257955},
    }))  # fmt: skip
    base = f"http://{upstream.address}/v1"
    priced = {"custom_llm_provider": "openai"}
    prices = Prices(input=2.5e-6, output=15e-6, cache_read=0.625e-6)
    lite = Deployment("m", "openai/gemini-2.5-pro", base, "some-key", params=priced, prices=prices)
    async with h.gateway(tmp_path, [lite]) as gateway:
        async with gateway.post(h.ask("m")) as response:
            cost = float(response.headers["x-marina-cost-usd"])
        assert cost == pytest.approx(5005 * 2.5e-6 + 257955 * 0.625e-6 + 1744 * 15e-6)


async def test_litellms_own_table(upstream, h, tmp_path):
    upstream.replies["gpt-4o"] = upstream.answer(h.completion(model="gpt-4o", usage={
        "prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100,
        "prompt_tokens_details": {"cached_tokens": 400},
    }))  # fmt: skip
    params = {"custom_llm_provider": "openai"}
    lite = Deployment(
        "m", "openai/gpt-4o", f"http://{upstream.address}/v1", "some-key", params=params
    )
    async with h.gateway(tmp_path, [lite]) as gateway:
        async with gateway.post(h.ask("m")) as response:
            cost = float(response.headers["x-marina-cost-usd"])
        assert cost == pytest.approx(600 * 2.5e-6 + 400 * 1.25e-6 + 100 * 10e-6)


async def test_an_id_that_litellm_does_not_know_is_not_found(h, tmp_path):
    async with (
        h.gateway(tmp_path, [Deployment("*", "*")]) as gateway,
        gateway.post(h.ask("nobody-knows-this")) as response,
    ):
        assert response.status == 404
        assert (await response.json())["error"]["code"] == "model_not_found"


async def test_a_missing_provider_key_is_named(h, tmp_path, monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY"):
        monkeypatch.delenv(name, raising=False)
    async with (
        h.gateway(tmp_path, [Deployment("*", "*")]) as gateway,
        gateway.post(h.ask("openai/gpt-4o")) as response,
    ):
        error = (await response.json())["error"]
        assert error["code"] == "provider_key_missing"
        assert "OPENAI_API_KEY" in error["message"]
