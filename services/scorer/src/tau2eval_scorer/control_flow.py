"""What the gateway's control flows did in each model call of a conversation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tau2eval_scorer.record import TimedEvent

PREFIX = "x-marina-"
OF_EVERY_CALL = frozenset({"x-marina-upstream-model", "x-marina-cost-usd", "x-marina-session"})
"""Headers that plain calls have too; the call's price is in its usage."""
MAX_VALUES = 16
MAX_VALUE_CHARS = 400
MAX_COUNTS = 64
"""Names that are counted for one flow of one role; what a bot reports must stay bounded."""
MAX_DIGITS = 9
_COST = "-cost-usd"
_LEVELS = frozenset({"open", "settled"})
_FAILED = ("failed", "-failed", "-unavailable", "-unreadable")


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


def control_flow_totals(metrics: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Adds up what control flows did, by role and flow.

    Args:
        metrics: metrics.json of each conversation.

    Returns:
        {role: {flow: {calls, counts}}}: `calls` went through the flow; `counts` adds up its
        verdicts, its counters, or the names of its lessons. A counter that tells a state and not
        something done (`open`, `settled`) is left out: it means nothing when added up.
    """
    totals: dict[str, dict[str, Any]] = {}
    for one in metrics:
        for call in one.get("control_flow", ()):
            for name, value in call["values"].items():
                if name.endswith(_COST):
                    continue
                flows = totals.setdefault(call["role"], {})
                flow = flows.setdefault(name, {"calls": 0, "counts": Counter()})
                flow["calls"] += 1
                for word, count in _counts(name, value):
                    if word in flow["counts"] or len(flow["counts"]) < MAX_COUNTS:
                        flow["counts"][word] += count
    return {
        role: {
            name: {"calls": flow["calls"], "counts": dict(sorted(flow["counts"].items()))}
            for name, flow in sorted(flows.items())
        }
        for role, flows in sorted(totals.items())
    }


def unchecked_calls(totals: Mapping[str, Any]) -> dict[str, int]:
    """Returns, by "role flow", how often a flow could not do its work and let an answer pass."""
    found: dict[str, int] = {}
    for role, flows in totals.items():
        for name, flow in flows.items():
            failed = sum(
                count
                for word, count in flow["counts"].items()
                if word.endswith(_FAILED) or word in _FAILED
            )
            if failed and name != "lessons":
                found[f"{role} {name}"] = failed
    return found


def _counts(name: str, value: str) -> Iterator[tuple[str, int]]:
    if name == "lessons":
        for lesson in value.removeprefix("observe:").split(","):
            if lesson not in ("", "0"):
                yield lesson, 1
        return
    for part in value.split(" "):
        word, equals, count = part.partition("=")
        if not equals:
            if word not in ("", "0"):
                yield word, 1
        elif word and count.isdecimal() and len(count) <= MAX_DIGITS and word not in _LEVELS:
            yield word, int(count)


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
