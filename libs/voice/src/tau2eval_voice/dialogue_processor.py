"""The dialogue as a processor of the pipeline: between turn detection and synthesis."""

from __future__ import annotations

from typing import Any

from pipecat.frames.frames import Frame, LLMContextFrame, LLMTextFrame
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

from tau2eval_voice.dialogue import Dialogue
from tau2eval_voice.frames import UtteranceEndFrame, UtteranceStartFrame
from tau2eval_voice.playout import Playout
from tau2eval_voice.utterances import Utterance


class DialogueProcessor(FrameProcessor):
    """Lets the model answer each context frame, and sends its words on to be spoken.

    Pipecat cancels the running answer when an interruption comes by.
    """

    def __init__(self, dialogue: Dialogue, playout: Playout, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._dialogue = dialogue
        self._playout = playout

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Answers context frames and forwards everything else."""
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMContextFrame):
            await self._dialogue.respond(self)
        else:
            await self.push_frame(frame, direction)

    async def begin(self, utterance: Utterance) -> None:
        """Opens an utterance."""
        self._playout.begin(utterance)
        await self.push_frame(UtteranceStartFrame(utterance=utterance))

    async def words(self, utterance: Utterance, text: str) -> None:
        """Sends words to the synthesizer."""
        del utterance
        await self.push_frame(LLMTextFrame(text))

    async def end(self, utterance: Utterance) -> None:
        """Closes an utterance behind its last word."""
        await self.push_frame(UtteranceEndFrame(utterance=utterance))
