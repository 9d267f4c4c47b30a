"""The signals of a verdict, each a pure function of what the record says.

A signal that has nothing to judge is not applicable; one that cannot be judged now (a judge that
is off) is not judged, which is never a pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tau2eval_scorer.record import StopReason

if TYPE_CHECKING:  # The judge's package imports this module.
    from tau2eval_scorer.judge.result import JudgeResult

DB_STATE_MATCH = "DB_STATE_MATCH"
CLEAN_EXIT = "CLEAN_EXIT"
ACTION_MATCH = "ACTION_MATCH"
NL_ASSERTION = "NL_ASSERTION"
JUDGE_PASSED = "JUDGE_PASSED"

CLEAN_EXITS = frozenset({StopReason.AGENT_EXIT, StopReason.TRANSFER})
EXIT_FAILURES = frozenset({StopReason.TIMEOUT, StopReason.AGENT_STALLED, StopReason.AGENT_ERROR})


class Status(StrEnum):
    """What a signal says."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not_applicable"
    NOT_JUDGED = "not_judged"
    JUDGE_FAILED = "judge_failed"


@dataclass(frozen=True)
class Signal:
    """One signal of one conversation; `detail` is for a person."""

    name: str
    status: Status
    detail: str = ""


@dataclass(frozen=True)
class DbState:
    """How the end state of the database compares with the expected one.

    Attributes:
        has_database: Whether the scenario gives the agent a database.
        expected_hash: Hash after the gold actions.
        actual_hash: Hash that the agent's bot reported; empty when it reported none.
        how: "exact", "payment_order", "different", "missing" or "" (no database).
        differences: Places that differ: table, key, path, expected, actual.
        inconsistent: Why the report contradicts itself; empty when it does not. Such a report is
            never a score.
    """

    has_database: bool
    expected_hash: str = ""
    actual_hash: str = ""
    how: str = ""
    differences: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    inconsistent: str = ""

    @property
    def match(self) -> bool | None:
        """Whether the state is the expected one; None when nothing can be said."""
        if not self.has_database or self.inconsistent:
            return None
        return self.how in ("exact", "payment_order")


def db_state_match(state: DbState) -> Signal:
    """DB_STATE_MATCH: the database ended as the gold actions leave it.

    A report without a hash fails: only a lost bot is excused, and a conversation that lost its bot
    is not run.
    """
    if not state.has_database:
        return Signal(DB_STATE_MATCH, Status.NOT_APPLICABLE, "the scenario has no database")
    if state.inconsistent:
        return Signal(DB_STATE_MATCH, Status.NOT_APPLICABLE, state.inconsistent)
    if state.how == "missing":
        return Signal(DB_STATE_MATCH, Status.FAILED, "the agent reported no database hash")
    if state.how == "exact":
        return Signal(DB_STATE_MATCH, Status.PASSED, "the end state is the expected one")
    if state.how == "payment_order":
        return Signal(
            DB_STATE_MATCH,
            Status.PASSED,
            "the end state differs from the expected one in the order of one operation's payments "
            "only",
        )
    places = ", ".join(
        f"{item['table']}/{item['key']}" + (f" {item['path']}" if item["path"] else "")
        for item in state.differences[:3]
    )
    more = len(state.differences) - 3
    detail = f"the end state differs at {places}" + (f" and {more} more places" if more > 0 else "")
    return Signal(DB_STATE_MATCH, Status.FAILED, detail)


def clean_exit(reason: StopReason) -> Signal:
    """CLEAN_EXIT: the agent ended the call or handed it over."""
    if reason in CLEAN_EXITS:
        return Signal(CLEAN_EXIT, Status.PASSED, f"the call ended with {reason}")
    if reason in EXIT_FAILURES:
        return Signal(CLEAN_EXIT, Status.FAILED, f"the call ended with {reason}")
    return Signal(CLEAN_EXIT, Status.NOT_APPLICABLE, f"infrastructure: {reason}")


def action_match(matches: bool | None, detail: str = "") -> Signal:
    """ACTION_MATCH: the recorded actions are those of the reference answer, none more.

    Args:
        matches: The comparison's result; None when there are no actions to compare.
        detail: The first mismatch, for a person.
    """
    if matches is None:
        return Signal(ACTION_MATCH, Status.NOT_APPLICABLE, detail or "no actions were reported")
    return Signal(ACTION_MATCH, Status.PASSED if matches else Status.FAILED, detail)


def nl_assertion(assertions: Sequence[str], judgement: JudgeResult | None) -> Signal:
    """NL_ASSERTION: every adopted assertion holds (threshold 1.0).

    Args:
        assertions: The scenario's adopted assertions.
        judgement: What the judge found; None or "off" while no judge is configured.
    """
    if not assertions:
        return Signal(NL_ASSERTION, Status.NOT_APPLICABLE, "no assertions are adopted")
    if judgement is None or judgement.status == "off":
        return Signal(NL_ASSERTION, Status.NOT_JUDGED, "no judge is configured")
    if judgement.status == "error":
        return Signal(NL_ASSERTION, Status.JUDGE_FAILED, judgement.error)
    if judgement.status == "not_needed":
        return Signal(NL_ASSERTION, Status.NOT_APPLICABLE, "the call gives nothing to judge")
    verdicts = judgement.verdicts
    if [verdict.assertion for verdict in verdicts] != list(assertions):
        raise ValueError(f"{len(verdicts)} verdicts are not on the {len(assertions)} assertions")
    failed = [verdict.index for verdict in verdicts if not verdict.passed]
    if failed:
        return Signal(NL_ASSERTION, Status.FAILED, f"assertions {failed} do not hold")
    return Signal(NL_ASSERTION, Status.PASSED, f"all {len(assertions)} assertions hold")


def judge_passed(judgement: JudgeResult, threshold: float) -> Signal:
    """JUDGE_PASSED: the judge's overall score reaches the threshold. Informational.

    Raises:
        ValueError: When there is no score.
    """
    if judgement.score is None:
        raise ValueError("the judge gave no score")
    status = Status.PASSED if judgement.score >= threshold else Status.FAILED
    return Signal(JUDGE_PASSED, status, f"score {judgement.score:g}, threshold {threshold:g}")
