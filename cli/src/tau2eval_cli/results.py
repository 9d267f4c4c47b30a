"""Results of a run as this command prints them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tau2eval.scorer.v1 import scorer_pb2
from tau2eval_cli import words
from tau2eval_cli.errors import (
    EXIT_DONE,
    EXIT_GATE_FAILED,
    EXIT_INTERRUPTED,
    EXIT_NOT_VALID,
)
from tau2eval_cli.gates import NO_GATES, Gates
from tau2eval_cli.trials import Trial

OUTCOMES = ("passed", "failed", "not_run")
SCORES = ("passed", "failed")
RATES = (
    "success_rate",
    "success_rate_with_agent_faults_failed",
    "pass_hat",
    "signals",
    "nl_assertions",
    "short_of_trials",
    "mixed_settings",
    "resumes",
    "judge",
    "token_usage",
    "cost_usd",
    "warnings",
)
"""Members of the run's summary that `run --json` repeats."""


def parse_object(text: str) -> dict[str, Any]:
    """Returns a JSON object; an empty one for anything else."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class TrialResult:
    """How one trial ended.

    Attributes:
        verdict: The scorer's, or one made here for a call that could not be held.
        stored: Whether the scorer has it.
        several: Whether the run has several trials.
        kept: Whether it was there before this command began, or is another runner's.
    """

    verdict: scorer_pb2.Verdict
    stored: bool = True
    several: bool = False
    kept: bool = False

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return self.verdict.scenario

    @property
    def trial(self) -> Trial:
        """Scenario and number."""
        return Trial.of(self.verdict)

    @property
    def label(self) -> str:
        """Name of the trial for a person."""
        return self.trial.label(self.several)

    @property
    def outcome(self) -> str:
        """Outcome as a word: "passed", "failed" or "not_run"."""
        return words.outcome(self.verdict.outcome)

    @property
    def scored(self) -> bool:
        """Whether it is a pass or a failure."""
        return self.outcome in SCORES

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics.json of the conversation; empty without one."""
        return parse_object(self.verdict.metrics_json)

    @property
    def judge_result(self) -> dict[str, Any]:
        """The judge_result.json of the conversation; empty when no judge was asked."""
        return parse_object(self.verdict.judge_result_json)

    def to_json(self) -> dict[str, Any]:
        """Returns the members of `run --json` for this trial; times in seconds."""
        return {"kept": self.kept, **verdict_json(self.verdict)}


def verdict_json(verdict: scorer_pb2.Verdict) -> dict[str, Any]:
    """Returns a verdict as JSON values, for programs; times in seconds."""
    breakdown = verdict.success_breakdown
    metrics, judge = parse_object(verdict.metrics_json), parse_object(verdict.judge_result_json)
    return {
        "name": verdict.scenario,
        "scenario": verdict.scenario,
        "trial": verdict.trial,
        "outcome": words.outcome(verdict.outcome),
        "kind": verdict.not_run_kind or None,
        "success_breakdown": {
            bucket: list(getattr(breakdown, bucket))
            for bucket in ("passed", "failed", "not_applicable", "excluded")
        },
        "stop_reason": words.stop_reason(verdict.stop_reason) or None,
        "duration_seconds": round(verdict.duration_seconds, 3),
        "fully_judged": verdict.fully_judged,
        "judge": {
            "status": metrics.get("judge_status"),
            "model": judge.get("model"),
            "score": judge.get("score"),
            "reason": judge.get("reason"),
            "nl_assertion_verdicts": judge.get("nl_assertion_verdicts"),
        }
        if judge
        else None,
        "explanation": verdict.explanation,
        "attempt_id": verdict.attempt_id,
        "scoring": verdict.scoring,
        "artifacts_path": verdict.artifacts_path or None,
    }


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    Attributes:
        run_id: Id of the run.
        output_dir: Folder of its artifacts.
        trials: Results in the order of the plan.
        planned: Trials of a scenario that the plan asks for.
        judge_model: Of the plan; empty when it has no judge.
        not_started: Planned trials that were not begun.
        cut_off: Trials whose calls were given up when everything was ended at once.
        others: Trials that another runner still held at the end.
        interrupted: Whether a person ended the run early.
        resumed: Whether the run had begun before.
        summary: The scorer's all_metrics.json; empty when it could not be had.
        problems: Faults beside the scenarios, in words.
        gates: What the result is held to.
    """

    run_id: str
    output_dir: Path
    trials: list[TrialResult]
    planned: int = 1
    judge_model: str = ""
    not_started: list[Trial] = field(default_factory=list)
    cut_off: list[Trial] = field(default_factory=list)
    others: list[Trial] = field(default_factory=list)
    interrupted: bool = False
    resumed: bool = False
    summary: Mapping[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    gates: Gates = NO_GATES

    @property
    def several(self) -> bool:
        """Whether the run has several trials."""
        return self.planned > 1

    @property
    def counts(self) -> dict[str, int]:
        """Number of trials by outcome."""
        counted = Counter(result.outcome for result in self.trials)
        return {name: counted[name] for name in OUTCOMES}

    @property
    def not_clean(self) -> list[str]:
        """Why --require-clean refuses the result; empty when it does not, or was not asked to."""
        if not self.gates.require_clean:
            return []
        return self.gates.unclean(self.summary, [result.verdict for result in self.trials])

    @property
    def exit_code(self) -> int:
        """130 interrupted, 3 not valid, 1 a gate failed, 0 done; the first that applies."""
        if self.interrupted:
            return EXIT_INTERRUPTED
        left = self.not_started or self.cut_off or self.others
        scored = all(result.scored for result in self.trials)
        if not scored or left or self.problems or self.not_clean:
            return EXIT_NOT_VALID
        share = self.gates.share(self.summary)
        if self.gates.fail_under is not None and share is None:
            return EXIT_NOT_VALID
        return EXIT_GATE_FAILED if self.gates.fails(share) else EXIT_DONE

    def labels(self, trials: list[Trial]) -> list[str]:
        """Returns the names of trials for a person."""
        return [trial.label(self.several) for trial in trials]

    def to_json(self) -> dict[str, Any]:
        """Returns what `run --json` prints."""
        return {
            "run_id": self.run_id,
            "output_dir": str(self.output_dir),
            "trials": self.planned,
            "counts": self.counts,
            "scenarios": [result.to_json() for result in self.trials],
            "not_started": self.labels(self.not_started),
            "cut_off": self.labels(self.cut_off),
            "held_by_others": self.labels(self.others),
            "interrupted": self.interrupted,
            "resumed": self.resumed,
            "judge_model": self.judge_model or None,
            "rates": {name: self.summary[name] for name in RATES if name in self.summary},
            "gates": self.gates.to_json(self.summary, self.not_clean),
            "problems": self.problems,
        }
