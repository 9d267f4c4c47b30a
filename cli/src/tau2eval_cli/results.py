"""Results of a run as this command prints them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tau2eval.scorer.v1 import scorer_pb2
from tau2eval_cli import words
from tau2eval_cli.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_NOT_VALID

OUTCOMES = ("passed", "failed", "not_run")


@dataclass(frozen=True)
class ScenarioResult:
    """How one scenario ended.

    Attributes:
        verdict: The scorer's, or one made here for a call that could not be held.
        stored: Whether the scorer has it.
    """

    verdict: scorer_pb2.Verdict
    stored: bool = True

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return self.verdict.scenario

    @property
    def outcome(self) -> str:
        """Outcome as a word: "passed", "failed" or "not_run"."""
        return words.outcome(self.verdict.outcome)

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics.json of the conversation; empty without one."""
        try:
            value = json.loads(self.verdict.metrics_json or "{}")
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def to_json(self) -> dict[str, Any]:
        """Returns the members of `run --json` for this scenario; times in seconds."""
        verdict = self.verdict
        breakdown = verdict.success_breakdown
        return {
            "name": self.name,
            "outcome": self.outcome,
            "kind": verdict.not_run_kind or None,
            "success_breakdown": {
                bucket: list(getattr(breakdown, bucket))
                for bucket in ("passed", "failed", "not_applicable", "excluded")
            },
            "stop_reason": words.stop_reason(verdict.stop_reason) or None,
            "duration_seconds": round(verdict.duration_seconds, 3),
            "fully_judged": verdict.fully_judged,
            "explanation": verdict.explanation,
            "attempt_id": verdict.attempt_id,
            "artifacts_path": verdict.artifacts_path or None,
        }


@dataclass(frozen=True)
class RunResult:
    """How a run ended.

    Attributes:
        run_id: Id of the run.
        output_dir: Folder of its artifacts.
        scenarios: Results in the order of the plan.
        not_started: Planned scenarios that were not begun.
        interrupted: Whether a person ended the run early.
        summary_text: The scorer's all_summary.txt; empty when it could not be had.
        problems: Faults beside the scenarios, in words.
    """

    run_id: str
    output_dir: Path
    scenarios: list[ScenarioResult]
    not_started: list[str] = field(default_factory=list)
    interrupted: bool = False
    summary_text: str = ""
    problems: list[str] = field(default_factory=list)

    @property
    def counts(self) -> dict[str, int]:
        """Number of scenarios by outcome."""
        counted = Counter(result.outcome for result in self.scenarios)
        return {name: counted[name] for name in OUTCOMES}

    @property
    def exit_code(self) -> int:
        """0 when everything was scored, 3 when something was not, 130 when interrupted."""
        if self.interrupted:
            return EXIT_INTERRUPTED
        scored = all(result.outcome in ("passed", "failed") for result in self.scenarios)
        if not scored or self.not_started or self.problems:
            return EXIT_NOT_VALID
        return EXIT_DONE

    def to_json(self) -> dict[str, Any]:
        """Returns what `run --json` prints."""
        return {
            "run_id": self.run_id,
            "output_dir": str(self.output_dir),
            "counts": self.counts,
            "scenarios": [result.to_json() for result in self.scenarios],
            "not_started": self.not_started,
            "interrupted": self.interrupted,
            "problems": self.problems,
        }
