"""What the gateway's control flows did in each model call of a conversation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from tau2eval_scorer.record import TimedEvent

PREFIX = "x-marina-"
OF_EVERY_CALL = frozenset({"x-marina-upstream-model", "x-marina-cost-usd", "x-marina-session"})
"""Headers that plain calls have too; the call's price is in its usage."""
MAX_VALUES = 16
MAX_VALUE_CHARS = 400


def control_flow(events: Iterable[TimedEvent]) -> list[dict[str, Any]]:
    """Returns the x-marina-* values of each model call that went through a control flow.

    Args:
        events: Of the conversation, by time.

    Returns:
        {role, call (of that side, from 1), time_seconds, cost_usd, values} each; `values` by the
        header's name without x-marina-.
    """
    found: list[dict[str, Any]] = []
    calls: dict[str, int] = {}
    for event in events:
        if event.kind != "usage":
            continue
        role = str(event.role)
        calls[role] = calls.get(role, 0) + 1
        values = _values(event.data.get("marina_headers"))
        if values:
            found.append(
                {
                    "role": role,
                    "call": calls[role],
                    "time_seconds": event.time_seconds,
                    "cost_usd": _dollars(event.data.get("cost_usd")),
                    "values": values,
                }
            )
    return found


def _dollars(cost: Any) -> float | None:
    known = isinstance(cost, int | float) and math.isfinite(cost) and cost >= 0
    return float(cost) if known else None


def _values(headers: Any) -> dict[str, str]:
    if not isinstance(headers, Mapping):
        return {}
    names = sorted(
        name for name in headers if name.startswith(PREFIX) and name not in OF_EVERY_CALL
    )
    return {
        name.removeprefix(PREFIX)[:MAX_VALUE_CHARS]: str(headers[name])[:MAX_VALUE_CHARS]
        for name in names[:MAX_VALUES]
    }
