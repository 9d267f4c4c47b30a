"""The composite verdict: a strict conjunction, with infrastructure kept out of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tau2eval_scorer.record import StopReason
from tau2eval_scorer.signals import ACTION_MATCH, JUDGE_PASSED, NL_ASSERTION, Signal, Status

NOT_RUN_KINDS: Mapping[StopReason, str] = {
    StopReason.USER_STALLED: "user_stalled",
    StopReason.AGENT_LOST: "agent_lost",
    StopReason.USER_LOST: "user_lost",
    StopReason.SPEECH_ERROR: "speech_error",
    StopReason.GATEWAY_ERROR: "gateway_error",
    StopReason.HARNESS_ERROR: "harness_error",
    StopReason.CANCELLED: "cancelled",
}
"""Stop reasons that are infrastructure, and the kind of not_run that each becomes."""

NEVER_GATES = frozenset({ACTION_MATCH, JUDGE_PASSED})
"""Signals that are computed as diagnostics and never part of the verdict."""


class Outcome(StrEnum):
    """What became of a conversation."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not_run"


@dataclass(frozen=True)
class Breakdown:
    """Names of signals by bucket; every computed or asked-for signal is in exactly one."""

    passed: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    not_applicable: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, list[str]]:
        """Returns the buckets as lists."""
        return {
            "passed": list(self.passed),
            "failed": list(self.failed),
            "not_applicable": list(self.not_applicable),
            "excluded": list(self.excluded),
        }


@dataclass(frozen=True)
class Composite:
    """The verdict on one conversation.

    Attributes:
        not_run_kind: Set for not_run only.
        is_successful: True or False for a score, None when it was not run.
        insufficient_agent_turns: Too few agent turns to say anything: a failure of the composite
            that the per-signal rates skip.
        caused_by_agent: A not_run that the agent itself can bring about; one of the success rates
            counts it as a failure.
        explanation: One line for a person.
    """

    outcome: Outcome
    not_run_kind: str
    breakdown: Breakdown
    insufficient_agent_turns: bool
    caused_by_agent: bool
    explanation: str

    @property
    def is_successful(self) -> bool | None:
        """True or False for a score, None when the conversation was not run."""
        return None if self.outcome is Outcome.NOT_RUN else self.outcome is Outcome.PASSED


@dataclass(frozen=True)
class Evidence:
    """What the composite is made of.

    Attributes:
        signals: Every computed signal by name.
        success_signals: The scenario's whitelist.
        db_inconsistent: Why the database report contradicts itself, or empty.
    """

    stop_reason: StopReason
    stop_detail: str
    signals: Mapping[str, Signal]
    success_signals: Sequence[str]
    agent_turns: int
    min_agent_turns: int
    db_inconsistent: str = ""


def compose(evidence: Evidence) -> Composite:
    """Returns the verdict.

    The order of the rules: infrastructure first, then a report that contradicts itself, then a
    signal that cannot be judged; only then the minimum of agent turns and the conjunction.
    """
    kind = NOT_RUN_KINDS.get(evidence.stop_reason)
    if kind is not None:
        detail = f": {evidence.stop_detail}" if evidence.stop_detail else ""
        return _not_run(evidence, kind, f"not run, {kind}{detail}", kind == "agent_lost")
    if evidence.db_inconsistent:
        text = f"not run, harness_error: {evidence.db_inconsistent}"
        return _not_run(evidence, "harness_error", text, True)
    gates = [name for name in dict.fromkeys(evidence.success_signals) if name not in NEVER_GATES]
    unknown = [name for name in gates if name not in evidence.signals]
    if unknown:
        text = f"not run, harness_error: nothing computes {', '.join(unknown)}"
        return _not_run(evidence, "harness_error", text, False)
    breakdown = _breakdown(evidence, gates)
    off = [name for name in gates if evidence.signals[name].status is Status.NOT_JUDGED]
    if off:
        text = f"not run, judge_off: {', '.join(off)} needs a judge"
        return Composite(Outcome.NOT_RUN, "judge_off", breakdown, False, False, text)
    insufficient = evidence.agent_turns < evidence.min_agent_turns
    broken = [name for name in gates if evidence.signals[name].status is Status.JUDGE_FAILED]
    if broken and not insufficient:
        text = f"not run, judge_error: {evidence.signals[broken[0]].detail}"
        return Composite(Outcome.NOT_RUN, "judge_error", breakdown, False, False, text)
    unjudged = [
        name
        for name in gates
        if name == NL_ASSERTION and evidence.signals[name].status is Status.NOT_APPLICABLE
    ]
    if unjudged and not insufficient:
        text = f"not run, harness_error: {NL_ASSERTION} gates and was not judged"
        return _not_run(evidence, "harness_error", text, False)
    if not breakdown.passed and not breakdown.failed:
        text = "not run, harness_error: no success signal applies to this scenario"
        return _not_run(evidence, "harness_error", text, False)
    reasons = [f"{name}: {evidence.signals[name].detail}" for name in breakdown.failed]
    if insufficient:
        reasons.insert(
            0,
            f"the agent completed {evidence.agent_turns} turns of at least "
            f"{evidence.min_agent_turns}",
        )
    if reasons:
        text = f"failed, {'; '.join(reasons)}"
        return Composite(Outcome.FAILED, "", breakdown, insufficient, False, text)
    text = f"passed, {' and '.join(breakdown.passed)} hold"
    return Composite(Outcome.PASSED, "", breakdown, False, False, text)


def _not_run(evidence: Evidence, kind: str, text: str, caused_by_agent: bool) -> Composite:
    names = [name for name in evidence.success_signals if name not in NEVER_GATES]
    breakdown = Breakdown(
        not_applicable=tuple(dict.fromkeys(names)),
        excluded=tuple(name for name in evidence.signals if name not in names),
    )
    return Composite(Outcome.NOT_RUN, kind, breakdown, False, caused_by_agent, text)


def _breakdown(evidence: Evidence, gates: Sequence[str]) -> Breakdown:
    def those(*statuses: Status) -> tuple[str, ...]:
        return tuple(name for name in gates if evidence.signals[name].status in statuses)

    return Breakdown(
        passed=those(Status.PASSED),
        failed=those(Status.FAILED),
        not_applicable=those(Status.NOT_APPLICABLE, Status.NOT_JUDGED, Status.JUDGE_FAILED),
        excluded=tuple(name for name in evidence.signals if name not in gates),
    )


def signals_to_dict(signals: Mapping[str, Signal]) -> dict[str, dict[str, Any]]:
    """Returns every signal's status and detail by name, for metrics.json."""
    return {
        name: {"status": str(signal.status), "detail": signal.detail}
        for name, signal in signals.items()
    }
