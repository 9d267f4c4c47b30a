"""Pipecat's recognition service over the shared speech runtime."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from pipecat.frames.frames import (
    ErrorFrame,
    Frame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.services.settings import STTSettings
from pipecat.services.stt_service import SegmentedSTTService
from pipecat.utils.time import time_now_iso8601

from tau2eval_voice.speech.errors import SpeechError
from tau2eval_voice.speech.heard_form import from_spoken
from tau2eval_voice.speech.runtime import SpeechRuntime

OnHeard = Callable[[str, float, float], Awaitable[None] | None]

INAUDIBLE = "(inaudible)"
# Measured on two shared cores with four calls; turn strategies wait this long for the words.
TTFS_P99_SECONDS = 1.5
# Shorter sounds that the voice detector took for speech are noise when nothing is recognised.
_REAL_SPEECH_SECONDS = 0.25


class LocalSTTService(SegmentedSTTService):
    """Recognises one segment of speech at a time, as the voice detector cuts them.

    A segment of real speech in which nothing is recognised becomes "(inaudible)", so that the
    model can ask to repeat and the call never stalls. A fault of the recogniser is pushed as an
    ErrorFrame whose exception is a SpeechError, followed by the same "(inaudible)".
    """

    def __init__(
        self,
        runtime: SpeechRuntime,
        *,
        on_heard: OnHeard | None = None,
        ttfs_p99_latency: float = TTFS_P99_SECONDS,
        **kwargs: Any,
    ) -> None:
        """Makes a service of one session.

        Args:
            runtime: Shared by all sessions of the process; it is not closed here.
            on_heard: Called with the words, the length of the speech in seconds, and the time
                that recognition took in seconds, waiting included. Plain or async.
            ttfs_p99_latency: Seconds from the end of speech to the words, for turn strategies.
            **kwargs: Passed on to SegmentedSTTService.
        """
        super().__init__(
            ttfs_p99_latency=ttfs_p99_latency,
            settings=STTSettings(model=runtime.settings.recognizer, language="en"),
            **kwargs,
        )
        self._runtime = runtime
        self._on_heard = on_heard
        self._speech_start_bytes = 0
        # Length of the speech in each segment that waits for its recognition, in seconds.
        self._speech_seconds: deque[float] = deque()

    @property
    def wants_wav_segments(self) -> bool:
        """Segments come as plain PCM, without a WAV header."""
        return False

    def can_generate_metrics(self) -> bool:
        """Metrics of time to the transcript are generated."""
        return True

    async def run_stt(self, audio: bytes) -> AsyncGenerator[Frame | None, None]:
        """Yields the transcript of a segment.

        Args:
            audio: Mono signed 16-bit little-endian PCM at the pipeline's rate, with the silence
                around the speech.
        """
        seconds = len(audio) / 2 / self.sample_rate
        if self._speech_seconds:
            seconds = self._speech_seconds.popleft()
        await self.start_processing_metrics()
        started = time.monotonic()
        text = ""
        try:
            text = (await self._runtime.transcribe(audio, self.sample_rate)).text
        except SpeechError as error:
            yield ErrorFrame(error=f"recognition failed: {error}", exception=error)
        finally:
            await self.stop_processing_metrics()
        latency = time.monotonic() - started
        if text and self._runtime.settings.collapse_identifiers:
            text = from_spoken(text)
        if not text and seconds > _REAL_SPEECH_SECONDS:
            text = INAUDIBLE
        if text:
            await self._report(text, seconds, latency)
            yield TranscriptionFrame(text, self._user_id, time_now_iso8601())

    async def _handle_user_started_speaking(self, frame: VADUserStartedSpeakingFrame) -> None:
        await super()._handle_user_started_speaking(frame)
        # The detector needed start_secs of speech to be sure.
        confirmed = int(frame.start_secs * self.sample_rate) * 2
        self._speech_start_bytes = max(0, len(self._audio_buffer) - confirmed)

    async def _handle_user_stopped_speaking(self, frame: VADUserStoppedSpeakingFrame) -> None:
        silence = int(frame.stop_secs * self.sample_rate) * 2
        speech = len(self._audio_buffer) - silence - self._speech_start_bytes
        if self.is_usable:
            self._speech_seconds.append(max(0, speech) / 2 / self.sample_rate)
        await super()._handle_user_stopped_speaking(frame)

    async def _report(self, text: str, audio_seconds: float, latency_seconds: float) -> None:
        if self._on_heard is None:
            return
        result = self._on_heard(text, audio_seconds, latency_seconds)
        if result is not None:
            await result
