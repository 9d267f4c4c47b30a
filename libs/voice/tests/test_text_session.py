"""Sessions in text modality over a real server: the dialogue, its tools, and how it ends."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import grpc
import pytest

from tau2eval.gateway.v1 import gateway_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_voice.gateway_llm import GatewayModel

PROVIDER = "tau2eval.gateway"


async def test_cue_makes_the_bot_speak_first(gateway, make_bot, reply):
    gateway.script = [reply(text=["Good ", "morning."])]
    bot = await make_bot()
    client = bot.converse()
    ready = await client.ready()
    assert ready.version == "9.9"
    assert ready.model.timeout_seconds == 120
    assert "add" in ready.tool_names
    client.send(cue=voice_pb2.Cue())
    await client.wait_for(lambda: client.events("speech_stopped"))
    summary = await client.finish()
    history = json.loads(summary.context_history_json)
    assert history == [
        {"role": "system", "content": "The prompt."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Good morning."},
    ]
    said = client.events("utterance_said")[0]
    assert (said.text, said.interrupted, said.unspoken) == ("Good morning.", False, "")
    kinds = client.kinds()
    order = ["speech_started", "text", "utterance_said", "speech_stopped"]
    assert [kind for kind in kinds if kind in order] == order
    ids = {event.utterance_id for kind in order[:1] + order[2:] for event in client.events(kind)}
    assert len(ids) == 1
    context = gateway.contexts[0]
    assert (context.run_id, context.scenario, context.trial, context.role, context.session_id) == (
        "run", "scenario", 1, "agent", "s1",
    )  # fmt: skip


async def test_text_carries_virtual_time_and_usage(gateway, make_bot, reply):
    gateway.script = [reply(text="Yes?")]
    client = (await make_bot()).converse()
    client.text("Hi there.", media_time_seconds=12.5)
    await client.wait_for(lambda: client.events("speech_stopped"))
    summary = await client.finish()
    assert client.events("transcript_heard")[0].text == "Hi there."
    texts = [r.text for r in client.responses if r.WhichOneof("message") == "text"]
    assert [(t.text, t.media_time_seconds, t.sequence) for t in texts] == [("Yes?", 12.5, 0)]
    usage = client.events("usage")[0]
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (11, 7, 3)
    assert usage.cost_usd == pytest.approx(0.001)
    assert list(summary.usage) == [usage]
    stages = {event.stage for event in client.events("stage_latency")}
    assert stages == {"llm_first_token", "llm"}


async def test_unknown_cost_stays_unset(gateway, make_bot, reply):
    gateway.script = [reply(text="Yes?", cost_usd=None)]
    client = (await make_bot()).converse()
    client.text("Hi.")
    await client.wait_for(lambda: client.events("speech_stopped"))
    assert not client.events("usage")[0].HasField("cost_usd")


async def test_tools_run_and_the_model_is_asked_again(gateway, make_bot, reply):
    gateway.script = [
        reply(text="One moment.", calls=[("c1", "add", '{"n": 2}'), ("c2", "add", '{"n": 3}')]),
        reply(text="Done."),
    ]
    bot = await make_bot()
    client = bot.converse()
    client.text("Add.")
    await client.wait_for(lambda: len(client.events("speech_stopped")) == 2)
    summary = await client.finish()
    history = json.loads(summary.context_history_json)
    assert [message["role"] for message in history] == [
        "system", "user", "assistant", "tool", "tool", "assistant",
    ]  # fmt: skip
    assert history[2]["content"] == "One moment."
    assert [call["id"] for call in history[2]["tool_calls"]] == ["c1", "c2"]
    assert [message["tool_call_id"] for message in history[3:5]] == ["c1", "c2"]
    assert json.loads(history[4]["content"]) == {"count": 5}
    assert summary.db_hash == "hash-5"
    assert [json.loads(a)["arguments"] for a in summary.actions_json] == [{"n": 2}, {"n": 3}]
    assert summary.changed_records[0].record_json == "5"
    assert json.loads(summary.tools_json) == bot.tools[0].declarations
    assert [event.call_id for event in client.events("tool_call")] == ["c1", "c2"]
    assert [json.loads(event.result_json) for event in client.events("tool_result")] == [
        {"count": 2}, {"count": 5},
    ]  # fmt: skip
    assert len(client.events("action_recorded")) == 2
    assert gateway.bodies[0]["tools"] == bot.tools[0].declarations
    assert gateway.bodies[1]["messages"] == history[:-1]


async def test_activity_is_balanced_for_every_stage(gateway, make_bot, reply):
    gateway.script = [reply(calls=[("c1", "add", "{}")]), reply(text="Done.")]
    client = (await make_bot()).converse()
    client.text("Add.")
    await client.wait_for(lambda: client.events("speech_stopped"))
    await client.finish()
    stages = [(event.stage, event.state) for event in client.events("activity")]
    start, stop = voice_pb2.ACTIVITY_STATE_STARTED, voice_pb2.ACTIVITY_STATE_STOPPED
    assert stages == [
        (stage, state) for stage in ("llm", "tool", "llm") for state in (start, stop)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "error_type"),
    [
        (("c", "no_such_tool", "{}"), "unknown_tool"),
        (("c", "add", '{"n": '), "validation_error"),
        (("c", "add", "[1, 2]"), "validation_error"),
    ],
)
async def test_what_the_model_gets_wrong_goes_back_to_it(
    gateway, make_bot, reply, call, error_type
):
    gateway.script = [reply(calls=[call]), reply(text="I see.")]
    client = (await make_bot()).converse()
    client.text("Go.")
    await client.wait_for(lambda: client.events("speech_stopped"))
    result = client.events("tool_result")[0]
    assert result.is_error
    assert json.loads(result.result_json)["error_type"] == error_type
    sent = json.loads(gateway.bodies[1]["messages"][-1]["content"])
    assert sent["error_type"] == error_type
    assert not client.events("error")


async def test_exit_comes_after_the_words_and_no_model_call_follows(gateway, make_bot, reply):
    gateway.script = [reply(text="Goodbye!", calls=[("c", "end_conversation", "{}")])]
    client = (await make_bot()).converse()
    client.text("Bye.")
    await client.wait_for(lambda: client.events("exit"))
    client.text("Are you there?")
    await client.finish()
    kinds = client.kinds()
    assert kinds.index("speech_stopped") < kinds.index("exit")
    assert client.events("exit")[0].reason == voice_pb2.EXIT_REASON_AGENT_EXIT
    assert len(gateway.bodies) == 1


async def test_exit_without_words(gateway, make_bot, reply):
    gateway.script = [reply(calls=[("c", "end_conversation", "{}")])]
    client = (await make_bot()).converse()
    client.text("Bye.")
    await client.wait_for(lambda: client.events("exit"))
    assert not client.events("speech_started")


@pytest.mark.parametrize("words", ["You are being transferred.", ""])
async def test_transfer_lets_the_model_speak_first(gateway, make_bot, reply, words):
    gateway.script = [reply(calls=[("c", "transfer_to_human_agents", "{}")]), reply(text=words)]
    client = (await make_bot()).converse()
    client.text("A human, please.")
    await client.wait_for(lambda: client.events("exit"))
    assert client.events("exit")[0].reason == voice_pb2.EXIT_REASON_TRANSFER
    assert len(gateway.bodies) == 2
    assert [event.text for event in client.events("utterance_said")] == ([words] if words else [])
    assert client.kinds()[-1] == "exit"


async def test_transfer_then_end_is_a_transfer(gateway, make_bot, reply):
    gateway.script = [
        reply(calls=[("c", "transfer_to_human_agents", "{}")]),
        reply(text="Please hold on.", calls=[("d", "end_conversation", "{}")]),
    ]
    client = (await make_bot()).converse()
    client.text("A human, please.")
    await client.wait_for(lambda: client.events("exit"))
    assert [event.reason for event in client.events("exit")] == [voice_pb2.EXIT_REASON_TRANSFER]
    assert len(gateway.bodies) == 2


async def test_endless_tool_calls_are_the_agents_failure(gateway, make_bot, reply):
    gateway.script = [reply(calls=[("c", "add", "{}")])]
    gateway.repeat = True
    client = (await make_bot()).converse()
    client.text("Go.")
    error = (await client.wait_for(lambda: client.events("error")))[0]
    assert (error.kind, error.code, error.fatal) == (
        voice_pb2.ERROR_KIND_MODEL_REQUEST, "too_many_tool_calls", True,
    )  # fmt: skip
    assert len(gateway.bodies) == 31
    summary = await client.finish()
    assert summary.db_hash == "hash-30"


async def test_words_reset_the_count_of_tool_calls(gateway, make_bot, reply):
    count = 0

    def choose(context, body):
        nonlocal count
        count += 1
        if count > 40:
            return reply(text="Done.")
        return reply(text="Wait." if count % 20 == 0 else "", calls=[("c", "add", "{}")])

    gateway.choose = choose
    client = (await make_bot()).converse()
    client.text("Go.")
    await client.wait_for(lambda: any(e.text == "Done." for e in client.events("utterance_said")))
    assert not client.events("error")


async def test_arguments_nested_beyond_all_bounds_go_back_to_the_model(gateway, make_bot, reply):
    deep = "[" * 60_000 + "]" * 60_000
    gateway.script = [reply(calls=[("c", "add", deep)]), reply(text="Sorry.")]
    client = (await make_bot()).converse()
    client.text("Go.")
    await client.wait_for(lambda: any(e.text == "Sorry." for e in client.events("utterance_said")))
    result = client.events("tool_result")[0]
    assert result.is_error
    assert json.loads(result.result_json)["error_type"] == "validation_error"


async def test_empty_completion_says_nothing(gateway, make_bot, reply):
    gateway.script = [reply(text="")]
    client = (await make_bot()).converse()
    client.text("Hello?")
    await client.wait_for(lambda: len(client.events("activity")) == 2)
    summary = await client.finish()
    assert not client.events("speech_started")
    assert json.loads(summary.context_history_json)[-1]["role"] == "user"


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        ((grpc.StatusCode.INVALID_ARGUMENT, PROVIDER, "context_length_exceeded"),
         voice_pb2.ERROR_KIND_MODEL_REQUEST, "context_length_exceeded"),
        ((grpc.StatusCode.NOT_FOUND, PROVIDER, "model_not_found"),
         voice_pb2.ERROR_KIND_GATEWAY, "model_not_found"),
        ((grpc.StatusCode.INVALID_ARGUMENT, "", "x"),
         voice_pb2.ERROR_KIND_GATEWAY, "invalid_argument"),
        ((grpc.StatusCode.RESOURCE_EXHAUSTED, PROVIDER, "insufficient_quota"),
         voice_pb2.ERROR_KIND_GATEWAY, "insufficient_quota"),
        ((grpc.StatusCode.UNAUTHENTICATED, PROVIDER, "invalid_api_key"),
         voice_pb2.ERROR_KIND_GATEWAY, "invalid_api_key"),
        ((grpc.StatusCode.INTERNAL, PROVIDER, "upstream_error"),
         voice_pb2.ERROR_KIND_GATEWAY, "upstream_error"),
        ((grpc.StatusCode.DEADLINE_EXCEEDED, PROVIDER, "timeout"),
         voice_pb2.ERROR_KIND_GATEWAY, "timeout"),
    ],
)  # fmt: skip
async def test_errors_are_classified_and_finish_still_works(
    gateway, make_bot, reply, error, kind, code
):
    gateway.script = [reply(error=error)]
    client = (await make_bot()).converse()
    client.text("Go.")
    found = (await client.wait_for(lambda: client.events("error")))[0]
    assert (found.kind, found.code, found.fatal) == (kind, code, True)
    client.text("Still there?")
    summary = await client.finish()
    assert summary.db_hash == "hash-0"
    assert len(gateway.bodies) == 1


async def test_what_the_gateway_itself_refuses_is_no_failure_of_the_agent(gateway, make_bot, reply):
    error = (grpc.StatusCode.INVALID_ARGUMENT, PROVIDER, "control_flow_unavailable")
    gateway.script = [reply(error=error, error_provider="")]
    client = (await make_bot()).converse()
    client.text("Go.")
    found = (await client.wait_for(lambda: client.events("error")))[0]
    assert (found.kind, found.code) == (voice_pb2.ERROR_KIND_GATEWAY, "control_flow_unavailable")


@pytest.mark.parametrize(
    ("model", "hinted"), [("openai/x", False), ("marina/verify:openai/x", True)]
)
async def test_hints_about_tools_go_to_control_flows_only(gateway, reply, model, hinted):
    gateway.script = [reply(text="Yes.")]
    declared = {
        "type": "function",
        "function": {"name": "f"},
        "annotations": {"readOnlyHint": True},
    }
    async with grpc.aio.insecure_channel(gateway.address) as channel:
        asked = GatewayModel(channel, gateway_pb2.CallContext(), voice_pb2.ModelConfig(model=model))
        await asked.complete([{"role": "user", "content": "Hello"}], [declared], ignore)
    sent = gateway.bodies[0]["tools"][0]
    assert sent["function"] == {"name": "f"}
    assert ("annotations" in sent) is hinted


async def ignore(words):
    pass


async def test_a_stream_without_its_metadata_is_an_error(gateway, make_bot, reply):
    gateway.script = [reply(text="Half of", metadata=False)]
    client = (await make_bot()).converse()
    client.text("Go.")
    found = (await client.wait_for(lambda: client.events("error")))[0]
    assert (found.kind, found.code) == (voice_pb2.ERROR_KIND_GATEWAY, "truncated_stream")
    assert len(gateway.bodies) == 1


@pytest.mark.parametrize("raw", [b"{", b"[]", b'{"choices": [{"delta": {"content": 5}}]}'])
async def test_a_chunk_that_cannot_be_read_is_an_error(gateway, make_bot, reply, raw):
    gateway.script = [reply(raw=raw)]
    client = (await make_bot()).converse()
    client.text("Go.")
    found = (await client.wait_for(lambda: client.events("error")))[0]
    assert (found.kind, found.code) == (voice_pb2.ERROR_KIND_GATEWAY, "malformed_chunk")


async def test_unavailable_is_tried_again_before_the_first_chunk(gateway, make_bot, reply):
    unavailable = (grpc.StatusCode.UNAVAILABLE, PROVIDER, "overloaded")
    gateway.script = [reply(error=unavailable), reply(error=unavailable), reply(text="Here.")]
    client = (await make_bot()).converse()
    client.text("Go.")
    await client.wait_for(lambda: client.events("speech_stopped"))
    assert len(gateway.bodies) == 3
    assert not client.events("error")


async def test_a_started_stream_is_not_tried_again(gateway, make_bot, reply):
    unavailable = (grpc.StatusCode.UNAVAILABLE, PROVIDER, "overloaded")
    gateway.script = [reply(text="Well", error=unavailable, error_after_chunks=True)]
    client = (await make_bot()).converse()
    client.text("Go.")
    found = (await client.wait_for(lambda: client.events("error")))[0]
    assert (found.kind, found.code) == (voice_pb2.ERROR_KIND_GATEWAY, "overloaded")
    assert len(gateway.bodies) == 1


async def test_a_slow_model_is_given_up(gateway, make_bot, reply):
    gateway.script = [reply(text="Late.", wait=asyncio.Event())]
    client = (await make_bot()).converse(
        model=voice_pb2.ModelConfig(model="m", timeout_seconds=0.3)
    )
    client.text("Go.")
    found = (await client.wait_for(lambda: client.events("error")))[0]
    assert (found.kind, found.code) == (voice_pb2.ERROR_KIND_GATEWAY, "deadline_exceeded")


async def test_parameters_reach_the_body(gateway, make_bot, reply):
    gateway.script = [reply(text="Yes.")]
    client = (await make_bot()).converse(
        model=voice_pb2.ModelConfig(
            model="m", parameters_json='{"temperature": 0, "reasoning_effort": "high"}'
        )
    )
    client.text("Go.")
    await client.wait_for(lambda: client.events("speech_stopped"))
    body = gateway.bodies[0]
    assert (body["model"], body["temperature"], body["reasoning_effort"]) == ("m", 0, "high")
    assert body["stream"] is True


async def test_a_faulty_tool_is_an_internal_error(gateway, make_bot, reply):
    gateway.script = [reply(calls=[("c", "broken", "{}")])]
    client = (await make_bot()).converse()
    client.text("Go.")
    found = (await client.wait_for(lambda: client.events("error")))[0]
    assert (found.kind, found.fatal) == (voice_pb2.ERROR_KIND_INTERNAL, True)
    assert "a fault of the tool" not in found.message
    await client.finish()


async def test_finish_waits_for_a_running_tool(gateway, make_bot, reply):
    gateway.script = [reply(calls=[("c", "slow", "{}")]), reply(text="Never said.")]
    bot = await make_bot()
    client = bot.converse()
    client.text("Go.")
    await client.wait_for(lambda: client.events("tool_call"))
    await bot.tools[0].slow_started.wait()
    client.send(finish=voice_pb2.Finish())
    await asyncio.sleep(0.1)
    bot.tools[0].release.set()
    await client.ended()
    assert client.responses[-1].summary.db_hash == "hash-1"
    assert len(gateway.bodies) == 1
    history = json.loads(client.responses[-1].summary.context_history_json)
    assert history[-1]["role"] == "tool"


async def test_finish_does_not_wait_for_ever(gateway, make_bot, reply):
    gateway.script = [reply(calls=[("c", "slow", "{}")])]
    bot = await make_bot()
    client = bot.converse()
    client.text("Go.")
    await client.wait_for(lambda: client.events("tool_call"))
    await bot.tools[0].slow_started.wait()
    summary = await client.finish()
    assert summary.db_hash == "hash-0"


async def test_finish_in_the_middle_of_a_model_call(gateway, make_bot, reply):
    gateway.script = [reply(text="Never.", wait=asyncio.Event())]
    client = (await make_bot()).converse()
    client.text("Go.")
    await client.wait_for(lambda: client.events("activity"))
    await client.finish()
    states = [event.state for event in client.events("activity")]
    assert states == [voice_pb2.ACTIVITY_STATE_STARTED, voice_pb2.ACTIVITY_STATE_STOPPED]


async def test_sessions_are_isolated(gateway, make_bot, reply):
    def choose(context, body):
        if body["messages"][-1]["role"] == "tool":
            return reply(text=f"For {context.session_id}.")
        return reply(calls=[("c", "add", json.dumps({"n": int(context.session_id[1:])}))])

    gateway.choose = choose
    bot = await make_bot()
    clients = [bot.converse(prompt=f"Prompt {index}") for index in range(4)]
    for client in clients:
        client.text("Go.")
    for client in clients:
        await client.wait_for(lambda client=client: client.events("speech_stopped"))
    for index, client in enumerate(clients):
        summary = await client.finish()
        assert summary.db_hash == f"hash-{index + 1}"
        assert json.loads(summary.context_history_json)[0]["content"] == f"Prompt {index}"
        assert client.events("utterance_said")[0].text == f"For s{index + 1}."


def test_text_needs_no_speech_and_no_pipecat():
    code = (
        "import sys, tau2eval_voice.servicer, tau2eval_voice.bot, tau2eval_voice.text_session\n"
        "heavy = {'pipecat', 'onnxruntime', 'faster_whisper', 'hibari', 'openai'}\n"
        "loaded = heavy & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
