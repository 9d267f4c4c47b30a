"""Reads what the judge of arguments answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tau2eval_gateway.flows.argcheck_prompt import JudgedCall, Unsupported
from tau2eval_gateway.flows.evidence_walk import Leaf, leaves_of
from tau2eval_gateway.flows.messages import parse_json_object


@dataclass(frozen=True, slots=True)
class Found:
    """A value of one call that nothing backs."""

    position: int
    value: Unsupported


def read_verdict(
    answer: str,
    calls: Sequence[JudgedCall],
    tools: Mapping[str, Mapping[str, Any]],
    *,
    believe: bool,
) -> list[Found] | None:
    """Returns the unbacked values that a judge names, in order.

    Only values that stand in the call count, so a judge cannot propose any. A call that it finds
    unsupported without naming a value is read as naming those that were flagged.

    Args:
        answer: The judge's text.
        calls: What it was asked about.
        tools: Declarations by name.
        believe: Whether it may also name values that the evidence holds, as when every write is
            judged; else the evidence stands.

    Returns:
        The values; None when the answer is no verdict.
    """
    verdict = parse_json_object(answer, "calls")
    listed = verdict.get("calls") if verdict is not None else None
    if isinstance(listed, Mapping):
        listed = [listed]
    if not isinstance(listed, list):
        return None
    items = [item for item in listed if isinstance(item, Mapping)]
    if listed and not items:
        return None
    found: dict[tuple[int, str], Found] = {}
    for item in items:
        judged = _judged(item.get("call"), calls)
        if judged is None or not _is_no(item.get("supported")):
            continue
        for leaf in _named(item.get("values"), judged, tools, believe):
            value = Unsupported(judged.call.name, leaf.path, leaf.value)
            found.setdefault(
                (judged.position, f"{leaf.path}={leaf.value}"), Found(judged.position, value)
            )
    return sorted(found.values(), key=lambda each: each.position)


def _judged(call: Any, calls: Sequence[JudgedCall]) -> JudgedCall | None:
    """Finds the call that an item speaks of: by position, id or a name that only one has."""
    if isinstance(call, str) and call.strip().isdecimal() and len(call) < 6:
        call = int(call)
    if isinstance(call, int) and not isinstance(call, bool):
        return next((each for each in calls if each.position == call), None)
    if not isinstance(call, str):
        return calls[0] if call is None and len(calls) == 1 else None
    named = [each for each in calls if call and call in (each.call.call_id, each.call.name)]
    return named[0] if len(named) == 1 else None


def _is_no(supported: Any) -> bool:
    if isinstance(supported, str):
        return supported.strip().lower() in ("false", "no")
    return supported is False


def _named(
    values: Any, judged: JudgedCall, tools: Mapping[str, Mapping[str, Any]], believe: bool
) -> list[Leaf]:
    call = judged.call
    flagged = [each.leaf for each in judged.findings]
    known = leaves_of(call.name, call.arguments, call.text, tools) if believe else flagged
    given = values if isinstance(values, list) else [values]
    names = {_plain(value) for value in given if isinstance(value, (str, int, float, Mapping))}
    named = [leaf for leaf in known if {_plain(leaf.value), _plain(leaf.path)} & names]
    return named or flagged


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        # {"path": ..., "value": ...}, as the question has it.
        value = value.get("value", "")
    return str(value).strip().strip("\"'").casefold()
