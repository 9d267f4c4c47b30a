"""Control flows look at whole answers: marina ids are asked without streaming."""

from __future__ import annotations

import asyncio
import json

import grpc
import pytest

from tau2eval.gateway.v1 import gateway_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_voice.gateway_llm import GatewayModel

MARINA = ("marina/verify:openai/x", "marina/obligations:marina/argcheck:openai/x", "marina:crew")
HEADERS = {"x-marina-verify": "approved", "x-marina-cost-usd": "0.001"}


def whole(model=MARINA[0], **more):
    return {"model": voice_pb2.ModelConfig(model=model, **more)}


async def asked(gateway):
    """Waits until the gateway has a call."""
    async with asyncio.timeout(10):
        while not gateway.bodies:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("model", MARINA)
async def test_marina_ids_are_asked_without_streaming(gateway, make_bot, reply, model):
    gateway.script = [reply(text="Yes? No.", headers=HEADERS)]
    client = (await make_bot()).converse(**whole(model))
    client.text("Hi.")
    await client.wait_for(lambda: client.events("speech_stopped"))
    summary = await client.finish()
    assert gateway.streamed == [False]
    assert not {"stream", "stream_options"} & gateway.bodies[0].keys()
    assert [event.text for event in client.events("utterance_said")] == ["Yes? No."]
    usage = client.events("usage")[0]
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (11, 7, 3)
    assert usage.cost_usd == pytest.approx(0.001)
    assert dict(usage.marina_headers) == HEADERS
    assert list(summary.usage) == [usage]
    # The first word is there when all are.
    assert 0 < usage.first_token_seconds <= usage.latency_seconds


async def test_plain_ids_are_streamed_and_keep_their_headers_too(gateway, make_bot, reply):
    headers = {"X-Marina-Upstream-Model": "model", "retry-after": "1"}
    gateway.script = [reply(text="Yes?", headers=headers)]
    client = (await make_bot()).converse()
    client.text("Hi.")
    await client.wait_for(lambda: client.events("speech_stopped"))
    assert gateway.streamed == [True]
    headers = dict(client.events("usage")[0].marina_headers)
    assert headers == {"x-marina-upstream-model": "model"}


async def test_each_turn_keeps_its_own_values(gateway, make_bot, reply):
    gateway.script = [
        reply(calls=[("c1", "add", '{"n": 2}')], headers={"x-marina-argcheck": "writes=1"}),
        reply(text="Done.", headers={"x-marina-argcheck": "0"}, cost_usd=None),
    ]
    client = (await make_bot()).converse(**whole())
    client.text("Add.")
    await client.wait_for(lambda: client.events("speech_stopped"))
    summary = await client.finish()
    assert [dict(usage.marina_headers) for usage in summary.usage] == [
        {"x-marina-argcheck": "writes=1"},
        {"x-marina-argcheck": "0"},
    ]
    assert [usage.HasField("cost_usd") for usage in summary.usage] == [True, False]
    history = json.loads(summary.context_history_json)
    assert history[2]["tool_calls"][0]["id"] == "c1"
    assert history[2]["content"] is None
    assert history[4]["content"] == "Done."


async def test_unavailable_is_tried_again(gateway, make_bot, reply):
    unavailable = (grpc.StatusCode.UNAVAILABLE, "tau2eval.gateway", "overloaded")
    gateway.script = [reply(error=unavailable), reply(text="Here.")]
    client = (await make_bot()).converse(**whole())
    client.text("Go.")
    await client.wait_for(lambda: client.events("speech_stopped"))
    assert gateway.streamed == [False, False]
    assert not client.events("error")


async def test_it_is_given_up_after_three_attempts(gateway, make_bot, reply):
    gateway.script = [
        reply(error=(grpc.StatusCode.UNAVAILABLE, "tau2eval.gateway", "overloaded"))
    ] * 4
    client = (await make_bot()).converse(**whole())
    client.text("Go.")
    found = (await client.wait_for(lambda: client.events("error")))[0]
    assert (found.kind, found.code) == (voice_pb2.ERROR_KIND_GATEWAY, "overloaded")
    assert len(gateway.bodies) == 3


async def test_a_refusal_of_the_providers_is_the_agents_failure(gateway, make_bot, reply):
    error = (grpc.StatusCode.INVALID_ARGUMENT, "tau2eval.gateway", "context_length_exceeded")
    gateway.script = [reply(error=error)]
    client = (await make_bot()).converse(**whole())
    client.text("Go.")
    found = (await client.wait_for(lambda: client.events("error")))[0]
    assert (found.kind, found.code) == (
        voice_pb2.ERROR_KIND_MODEL_REQUEST, "context_length_exceeded",
    )  # fmt: skip


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [{"message": {"content": 5}}]}',
        b'{"choices": [{"message": {"tool_calls": [{"function": {"name": 5}}]}}]}',
    ],
)
async def test_an_answer_that_cannot_be_read_is_an_error(gateway, make_bot, reply, raw):
    gateway.script = [reply(raw=raw)]
    client = (await make_bot()).converse(**whole())
    client.text("Go.")
    found = (await client.wait_for(lambda: client.events("error")))[0]
    assert (found.kind, found.code) == (voice_pb2.ERROR_KIND_GATEWAY, "malformed_answer")
    assert len(gateway.bodies) == 1


async def test_usage_of_another_form_costs_no_answer(gateway, make_bot, reply):
    body = {
        "choices": [{"message": {"content": "Yes."}}],
        "usage": {"prompt_tokens": "many", "prompt_tokens_details": [1]},
    }
    gateway.script = [reply(raw=json.dumps(body).encode())]
    client = (await make_bot()).converse(**whole())
    client.text("Go.")
    await client.wait_for(lambda: client.events("speech_stopped"))
    assert client.events("usage")[0].prompt_tokens == 0


async def test_a_slow_flow_is_given_up(gateway, make_bot, reply):
    gateway.script = [reply(text="Late.", wait=asyncio.Event())]
    client = (await make_bot()).converse(**whole(timeout_seconds=0.3))
    client.text("Go.")
    found = (await client.wait_for(lambda: client.events("error")))[0]
    assert (found.kind, found.code) == (voice_pb2.ERROR_KIND_GATEWAY, "deadline_exceeded")


async def test_cancelling_cancels_the_call(gateway, reply):
    gateway.script = [reply(text="Never.", wait=asyncio.Event())]
    said = []

    async def hear(words):
        said.append(words)

    async with grpc.aio.insecure_channel(gateway.address) as channel:
        model = GatewayModel(
            channel, gateway_pb2.CallContext(), voice_pb2.ModelConfig(model=MARINA[0])
        )
        asking = asyncio.create_task(model.complete([{"role": "user", "content": "?"}], [], hear))
        await asked(gateway)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        async with asyncio.timeout(10):
            await gateway.cancelled.wait()
    assert said == []


async def test_finish_in_the_middle_of_a_call_cancels_it(gateway, make_bot, reply):
    gateway.script = [reply(text="Never.", wait=asyncio.Event())]
    client = (await make_bot()).converse(**whole())
    client.text("Go.")
    await client.wait_for(lambda: client.events("activity"))
    await asked(gateway)
    await client.finish()
    async with asyncio.timeout(10):
        await gateway.cancelled.wait()
    states = [event.state for event in client.events("activity")]
    assert states == [voice_pb2.ACTIVITY_STATE_STARTED, voice_pb2.ACTIVITY_STATE_STOPPED]
