"""Pipecat's synthesis service over the shared speech runtime."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from pipecat.frames.frames import ErrorFrame, Frame, TTSAudioRawFrame
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TTSService

from tau2eval_voice.speech.errors import SpeechError
from tau2eval_voice.speech.runtime import SpeechRuntime
from tau2eval_voice.speech.spoken_form import to_spoken

OnSpoken = Callable[[str, str], Awaitable[None] | None]

_CHUNK_SECONDS = 0.2
# Silence in place of nothing, so that an utterance without audio still starts and ends.
_NOTHING_SECONDS = 0.1


class LocalTTSService(TTSService):
    """Says what the model writes, sentence by sentence.

    The words are turned into their spoken form just before synthesis. The frames that carry text
    (AggregatedTextFrame, TTSTextFrame) keep the model's own words, so the assistant's context
    holds identifiers as the model wrote them; `to_spoken(frame.text)` gives their spoken form.

    A fault of the synthesiser is pushed as an ErrorFrame whose exception is a SpeechError.
    """

    def __init__(
        self,
        runtime: SpeechRuntime,
        *,
        voice: str | None = None,
        on_spoken: OnSpoken | None = None,
        **kwargs: Any,
    ) -> None:
        """Makes a service of one session.

        Args:
            runtime: Shared by all sessions of the process; it is not closed here.
            voice: Name of the voice; None: the one of the runtime's settings.
            on_spoken: Called with a sentence as written and its spoken form, when its audio
                begins to be handed on, which is some time before it is played; not called for
                a sentence that could not be synthesised. Plain or async.
            **kwargs: Passed on to TTSService.
        """
        chosen = voice or runtime.settings.voice
        super().__init__(
            push_start_frame=True,
            push_stop_frames=True,
            settings=TTSSettings(model=runtime.settings.synthesizer, voice=chosen, language=None),
            **kwargs,
        )
        self._runtime = runtime
        self._voice_name = chosen
        self._on_spoken = on_spoken

    def can_generate_metrics(self) -> bool:
        """Metrics of time to first audio and of characters are generated."""
        return True

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        """Yields the audio of a sentence at the pipeline's rate.

        Args:
            text: A sentence as the model wrote it.
            context_id: The utterance that it belongs to.
        """
        spoken = to_spoken(text)
        await self.start_tts_usage_metrics(spoken)
        audible = False
        try:
            async for piece in self._runtime.stream(spoken, self._voice_name, self.sample_rate):
                await self.stop_ttfb_metrics()
                if not audible:
                    audible = True
                    await self._report(text, spoken)
                for chunk in _chunks(piece.samples, int(self.sample_rate * _CHUNK_SECONDS) * 2):
                    yield TTSAudioRawFrame(chunk, self.sample_rate, 1, context_id=context_id)
            if not audible:
                # Punctuation or symbols only.
                await self._report(text, spoken)
        except SpeechError as error:
            yield ErrorFrame(error=f"synthesis failed: {error}", exception=error)
        finally:
            await self.stop_ttfb_metrics()
        if not audible:
            # Without any audio the base class would hold the turn open until its time-out.
            silence = bytes(int(self.sample_rate * _NOTHING_SECONDS) * 2)
            yield TTSAudioRawFrame(silence, self.sample_rate, 1, context_id=context_id)

    async def _report(self, text: str, spoken: str) -> None:
        if self._on_spoken is None:
            return
        result = self._on_spoken(text, spoken)
        if result is not None:
            await result


def _chunks(samples: bytes, size: int) -> list[bytes]:
    return [samples[start : start + size] for start in range(0, len(samples), size)]
