"""Response latency of the agent, from audible samples on the line."""

from __future__ import annotations

from collections.abc import Sequence

from tau2eval.scorer.v1 import record_pb2
from tau2eval.voice.v1 import voice_pb2

_SAME = 1e-9


def response_latency(turn: record_pb2.Turn, turns: Sequence[record_pb2.Turn]) -> float | None:
    """Returns the seconds from the caller's last audible sample to the agent's first.

    Args:
        turn: An agent's turn.
        turns: All turns of the call so far, of both sides, in any order; it may hold `turn`.

    Returns:
        None when nothing had been asked, when the agent spoke into the caller's words, when the
        agent was talking as the caller ended, or when an earlier turn of the agent was the answer.
    """
    start = turn.start_seconds
    asked = [
        t for t in turns if t.role == voice_pb2.ROLE_USER and t.start_seconds < start and _heard(t)
    ]
    if not asked:
        return None
    end = max(t.end_seconds for t in asked)
    if end > start + _SAME:
        return None
    for other in turns:
        if other.role != voice_pb2.ROLE_AGENT or other is turn or not _heard(other):
            continue
        if other.end_seconds > end and other.start_seconds < start:
            return None
    return start - end


def set_latencies(turns: Sequence[record_pb2.Turn]) -> None:
    """Sets `response_latency_seconds` of all agent turns, from the final positions."""
    for turn in turns:
        if turn.role != voice_pb2.ROLE_AGENT:
            continue
        latency = response_latency(turn, turns) if _heard(turn) else None
        if latency is None:
            turn.ClearField("response_latency_seconds")
        else:
            turn.response_latency_seconds = latency


def _heard(turn: record_pb2.Turn) -> bool:
    return turn.end_seconds > turn.start_seconds
