"""The stereo recording and the events, as parts of a conversation record in their order."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from tau2eval.scorer.v1 import record_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_bridge.clock import TICKS_PER_SECOND
from tau2eval_bridge.resample import DELAY_SECONDS, Pcm

AUDIO_PART_BYTES = 192 * 1024
"""Audio is handed on in parts of about this size; the contract's readers take up to 256 KiB."""


class PartSink(Protocol):
    """Takes the parts of a record in order."""

    def write(self, part: record_pb2.RecordPart) -> None:
        """Takes one part."""


class Recorder:
    """Puts header, events, audio and footer of one call into a sink.

    The two channels grow together, one 20 ms frame of each at a time: left the caller, right the
    agent. The resamplers' delay is taken out: `frames` frames in are `frames` frames recorded.
    """

    def __init__(self, sink: PartSink, rate: int) -> None:
        self._sink = sink
        self._rate = rate
        self._frame = rate // TICKS_PER_SECOND
        self._skip = round(DELAY_SECONDS * rate)
        self._buffer: list[bytes] = []
        self._buffered = 0
        self.frames = 0
        self._written = 0

    def header(self, header: record_pb2.RecordHeader) -> None:
        """Writes the header, once and first."""
        self._sink.write(record_pb2.RecordPart(header=header))

    def event(self, event: record_pb2.TimedEvent) -> None:
        """Writes an event."""
        self._sink.write(record_pb2.RecordPart(event=event))

    def audio(self, caller: Pcm, agent: Pcm) -> None:
        """Writes one frame of both channels.

        Raises:
            ValueError: When they are not one frame long.
        """
        if len(caller) != self._frame or len(agent) != self._frame:
            raise ValueError(
                f"frames of {len(caller)} and {len(agent)} samples; {self._frame} are expected"
            )
        self.frames += 1
        self._put(np.stack([caller, agent], axis=1))

    def end_audio(self, caller: Pcm, agent: Pcm) -> None:
        """Writes what the resamplers still held, so that all frames are there in full length."""
        if self.frames:
            self._put(np.stack([caller, agent], axis=1)[: round(DELAY_SECONDS * self._rate)])
        self._flush()

    def footer(self, footer: record_pb2.RecordFooter) -> None:
        """Writes the footer, last."""
        self._flush()
        self._sink.write(record_pb2.RecordPart(footer=footer))

    def _put(self, stereo: Pcm) -> None:
        if self._skip:
            skipped = min(self._skip, len(stereo))
            self._skip -= skipped
            stereo = stereo[skipped:]
        data = stereo.astype("<i2", copy=False).tobytes()
        self._buffer.append(data)
        self._buffered += len(data)
        if self._buffered >= AUDIO_PART_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._buffered:
            self._sink.write(record_pb2.RecordPart(audio=b"".join(self._buffer)))
        self._buffer.clear()
        self._buffered = 0


def timed(
    time_seconds: float, role: voice_pb2.Role.ValueType, event: voice_pb2.Event
) -> record_pb2.TimedEvent:
    """Returns an event on the bridge's clock."""
    return record_pb2.TimedEvent(time_seconds=time_seconds, role=role, event=event)
