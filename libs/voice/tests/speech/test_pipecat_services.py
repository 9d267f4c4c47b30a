import asyncio

import pytest
from pipecat.frames.frames import (
    ErrorFrame,
    InputAudioRawFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    STTMetadataFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
    TTSTextFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.worker import PipelineParams
from pipecat.tests.utils import SleepFrame, run_test

from tau2eval_voice.speech import Pcm, SpeechError, SpeechRuntime, SpeechSettings, Transcript
from tau2eval_voice.speech.pipecat_stt import INAUDIBLE, LocalSTTService
from tau2eval_voice.speech.pipecat_tts import LocalTTSService

RATE = 16_000
PARAMS = PipelineParams(audio_in_sample_rate=RATE, audio_out_sample_rate=RATE)


class FakeSynthesizer:
    voices = ("agent", "caller")

    def __init__(self):
        self.calls = []

    def synthesize(self, text, voice):
        self.calls.append((text, voice))
        if "boom" in text:
            raise ValueError("no voice today")
        return Pcm(b"\x00\x40" * 24_000, 24_000)


class FakeRecognizer:
    def __init__(self):
        self.text = "hello"
        self.lengths = []

    def transcribe(self, pcm, sample_rate_hz):
        self.lengths.append(len(pcm) / 2 / sample_rate_hz)
        if self.text == "boom":
            raise ValueError("no ears today")
        return Transcript(self.text, self.lengths[-1])


@pytest.fixture
def recognizer():
    return FakeRecognizer()


@pytest.fixture
def synthesizer():
    return FakeSynthesizer()


@pytest.fixture
async def runtime(recognizer, synthesizer):
    async with SpeechRuntime(
        SpeechSettings(voice="caller"),
        recognizer_factory=lambda name, settings: recognizer,
        synthesizer_factory=lambda name, settings: synthesizer,
    ) as runtime:
        yield runtime


async def say(service, *texts):
    frames = [LLMFullResponseStartFrame(), *(LLMTextFrame(text) for text in texts)]
    frames += [LLMFullResponseEndFrame(), SleepFrame(0.3)]
    return await run_test(service, frames_to_send=frames, pipeline_params=PARAMS)


async def test_speaks_the_spoken_form_and_keeps_the_models_words(runtime, synthesizer):
    reports = []
    service = LocalTTSService(runtime, on_spoken=lambda *report: reports.append(report))
    down, up = await say(service, "Your code is 4WQ150. ", "It costs $5.")
    spoken = ["Your code is: four, W, Q, one, five, zero.", "It costs five dollars."]
    words = [frame.text.strip() for frame in down if isinstance(frame, TTSTextFrame)]
    assert words == ["Your code is 4WQ150.", "It costs $5."]
    assert synthesizer.calls == [(text, "caller") for text in spoken]
    assert [(text.strip(), form) for text, form in reports] == list(zip(words, spoken, strict=True))
    audio = [frame for frame in down if isinstance(frame, TTSAudioRawFrame)]
    assert all(frame.sample_rate == RATE for frame in audio)
    seconds = sum(len(frame.audio) for frame in audio) / 2 / RATE
    assert seconds == pytest.approx(2.0, abs=0.01)
    assert any(isinstance(frame, TTSStoppedFrame) for frame in down)
    assert not any(isinstance(frame, ErrorFrame) for frame in up)


async def test_an_utterance_without_a_word_still_starts_and_ends(runtime, synthesizer):
    down, up = await say(LocalTTSService(runtime, voice="agent"), "👍")
    audio = [frame for frame in down if isinstance(frame, TTSAudioRawFrame)]
    assert len(audio) == 1
    assert not any(audio[0].audio)
    assert synthesizer.calls == []
    assert not any(isinstance(frame, ErrorFrame) for frame in up)


async def test_a_fault_of_the_synthesiser_is_an_error_frame(runtime):
    down, up = await say(LocalTTSService(runtime), "boom.")
    errors = [frame for frame in up if isinstance(frame, ErrorFrame)]
    assert isinstance(errors[0].exception, SpeechError)
    assert errors[0].exception.kind == "synthesis"
    assert len(errors) == 1
    # The turn ends at once, with a moment of silence.
    assert not any(any(frame.audio) for frame in down if isinstance(frame, TTSAudioRawFrame))
    assert any(isinstance(frame, TTSStoppedFrame) for frame in down)


def segment(speech_seconds):
    """Half a second of silence, speech, and the silence that ends it, as the detector sees it."""

    def audio(seconds):
        return InputAudioRawFrame(bytes(int(seconds * RATE) * 2), RATE, 1)

    return [
        audio(0.5),
        audio(0.2),
        VADUserStartedSpeakingFrame(start_secs=0.2),
        audio(speech_seconds - 0.2),
        audio(0.8),
        VADUserStoppedSpeakingFrame(stop_secs=0.8),
    ]


async def hear(service, *seconds):
    frames = [frame for length in seconds for frame in segment(length)]
    down, up = await run_test(
        service, frames_to_send=[*frames, SleepFrame(0.3)], pipeline_params=PARAMS
    )
    return [f for f in down if isinstance(f, TranscriptionFrame)], down, up


async def test_segments_become_transcripts(runtime, recognizer):
    recognizer.text = "It is D-A-I-K-I underscore L-I underscore 1116."
    reports = []

    async def on_heard(*report):
        await asyncio.sleep(0)
        reports.append(report)

    transcripts, down, _ = await hear(LocalSTTService(runtime, on_heard=on_heard), 2.0)
    assert [frame.text for frame in transcripts] == ["It is daiki_li_1116."]
    assert transcripts[0].finalized
    [(text, seconds, latency)] = reports
    assert text == "It is daiki_li_1116."
    assert seconds == pytest.approx(2.0, abs=0.01)
    assert latency >= 0
    # Silence before, speech, the detector's silence, and what Pipecat appends.
    assert recognizer.lengths == [pytest.approx(0.5 + 2.0 + 0.8 + 0.5, abs=0.01)]
    [metadata] = [frame for frame in down if isinstance(frame, STTMetadataFrame)][:1]
    assert metadata.ttfs_p99_latency == 1.5


async def test_speech_without_words_is_inaudible_and_noise_is_nothing(runtime, recognizer):
    recognizer.text = ""
    transcripts, _, _ = await hear(LocalSTTService(runtime), 1.0, 0.21)
    assert [frame.text for frame in transcripts] == [INAUDIBLE]


async def test_a_fault_of_the_recogniser_is_an_error_frame_and_the_call_goes_on(
    runtime, recognizer
):
    recognizer.text = "boom"
    transcripts, _, up = await hear(LocalSTTService(runtime), 1.0)
    errors = [frame for frame in up if isinstance(frame, ErrorFrame)]
    assert isinstance(errors[0].exception, SpeechError)
    assert errors[0].exception.kind == "recognition"
    assert [frame.text for frame in transcripts] == [INAUDIBLE]
