"""The files of runs as the store says they should be: placing, earlier scorings, summaries."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import orjson

from tau2eval_common.errors import NotFound
from tau2eval_scorer import layout
from tau2eval_scorer.jsonio import dump_json
from tau2eval_scorer.rates import Row
from tau2eval_scorer.storage import Artifacts, Place, StoredFile
from tau2eval_scorer.store import Attempt, Run, RunLocks, RunStore, Scoring
from tau2eval_scorer.summary import latencies_csv, summarize
from tau2eval_scorer.summary_text import summary_text

logger = logging.getLogger(__name__)

T = TypeVar("T")


class InThread(Protocol):
    """Runs a function with arguments in a thread."""

    def __call__(self, function: Callable[..., T], *arguments: Any) -> Awaitable[T]:
        """Runs it."""


class RunFiles:
    """Files of runs.

    Whoever writes holds `locks.hold(run_id)`. What is in the store is the truth; every method can
    be repeated after a kill at any point and brings the files to it.
    """

    def __init__(
        self, store: RunStore, artifacts: Artifacts, locks: RunLocks, in_thread: InThread
    ) -> None:
        self._store = store
        self._artifacts = artifacts
        self._in_thread = in_thread
        self.locks = locks

    async def write_arguments(self, run: Run) -> None:
        """Writes run_args.json."""
        plan = run.plan
        arguments = {
            "run_id": plan.run_id,
            "created_at": run.created_at,
            "scenarios": list(plan.scenarios),
            "trials": plan.trials,
            "settings": plan.settings,
            "judge": plan.judge.to_dict(),
        }
        await self._in_thread(
            self._artifacts.write, plan.run_id, "run_args.json", dump_json(arguments)
        )

    async def settle_unless_others_do(self, run_id: str) -> None:
        """Brings all files of a run to what the store says; leaves the summary to who waits to.

        The summary of a large run takes a while, so of several who come at once the last writes it.

        Raises:
            NotFound: When there is no such run.
        """
        if self.locks.others_settle(run_id):
            await self._place_all(await self._store.run(run_id))
        else:
            await self.settle(run_id)

    async def settle(self, run_id: str) -> tuple[dict[str, Any], str]:
        """Brings all files of a run to what the store says, and returns its summary.

        Raises:
            NotFound: When there is no such run.
        """
        unplaced = await self._place_all(await self._store.run(run_id))
        summary, text = await self._write_summary(run_id)
        # Last, so that a kill before the summary is written leaves something to settle.
        for attempt in unplaced:
            await self._store.mark_placed(attempt)
        return summary, text

    async def _place_all(self, run: Run) -> list[Attempt]:
        unplaced = await self._store.unplaced(run.plan.run_id)
        for scenario, trial in dict.fromkeys((a.key.scenario, a.key.trial) for a in unplaced):
            await self.place(run, scenario, trial)
        return unplaced

    async def place(self, run: Run, scenario: str, trial: int) -> None:
        """Places the attempts at one scenario and trial, and writes their scorings."""
        attempts = await self._store.attempts_at(run.plan.run_id, scenario, trial)
        for attempt in attempts:
            if attempt.counts and not await self._in_thread(
                self._artifacts.place, place_of(run, attempt)
            ):
                logger.warning("the artifacts of %s are gone", attempt.key)
        for attempt in attempts:
            # The files of a first scoring were there before it was stored.
            if not attempt.placed and attempt.scoring.number > 1:
                files = _scoring_files(await self._store.scorings(attempt))
                await self._in_thread(self._artifacts.update, place_of(run, attempt), files)

    async def summary(
        self, run_id: str, *, judge: bool = False
    ) -> tuple[Run, list[Attempt], dict[str, Any]]:
        """Returns a run, its counting attempts in order, and its all_metrics.json.

        Args:
            run_id: The run.
            judge: Whether the attempts are wanted with the judge's results, which are long.

        Raises:
            NotFound: When there is no such run.
        """
        run = await self._store.run(run_id)
        attempts = await self._store.attempts(run_id, judge=judge)
        counting = [attempt for attempt in attempts if attempt.counts]
        others = [attempt for attempt in attempts if not attempt.counts]
        summary = await self._in_thread(lambda: summarize(run, rows(counting), rows(others)))
        return run, counting, summary

    async def files(
        self, run_id: str, scenario: str = "", trial: int = 0, attempt_id: str = ""
    ) -> Sequence[StoredFile]:
        """Returns the files of an attempt, or of the run itself.

        Args:
            run_id: The run.
            scenario: Empty for the files of the run itself.
            trial: 0-based.
            attempt_id: Empty for the attempt that counts.

        Raises:
            NotFound: When there is no such run or attempt.
        """
        run = await self._store.run(run_id)
        if not scenario:
            return await self._own_files(run)
        for attempt in await self._store.attempts_at(run_id, scenario, trial):
            if attempt.key.attempt_id == attempt_id or (not attempt_id and attempt.counts):
                return await self._in_thread(self._artifacts.attempt_files, place_of(run, attempt))
        which = f"attempt {attempt_id[:140]!r}" if attempt_id else "verdict"
        raise NotFound(
            f"run {run_id} has no {which} on {scenario[:140]!r}, trial {trial}",
            reason="NO_SUCH_VERDICT",
        )

    async def _own_files(self, run: Run) -> list[StoredFile]:
        run_id = run.plan.run_id
        if await self._in_thread(self._artifacts.run_file, run_id, "all_metrics.json") is None:
            async with self.locks.hold(run_id):
                await self.settle(run_id)
        found = [
            await self._in_thread(self._artifacts.run_file, run_id, name)
            for name in layout.RUN_FILES
        ]
        return [file for file in found if file is not None]

    async def _write_summary(self, run_id: str) -> tuple[dict[str, Any], str]:
        run, attempts, summary = await self.summary(run_id)

        def write() -> str:
            text = summary_text(summary)
            files = {
                "all_metrics.json": dump_json(summary),
                "all_summary.txt": text.encode(),
                "all_latencies.csv": latencies_csv(rows(attempts), run.plan.trials).encode(),
            }
            for name, data in files.items():
                self._artifacts.write(run_id, name, data)
            return text

        return summary, await self._in_thread(write)


def place_of(run: Run, attempt: Attempt) -> Place:
    """Returns an attempt's place among the artifacts."""
    key = attempt.key
    return Place(
        key.run_id, key.scenario, key.trial, run.plan.trials, key.attempt_id, attempt.counts
    )


def rows(attempts: Sequence[Attempt]) -> list[Row]:
    """Returns what the aggregates are computed from."""
    return [
        Row(
            attempt.key.scenario,
            attempt.key.trial,
            attempt.verdict,
            orjson.loads(attempt.metrics_json),
        )
        for attempt in attempts
    ]


def _scoring_files(scorings: Sequence[Scoring]) -> Mapping[str, bytes | None]:
    """Returns the newest scoring's files, and the earlier ones' by their numbers."""
    files: dict[str, bytes | None] = {layout.JUDGE_FILE: None}
    for scoring in scorings:
        newest = scoring is scorings[-1]
        folder = "" if newest else f"{layout.SCORINGS}/{scoring.number}/"
        files[f"{folder}{layout.METRICS_FILE}"] = dump_json(orjson.loads(scoring.metrics_json))
        if scoring.judge_json:
            judge = dump_json(orjson.loads(scoring.judge_json))
            files[f"{folder}{layout.JUDGE_FILE}"] = judge
    return files
