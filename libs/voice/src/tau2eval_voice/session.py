"""What a session is to the servicer, and what all sessions share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field

from tau2eval.voice.v1 import voice_pb2
from tau2eval_voice.dialogue import ChatModel, Dialogue
from tau2eval_voice.media_clock import MediaClock
from tau2eval_voice.outbox import Outbox
from tau2eval_voice.playout import Playout
from tau2eval_voice.tools import ToolBackend


class TurnSettings(BaseModel):
    """Turn-taking of a bot in voice modality. Times are in seconds.

    Attributes:
        vad_start_seconds: Speech until the other side counts as speaking.
        vad_stop_seconds: Silence until it counts as silent.
        user_speech_timeout_seconds: Further wait for more speech before the turn is over.
        turn_stop_timeout_seconds: Limit of the wait for the words of a turn that ended.
        barge_in_seconds: Speech that interrupts the bot; shorter sounds do not.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    vad_start_seconds: float = Field(default=0.2, gt=0, le=2)
    vad_stop_seconds: float = Field(default=0.8, gt=0, le=5)
    user_speech_timeout_seconds: float = Field(default=0.3, ge=0, le=5)
    turn_stop_timeout_seconds: float = Field(default=8.0, gt=0, le=60)
    barge_in_seconds: float = Field(default=0.6, ge=0, le=10)


class Session(Protocol):
    """One conversation."""

    @property
    def outbox(self) -> Outbox:
        """What the session sends; closed when it is over."""
        ...

    async def start(self) -> voice_pb2.SpeechConfig:
        """Gets ready to take audio or text and returns the speech back ends in use."""
        ...

    async def handle(self, request: voice_pb2.ConverseRequest) -> None:
        """Takes Audio, Text or Cue.

        Raises:
            InvalidInput: The message does not fit the session.
        """
        ...

    async def finish(self) -> None:
        """Stops, sends the Summary, and closes the outbox."""
        ...

    async def close(self) -> None:
        """Releases everything, at any time; may be called again."""
        ...


@dataclass(slots=True)
class Conversation:
    """The parts of a session that do not depend on its modality."""

    prompt: str
    model: ChatModel
    tools: ToolBackend
    clock: MediaClock = field(default_factory=MediaClock)
    outbox: Outbox = field(init=False)
    playout: Playout = field(init=False)
    dialogue: Dialogue = field(init=False)

    def __post_init__(self) -> None:
        """Wires the parts together."""
        self.outbox = Outbox(self.clock)
        self.playout = Playout(
            self.outbox, lambda utterance, played: self.dialogue.retain(utterance, played)
        )
        self.dialogue = Dialogue(
            prompt=self.prompt,
            model=self.model,
            tools=self.tools,
            outbox=self.outbox,
            on_exit=lambda reason: self.playout.request_exit(reason),
        )

    def send_summary(self) -> None:
        """Sends the state at the end, and closes the outbox."""
        self.outbox.send(voice_pb2.ConverseResponse(summary=self.dialogue.summary()))
        self.outbox.close()
