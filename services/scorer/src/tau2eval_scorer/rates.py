"""Counting verdicts as rates: which conversations a rate is of, and its interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tau2eval_scorer.signals import JUDGE_PASSED
from tau2eval_scorer.stats import clustered_interval, mean_interval, pass_hat
from tau2eval_scorer.verdict import NEVER_GATES

UNJUDGED_KINDS = frozenset({"judge_off", "judge_error"})
"""Kinds of not_run in which the call was held and every other signal was computed."""
_SAID_SOMETHING = ("passed", "failed")

Place = tuple[str, int]
"""A scenario and a trial."""


@dataclass(frozen=True)
class Row:
    """One verdict.

    Attributes:
        trial: 0-based.
        verdict: As the store keeps it.
        metrics: The content of its metrics.json.
    """

    scenario: str
    trial: int
    verdict: Mapping[str, Any]
    metrics: Mapping[str, Any]

    @property
    def place(self) -> Place:
        """Its scenario and trial."""
        return self.scenario, self.trial

    @property
    def outcome(self) -> str:
        """One of "passed", "failed" and "not_run"."""
        return str(self.verdict["outcome"])

    @property
    def passed(self) -> bool:
        """Whether it passed."""
        return self.outcome == "passed"

    @property
    def scored(self) -> bool:
        """Whether it is a pass or a failure."""
        return self.outcome != "not_run"

    @property
    def not_run_kind(self) -> str:
        """Why it is no score; empty for a score."""
        return str(self.verdict["not_run_kind"] or "")

    @property
    def agent_fault(self) -> bool:
        """Whether it is a not_run that the agent itself can bring about."""
        return not self.scored and bool(self.metrics["caused_by_agent"])

    @property
    def has_signals(self) -> bool:
        """Whether the rates of the signals count it.

        They count a held call that only waits for its judge, and skip one with too few agent
        turns, which says nothing about any signal.
        """
        few = self.metrics["insufficient_agent_turns"] or (
            self.metrics.get("agent_turns", 0) < self.metrics.get("min_agent_turns", 0)
        )
        return not few and (self.scored or self.not_run_kind in UNJUDGED_KINDS)


@dataclass
class TaskTally:
    """One task of a run: what became of its planned trials.

    Attributes:
        strict_of: Trials with a score or an attempt that the agent itself made a not_run.
        strict_passed: Trials that passed without such an attempt.
        kinds: Trials without a score by kind of not_run.
    """

    scenario: str
    domain: str
    planned: int
    passed: int = 0
    failed: int = 0
    strict_passed: int = 0
    strict_of: int = 0
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def scored(self) -> int:
        """Trials with a score."""
        return self.passed + self.failed

    @property
    def not_run(self) -> int:
        """Trials whose counting attempt is no score."""
        return self.kinds.total()

    @property
    def missing(self) -> int:
        """Trials without any attempt."""
        return self.planned - self.scored - self.not_run

    def counts(self, strict: bool = False) -> tuple[int, int]:
        """Returns (passed, of)."""
        return (self.strict_passed, self.strict_of) if strict else (self.passed, self.scored)


def faulted_places(rows: Iterable[Row]) -> frozenset[Place]:
    """Returns where any attempt, also one that was repeated, is the agent's own not_run."""
    return frozenset(row.place for row in rows if row.agent_fault)


def tally(
    scenarios: Sequence[str], trials: int, rows: Sequence[Row], faulted: frozenset[Place]
) -> list[TaskTally]:
    """Returns every planned task in the order of the plan, those without any attempt too.

    Args:
        scenarios: Of the plan.
        trials: Of the plan.
        rows: The counting verdicts.
        faulted: What `faulted_places` returned.
    """
    tasks = {name: TaskTally(name, domain_of(name), trials) for name in scenarios}
    for row in rows:
        task = tasks.get(row.scenario)
        if task is None:
            raise ValueError(f"{row.scenario} is not in the plan")
        task.domain = str(row.metrics["domain"])
        if row.scored:
            task.passed += row.passed
            task.failed += not row.passed
        else:
            task.kinds[row.not_run_kind] += 1
        at_fault = row.place in faulted
        if row.scored or at_fault:
            task.strict_of += 1
            task.strict_passed += row.passed and not at_fault
    return list(tasks.values())


def domain_of(scenario: str) -> str:
    """Returns the domain that a scenario's name begins with."""
    return scenario.partition("__")[0]


def rate(counts: Iterable[tuple[int, int]]) -> dict[str, Any]:
    """Returns a rate with its denominator and interval, null where there is nothing to count.

    Args:
        counts: Passed and counted, task by task: the clusters of the interval.
    """
    counts = [pair for pair in counts if pair[1]]
    passed = sum(pair[0] for pair in counts)
    of = sum(pair[1] for pair in counts)
    interval = clustered_interval(counts)
    return {
        "passed": passed,
        "of": of,
        "rate": round(passed / of, 6) if of else None,
        "interval_95": interval.to_list() if interval else None,
        "tasks": len(counts),
    }


def success_rate(tasks: Iterable[TaskTally], strict: bool = False) -> dict[str, Any]:
    """Returns the composite's rate; strict takes the agent's own not_run as failures."""
    return rate(task.counts(strict) for task in tasks)


def pass_hat_table(tasks: Sequence[TaskTally], trials: int) -> dict[str, Any]:
    """Returns pass^1 to pass^k for the planned number of trials."""
    scored = [task.scored for task in tasks if task.scored]
    return {
        "planned_trials": trials,
        "planned_tasks": len(tasks),
        "upstream_max_k": min([trials, *scored]) if scored else 0,
        "rates": [
            {
                "k": k,
                **_pass_hat_rate(tasks, k, strict=False),
                "with_agent_faults_failed": _pass_hat_rate(tasks, k, strict=True),
            }
            for k in range(1, trials + 1)
        ],
    }


def _pass_hat_rate(tasks: Sequence[TaskTally], k: int, strict: bool) -> dict[str, Any]:
    counts = [task.counts(strict) for task in tasks]
    enough = [(passed, of) for passed, of in counts if of >= k]
    shares = [pass_hat(passed, of, k) for passed, of in enough]
    interval = mean_interval(shares, sum(of for _, of in enough) / k)
    return {
        "rate": round(sum(shares) / len(shares), 6) if shares else None,
        "interval_95": interval.to_list() if interval else None,
        "tasks": len(shares),
        "tasks_short": len(counts) - len(shares),
    }


def signal_rates(rows: Sequence[Row], faulted: frozenset[Place]) -> dict[str, Any]:
    """Returns each signal's rate where it applied, and the one with the agent's faults failed."""
    plain: dict[str, dict[str, list[int]]] = {}
    strict: dict[str, dict[str, list[int]]] = {}

    def count(into: dict[str, dict[str, list[int]]], name: str, row: Row, passed: bool) -> None:
        entry = into.setdefault(name, {}).setdefault(row.scenario, [0, 0])
        entry[0] += passed
        entry[1] += 1

    for row in rows:
        at_fault = row.place in faulted
        if at_fault:
            for name in _asked_for(row):
                count(strict, name, row, False)
        if not row.has_signals:
            continue
        for name, signal in row.metrics["signals"].items():
            if signal["status"] in _SAID_SOMETHING:
                passed = signal["status"] == "passed"
                count(plain, name, row, passed)
                if not at_fault:
                    count(strict, name, row, passed)
    return {
        name: {
            **rate(_pairs(plain.get(name))),
            "gates": name not in NEVER_GATES,
            "with_agent_faults_failed": rate(_pairs(strict.get(name))),
        }
        for name in sorted(plain.keys() | strict.keys())
    }


def assertion_rate(rows: Sequence[Row]) -> dict[str, Any]:
    """Returns the rate of single assertions that hold, over the judged conversations."""
    counts: dict[str, list[int]] = {}
    conversations = 0
    for row in rows:
        total = row.metrics.get("nl_assertion_total")
        if not total or not row.has_signals:
            continue
        conversations += 1
        entry = counts.setdefault(row.scenario, [0, 0])
        entry[0] += row.metrics["nl_assertion_pass_count"]
        entry[1] += total
    return {**rate(_pairs(counts)), "conversations": conversations}


def short_of_trials(tasks: Sequence[TaskTally]) -> list[dict[str, Any]]:
    """Returns the tasks with fewer scores than planned trials, and what became of the rest."""
    return [
        {
            "scenario": task.scenario,
            "planned": task.planned,
            "scored": task.scored,
            "not_run": task.not_run,
            "missing": task.missing,
            "not_run_kinds": dict(sorted(task.kinds.items())),
        }
        for task in tasks
        if task.scored < task.planned
    ]


def _asked_for(row: Row) -> list[str]:
    """The signals that a conversation would have had; the judge's score is none of them."""
    breakdown = row.verdict["success_breakdown"]
    names = dict.fromkeys(name for bucket in breakdown.values() for name in bucket)
    return [name for name in names if name != JUDGE_PASSED]


def _pairs(counts: Mapping[str, list[int]] | None) -> list[tuple[int, int]]:
    return [(passed, of) for passed, of in (counts or {}).values()]
