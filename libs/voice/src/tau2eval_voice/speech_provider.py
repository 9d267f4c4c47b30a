"""Recognition and synthesis of a process's sessions, with activity and latency reported."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, Protocol

from pipecat.frames.frames import Frame, TTSAudioRawFrame
from pipecat.processors.frame_processor import FrameProcessor

from tau2eval.voice.v1 import voice_pb2
from tau2eval_common.errors import InvalidInput
from tau2eval_voice.outbox import Outbox
from tau2eval_voice.playout import Playout
from tau2eval_voice.speech.backends import recognizer_names, synthesizer_names
from tau2eval_voice.speech.pipecat_stt import LocalSTTService
from tau2eval_voice.speech.pipecat_tts import LocalTTSService
from tau2eval_voice.speech.runtime import SpeechRuntime
from tau2eval_voice.speech.settings import SpeechSettings


class SpeechServices(Protocol):
    """The speech services of one session."""

    @property
    def config(self) -> voice_pb2.SpeechConfig:
        """Back ends as they took effect."""
        ...

    @property
    def output_rate_hz(self) -> int:
        """Rate of the synthesised audio."""
        ...

    def recognizer(self, outbox: Outbox) -> FrameProcessor:
        """Makes the recogniser."""
        ...

    def synthesizer(self, outbox: Outbox, playout: Playout) -> FrameProcessor:
        """Makes the synthesiser."""
        ...


class SpeechProvider(Protocol):
    """Makes the speech services of sessions; shared by all of a process."""

    async def load(self) -> None:
        """Loads the models of the configured back ends."""
        ...

    async def services(self, config: voice_pb2.SpeechConfig) -> SpeechServices:
        """Chooses back ends for a session.

        Raises:
            InvalidInput: There is no such back end or voice.
        """
        ...

    async def aclose(self) -> None:
        """Releases the models."""
        ...


class LocalSpeech:
    """Speech on this machine. Each pair of back ends in use has one runtime for all sessions."""

    def __init__(
        self,
        settings: SpeechSettings,
        make_runtime: Callable[[SpeechSettings], SpeechRuntime] = SpeechRuntime,
    ) -> None:
        self._settings = settings
        self._make_runtime = make_runtime
        self._runtimes: dict[tuple[str, str], SpeechRuntime] = {}
        self._loading = asyncio.Lock()

    async def load(self) -> None:
        """Loads the configured back ends."""
        await self._runtime(self._settings.recognizer, self._settings.synthesizer)

    async def services(self, config: voice_pb2.SpeechConfig) -> LocalSpeechServices:
        """Chooses back ends for a session and loads them if they are not loaded.

        Raises:
            InvalidInput: There is no such back end or voice.
            SpeechSetupError: A model cannot be loaded.
        """
        recognizer = config.recognizer or self._settings.recognizer
        synthesizer = config.synthesizer or self._settings.synthesizer
        _check("recognizer", recognizer, recognizer_names())
        _check("synthesizer", synthesizer, synthesizer_names())
        runtime = await self._runtime(recognizer, synthesizer)
        voice = config.voice or self._settings.voice
        _check("voice", voice, await runtime.voices())
        return LocalSpeechServices(
            runtime,
            voice_pb2.SpeechConfig(recognizer=recognizer, synthesizer=synthesizer, voice=voice),
        )

    async def aclose(self) -> None:
        """Releases the models."""
        for runtime in self._runtimes.values():
            await runtime.aclose()
        self._runtimes.clear()

    async def _runtime(self, recognizer: str, synthesizer: str) -> SpeechRuntime:
        async with self._loading:
            runtime = self._runtimes.get((recognizer, synthesizer))
            if runtime is None:
                settings = self._settings.model_copy(
                    update={"recognizer": recognizer, "synthesizer": synthesizer}
                )
                runtime = self._make_runtime(settings)
                try:
                    await runtime.warm_up()
                except BaseException:
                    runtime.close(wait=False)
                    raise
                self._runtimes[(recognizer, synthesizer)] = runtime
            return runtime


class LocalSpeechServices:
    """Speech services of one session over a shared runtime."""

    output_rate_hz = 24_000

    def __init__(self, runtime: SpeechRuntime, config: voice_pb2.SpeechConfig) -> None:
        self._runtime = runtime
        self.config = config

    def recognizer(self, outbox: Outbox) -> FrameProcessor:
        """Makes the recogniser."""

        def on_heard(text: str, audio_seconds: float, latency_seconds: float) -> None:
            outbox.event(
                transcript_heard=voice_pb2.TranscriptHeard(
                    text=text, audio_seconds=audio_seconds, latency_seconds=latency_seconds
                )
            )
            outbox.latency("stt", latency_seconds)

        return TrackedSTT(outbox, self._runtime, on_heard=on_heard, audio_passthrough=False)

    def synthesizer(self, outbox: Outbox, playout: Playout) -> FrameProcessor:
        """Makes the synthesiser."""
        return TrackedTTS(outbox, self._runtime, voice=self.config.voice, on_spoken=playout.spoken)


class TrackedSTT(LocalSTTService):
    """Recognition that tells when it is at work."""

    def __init__(self, outbox: Outbox, runtime: SpeechRuntime, **kwargs: Any) -> None:
        super().__init__(runtime, **kwargs)
        self._outbox = outbox

    async def run_stt(self, audio: bytes) -> AsyncGenerator[Frame | None, None]:
        """Yields the transcript of a segment of PCM at the pipeline's rate."""
        self._outbox.activity("stt", started=True)
        try:
            async for frame in super().run_stt(audio):
                yield frame
        finally:
            self._outbox.activity("stt", started=False)


class TrackedTTS(LocalTTSService):
    """Synthesis that tells when it is at work and how soon it has audio."""

    def __init__(self, outbox: Outbox, runtime: SpeechRuntime, **kwargs: Any) -> None:
        super().__init__(runtime, **kwargs)
        self._outbox = outbox
        self._measured_context = ""

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """Yields the audio of a sentence at the pipeline's rate."""
        started = time.monotonic()
        self._outbox.activity("tts", started=True)
        try:
            async for frame in super().run_tts(text, context_id):
                if isinstance(frame, TTSAudioRawFrame) and context_id != self._measured_context:
                    self._measured_context = context_id
                    self._outbox.latency("tts_first_audio", time.monotonic() - started)
                yield frame
        finally:
            self._outbox.activity("tts", started=False)


def _check(what: str, name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise InvalidInput(
            f"Setup.speech.{what} is {name!r}; this bot has {', '.join(known)}",
            reason="UNKNOWN_SPEECH_BACKEND",
        )
