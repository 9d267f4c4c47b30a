"""Why a call ended, and which of several reasons holds."""

from __future__ import annotations

from dataclasses import dataclass

from tau2eval.scorer.v1 import record_pb2
from tau2eval.voice.v1 import voice_pb2


@dataclass(frozen=True)
class Stop:
    """A reason and a line about it for a person."""

    reason: record_pb2.StopReason.ValueType
    detail: str


NOT_RUN_KINDS: dict[record_pb2.StopReason.ValueType, str] = {
    record_pb2.STOP_REASON_USER_STALLED: "user_stalled",
    record_pb2.STOP_REASON_AGENT_LOST: "agent_lost",
    record_pb2.STOP_REASON_USER_LOST: "user_lost",
    record_pb2.STOP_REASON_SPEECH_ERROR: "speech_error",
    record_pb2.STOP_REASON_GATEWAY_ERROR: "gateway_error",
    record_pb2.STOP_REASON_HARNESS_ERROR: "harness_error",
    record_pb2.STOP_REASON_CANCELLED: "cancelled",
}
"""Reasons that are no score, with the verdict's kind."""

# When several things are noticed at the same moment, the one that explains the others holds.
_PRECEDENCE = (
    record_pb2.STOP_REASON_HARNESS_ERROR,
    record_pb2.STOP_REASON_GATEWAY_ERROR,
    record_pb2.STOP_REASON_SPEECH_ERROR,
    record_pb2.STOP_REASON_AGENT_ERROR,
    record_pb2.STOP_REASON_AGENT_LOST,
    record_pb2.STOP_REASON_AGENT_EXIT,
    record_pb2.STOP_REASON_TRANSFER,
    record_pb2.STOP_REASON_USER_LOST,
    record_pb2.STOP_REASON_CANCELLED,
    record_pb2.STOP_REASON_AGENT_STALLED,
    record_pb2.STOP_REASON_USER_STALLED,
    record_pb2.STOP_REASON_TIMEOUT,
)


def choose(stops: list[Stop]) -> Stop | None:
    """Returns the reason that holds among those noticed at the same moment."""
    return min(stops, key=lambda stop: _PRECEDENCE.index(stop.reason), default=None)


def of_error(role: voice_pb2.Role.ValueType, error: voice_pb2.BotError) -> Stop | None:
    """Returns the stop that a bot's error brings about; None when the session can go on."""
    if not error.fatal:
        return None
    agent = role == voice_pb2.ROLE_AGENT
    who = "the agent" if agent else "the caller"
    message = error.message or error.code or "no message"
    if error.kind == voice_pb2.ERROR_KIND_MODEL_REQUEST:
        if agent:
            return Stop(
                record_pb2.STOP_REASON_AGENT_ERROR,
                f"the provider refused the agent's own request: {message}",
            )
        return Stop(
            record_pb2.STOP_REASON_GATEWAY_ERROR,
            f"the provider refused the simulated caller's request: {message}",
        )
    if error.kind == voice_pb2.ERROR_KIND_GATEWAY:
        return Stop(record_pb2.STOP_REASON_GATEWAY_ERROR, f"model call of {who} failed: {message}")
    if error.kind == voice_pb2.ERROR_KIND_SPEECH:
        return Stop(record_pb2.STOP_REASON_SPEECH_ERROR, f"speech of {who} failed: {message}")
    return lost(role, f"{who}'s bot reported a fault of its own: {message}")


def of_exit(reason: voice_pb2.ExitReason.ValueType) -> Stop:
    """Returns the stop of the agent's exit."""
    if reason == voice_pb2.EXIT_REASON_TRANSFER:
        return Stop(record_pb2.STOP_REASON_TRANSFER, "the agent handed the caller to a human")
    return Stop(record_pb2.STOP_REASON_AGENT_EXIT, "the agent ended the call")


def lost(role: voice_pb2.Role.ValueType, detail: str) -> Stop:
    """Returns the stop of a lost bot."""
    if role == voice_pb2.ROLE_AGENT:
        return Stop(record_pb2.STOP_REASON_AGENT_LOST, detail)
    return Stop(record_pb2.STOP_REASON_USER_LOST, detail)


def without_summary(stop: Stop, why: str) -> Stop:
    """Returns what a stop becomes when the agent gave no summary: without a hash there is no score.

    Reasons that are no score anyway stay as they are.
    """
    if stop.reason in NOT_RUN_KINDS:
        return stop
    name = record_pb2.StopReason.Name(stop.reason).removeprefix("STOP_REASON_").lower()
    return Stop(
        record_pb2.STOP_REASON_AGENT_LOST, f"after {name} the agent's bot gave no summary: {why}"
    )
