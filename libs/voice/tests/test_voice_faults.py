"""Faults of speech and of the pipeline, with back ends that load no model."""

from __future__ import annotations

import asyncio
import json

import pytest

from tau2eval.voice.v1 import voice_pb2
from tau2eval_voice.speech import Pcm, SpeechRuntime, SpeechSettings, Transcript

VOICE = {"modality": voice_pb2.MODALITY_VOICE}


class Synthesizer:
    """A tone of 0.05 s a character; fails at a word."""

    voices = ("agent", "caller")

    def synthesize(self, text: str, voice: str) -> Pcm:
        if "unspeakable" in text:
            raise RuntimeError("no such sound")
        return Pcm(b"\x00\x20\x00\xe0" * (len(text) * 600), 24_000)


class Recognizer:
    def transcribe(self, pcm: bytes, sample_rate_hz: int) -> Transcript:
        return Transcript("words", len(pcm) / 2 / sample_rate_hz)


@pytest.fixture
def make_voice_bot(make_bot):
    async def make(**settings):
        from tau2eval_voice.session import TurnSettings
        from tau2eval_voice.speech_provider import LocalSpeech
        from tau2eval_voice.voice_stack import VoiceStack

        bot = await make_bot(**settings)
        speech = LocalSpeech(
            SpeechSettings(),
            lambda chosen: SpeechRuntime(
                chosen,
                recognizer_factory=lambda name, s: Recognizer(),
                synthesizer_factory=lambda name, s: Synthesizer(),
            ),
        )
        bot.bot._voice = VoiceStack(TurnSettings(), speech)
        return bot

    return make


async def test_a_fault_of_the_synthesizer_is_a_speech_error(gateway, make_voice_bot, reply):
    gateway.script = [reply(text="This is unspeakable.")]
    client = (await make_voice_bot()).converse(**VOICE)
    await client.ready()
    client.send(cue=voice_pb2.Cue())
    async with client.silence():
        error = (await client.wait_for(lambda: client.events("error")))[0]
        client.send(cue=voice_pb2.Cue())
        await asyncio.sleep(0.2)
        await client.finish()
    assert (error.kind, error.fatal) == (voice_pb2.ERROR_KIND_SPEECH, True)
    assert error.code == "synthesis"
    assert len(client.events("error")) == 1
    assert len(gateway.bodies) == 1


async def test_words_are_played_in_step_and_the_exit_follows(gateway, make_voice_bot, reply):
    gateway.script = [reply(text="Goodbye then.", calls=[("c", "end_conversation", "{}")])]
    client = (await make_voice_bot()).converse(**VOICE)
    await client.ready()
    client.send(cue=voice_pb2.Cue())
    async with client.silence():
        await client.wait_for(lambda: client.events("exit"))
        summary = await client.finish()
    sent = [r.audio for r in client.responses if r.WhichOneof("message") == "audio"]
    seconds = sum(len(chunk.pcm) / 2 / chunk.sample_rate_hz for chunk in sent)
    assert seconds == pytest.approx(len("Goodbye then.") * 0.05, abs=0.1)
    kinds = client.kinds()
    assert kinds.index("exit") > max(i for i, kind in enumerate(kinds) if kind == "audio")
    assert json.loads(summary.context_history_json)[2]["content"] == "Goodbye then."


async def test_a_model_that_fails_after_words_still_says_them(gateway, make_voice_bot, reply):
    gateway.script = [reply(text="Half of it.", metadata=False)]
    client = (await make_voice_bot()).converse(**VOICE)
    await client.ready()
    client.send(cue=voice_pb2.Cue())
    async with client.silence():
        await client.wait_for(lambda: client.events("speech_stopped"))
        await client.finish()
    assert client.events("error")[0].code == "truncated_stream"
    assert client.events("utterance_said")[0].text == "Half of it."


async def test_a_pipeline_that_ends_by_itself_is_an_internal_error(make_voice_bot):
    bot = await make_voice_bot()
    sessions = []
    build = bot.bot.session

    async def keep(setup):
        built = await build(setup)
        sessions.append(built[0])
        return built

    bot.bot.session = keep
    client = bot.converse(**VOICE)
    await client.ready()
    await sessions[0]._worker.cancel()
    await client.ended()
    assert client.error is not None
    error = client.events("error")[0]
    assert (error.kind, error.fatal) == (voice_pb2.ERROR_KIND_INTERNAL, True)
    await bot.released()


async def test_text_in_a_voice_session_is_refused(make_voice_bot):
    client = (await make_voice_bot()).converse(**VOICE)
    await client.ready()
    client.text("Hello?")
    await client.ended()
    assert "text" in client.error.details()


async def test_input_at_another_rate(gateway, make_voice_bot, reply):
    gateway.script = [reply(text="Hi.")]
    client = (await make_voice_bot()).converse(**VOICE)
    await client.ready()
    client.send(cue=voice_pb2.Cue())
    for index in range(100):
        client.send(
            audio=voice_pb2.Audio(
                sequence=index,
                media_time_seconds=index * 0.02,
                pcm=bytes(1920),
                sample_rate_hz=48_000,
            )
        )
        await asyncio.sleep(0.01)
    await client.wait_for(lambda: client.events("speech_stopped"))
    assert not client.events("error")
