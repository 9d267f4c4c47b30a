"""Response latency: statistics of the turns that have one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tau2eval_scorer.record import Role, Turn


@dataclass(frozen=True)
class LatencySample:
    """One answer of the agent and what it answered.

    Attributes:
        user_transcript: The caller's words since the agent's previous turn.
        latency_ms: From the caller's last audible sample to the agent's first, in milliseconds.
    """

    user_transcript: str
    agent_transcript: str
    latency_ms: float

    def to_dict(self) -> dict[str, Any]:
        """Returns the sample as metrics.json holds it."""
        return {
            "user_transcript": self.user_transcript,
            "agent_transcript": self.agent_transcript,
            "latency_ms": self.latency_ms,
        }


def latency_samples(turns: Sequence[Turn]) -> list[LatencySample]:
    """Returns a sample for each agent turn that has a latency, in order."""
    samples = []
    said: list[str] = []
    for turn in turns:
        if turn.role is Role.USER:
            said.append(turn.text)
            continue
        if turn.response_latency_seconds is not None:
            samples.append(
                LatencySample(
                    user_transcript=" ".join(text for text in said if text),
                    agent_transcript=turn.text,
                    latency_ms=round(turn.response_latency_seconds * 1000, 3),
                )
            )
        said.clear()
    return samples


def percentile(values: Sequence[float], share: float) -> float:
    """Returns a percentile by linear interpolation between the two nearest ranks.

    The rule is that of Hyndman and Fan's type 7, the default of numpy and of most spreadsheets.

    Args:
        values: At least one number, in any order.
        share: 0 to 1; 0.95 for the 95th percentile.

    Raises:
        ValueError: Without values, or for a share outside 0 to 1.
    """
    if not values or not 0 <= share <= 1:
        raise ValueError("a percentile needs values and a share of 0 to 1")
    ordered = sorted(values)
    position = (len(ordered) - 1) * share
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    # Clamped: rounding must not push the result out of its own interval.
    between = ordered[low] + (ordered[high] - ordered[low]) * (position - low)
    return min(max(between, ordered[low]), ordered[high])


def latency_stats(latencies_ms: Sequence[float]) -> dict[str, Any]:
    """Returns count, mean, p50, p95, min and max in milliseconds; null without any latency."""
    if not latencies_ms:
        names = ("mean_ms", "p50_ms", "p95_ms", "min_ms", "max_ms")
        return {"count": 0, **dict.fromkeys(names)}
    mean = math.fsum(latencies_ms) / len(latencies_ms)
    return {
        "count": len(latencies_ms),
        "mean_ms": round(mean, 3),
        "p50_ms": round(percentile(latencies_ms, 0.5), 3),
        "p95_ms": round(percentile(latencies_ms, 0.95), 3),
        "min_ms": round(min(latencies_ms), 3),
        "max_ms": round(max(latencies_ms), 3),
    }
