"""Voice sessions with the real speech models and real audio, in real time. Few and short."""

from __future__ import annotations

import asyncio
import gc
import json
import threading

import pytest

from tau2eval.voice.v1 import voice_pb2
from tau2eval_voice.speech import SpeechRuntime, SpeechSettings

pytestmark = pytest.mark.voice
VOICE = {"modality": voice_pb2.MODALITY_VOICE}


@pytest.fixture(scope="module")
def caller():
    """What a caller says, as audio at 16 kHz."""

    async def synthesize():
        async with SpeechRuntime(SpeechSettings(voice="caller")) as runtime:
            return {
                text: (await runtime.synthesize(text, sample_rate_hz=16_000)).samples
                for text in (
                    "Hello, I would like to change my flight to New York.",
                    "Sorry, wait a moment please, that is not right.",
                    "Yes.",
                )
            }

    return asyncio.run(synthesize())


async def test_a_conversation_with_tools_and_an_end(gateway, make_bot, reply, caller):
    gateway.script = [
        reply(text="Good morning. How can I help you?"),
        reply(text="One moment.", calls=[("c", "add", "{}")]),
        reply(text="Goodbye.", calls=[("d", "end_conversation", "{}")]),
    ]
    client = (await make_bot()).converse(**VOICE)
    ready = await client.ready()
    assert ready.speech == voice_pb2.SpeechConfig(
        recognizer="faster-whisper", synthesizer="hibari", voice="agent"
    )
    client.send(cue=voice_pb2.Cue())
    async with client.silence():
        await client.wait_for(lambda: client.events("speech_stopped"))
    await client.speak(caller["Hello, I would like to change my flight to New York."])
    async with client.silence():
        await client.wait_for(lambda: client.events("exit"))
    summary = await client.finish()

    heard = client.events("transcript_heard")
    assert len(heard) == 1
    assert "change my flight to new york" in heard[0].text.lower()
    assert [event.text for event in client.events("utterance_said")] == [
        "Good morning. How can I help you?", "One moment.", "Goodbye.",
    ]  # fmt: skip
    assert all(event.spoken_form for event in client.events("utterance_said"))
    history = json.loads(summary.context_history_json)
    assert [m["role"] for m in history] == [
        "system", "user", "assistant", "user", "assistant", "tool", "assistant", "tool",
    ]  # fmt: skip
    assert history[0]["content"] == "The prompt."
    assert history[3]["content"] == heard[0].text
    assert history[4]["content"] == "One moment."
    assert summary.db_hash == "hash-1"
    kinds = client.kinds()
    assert kinds.index("exit") > max(i for i, kind in enumerate(kinds) if kind == "audio")
    assert not client.events("interrupted")
    # Each stage that began also ended.
    open_jobs: dict[str, int] = {}
    for event in client.events("activity"):
        step = 1 if event.state == voice_pb2.ACTIVITY_STATE_STARTED else -1
        open_jobs[event.stage] = open_jobs.get(event.stage, 0) + step
    assert open_jobs == {"llm": 0, "tts": 0, "stt": 0, "tool": 0}
    stages = {event.stage for event in client.events("stage_latency")}
    assert stages == {"stt", "llm_first_token", "llm", "tool", "tts_first_audio"}
    # Output never ran ahead of the input that had been received, and is gapless in an utterance.
    audio = [r.audio for r in client.responses if r.WhichOneof("message") == "audio"]
    times = [chunk.media_time_seconds for chunk in audio]
    assert times == sorted(times)
    assert times[-1] <= client.media_seconds + 0.04 + 1e-6


async def test_barge_in_leaves_only_the_words_played(gateway, make_bot, reply, caller):
    long_text = (
        "I have found your reservation. It has three passengers, two checked bags, and travel "
        "insurance. The first flight leaves on Monday morning at eight. The second flight leaves "
        "in the afternoon. Would you like me to change both of them now?"
    )
    gateway.script = [reply(text=long_text), reply(text="Sorry.")]
    client = (await make_bot()).converse(**VOICE)
    await client.ready()
    client.send(cue=voice_pb2.Cue())
    async with client.silence():
        await client.wait_for(lambda: client.events("speech_started"))
    await client.speak(b"", 1.5)
    # A short word does not cut the bot off, and is not lost.
    await client.speak(caller["Yes."], 2.0)
    assert not client.events("interrupted")
    await client.speak(caller["Sorry, wait a moment please, that is not right."])
    async with client.silence():
        await client.wait_for(lambda: len(client.events("speech_stopped")) == 2)
    summary = await client.finish()
    first = client.events("utterance_said")[0]
    assert first.interrupted
    assert long_text == f"{first.text} {first.unspoken}"
    assert first.text.startswith("I have found your reservation.")
    assert not first.text.endswith("now?")
    assert len(client.events("interrupted")) == 1
    history = json.loads(summary.context_history_json)
    assert history[2]["content"] == first.text
    assert "yes" in history[3]["content"].lower()
    assert "not right" in history[3]["content"].lower()
    assert history[4]["content"] == "Sorry."


async def test_barge_in_while_a_control_flow_thinks_cancels_its_call(
    gateway, make_bot, reply, caller
):
    thinking = asyncio.Event()
    gateway.script = [reply(text="Never said.", wait=thinking), reply(text="All right.")]
    model = voice_pb2.ModelConfig(model="marina/verify:openai/x")
    client = (await make_bot()).converse(model=model, **VOICE)
    await client.ready()
    await client.speak(caller["Hello, I would like to change my flight to New York."])
    async with client.silence():
        await client.wait_for(lambda: any(e.stage == "llm" for e in client.events("activity")))
        async with asyncio.timeout(10):
            while not gateway.bodies:
                await asyncio.sleep(0.01)
    await client.speak(caller["Sorry, wait a moment please, that is not right."])
    async with client.silence():
        await client.wait_for(lambda: client.events("speech_stopped"))
    summary = await client.finish()
    assert gateway.cancelled.is_set()
    assert gateway.streamed == [False, False]
    assert [event.text for event in client.events("utterance_said")] == ["All right."]
    history = json.loads(summary.context_history_json)
    assert "new york" in history[1]["content"].lower()
    assert "not right" in " ".join(m["content"] for m in history[1:-1]).lower()
    assert len(summary.usage) == 1


async def test_finish_while_speaking(gateway, make_bot, reply):
    gateway.script = [reply(text="This is a rather long sentence that will never come to an end.")]
    client = (await make_bot()).converse(**VOICE)
    await client.ready()
    client.send(cue=voice_pb2.Cue())
    async with client.silence():
        await client.wait_for(lambda: client.events("speech_started"))
        await asyncio.sleep(1.0)
        summary = await client.finish()
    said = client.events("utterance_said")[0]
    assert not said.interrupted  # Nobody spoke; the call is over.
    assert not client.events("interrupted")
    assert said.unspoken
    history = json.loads(summary.context_history_json)
    assert history[-1]["content"] == said.text
    assert client.kinds()[-1] == "summary"


async def test_two_sessions_do_not_hear_each_other(gateway, make_bot, reply, caller):
    gateway.choose = lambda context, body: reply(text=f"I am {context.session_id}.")
    bot = await make_bot()
    speaking, silent = bot.converse(**VOICE), bot.converse(**VOICE)
    await speaking.ready()
    await silent.ready()
    async with silent.silence():
        await speaking.speak(caller["Hello, I would like to change my flight to New York."])
        async with speaking.silence():
            await speaking.wait_for(lambda: speaking.events("speech_stopped"))
        await silent.finish()
    await speaking.finish()
    assert not silent.events("transcript_heard")
    assert not silent.events("utterance_said")
    assert len(gateway.bodies) == 1


async def test_unknown_back_ends_are_refused(make_bot):
    bot = await make_bot()
    for config in (
        voice_pb2.SpeechConfig(recognizer="nobody"),
        voice_pb2.SpeechConfig(synthesizer="nobody"),
        voice_pb2.SpeechConfig(voice="nobody"),
    ):
        client = bot.converse(speech=config, **VOICE)
        await client.ended(60)
        assert "nobody" in client.error.details()
    assert bot.service.servicer.active_sessions == 0


async def test_voice_sessions_leave_no_tasks_and_threads(gateway, make_bot, reply):
    gateway.script = [reply(text="Hello there.")]
    gateway.repeat = True
    bot = await make_bot(max_sessions=30)

    async def one(index: int) -> None:
        client = bot.converse(**VOICE)
        await client.ready()
        client.send(cue=voice_pb2.Cue())
        for _ in range(10):
            client.audio(bytes(640))
            await asyncio.sleep(0.01)
        if index % 2:
            await client.finish()
        else:
            await client.cancel()

    await one(1)
    await bot.released()
    tasks, threads = len(asyncio.all_tasks()), threading.active_count()
    await asyncio.gather(*(one(index) for index in range(20)))
    await bot.released()
    async with asyncio.timeout(15):
        while len(asyncio.all_tasks()) > tasks:
            gc.collect()
            await asyncio.sleep(0.05)
    assert threading.active_count() <= threads + 2
