"""What a bot needs of its tools. The implementation belongs to the service that has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tau2eval.voice.v1 import voice_pb2


@dataclass(frozen=True, slots=True)
class ToolReply:
    """What a tool call gave.

    Attributes:
        result: What the model sees; JSON data.
        is_error: True when the tool refused.
        action: Entry of the scenario's action list, when the call recorded one.
        exit_reason: Set when the call ends the conversation. AGENT_EXIT: after the words of the
            same model response. TRANSFER: after the words with which the model answers `result`.
    """

    result: Any
    is_error: bool = False
    action: Mapping[str, Any] | None = None
    exit_reason: voice_pb2.ExitReason.ValueType = voice_pb2.EXIT_REASON_UNSPECIFIED


@dataclass(frozen=True, slots=True)
class ToolState:
    """State of the tools at the end of a session.

    Attributes:
        db_hash: Hash of the end state in hex; empty without a database.
        changed_records: Records that differ from the seeded database.
        actions: Recorded actions in order.
    """

    db_hash: str = ""
    changed_records: Sequence[voice_pb2.ChangedRecord] = ()
    actions: Sequence[Mapping[str, Any]] = ()


class ToolBackend(Protocol):
    """The tools of one session, with their state.

    A call may be slow (await inside it), and is never cancelled while it runs: what it changes
    has to be recorded. Calls of one session do not overlap.
    """

    @property
    def declarations(self) -> Sequence[Mapping[str, Any]]:
        """The tools as OpenAI declares them: {"type": "function", "function": {...}}."""
        ...

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolReply:
        """Runs a declared tool. What the model did wrong is a ToolReply, not an exception."""
        ...

    def state(self) -> ToolState:
        """The state as it is now. Called once, at the end."""
        ...


class ToolBackendFactory(Protocol):
    """Makes the tools of a session."""

    def __call__(self, setup: voice_pb2.Setup) -> ToolBackend:
        """Builds the tools that a Setup asks for, with their database seeded.

        Raises:
            tau2eval_common.errors.InvalidInput: The Setup asks for what does not exist.
        """
        ...


@dataclass(frozen=True, slots=True)
class NoTools:
    """A session without tools."""

    declarations: Sequence[Mapping[str, Any]] = field(default=())

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolReply:
        """Never called: nothing is declared."""
        del arguments
        raise LookupError(name)

    def state(self) -> ToolState:
        """The empty state."""
        return ToolState()
