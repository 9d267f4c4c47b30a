"""Pipecat frames of the project's own."""

from __future__ import annotations

from dataclasses import dataclass

from pipecat.frames.frames import LLMFullResponseEndFrame, LLMFullResponseStartFrame

from tau2eval_voice.utterances import Utterance


@dataclass
class UtteranceStartFrame(LLMFullResponseStartFrame):
    """A model response begins; all audio up to the matching end belongs to `utterance`."""

    utterance: Utterance


@dataclass
class UtteranceEndFrame(LLMFullResponseEndFrame):
    """A model response has ended, and behind its audio: it was played."""

    utterance: Utterance
