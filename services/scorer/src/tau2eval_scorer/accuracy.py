"""Speech accuracy: how well each side's recogniser heard what the other side said."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tau2eval_common.wer import score
from tau2eval_scorer.record import Role, Turn

DIRECTIONS: Mapping[str, Role] = {
    "agent_heard_user": Role.USER,
    "user_heard_agent": Role.AGENT,
}
"""Direction to the side that speaks in it."""

MAX_CHARS = 400_000
"""A longer side of a conversation is not aligned: the time grows with the square."""

HEARING_SECONDS = 3.0
"""Time that the end of a turn and its recognition take. What was said within it before the end of
the call, and was not heard, was cut off by the end: no recogniser was asked."""

_COUNTS = (
    "words",
    "ordinary_errors",
    "identifiers",
    "exact_identifiers",
    "identifier_tokens",
    "identifier_errors",
)


def speech_accuracy(
    turns: Sequence[Turn], modality: str = "voice", duration_seconds: float = math.inf
) -> dict[str, Any]:
    """Returns both directions' word errors; see `tau2eval_common.wer` for the counting.

    The words said are the spoken form as far as it was played; a turn without a spoken form
    contributes its text.

    Args:
        turns: The conversation's turns, in order.
        modality: In "text" nothing is recognised, and no turn counts.
        duration_seconds: When the call ended; the last words before it may have gone unheard.
    """
    judged = _without_unheard_end(turns, duration_seconds)
    return {
        direction: _direction([turn for turn in judged if turn.role is speaker], modality)
        for direction, speaker in DIRECTIONS.items()
    }


def combine(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sums conversations: the rates of the result come from the summed counts."""
    combined = {}
    for direction in DIRECTIONS:
        entries = [part[direction] for part in parts]
        counts = {name: sum(entry[name] for entry in entries) for name in ("turns", *_COUNTS)}
        combined[direction] = _with_rates(counts)
    return combined


def _without_unheard_end(turns: Sequence[Turn], duration_seconds: float) -> Sequence[Turn]:
    """Leaves out the last speaker's last turns when the call ended before they were recognised."""
    end = len(turns)
    while (
        end
        and not turns[end - 1].heard
        and turns[end - 1].role is turns[-1].role
        and turns[end - 1].end_seconds > duration_seconds - HEARING_SECONDS
    ):
        end -= 1
    return turns[:end]


def _direction(turns: Sequence[Turn], modality: str) -> dict[str, Any]:
    said = [turn.spoken_form or turn.text for turn in turns]
    heard = [turn.heard for turn in turns]
    size = max(sum(map(len, said)), sum(map(len, heard)))
    spoken = sum(bool(text.strip()) for text in said)
    if modality != "voice" or not spoken or size > MAX_CHARS:
        return _with_rates(dict.fromkeys(("turns", *_COUNTS), 0))
    errors: Mapping[str, Any] = score(said, heard)
    return _with_rates({"turns": spoken, **{name: errors[name] for name in _COUNTS}})


def _with_rates(counts: Mapping[str, int]) -> dict[str, Any]:
    def share(part: str, whole: str) -> float | None:
        return round(counts[part] / counts[whole], 6) if counts[whole] else None

    return {
        **counts,
        "ordinary_wer": share("ordinary_errors", "words"),
        "identifier_wer": share("identifier_errors", "identifier_tokens"),
    }
