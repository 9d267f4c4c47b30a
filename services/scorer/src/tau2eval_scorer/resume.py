"""What a resumption of a run would do, and which settings it would change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tau2eval_common.errors import FailedPrecondition
from tau2eval_scorer.jsonio import dump_line
from tau2eval_scorer.store import Attempt, Claim, Plan

_MAX_SHOWN = 20
_MAX_VALUE_CHARS = 80


@dataclass(frozen=True)
class ResumeItem:
    """One planned trial.

    Attributes:
        action: "keep", "run", "judge" or "judge_off".
        reason: For a person.
        holder: Who holds a claim on it now; empty when nobody does.
    """

    scenario: str
    trial: int
    action: str
    reason: str
    holder: str


def resume_items(
    plan: Plan, attempts: Sequence[Attempt], claims: Mapping[tuple[str, int], Claim]
) -> list[ResumeItem]:
    """Returns what is to be done for each planned trial, in the order of the plan."""
    at: dict[tuple[str, int], list[Attempt]] = {}
    for attempt in attempts:
        at.setdefault((attempt.key.scenario, attempt.key.trial), []).append(attempt)
    items = []
    for scenario, trial in plan.trial_places():
        action, reason = _action(plan, at.get((scenario, trial), ()))
        claim = claims.get((scenario, trial))
        holder = (claim.holder or claim.attempt_id) if claim is not None else ""
        if holder and action == "run":
            reason = f"{reason}; {holder} holds it now"
        items.append(ResumeItem(scenario, trial, action, reason, holder))
    return items


def changed_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the settings that differ, each {"name", "before", "after"}, by dotted names.

    A setting that is missing on one side is None there.
    """
    return list(_changes("", before, after))


def check_unchanged(run_id: str, changes: Sequence[Mapping[str, Any]]) -> None:
    """Refuses settings that are not the plan's.

    Raises:
        FailedPrecondition: When there are changes; it lists them.
    """
    if not changes:
        return
    lines = [
        f"{change['name']} was {_shown(change['before'])}, is {_shown(change['after'])}"
        for change in changes[:_MAX_SHOWN]
    ]
    if len(changes) > _MAX_SHOWN:
        lines.append(f"and {len(changes) - _MAX_SHOWN} more")
    names = ",".join(str(change["name"]) for change in changes[:_MAX_SHOWN])
    raise FailedPrecondition(
        f"run {run_id} began with other settings: {'; '.join(lines)}. Resume it with its own, "
        "allow mixed settings, or start another run",
        reason="SETTINGS_CHANGED",
        metadata={"names": names},
    )


def _action(plan: Plan, attempts: Sequence[Attempt]) -> tuple[str, str]:
    counting = next((attempt for attempt in attempts if attempt.counts), None)
    if counting is None:
        return "run", "not held yet"
    if counting.scored:
        return "keep", counting.outcome
    # A whole call that lacks nothing but its judgement comes before a new call, also when a later
    # attempt was not run.
    waiting = next((attempt for attempt in attempts if attempt.awaits_judge), None)
    if waiting is None:
        return "run", f"not run: {counting.verdict['not_run_kind']}"
    if plan.judge.enabled:
        return "judge", f"the call is whole; its judgement is missing ({_kind(waiting)})"
    return "judge_off", f"the call is whole; this run has no judge ({_kind(waiting)})"


def _kind(attempt: Attempt) -> str:
    return str(attempt.verdict["not_run_kind"])


def _changes(prefix: str, before: Any, after: Any) -> Iterator[dict[str, Any]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted({*before, *after}):
            inner = f"{prefix}.{name}" if prefix else str(name)
            yield from _changes(inner, before.get(name), after.get(name))
    elif before != after or isinstance(before, bool) != isinstance(after, bool):
        yield {"name": prefix, "before": before, "after": after}


def _shown(value: Any) -> str:
    text = dump_line(value).decode().strip()
    return text if len(text) <= _MAX_VALUE_CHARS else text[:_MAX_VALUE_CHARS] + "…"
