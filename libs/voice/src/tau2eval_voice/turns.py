"""When the other side's turn begins: at once in silence, after some words while the bot speaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipecat.frames.frames import (
    Frame,
    TranscriptionFrame,
    UserSpeakingFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.turns.types import ProcessFrameResult
from pipecat.turns.user_start.base_user_turn_start_strategy import BaseUserTurnStartStrategy


class BargeInStartStrategy(BaseUserTurnStartStrategy):  # type: ignore[no-untyped-call]
    """Starts the other side's turn, and thereby interrupts the bot.

    While the bot is audible, a sound shorter than `min_voiced_seconds` ("mm-hm", a cough) does
    not cut it off. Its words are kept for the turn that follows. When the bot is silent, speech
    starts a turn at once. Nothing starts a turn while `closed` is true.

    Args:
        speaking: Whether the bot is audible.
        voiced_seconds: Voiced time since the other side began to speak, in seconds.
        closed: Whether the bot is ending the call.
        min_voiced_seconds: How much speech interrupts the bot.
    """

    def __init__(
        self,
        *,
        speaking: Callable[[], bool],
        voiced_seconds: Callable[[], float],
        closed: Callable[[], bool],
        min_voiced_seconds: float,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._speaking = speaking
        self._voiced_seconds = voiced_seconds
        self._closed = closed
        self._min_voiced_seconds = min_voiced_seconds
        self._heard = False

    async def process_frame(self, frame: Frame) -> ProcessFrameResult:
        """Decides on voice activity and transcripts."""
        if self._closed():
            return ProcessFrameResult.CONTINUE
        if isinstance(frame, VADUserStartedSpeakingFrame):
            self._heard = True
        elif isinstance(frame, VADUserStoppedSpeakingFrame):
            self._heard = False
        elif isinstance(frame, TranscriptionFrame):
            # Words of a short sound that ended while the bot still spoke, or that came late.
            if not frame.text.strip() or self._speaking():
                return ProcessFrameResult.CONTINUE
            return await self._start()
        elif not isinstance(frame, UserSpeakingFrame):
            return ProcessFrameResult.CONTINUE
        if not self._heard:
            return ProcessFrameResult.CONTINUE
        if self._speaking() and self._voiced_seconds() < self._min_voiced_seconds:
            return ProcessFrameResult.CONTINUE
        return await self._start()

    async def _start(self) -> ProcessFrameResult:
        await self.trigger_user_turn_started()
        return ProcessFrameResult.STOP
