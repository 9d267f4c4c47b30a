import asyncio
import sys
import threading
import time

import pytest

from tau2eval_voice.speech import (
    Pcm,
    SpeechError,
    SpeechRuntime,
    SpeechSettings,
    SpeechSetupError,
    Transcript,
)
from tau2eval_voice.speech.runtime import split_for_synthesis


class FakeRecognizer:
    """Blocks until it is released, and keeps count."""

    def __init__(self):
        self.release = threading.Event()
        self.lock = threading.Lock()
        self.running = self.most = 0
        self.seen = []

    def transcribe(self, pcm, sample_rate_hz):
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
            self.seen.append(pcm)
        try:
            assert self.release.wait(10)
            if pcm == b"bad!":
                raise ValueError("broken audio")
        finally:
            with self.lock:
                self.running -= 1
        return Transcript(pcm.decode(), len(pcm) / 2 / sample_rate_hz)


class FakeSynthesizer:
    voices = ("agent",)

    def __init__(self):
        self.texts = []

    def synthesize(self, text, voice):
        self.texts.append(text)
        quiet, loud = b"\0\0" * 12_000, b"\x00\x40" * 2400
        return Pcm(quiet + loud + quiet, 24_000)


@pytest.fixture
def recognizer():
    return FakeRecognizer()


@pytest.fixture
def synthesizer():
    return FakeSynthesizer()


@pytest.fixture
async def runtime(recognizer, synthesizer):
    settings = SpeechSettings(recognizer_threads=2)
    runtime = SpeechRuntime(
        settings,
        recognizer_factory=lambda name, settings: recognizer,
        synthesizer_factory=lambda name, settings: synthesizer,
    )
    yield runtime
    recognizer.release.set()
    await runtime.aclose()


async def until(condition):
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("did not happen")


async def test_runs_no_more_than_its_threads_and_in_order(runtime, recognizer):
    jobs = [asyncio.ensure_future(runtime.transcribe(b"%04d" % i, 16_000)) for i in range(8)]
    await until(lambda: recognizer.running == 2)
    await asyncio.sleep(0.05)
    assert recognizer.most == 2
    recognizer.release.set()
    assert [(await job).text for job in jobs] == [f"{i:04d}" for i in range(8)]
    assert recognizer.most == 2
    assert sorted(recognizer.seen[:2]) == [b"0000", b"0001"]
    assert sorted(recognizer.seen) == [b"%04d" % i for i in range(8)]


async def test_cancelled_waiters_leave_no_slot_taken(runtime, recognizer):
    running = [asyncio.ensure_future(runtime.transcribe(b"run%d" % i, 16_000)) for i in range(2)]
    await until(lambda: recognizer.running == 2)
    waiting = [asyncio.ensure_future(runtime.transcribe(b"wait", 16_000)) for _ in range(5)]
    await asyncio.sleep(0)
    for task in (*waiting, running[0]):
        task.cancel()
    results = await asyncio.gather(*waiting, running[0], return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    recognizer.release.set()
    assert (await runtime.transcribe(b"next", 16_000)).text == "next"
    assert (await running[1]).text == "run1"
    assert b"wait" not in recognizer.seen
    both = await asyncio.gather(*(runtime.transcribe(b"more", 16_000) for _ in range(4)))
    assert [transcript.text for transcript in both] == ["more"] * 4


async def test_a_fault_becomes_a_speech_error_and_the_next_job_works(runtime, recognizer):
    recognizer.release.set()
    with pytest.raises(SpeechError, match="broken audio") as caught:
        await runtime.transcribe(b"bad!", 16_000)
    assert caught.value.kind == "recognition"
    assert caught.value.backend == "faster-whisper"
    assert (await runtime.transcribe(b"fine", 16_000)).text == "fine"


async def test_a_job_that_takes_too_long_times_out(recognizer, synthesizer):
    runtime = SpeechRuntime(
        SpeechSettings(job_timeout_seconds=0.05),
        recognizer_factory=lambda name, settings: recognizer,
        synthesizer_factory=lambda name, settings: synthesizer,
    )
    with pytest.raises(SpeechError) as caught:
        await runtime.transcribe(b"slow", 16_000)
    assert caught.value.kind == "timeout"
    recognizer.release.set()
    await runtime.aclose()


async def test_closing_ends_waiting_jobs_and_refuses_new_ones(runtime, recognizer):
    jobs = [asyncio.ensure_future(runtime.transcribe(b"%04d" % i, 16_000)) for i in range(4)]
    await until(lambda: recognizer.running == 2)
    runtime.close(wait=False)
    recognizer.release.set()
    results = await asyncio.gather(*jobs, return_exceptions=True)
    kinds = [result.kind for result in results if isinstance(result, SpeechError)]
    assert kinds == ["closed"] * 2
    with pytest.raises(SpeechError) as caught:
        await runtime.transcribe(b"late", 16_000)
    assert caught.value.kind == "closed"


async def test_back_ends_are_created_once_and_setup_faults_are_kept():
    created = []

    def create(name, settings):
        created.append(name)
        time.sleep(0.02)
        raise SpeechSetupError("no model", backend=name)

    runtime = SpeechRuntime(SpeechSettings(), recognizer_factory=create, synthesizer_factory=create)
    for _ in range(2):
        with pytest.raises(SpeechSetupError):
            await runtime.transcribe(b"", 16_000)
    with pytest.raises(SpeechSetupError):
        await runtime.warm_up()
    await runtime.aclose()
    assert created.count("faster-whisper") == 1


async def test_synthesis_is_split_trimmed_and_resampled(runtime, synthesizer):
    text = "This is a sentence of some length. " * 30
    pcm = await runtime.synthesize(text, sample_rate_hz=16_000)
    assert pcm.sample_rate_hz == 16_000
    assert all(len(part) <= runtime.settings.max_characters for part in synthesizer.texts)
    assert all(part.endswith(".") for part in synthesizer.texts)
    # 0.1 s of sound and 0.1 s of silence at each end, from 1.1 s.
    assert pcm.seconds == pytest.approx(0.3 * len(synthesizer.texts), rel=0.05)
    assert (await runtime.synthesize("...")).samples == b""


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a niceness of their own there")
async def test_workers_have_a_lower_priority(recognizer, synthesizer):
    import os

    def create(name, settings):
        niceness.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return synthesizer

    niceness = []
    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    runtime = SpeechRuntime(SpeechSettings(), synthesizer_factory=create)
    await runtime.voices()
    await runtime.aclose()
    assert niceness == [min(19, before + 5)]
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before


def test_splitting_keeps_all_words():
    text = "word " * 50 + "end. " + "clause, " * 30 + "x" * 130
    parts = split_for_synthesis(text, 60)
    assert all(len(part) <= 60 for part in parts)
    assert "".join(parts).replace(" ", "") == text.replace(" ", "")
