"""The surface that the specification names, and that each setting reaches what it is for."""

from __future__ import annotations

import json
import re

import grpc
import pytest

from tau2eval.gateway.v1 import gateway_pb2
from tau2eval_common.errors import error_info
from tau2eval_gateway.errors import GatewayError
from tau2eval_gateway.model_list import Deployment
from tau2eval_gateway.requests import CallContext, parse_chat_request

TRACE = "0af7651916cd43dd8448eb211c80319c"
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "cancel_order",
            "parameters": {"type": "object", "properties": {"order_id": {"type": "string"}}},
        },
    }
]
ASKED = [{"role": "user", "content": "Please cancel order ORD-77"}]


@pytest.fixture
def opened(upstream, tmp_path, h):
    """Opens a gateway with settings of its own."""

    def open_gateway(seed=None, **settings):
        own = Deployment("m", "openai/served", f"http://{upstream.address}/v1")
        given = {"MARINA_OPEN_API": "true", **(seed or {})}
        return h.gateway(tmp_path / "own", [own], seed=given, **settings)

    return open_gateway


@pytest.mark.parametrize(
    ("traceparent", "taken"),
    [
        (f"00-{TRACE}-b7ad6b7169203331-01", True),
        (f"00-{TRACE.upper()}-b7ad6b7169203331-01", False),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", False),
        (f"00-{TRACE}-b7ad6b7169203331", False),
        ("", False),
    ],
)
async def test_the_request_id_is_the_trace_id(gateway, upstream, h, traceparent, taken):
    upstream.replies["scripted/x"] = upstream.answer(h.completion())
    headers = {"traceparent": traceparent} if traceparent else {}
    async with gateway.post(h.ask("scripted/x"), headers=headers) as response:
        given = response.headers["x-request-id"]
    assert (given == TRACE) == taken
    assert re.fullmatch("[0-9a-f]{32}", given)
    (row,) = await gateway.rows()
    assert row["request_id"] == given


async def test_a_row_holds_what_the_specification_names(opened, upstream, h):
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 30,
        "total_tokens": 130,
        "prompt_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 20},
        "completion_tokens_details": {"reasoning_tokens": 10},
        "cost": 0.125,
    }
    upstream.replies["served"] = upstream.answer(h.completion(usage=usage, model="served-2026"))
    headers = {
        "x-tau2eval-run": "run-1",
        "x-tau2eval-scenario": "scenario-1",
        "x-tau2eval-trial": "3",
        "x-tau2eval-role": "agent",
        "x-marina-session": "session-1",
    }
    async with opened({"MODEL_API_KEYS": "a-long-key"}) as gateway:
        headers["Authorization"] = "Bearer a-long-key"
        async with gateway.post(h.ask("m"), headers=headers) as response:
            assert response.status == 200
            assert response.headers["x-marina-upstream-model"] == "served"
            assert response.headers["x-marina-session"] == "session-1"
            assert response.headers["x-marina-cost-usd"] == "0.125"
        (row,) = await gateway.rows()
    assert re.fullmatch("key_[0-9a-f]{8}", row["key_id"])
    assert row["provider"]
    assert row["latency_seconds"] > 0
    assert row["day"] == row["time"].strftime("%Y-%m-%d")
    expected = {
        "model": "m",
        "model_served": "served-2026",
        "role": "agent",
        "run_id": "run-1",
        "scenario": "scenario-1",
        "trial": 3,
        "arm": "single",
        "session_id": "session-1",
        "prompt_tokens": 100,
        "completion_tokens": 30,
        "cached_tokens": 40,
        "cache_write_tokens": 20,
        "reasoning_tokens": 10,
        "estimated": False,
        "cost_usd": 0.125,
        "status": "ok",
        "http_status": 200,
        "streamed": False,
    }
    assert {name: row[name] for name in expected} == expected


async def test_every_bound_is_the_settings(opened):
    async with opened(
        connect_timeout_seconds=1.5,
        first_byte_timeout_seconds=2.5,
        idle_timeout_seconds=3.5,
        total_timeout_seconds=4.5,
        helper_timeout_seconds=0.5,
        retries=0,
    ) as gateway:
        bounds = gateway.service._core._bounds
        flows = gateway.service._core._pipeline._settings
    assert (bounds.connect, bounds.first_byte, bounds.idle) == (1.5, 2.5, 3.5)
    assert (bounds.total, bounds.retries) == (4.5, 0)
    assert (flows.helper_seconds, flows.total_seconds) == (0.5, 4.5)


async def test_the_state_is_bounded_by_the_settings(opened):
    async with opened(state_max_conversations=7, state_max_age_seconds=8.0) as gateway:
        store = gateway.service._store
    assert (store._max_keys, store._max_age) == (7, 8.0)


async def test_without_retries_a_provider_is_asked_once(opened, upstream, h):
    upstream.replies["served"] = upstream.answer(h.error_body("busy"), 503)
    async with opened(retries=0) as gateway, gateway.post(h.ask("m")) as response:
        assert response.status == 503
    assert len(upstream.bodies) == 1


async def test_no_attempt_begins_after_the_callers_deadline(opened, upstream, h):
    busy = upstream.answer(h.error_body("busy"), 503, {"Retry-After": "2"})
    upstream.replies["served"] = busy
    async with opened() as gateway:
        request = parse_chat_request(json.dumps(h.ask("m")).encode(), 10_000)
        context = CallContext("id", deadline_seconds=1.0)
        with pytest.raises(GatewayError, match="busy"):
            await gateway.service._core.complete(request, context, "key")
    assert len(upstream.bodies) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_the_size_limit_over_grpc(opened, upstream, h, stream):
    body = json.dumps(h.ask("m", padding="x" * 1000)).encode()
    async with opened(max_body_bytes=1000) as gateway:
        if stream:
            call = gateway.chat.StreamChatCompletion(
                gateway_pb2.StreamChatCompletionRequest(body_json=body), timeout=20
            )
        else:
            call = gateway.chat.ChatCompletion(
                gateway_pb2.ChatCompletionRequest(body_json=body), timeout=20
            )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await (call.read() if stream else call)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_info(caught.value).metadata["code"] == "request_too_large"
    assert upstream.bodies == []


@pytest.mark.parametrize(
    "name", ["MARINA_VERIFY_CHECKER_MODEL", "MARINA_OBLIGATIONS_MODEL", "MARINA_ARGCHECK_MODEL"]
)
@pytest.mark.parametrize("model", ["nobody/here", "marina/verify:m"])
async def test_a_helper_model_that_is_not_there_ends_the_start(opened, name, model):
    with pytest.raises(OSError, match=name):
        async with opened({name: model}):
            pass


def answers(h, text=None, order=None):
    body = h.completion(text)
    if order is not None:
        function = {"name": "cancel_order", "arguments": json.dumps({"order_id": order})}
        call = {"id": "c1", "type": "function", "function": function}
        body["choices"][0]["message"]["tool_calls"] = [call]
        body["choices"][0]["finish_reason"] = "tool_calls"
    return body


async def test_statement_38_the_trigger_decides_which_writes_are_judged(opened, upstream, h):
    judged = json.dumps({"calls": [{"call": 0, "supported": True}]})
    tasks = []

    async def reply(request, body):
        first = body["messages"][0]["content"]
        helper = first.startswith("[tau2-eval:")
        tasks.append(first.partition("]")[0] if helper else "draft")
        answer = answers(h, judged) if helper else answers(h, order="ORD-77")
        return await upstream.answer(answer)(request, body)

    upstream.replies["served"] = reply
    body = {"model": "marina/argcheck:m", "messages": ASKED, "tools": TOOLS}
    for trigger, expected in (
        ("flagged", ["draft"]),
        ("all-writes", ["draft", "[tau2-eval:argcheck-judge"]),
    ):
        tasks.clear()
        async with opened({"MARINA_ARGCHECK_TRIGGER": trigger}) as gateway:
            async with gateway.post(body) as response:
                assert response.status == 200
        assert tasks == expected


async def test_statement_28_callers_are_told_apart_by_their_keys(opened, upstream, h):
    read = json.dumps({"obligations": []})
    upstream.replies["served"] = upstream.answer(answers(h, read))
    body = {"model": "marina/obligations:m", "messages": ASKED, "tools": TOOLS}
    async with opened({"MODEL_API_KEYS": "one-key,two-key"}) as gateway:
        for key, count in (("one-key", "read=1"), ("one-key", "read=0"), ("two-key", "read=1")):
            headers = {"Authorization": f"Bearer {key}", "x-marina-session": "s"}
            async with gateway.post(body, headers=headers) as response:
                assert response.headers["x-marina-obligations"].startswith(count)
