"""The transport in a real pipeline without speech: output follows the media time received."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from pipecat.frames.frames import (
    AggregatedTextFrame,
    InterruptionFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.workers.runner import WorkerRunner

from tau2eval.voice.v1 import voice_pb2
from tau2eval_common.errors import InvalidInput
from tau2eval_voice.frames import UtteranceEndFrame, UtteranceStartFrame
from tau2eval_voice.grpc_transport import GrpcTransport
from tau2eval_voice.media_clock import MediaClock
from tau2eval_voice.outbox import Outbox
from tau2eval_voice.playout import Playout
from tau2eval_voice.utterances import Utterance

RATE = 24_000


class Listener(FrameProcessor):
    """Keeps the audio that comes out of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = b""

    async def process_frame(self, frame, direction):
        await super().process_frame(frame, direction)
        if hasattr(frame, "audio") and not isinstance(frame, TTSAudioRawFrame):
            self.heard += frame.audio
        else:
            await self.push_frame(frame, direction)


class Line:
    def __init__(self) -> None:
        self.clock = MediaClock()
        self.outbox = Outbox(self.clock)
        self.cuts: list[str] = []
        self.playout = Playout(self.outbox, lambda u, played: self.cuts.append(played))
        self.transport = GrpcTransport(
            clock=self.clock, outbox=self.outbox, playout=self.playout, output_rate_hz=RATE
        )
        self.listener = Listener()
        self.worker = PipelineWorker(
            Pipeline([self.transport.input(), self.listener, self.transport.output()]),
            params=PipelineParams(audio_in_sample_rate=16_000, audio_out_sample_rate=RATE),
            enable_rtvi=False,
            enable_turn_tracking=False,
            idle_timeout_secs=None,
        )
        self._sequence = 0
        self._fed = 0.0

    async def feed(self, seconds: float, rate: int = 16_000, pause: float = 0.002) -> None:
        """Receives silence in frames of 20 ms."""
        for _ in range(round(seconds / 0.02)):
            await self.transport.input().feed(
                voice_pb2.Audio(
                    sequence=self._sequence,
                    media_time_seconds=self._fed,
                    pcm=bytes(round(rate * 0.02) * 2),
                    sample_rate_hz=rate,
                )
            )
            self._sequence += 1
            self._fed += 0.02
            if pause:
                await asyncio.sleep(pause)

    async def say(self, text: str, seconds: float) -> Utterance:
        utterance = Utterance(text, written=text)
        self.playout.begin(utterance)
        announced = AggregatedTextFrame(text, "sentence")
        announced.will_be_spoken = True
        for frame in (
            UtteranceStartFrame(utterance=utterance),
            announced,
            TTSStartedFrame(context_id=text),
            TTSAudioRawFrame(b"\1\0" * round(RATE * seconds), RATE, 1),
            TTSStoppedFrame(context_id=text),
            UtteranceEndFrame(utterance=utterance),
        ):
            await self.worker.queue_frame(frame)
        return utterance

    async def sent(self) -> list[voice_pb2.ConverseResponse]:
        """Everything sent so far, once the pipeline has nothing more to send."""
        found: list[voice_pb2.ConverseResponse] = []
        quiet = 0
        while quiet < 5:
            await asyncio.sleep(0.02)
            quiet = 0 if self.outbox._queue.qsize() else quiet + 1
            while self.outbox._queue.qsize():
                found.append(self.outbox._queue.get_nowait())
        return found


@pytest.fixture
async def line():
    line = Line()
    started = asyncio.Event()

    async def on_started(worker, frame):
        started.set()

    line.worker.add_event_handler("on_pipeline_started", on_started)
    runner = WorkerRunner(handle_sigint=False, handle_sigterm=False)
    await runner.add_workers(line.worker)
    run = asyncio.create_task(runner.run())
    await asyncio.wait_for(started.wait(), 20)
    yield line
    await line.worker.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.wait_for(run, 10)


def audio_of(sent):
    return [response.audio for response in sent if response.WhichOneof("message") == "audio"]


def events_of(sent):
    return [
        response.event.WhichOneof("event")
        for response in sent
        if response.WhichOneof("message") == "event"
    ]


async def test_output_does_not_run_ahead_of_the_input(line):
    await line.feed(1.0)
    await line.say("One two three.", 1.0)
    first = audio_of(await line.sent())
    # Nothing but the lead of 40 ms: chunks for 1.00, 1.02 and 1.04.
    assert [chunk.media_time_seconds for chunk in first] == pytest.approx([1.0, 1.02, 1.04])
    await line.feed(0.2)
    more = audio_of(await line.sent())
    assert len(more) == 10
    newest = more[-1].media_time_seconds
    assert newest == pytest.approx(1.24)
    await line.feed(5.0)
    sent = await line.sent()
    rest = audio_of(sent)
    chunks = first + more + rest
    assert sum(len(chunk.pcm) for chunk in chunks) == RATE * 2
    assert [chunk.sequence for chunk in chunks] == list(range(len(chunks)))
    assert {chunk.sample_rate_hz for chunk in chunks} == {RATE}
    assert events_of(sent) == ["utterance_said", "speech_stopped"]


async def test_no_input_no_output(line):
    await line.feed(0.5)
    await line.say("One.", 0.5)
    await line.sent()
    assert audio_of(await line.sent()) == []


async def test_after_a_pause_output_starts_at_the_time_received(line):
    await line.feed(0.1)
    await line.say("One.", 0.1)
    await line.feed(3.0)
    await line.sent()
    await line.say("Two.", 0.1)
    chunks = audio_of(await line.sent())
    assert chunks[0].media_time_seconds == pytest.approx(3.1)


async def test_a_short_hold_up_leaves_no_gap(line):
    await line.feed(1.0)
    await line.say("One two three.", 1.0)
    await line.sent()
    await line.feed(0.2, pause=0)  # Ten frames at once.
    chunks = audio_of(await line.sent())
    assert [chunk.media_time_seconds for chunk in chunks] == pytest.approx(
        [1.06 + 0.02 * index for index in range(10)]
    )


async def test_words_that_were_not_ready_go_on_at_the_time_received(line):
    await line.feed(1.0)
    await line.say("One two three.", 1.0)
    await line.sent()
    await line.feed(2.0, pause=0)
    chunks = audio_of(await line.sent())
    times = [chunk.media_time_seconds for chunk in chunks]
    assert times[0] == pytest.approx(1.06)  # It was waiting already.
    assert times[1:] == pytest.approx([3.0, 3.02, 3.04])


async def test_an_interruption_drops_what_is_queued(line):
    await line.feed(1.0)
    text = "one two three four five six seven eight nine ten"
    await line.say(text, 2.0)
    await line.sent()
    await line.feed(1.0)
    await line.sent()
    await line.worker.queue_frame(InterruptionFrame())
    sent = await line.sent()
    assert events_of(sent) == ["utterance_said", "speech_stopped", "interrupted"]
    said = sent[0].event.utterance_said
    assert said.interrupted
    assert f"{said.text} {said.unspoken}" == text
    assert 3 <= len(said.text.split()) <= 6
    assert line.cuts == [said.text]
    await line.feed(3.0)
    assert audio_of(await line.sent()) == []


async def test_speaking_goes_on_after_an_interruption(line):
    await line.feed(1.0)
    await line.say("One two three.", 2.0)
    await line.sent()
    await line.worker.queue_frame(InterruptionFrame())
    await line.sent()
    await line.feed(1.0)
    await line.say("Sorry.", 0.2)
    await line.feed(1.0)
    sent = await line.sent()
    assert events_of(sent) == ["speech_started", "utterance_said", "speech_stopped"]
    assert sum(len(chunk.pcm) for chunk in audio_of(sent)) == RATE * 2 * 0.2
    assert audio_of(sent)[0].media_time_seconds == pytest.approx(2.0, abs=0.1)


async def test_the_events_stand_around_the_audio(line):
    await line.feed(1.0)
    await line.say("One.", 0.1)
    await line.feed(1.0)
    sent = await line.sent()
    order = [response.WhichOneof("message") for response in sent]
    assert order[0] == "event"
    assert order[-2:] == ["event", "event"]
    assert set(order[1:-2]) == {"audio"}


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000, 48_000])
async def test_input_comes_at_one_rate(line, rate):
    await line.feed(2.0, rate=rate)
    await line.sent()
    seconds = len(line.listener.heard) / 2 / 16_000
    # A resampler keeps some milliseconds back.
    assert seconds == pytest.approx(2.0, abs=0.1)
    assert line.clock.now == pytest.approx(2.0)


async def test_impossible_audio_is_refused(line):
    with pytest.raises(InvalidInput):
        await line.transport.input().feed(voice_pb2.Audio(pcm=b"\0\0", sample_rate_hz=0))
    with pytest.raises(InvalidInput):
        await line.transport.input().feed(voice_pb2.Audio(pcm=b"\0", sample_rate_hz=16_000))


async def test_clock_never_goes_back():
    clock = MediaClock()
    clock.advance(2.0)
    clock.advance(1.0)
    assert clock.now == 2.0
    await asyncio.wait_for(clock.wait_until(2.0), 1)
    waiting = asyncio.create_task(clock.wait_until(3.0))
    await asyncio.sleep(0)
    clock.advance(2.9)
    await asyncio.sleep(0.01)
    assert not waiting.done()
    clock.advance(3.0)
    await asyncio.wait_for(waiting, 1)
