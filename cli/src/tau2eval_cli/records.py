"""Records of calls that were never held to their end, so that a run's store is whole."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from tau2eval.scorer.v1 import record_pb2, scorer_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_cli import words
from tau2eval_cli.scorer_client import ScorerClient, ScorerUnusable
from tau2eval_cli.trials import Trial

RECORD_FORMAT_VERSION = 1


@dataclass(frozen=True)
class Attempt:
    """One attempt at one trial.

    Attributes:
        run_id: Id of the run.
        trial: What it is an attempt at.
        attempt_id: Unique for the attempt.
        modality: Of the call.
        min_agent_turns: The run's minimum.
        settings: The run's settings.
    """

    run_id: str
    trial: Trial
    attempt_id: str
    modality: voice_pb2.Modality.ValueType
    min_agent_turns: int
    settings: dict[str, Any]

    @property
    def placeholder_id(self) -> str:
        """Id of the record that stands for a lost one.

        It differs, so that the bridge's own record of the attempt, which may still come, is not
        taken for a repetition; the scorer lets a score replace it.
        """
        return f"{self.attempt_id}-lost"


@dataclass(frozen=True)
class Loss:
    """An attempt without a record of its own, and why."""

    attempt: Attempt
    reason: record_pb2.StopReason.ValueType
    detail: str

    def verdict(self) -> scorer_pb2.Verdict:
        """Returns the verdict that it means, for where the scorer cannot give one."""
        return scorer_pb2.Verdict(
            run_id=self.attempt.run_id,
            scenario=self.attempt.trial.scenario,
            trial=self.attempt.trial.number,
            attempt_id=self.attempt.attempt_id,
            outcome=scorer_pb2.OUTCOME_NOT_RUN,
            not_run_kind=words.stop_reason(self.reason),
            stop_reason=self.reason,
            explanation=self.detail,
        )

    def parts(self) -> list[record_pb2.RecordPart]:
        """Returns the record: a header and a footer."""
        attempt = self.attempt
        header = record_pb2.RecordHeader(
            format_version=RECORD_FORMAT_VERSION,
            run_id=attempt.run_id,
            scenario=attempt.trial.scenario,
            trial=attempt.trial.number,
            attempt_id=attempt.placeholder_id,
            started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            settings_json=json.dumps(attempt.settings, sort_keys=True),
            versions_json=json.dumps({"tau2eval-cli": version("tau2eval-cli")}),
            modality=attempt.modality,
        )
        footer = record_pb2.RecordFooter(
            stop_reason=self.reason,
            stop_detail=self.detail,
            min_agent_turns=attempt.min_agent_turns,
        )
        return [record_pb2.RecordPart(header=header), record_pb2.RecordPart(footer=footer)]


async def verdict_after(scorer: ScorerClient, attempt: Attempt) -> scorer_pb2.Verdict | None:
    """Returns the verdict that counts for a trial once an attempt at it is stored.

    None while it is not, and while the scorer cannot be asked.
    """
    try:
        attempts = await scorer.attempts(attempt.run_id)
    except ScorerUnusable:
        return None
    here = [verdict for verdict in attempts if Trial.of(verdict) == attempt.trial]
    ids = {verdict.attempt_id for verdict in here}
    if not ids & {attempt.attempt_id, attempt.placeholder_id}:
        return None
    return next((verdict for verdict in here if verdict.counts), here[-1])


async def counting_verdict(
    scorer: ScorerClient, run_id: str, trial: Trial
) -> scorer_pb2.Verdict | None:
    """Returns the verdict that counts for a trial; None without one.

    Raises:
        ScorerUnusable: When the scorer cannot be asked.
    """
    run = await scorer.run(run_id)
    return next((verdict for verdict in run.verdicts if Trial.of(verdict) == trial), None)


async def store_loss(scorer: ScorerClient, loss: Loss) -> scorer_pb2.Verdict:
    """Records an attempt that has no record, and returns the verdict that counts then.

    Raises:
        ScorerUnusable: When the record cannot be sent.
    """
    verdict = await scorer.submit(loss.parts())
    return await verdict_after(scorer, loss.attempt) or verdict
