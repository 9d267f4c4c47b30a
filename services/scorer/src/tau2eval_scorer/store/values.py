"""What the store keeps, as values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tau2eval_common.errors import FailedPrecondition
from tau2eval_scorer.judge.settings import JudgeSettings


@dataclass(frozen=True)
class Plan:
    """What a run shall hold. `settings` has no secrets."""

    run_id: str
    scenarios: tuple[str, ...]
    trials: int
    settings: Mapping[str, Any]
    judge: JudgeSettings = field(default_factory=JudgeSettings)

    def to_json(self) -> str:
        """Returns the plan in one canonical form."""
        return json.dumps(
            {
                "run_id": self.run_id,
                "scenarios": list(self.scenarios),
                "trials": self.trials,
                "settings": self.settings,
                "judge": self.judge.to_dict(),
            },
            sort_keys=True,
        )

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Reads what `to_json` wrote; plans from before there was a judge have none."""
        value = json.loads(text)
        return cls(
            value["run_id"],
            tuple(value["scenarios"]),
            value["trials"],
            value["settings"],
            JudgeSettings.from_dict(value.get("judge") or {}),
        )

    def trial_places(self) -> list[tuple[str, int]]:
        """Returns every planned (scenario, trial), in order."""
        return [(name, trial) for name in self.scenarios for trial in range(self.trials)]


@dataclass(frozen=True)
class Resume:
    """One resumption of a run.

    Attributes:
        at: RFC 3339 in UTC.
        settings: The settings from then on.
        changes: The settings that are not the plan's, each {"name", "before", "after"}; empty
            when the run went on as it began.
    """

    at: str
    settings: Mapping[str, Any]
    changes: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class Run:
    """A run; `finished_at` is empty while it is open. Times are RFC 3339 in UTC."""

    plan: Plan
    created_at: str
    finished_at: str
    resumes: tuple[Resume, ...] = ()


@dataclass(frozen=True)
class AttemptKey:
    """Identity of one attempt."""

    run_id: str
    scenario: str
    trial: int
    attempt_id: str


@dataclass(frozen=True)
class Scoring:
    """One scoring of a stored conversation.

    Attributes:
        verdict: As `scoring.ScoredConversation.verdict_dict` wrote it.
        metrics_json: The metrics.json.
        judge_json: The judge_result.json; empty without one.
        versions: Of the scorer, the assertions and the judge's prompt.
        number: From 1; 0 before it is stored.
        created_at: Empty before it is stored.
    """

    outcome: str
    verdict: Mapping[str, Any]
    metrics_json: str
    judge_json: str = ""
    versions: Mapping[str, Any] = field(default_factory=dict)
    number: int = 0
    created_at: str = ""


@dataclass(frozen=True)
class Attempt:
    """A stored attempt with its newest scoring.

    Attributes:
        row: Number of the attempt; grows in the order in which they were stored.
        sequence: Grows with every change of a run, so that a watcher sees each.
        counts: Whether it is the one that counts for its scenario and trial.
        created_at: When it was stored.
        placed: Whether its files are where they belong and say what the store says.
    """

    key: AttemptKey
    row: int
    sequence: int
    scoring: Scoring
    counts: bool
    created_at: str
    placed: bool

    @property
    def outcome(self) -> str:
        """One of "passed", "failed" and "not_run"."""
        return self.scoring.outcome

    @property
    def scored(self) -> bool:
        """Whether it is a pass or a failure."""
        return self.scoring.outcome != "not_run"

    @property
    def verdict(self) -> Mapping[str, Any]:
        """The newest verdict."""
        return self.scoring.verdict

    @property
    def metrics_json(self) -> str:
        """The newest metrics.json."""
        return self.scoring.metrics_json

    @property
    def awaits_judge(self) -> bool:
        """Whether the call is whole and only lacks a judgement."""
        return self.verdict["not_run_kind"] in ("judge_error", "judge_off")


@dataclass(frozen=True)
class Claim:
    """A trial that an attempt holds.

    Attributes:
        holder: Who, for a person.
        expires_in: Seconds until the lease ends.
    """

    scenario: str
    trial: int
    attempt_id: str
    holder: str
    expires_in: float


@dataclass(frozen=True)
class ClaimAnswer:
    """What became of a claim: "granted", "taken" (by `claim`) or "scored"."""

    state: str
    claim: Claim | None = None


class StoreError(OSError):
    """The store cannot be opened; the message says what to do."""


def check_open(run: Run) -> None:
    """Refuses a change to a finished run.

    Raises:
        FailedPrecondition: When it is finished.
    """
    if run.finished_at:
        raise FailedPrecondition(
            f"run {run.plan.run_id} was finished at {run.finished_at}; resume it, or start another "
            "run",
            reason="RUN_FINISHED",
        )
