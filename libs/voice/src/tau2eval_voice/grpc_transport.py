"""Pipecat transport over one Converse stream.

Input is what the bridge sends. Output is locked to it: a chunk for media time t goes out when input
up to t, less a small lead, has come in. So a bot neither paces on a wall clock nor runs ahead, and
an interruption needs no message to the bridge: at most the lead is on its way.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import soxr
from pipecat.frames.frames import (
    AggregatedTextFrame,
    Frame,
    InputAudioRawFrame,
    InterruptionFrame,
    OutputAudioRawFrame,
    StartFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
)
from pipecat.processors.frame_processor import FrameDirection
from pipecat.transports.base_input import BaseInputTransport
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import BaseTransport, TransportParams

from tau2eval.voice.v1 import voice_pb2
from tau2eval_common.errors import InvalidInput
from tau2eval_voice.frames import UtteranceEndFrame, UtteranceStartFrame
from tau2eval_voice.media_clock import MediaClock
from tau2eval_voice.outbox import Outbox
from tau2eval_voice.playout import Playout
from tau2eval_voice.utterances import Segment, Utterance

logger = logging.getLogger(__name__)

PIPELINE_RATE_HZ = 16_000
"""Rate of the input inside the pipeline, in hertz."""

LEAD_SECONDS = 0.04
"""How far output may run ahead of the input received."""

CATCH_UP_SECONDS = 0.2
"""How far speech may fall behind the input and still go on without a gap.

When this process is held up for a moment, the chunks that became due go out at once and stay
contiguous. Beyond this the words were not ready in time, and go on at the time received.
"""

CHUNK_10MS = 2
"""Length of an output chunk in units of 10 ms."""

_WRITE_TIMEOUT_SECONDS = 3600.0
_MIN_RATE_HZ, _MAX_RATE_HZ = 8_000, 48_000
_EPSILON = 1e-6


class GrpcInputTransport(BaseInputTransport):
    """Feeds the bridge's audio into the pipeline at one rate."""

    def __init__(self, params: TransportParams, clock: MediaClock, **kwargs: Any) -> None:
        super().__init__(params, **kwargs)
        self._media_clock = clock
        self._from_wire: Any = None
        self._wire_rate_hz = 0
        self._ready = False

    async def start(self, frame: StartFrame) -> None:
        """Gets ready to take audio."""
        await super().start(frame)
        await self.set_transport_ready(frame)
        self._ready = True

    async def feed(self, audio: voice_pb2.Audio) -> None:
        """Takes a frame of the stream.

        Raises:
            InvalidInput: It declares no possible rate, or half a sample.
        """
        if not _MIN_RATE_HZ <= audio.sample_rate_hz <= _MAX_RATE_HZ or len(audio.pcm) % 2:
            raise InvalidInput(
                f"Audio {audio.sequence}: {len(audio.pcm)} bytes at {audio.sample_rate_hz} Hz; "
                f"whole 16-bit samples at {_MIN_RATE_HZ} to {_MAX_RATE_HZ} Hz are expected"
            )
        seconds = len(audio.pcm) / 2 / audio.sample_rate_hz
        if self._ready:
            pcm = self._at_pipeline_rate(audio.pcm, audio.sample_rate_hz)
            if pcm:
                await self.push_audio_frame(
                    InputAudioRawFrame(audio=pcm, sample_rate=PIPELINE_RATE_HZ, num_channels=1)
                )
        # Time moves on after the audio is in, so that what waits for it finds the audio there.
        self._media_clock.advance(audio.media_time_seconds + seconds)

    def _at_pipeline_rate(self, pcm: bytes, rate_hz: int) -> bytes:
        if rate_hz == PIPELINE_RATE_HZ:
            self._from_wire = None
            return pcm
        if self._from_wire is None or rate_hz != self._wire_rate_hz:
            # Good enough for recognition, and holds back less than better filters do.
            self._from_wire = soxr.ResampleStream(
                rate_hz, PIPELINE_RATE_HZ, 1, dtype="int16", quality="LQ"
            )
            self._wire_rate_hz = rate_hz
        resampled = self._from_wire.resample_chunk(np.frombuffer(pcm, dtype="<i2"))
        return bytes(resampled.tobytes())


class GrpcOutputTransport(BaseOutputTransport):
    """Sends audio in step with the media time received, and keeps the account of utterances."""

    def __init__(
        self,
        params: TransportParams,
        clock: MediaClock,
        outbox: Outbox,
        playout: Playout,
        **kwargs: Any,
    ) -> None:
        super().__init__(params, **kwargs)
        self._media_clock = clock
        self._outbox = outbox
        self._playout = playout
        self._next_seconds = 0.0
        self._first_chunk = True
        self._interruptions = 0
        self._incoming: Utterance | None = None
        self._muted = False

    def mute(self) -> None:
        """Sends no more audio: the session is over."""
        self._muted = True

    async def start(self, frame: StartFrame) -> None:
        """Gets ready to send audio."""
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Notes what comes in to be played; the base class queues it."""
        if direction is FrameDirection.DOWNSTREAM:
            self._note(frame)
        if isinstance(frame, InterruptionFrame):
            self._interruptions += 1
            self._incoming = None
        await super().process_frame(frame, direction)
        if isinstance(frame, InterruptionFrame):
            # After the base class has emptied its queue: nothing more is sent of what is cut.
            self._playout.interrupt()

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        """Sends a chunk when its time has come; False when an interruption dropped it."""
        interruptions = self._interruptions
        at_seconds = self._next_seconds
        if self._first_chunk or self._media_clock.now - at_seconds > CATCH_UP_SECONDS:
            at_seconds = max(at_seconds, self._media_clock.now)
        await self._media_clock.wait_until(at_seconds - LEAD_SECONDS - _EPSILON)
        if self._muted or interruptions != self._interruptions:
            return False
        seconds = len(frame.audio) / 2 / frame.sample_rate
        self._playout.about_to_play()
        self._outbox.audio(frame.audio, frame.sample_rate, at_seconds)
        self._playout.played(seconds)
        self._next_seconds = at_seconds + seconds
        self._first_chunk = False
        return True

    async def write_transport_frame(self, frame: Frame) -> None:
        """Takes the marks of utterances at their place between the audio."""
        if isinstance(frame, UtteranceStartFrame):
            self._first_chunk = True
            self._playout.play(frame.utterance)
        elif isinstance(frame, UtteranceEndFrame):
            self._playout.finish(frame.utterance)

    def _note(self, frame: Frame) -> None:
        if isinstance(frame, UtteranceStartFrame):
            self._incoming = frame.utterance
        utterance = self._incoming
        if utterance is None:
            return
        if isinstance(frame, TTSAudioRawFrame):
            if utterance.segments:
                utterance.segments[-1].seconds += len(frame.audio) / 2 / frame.sample_rate
        elif (
            isinstance(frame, AggregatedTextFrame)
            and frame.will_be_spoken
            and not isinstance(frame, TTSTextFrame)
        ):
            utterance.segments.append(Segment(frame.text))


class GrpcTransport(BaseTransport):
    """Input and output of one session.

    Args:
        clock: Media time of the session.
        outbox: The outgoing queue.
        playout: Account of the utterances.
        output_rate_hz: Rate of the audio sent, the synthesizer's own.
    """

    def __init__(
        self, *, clock: MediaClock, outbox: Outbox, playout: Playout, output_rate_hz: int
    ) -> None:
        super().__init__()
        params = TransportParams(
            audio_in_enabled=True,
            audio_in_sample_rate=PIPELINE_RATE_HZ,
            audio_out_enabled=True,
            audio_out_sample_rate=output_rate_hz,
            audio_out_10ms_chunks=CHUNK_10MS,
            # The bridge ends calls; the silence after the last word is not the bot's to send.
            audio_out_end_silence_secs=0,
            # A write waits for media time, however long the bridge takes; the stream's own end
            # tells when the bridge is gone.
            audio_out_write_timeout_secs=_WRITE_TIMEOUT_SECONDS,
        )
        self._input = GrpcInputTransport(params, clock)
        self._output = GrpcOutputTransport(params, clock, outbox, playout)

    def input(self) -> GrpcInputTransport:
        """The processor that takes the bridge's audio."""
        return self._input

    def output(self) -> GrpcOutputTransport:
        """The processor that sends the bot's audio."""
        return self._output
