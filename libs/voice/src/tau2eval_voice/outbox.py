"""Everything that a session sends, in one order: audio, events, and the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from tau2eval.voice.v1 import voice_pb2
from tau2eval_common.errors import CapacityExhausted
from tau2eval_voice.media_clock import MediaClock

MAX_PENDING = 10_000
"""Responses held for a peer that does not read; some minutes of audio."""


class Outbox:
    """The outgoing queue of one session.

    Audio and events share the queue, so what is sent before is received before: an Exit that is
    put after the last chunk of a sentence arrives after it.

    Args:
        clock: Stamps events with the newest media time received.
        max_pending: Responses held before the peer is given up.
    """

    def __init__(self, clock: MediaClock, max_pending: int = MAX_PENDING) -> None:
        self._clock = clock
        self._queue: asyncio.Queue[voice_pb2.ConverseResponse | None] = asyncio.Queue()
        self._max_pending = max_pending
        self._audio_sequence = 0
        self._text_sequence = 0
        self._failure: BaseException | None = None
        self._closed = False

    @property
    def closed(self) -> bool:
        """True when nothing more is accepted."""
        return self._closed

    def event(self, **member: Any) -> None:
        """Sends an Event; `member` is the one field of its oneof."""
        event = voice_pb2.Event(media_time_seconds=self._clock.now, **member)
        self.send(voice_pb2.ConverseResponse(event=event))

    def activity(self, stage: str, *, started: bool) -> None:
        """Tells that a job of a stage ("stt", "llm", "tool" or "tts") began or ended."""
        state = voice_pb2.ACTIVITY_STATE_STARTED if started else voice_pb2.ACTIVITY_STATE_STOPPED
        self.event(activity=voice_pb2.Activity(state=state, stage=stage))

    def latency(self, stage: str, seconds: float) -> None:
        """Tells how long a stage took, in seconds."""
        self.event(stage_latency=voice_pb2.StageLatency(stage=stage, seconds=seconds))

    def error(
        self, kind: voice_pb2.ErrorKind.ValueType, message: str, *, code: str, fatal: bool = True
    ) -> None:
        """Tells about a fault."""
        self.event(error=voice_pb2.BotError(kind=kind, message=message, fatal=fatal, code=code))

    def audio(self, pcm: bytes, sample_rate_hz: int, media_time_seconds: float) -> None:
        """Sends a chunk of mono signed 16-bit little-endian samples."""
        audio = voice_pb2.Audio(
            sequence=self._audio_sequence,
            media_time_seconds=media_time_seconds,
            pcm=pcm,
            sample_rate_hz=sample_rate_hz,
        )
        self._audio_sequence += 1
        self.send(voice_pb2.ConverseResponse(audio=audio))

    def text(self, text: str) -> None:
        """Sends an utterance in text modality."""
        message = voice_pb2.Text(
            sequence=self._text_sequence, text=text, media_time_seconds=self._clock.now
        )
        self._text_sequence += 1
        self.send(voice_pb2.ConverseResponse(text=message))

    def send(self, response: voice_pb2.ConverseResponse) -> None:
        """Queues a response. After the end it is dropped."""
        if self._closed:
            return
        if self._queue.qsize() >= self._max_pending:
            self.fail(
                CapacityExhausted(
                    f"the peer left {self._max_pending} responses unread", reason="PEER_NOT_READING"
                )
            )
            return
        self._queue.put_nowait(response)

    def close(self) -> None:
        """Ends the stream after what is queued."""
        if not self._closed:
            self._closed = True
            self._queue.put_nowait(None)

    def fail(self, error: BaseException) -> None:
        """Ends the stream with an error after what is queued."""
        if not self._closed:
            self._failure = error
            self.close()

    async def __aiter__(self) -> AsyncIterator[voice_pb2.ConverseResponse]:
        """Yields what is sent until the end.

        Raises:
            BaseException: What `fail` was given.
        """
        while (response := await self._queue.get()) is not None:
            yield response
        if self._failure is not None:
            raise self._failure
