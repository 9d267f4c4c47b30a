import asyncio
import json

import grpc
import pytest

from tau2eval.gateway.v1 import gateway_pb2
from tau2eval_common.errors import error_info
from tau2eval_gateway.model_list import Deployment

CONTEXT = gateway_pb2.CallContext(
    run_id="r1", scenario="s1", trial=2, role="agent", session_id="sess"
)


def plain(body, context=CONTEXT):
    return gateway_pb2.ChatCompletionRequest(context=context, body_json=json.dumps(body).encode())


def streamed(body, context=CONTEXT):
    return gateway_pb2.StreamChatCompletionRequest(
        context=context, body_json=json.dumps(body).encode()
    )


async def collect(call):
    chunks, metadata = [], None
    async for response in call:
        assert metadata is None
        if response.WhichOneof("message") == "chunk_json":
            chunks.append(json.loads(response.chunk_json))
        else:
            metadata = response.metadata
    return chunks, metadata


async def test_plain(gateway, upstream, h):
    upstream.replies["scripted/x"] = upstream.answer(h.completion())
    response = await gateway.chat.ChatCompletion(plain(h.ask("scripted/x")), timeout=20)
    assert json.loads(response.body_json) == h.completion()
    metadata = response.metadata
    assert metadata.upstream_model == "scripted/x"
    assert metadata.HasField("cost_usd")
    assert dict(metadata.headers) == {
        "x-marina-upstream-model": "scripted/x",
        "x-marina-cost-usd": "0.0",
        "x-marina-session": "sess",
    }
    assert upstream.headers[0]["x-tau2eval-trial"] == "2"
    (row,) = await gateway.rows()
    assert row["request_id"] == metadata.request_id
    assert (row["key_id"], row["run_id"], row["trial"]) == ("internal", "r1", 2)


async def test_stream_asks_for_usage_and_ends_with_metadata(gateway, upstream, h):
    sent = [
        h.chunk({"role": "assistant"}),
        h.chunk({"content": "Hi"}),
        h.chunk({}, "stop"),
        {**h.chunk({}), "choices": [], "usage": h.usage},
    ]
    upstream.replies["scripted/x"] = upstream.stream(b": waiting\n\n", *sent)
    chunks, metadata = await collect(
        gateway.chat.StreamChatCompletion(streamed(h.ask("scripted/x")), timeout=20)
    )
    assert chunks == sent
    assert metadata.cost_usd == 0.0
    assert metadata.HasField("cost_usd")
    body = json.loads(upstream.bodies[0])
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (b'{ "model":"scripted/x" ,"messages":[{"role":"user","content":"caf\\u00e9"}],"z":1.50}\n',
         b'{ "model":"scripted/x" ,"messages":[{"role":"user","content":"caf\\u00e9"}],"z":1.50'
         b',"stream":true,"stream_options":{"include_usage":true}}\n'),
        (b'{"stream": false, "model":"scripted/x","stream_options" :{"a": 1},"messages":[{}] }',
         b'{"stream": true, "model":"scripted/x","stream_options" :'
         b'{"include_usage":true,"a":1},"messages":[{}] }'),
        (b'{"model":"scripted/x","messages":[{}],"stream":true,'
         b'"stream_options":{"include_usage": false }}',
         b'{"model":"scripted/x","messages":[{}],"stream":true,'
         b'"stream_options":{"include_usage": false }}'),
    ],
)  # fmt: skip
async def test_statement_22_a_stream_over_grpc_changes_no_other_byte(
    gateway, upstream, h, given, sent
):
    upstream.replies["scripted/x"] = upstream.stream(h.chunk({"content": "a"}, "stop"))
    request = gateway_pb2.StreamChatCompletionRequest(body_json=given)
    await collect(gateway.chat.StreamChatCompletion(request, timeout=20))
    assert upstream.bodies == [sent]


async def test_unknown_cost_is_unset(gateway, upstream, h):
    upstream.replies["x"] = upstream.stream(h.chunk({"content": "a"}, "stop"))
    _, metadata = await collect(
        gateway.chat.StreamChatCompletion(streamed(h.ask("ext/x")), timeout=20)
    )
    assert not metadata.HasField("cost_usd")
    assert "x-marina-cost-usd" not in metadata.headers


C = grpc.StatusCode


@pytest.mark.parametrize(
    ("status", "code", "grpc_code", "seen"),
    [
        (400, "context_length_exceeded", C.INVALID_ARGUMENT, "400"),
        (400, None, C.INVALID_ARGUMENT, "400"),
        (413, None, C.INVALID_ARGUMENT, "413"),
        (422, None, C.INVALID_ARGUMENT, "422"),
        (404, "model_not_found", C.NOT_FOUND, "404"),
        (401, "invalid_api_key", C.UNAVAILABLE, "502"),
        (403, None, C.UNAVAILABLE, "502"),
        (402, "billing", C.UNAVAILABLE, "402"),
        (429, "rate_limit_exceeded", C.RESOURCE_EXHAUSTED, "429"),
        (500, None, C.UNAVAILABLE, "500"),
        (503, None, C.UNAVAILABLE, "503"),
        (504, None, C.DEADLINE_EXCEEDED, "504"),
        (302, None, C.UNAVAILABLE, "502"),
    ],
)
async def test_errors_carry_their_kind(gateway, upstream, h, status, code, grpc_code, seen):
    upstream.replies["scripted/x"] = upstream.answer(h.error_body("text", code), status)
    stub = gateway.chat
    for call in (
        stub.ChatCompletion(plain(h.ask("scripted/x")), timeout=20),
        collect(stub.StreamChatCompletion(streamed(h.ask("scripted/x")), timeout=20)),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc_code
        info = error_info(caught.value)
        assert info.domain == "tau2eval.gateway"
        assert info.metadata["http_status"] == seen
        assert info.metadata["provider"] == "tau2-eval"
        assert info.reason == info.metadata["code"].upper()
        if code and status not in (401, 403):
            assert info.metadata["code"] == code


async def test_own_refusals(gateway, upstream, h):
    for body, code, grpc_code in (
        (h.ask("marina/verify:scripted/x+"), "invalid_model", C.INVALID_ARGUMENT),
        (h.ask("nobody"), "model_not_found", C.NOT_FOUND),
        (h.ask("scripted/x", stream=True), "invalid_request_error", C.INVALID_ARGUMENT),
        ({"model": "scripted/x"}, "invalid_request_error", C.INVALID_ARGUMENT),
        (h.ask("nokey"), "missing_environment_variable", C.INTERNAL),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await gateway.chat.ChatCompletion(plain(body), timeout=20)
        assert caught.value.code() is grpc_code
        assert error_info(caught.value).metadata["code"] == code
    assert not upstream.bodies


@pytest.mark.parametrize("options", [{"done": False}, {"cut": True}])
async def test_truncated_stream_ends_with_an_error(gateway, upstream, h, options):
    upstream.replies["scripted/x"] = upstream.stream(h.chunk({"content": "Half"}), **options)
    call = gateway.chat.StreamChatCompletion(streamed(h.ask("scripted/x")), timeout=20)
    assert (await call.read()).WhichOneof("message") == "chunk_json"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is C.UNAVAILABLE


@pytest.mark.parametrize(
    "events",
    [
        (),
        (b": keep-alive\n\n",),
        ({"id": "c1", "object": "chat.completion.chunk", "choices": []},),
        ("half",),
    ],
)
async def test_a_done_mark_alone_does_not_make_an_answer(gateway, upstream, h, events):
    # As an empty answer it would count as the agent's silence.
    events = [h.chunk({"content": "Half"}) if event == "half" else event for event in events]
    upstream.replies["scripted/x"] = upstream.stream(*events)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await collect(gateway.chat.StreamChatCompletion(streamed(h.ask("scripted/x")), timeout=20))
    assert caught.value.code() is C.UNAVAILABLE
    assert error_info(caught.value).metadata["code"] == "upstream_truncated"


async def test_an_empty_answer_that_ended_is_an_answer(gateway, upstream, h):
    upstream.replies["scripted/x"] = upstream.stream(h.chunk({"content": ""}, "stop"))
    _, metadata = await collect(
        gateway.chat.StreamChatCompletion(streamed(h.ask("scripted/x")), timeout=20)
    )
    assert metadata is not None


async def test_a_refusal_inside_a_stream_is_a_refusal(gateway, upstream, h):
    upstream.replies["scripted/x"] = upstream.stream(
        h.error_body("maximum context length is 10", "context_length_exceeded")
    )
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await collect(gateway.chat.StreamChatCompletion(streamed(h.ask("scripted/x")), timeout=20))
    assert caught.value.code() is C.INVALID_ARGUMENT


async def test_cancel_reaches_the_upstream(gateway, upstream, h):
    upstream.replies["scripted/x"] = upstream.stream(h.chunk({"content": "a"}), {}, pause_after=1)
    call = gateway.chat.StreamChatCompletion(streamed(h.ask("scripted/x")), timeout=60)
    await call.read()
    call.cancel()
    await asyncio.wait_for(upstream.cancelled.wait(), 10)
    assert (await gateway.first_row())["status"] == "cancelled"


async def test_deadline_bounds_the_upstream_call(gateway, upstream, h):
    async def slow(request, body):
        await asyncio.sleep(30)

    upstream.replies["scripted/x"] = slow
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await gateway.chat.ChatCompletion(plain(h.ask("scripted/x")), timeout=0.5)
    assert caught.value.code() is C.DEADLINE_EXCEEDED
    await asyncio.wait_for(upstream.cancelled.wait(), 10)
    assert (await gateway.first_row())["status"] in ("cancelled", "upstream_timeout_total")


async def test_spend_sums(gateway, upstream, h):
    upstream.replies["scripted/x"] = upstream.answer(
        h.completion(usage={"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.25})
    )
    upstream.replies["x"] = upstream.answer(h.completion(usage={"prompt_tokens": 7}))
    for role in ("agent", "agent", "user"):
        context = gateway_pb2.CallContext(run_id="r9", scenario="s1", role=role)
        await gateway.chat.ChatCompletion(plain(h.ask("scripted/x"), context), timeout=20)
    context = gateway_pb2.CallContext(run_id="r9", scenario="s1", role="agent")
    await gateway.chat.ChatCompletion(plain(h.ask("ext/x"), context), timeout=20)
    await gateway.chat.ChatCompletion(plain(h.ask("ext/x")), timeout=20)
    response = await gateway.spend.ListRunSpend(
        gateway_pb2.ListRunSpendRequest(run_id="r9"), timeout=20
    )
    found = {(row.role, row.model): row for row in response.rows}
    assert set(found) == {("agent", "scripted/x"), ("user", "scripted/x"), ("agent", "ext/x")}
    agent = found["agent", "scripted/x"]
    assert (agent.calls, agent.prompt_tokens, agent.completion_tokens) == (2, 20, 10)
    assert (agent.cost_usd, agent.calls_without_cost, agent.scenario) == (0.5, 0, "s1")
    assert (found["agent", "ext/x"].cost_usd, found["agent", "ext/x"].calls_without_cost) == (0, 1)
    daily = await gateway.spend.ListDailySpend(gateway_pb2.ListDailySpendRequest(), timeout=20)
    assert sum(row.calls for row in daily.rows) == 5
    assert {row.key_id for row in daily.rows} == {"internal"}
    assert {row.arm for row in daily.rows} == {"single"}
    none = await gateway.spend.ListDailySpend(
        gateway_pb2.ListDailySpendRequest(to_day="2000-01-01"), timeout=20
    )
    assert not none.rows
    for bad in ("yesterday", "20260101", "2026-02-30"):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await gateway.spend.ListDailySpend(
                gateway_pb2.ListDailySpendRequest(from_day=bad), timeout=20
            )
        assert caught.value.code() is C.INVALID_ARGUMENT


async def test_list_models(gateway):
    response = await gateway.chat.ListModels(gateway_pb2.ListModelsRequest(), timeout=20)
    assert list(response.model_ids) == ["gone", "nokey", "scripted/gold"]


async def test_keys_on_request(upstream, h, tmp_path):
    upstream.replies["m"] = upstream.answer(h.completion())
    own = Deployment("m", "openai/m", f"http://{upstream.address}/v1")
    seed = {"MODEL_API_KEYS": "one-key-1"}
    async with h.gateway(tmp_path, [own], seed=seed, grpc_require_key=True) as gateway:
        for metadata in ((), (("authorization", "Bearer wrong"),)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await gateway.chat.ChatCompletion(plain(h.ask("m")), metadata=metadata, timeout=20)
            assert caught.value.code() is C.UNAUTHENTICATED
            assert error_info(caught.value).metadata["http_status"] == "401"
        metadata = (("authorization", "Bearer one-key-1"),)
        await gateway.chat.ChatCompletion(plain(h.ask("m")), metadata=metadata, timeout=20)
        (row,) = await gateway.rows()
        assert row["key_id"].startswith("key_")


async def test_cancel_of_a_plain_call_reaches_the_upstream(gateway, upstream, h):
    async def slow(request, body):
        await asyncio.sleep(30)

    upstream.replies["scripted/x"] = slow
    call = gateway.chat.ChatCompletion(plain(h.ask("scripted/x")), timeout=60)
    task = asyncio.ensure_future(call.wait_for_connection())
    await asyncio.wait_for(upstream.arrived.wait(), 20)
    call.cancel()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.wait_for(upstream.cancelled.wait(), 10)
    assert (await gateway.first_row())["status"] == "cancelled"
