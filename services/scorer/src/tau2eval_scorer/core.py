"""The scorer without a transport: takes records, keeps runs, gives verdicts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import orjson

from tau2eval.scorer.v1 import record_pb2
from tau2eval_common.errors import DeadlineExceeded, InvalidInput, NotFound
from tau2eval_common.sessions import SessionLimit
from tau2eval_scorer import layout
from tau2eval_scorer.artifacts import attempt_files
from tau2eval_scorer.catalog import Catalog, ScenarioCard
from tau2eval_scorer.jsonio import dump_json, dump_line
from tau2eval_scorer.names import check_name
from tau2eval_scorer.record import Conversation, Header, RecordLimits
from tau2eval_scorer.scoring import score
from tau2eval_scorer.settings import ScorerSettings
from tau2eval_scorer.spool import Spool, remove_stale
from tau2eval_scorer.store import Attempt, AttemptKey, Plan, Run, RunStore, check_open
from tau2eval_scorer.summary import Row, latencies_csv, summarize
from tau2eval_scorer.summary_text import summary_text
from tau2eval_scorer.watchers import Watchers

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_TRIALS = 1000
WATCH_POLL_SECONDS = 2.0
"""A watcher looks into the store this often too: another process may have written to it."""


class ScorerCore:
    """Everything that the services do.

    Args:
        settings: Where things lie, and bounds.
        catalog: The scenarios.
    """

    def __init__(self, settings: ScorerSettings, catalog: Catalog) -> None:
        self.catalog = catalog
        self._settings = settings
        self._root = settings.artifacts_dir.absolute()
        self._store = RunStore(settings.store_url)
        self._limits = RecordLimits(settings.max_record_bytes, settings.max_record_text_bytes)
        self._submissions = SessionLimit(settings.max_sessions, "the scorer")
        self._watchers = Watchers()
        self._run_locks: dict[str, _CountedLock] = {}
        self._threads = ThreadPoolExecutor(settings.scoring_threads, thread_name_prefix="score")

    async def start(self) -> None:
        """Checks the fixtures, opens the store, and ends what a killed process left half done.

        Raises:
            tau2eval_airline.FixtureError: When a fixture is missing or altered.
            OSError: When a folder or the store cannot be used.
        """
        await self._in_thread(self.catalog.load)
        self._root.mkdir(parents=True, exist_ok=True)
        await self._store.open()
        removed = await self._in_thread(remove_stale, self._root)
        if removed:
            logger.info("removed %d unfinished records", removed)
        for attempt in await self._store.unplaced():
            run = await self._store.run(attempt.key.run_id)
            async with self._run_lock(attempt.key.run_id):
                await self._place(run, attempt)
                await self._write_summary(run.plan.run_id)

    async def stop(self) -> None:
        """Releases the store and the threads."""
        self._watchers.wake_all()
        await self._store.close()
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def scenario(self, name: str) -> ScenarioCard:
        """Returns a scenario's facts.

        Raises:
            NotFound: When there is no such scenario.
        """
        return await self._in_thread(self.catalog.card, name)

    async def create_run(self, plan: Plan) -> Run:
        """Creates a run; the same plan again returns it as it is.

        Raises:
            InvalidInput: When the plan is wrong.
            AlreadyExists: When the run exists with another plan.
        """
        check_name("run_id", plan.run_id)
        if not plan.scenarios:
            raise InvalidInput("the plan names no scenario", reason="BAD_PLAN")
        if len(set(plan.scenarios)) != len(plan.scenarios):
            raise InvalidInput("the plan names a scenario twice", reason="BAD_PLAN")
        if not 1 <= plan.trials <= MAX_TRIALS:
            raise InvalidInput(f"trials must be 1 to {MAX_TRIALS}", reason="BAD_PLAN")
        self.catalog.check_names(plan.scenarios)
        run = await self._store.create_run(plan)
        arguments = {
            "run_id": plan.run_id,
            "created_at": run.created_at,
            "scenarios": list(plan.scenarios),
            "trials": plan.trials,
            "settings": plan.settings,
        }
        await self._in_thread(
            layout.replace_file, self._folder(plan.run_id) / "run_args.json", dump_json(arguments)
        )
        return run

    async def submit(self, parts: AsyncIterator[record_pb2.RecordPart]) -> tuple[Run, Attempt]:
        """Takes a record and returns its stored verdict. Idempotent by attempt.

        Nothing is stored unless the record is whole and well-formed. When this returns, the
        verdict and the artifacts are on the disk.

        Raises:
            InvalidInput: When the record is malformed or not part of its run's plan.
            NotFound: When there is no such run.
            FailedPrecondition: When the run is finished.
            CapacityExhausted: When the record is too large, or too many arrive at once.
            DeadlineExceeded: When the next part does not come.
        """
        with self._submissions.hold(), Spool(self._root, self._limits) as spool:
            known: Attempt | None = None
            run: Run | None = None
            timeout = self._settings.part_timeout_seconds
            while True:
                try:
                    part = await asyncio.wait_for(anext(parts), timeout)
                except StopAsyncIteration:
                    break
                except TimeoutError:
                    raise DeadlineExceeded(
                        f"no part of the record came for {timeout:.0f} s", reason="RECORD_STALLED"
                    ) from None
                # A known record is read to its end too: the sender is still writing.
                spool.feed(part)
                if run is None:
                    assert spool.reader.header is not None
                    run, known = await self._admit(spool.reader.header)
            if run is None:
                raise InvalidInput("conversation record: the record is empty", reason="BAD_RECORD")
            if known is None:
                known = await self._store_record(run, spool)
            async with self._run_lock(run.plan.run_id):
                await self._place(run, known)
                await self._write_summary(run.plan.run_id)
            self._watchers.wake(run.plan.run_id)
            return run, await self._fresh(known)

    async def run(self, run_id: str) -> tuple[Run, list[Attempt], dict[str, Any]]:
        """Returns a run, its counting verdicts in order, and its summary.

        Raises:
            NotFound: When there is none.
        """
        run = await self._store.run(run_id)
        attempts = await self._store.verdicts(run_id)
        summary = await self._in_thread(lambda: summarize(run, _rows(attempts)))
        return run, attempts, summary

    async def runs(self) -> list[tuple[Run, Any]]:
        """Returns all runs, newest first, with their verdicts counted by outcome."""
        return await self._store.runs()

    async def finish(self, run_id: str) -> tuple[Run, dict[str, Any], str]:
        """Closes a run and returns it with its summary, as values and as text.

        Raises:
            NotFound: When there is none.
        """
        async with self._run_lock(run_id):
            run = await self._store.finish_run(run_id)
            summary, text = await self._write_summary(run_id)
        self._watchers.wake(run_id)
        return run, summary, text

    async def watch(self, run_id: str) -> AsyncIterator[tuple[Run, Attempt]]:
        """Yields counting verdicts as they come, until the run is finished.

        Raises:
            NotFound: When there is no such run.
        """
        after = 0
        while True:
            with self._watchers.watch(run_id) as woken:
                run = await self._store.run(run_id)
                for attempt in await self._store.verdicts(run_id, after):
                    after = attempt.sequence
                    yield run, attempt
                if run.finished_at:
                    return
                await self._watchers.wait(woken, WATCH_POLL_SECONDS)

    async def artifact_folder(
        self, run_id: str, scenario: str, trial: int
    ) -> tuple[Path, Sequence[Path]]:
        """Returns a run's folder and the files in it that belong to a scenario or to the run.

        Args:
            run_id: The run.
            scenario: Empty for the files of the run itself.
            trial: 0-based.

        Raises:
            NotFound: When there is no such run or verdict.
        """
        run = await self._store.run(run_id)
        folder = self._folder(run_id)
        if not scenario:
            await self._write_if_missing(run)
            return folder, [path for name in layout.RUN_FILES if (path := folder / name).is_file()]
        attempt = await self._store.counting(run_id, scenario, trial)
        if attempt is None:
            raise NotFound(
                f"run {run_id} has no verdict on {scenario[:140]!r}, trial {trial}",
                reason="NO_SUCH_VERDICT",
            )
        place = folder / layout.scenario_path(scenario, trial, run.plan.trials)
        return folder, await self._in_thread(_files_below, place)

    def artifacts_path(self, run: Run, attempt: Attempt) -> str:
        """Returns where an attempt's files lie below its run's folder."""
        key = attempt.key
        if attempt.counts:
            return layout.scenario_path(key.scenario, key.trial, run.plan.trials)
        return layout.attempt_path(key.scenario, key.trial, key.attempt_id)

    async def read_file(self, path: Path, size: int) -> AsyncIterator[bytes]:
        """Yields a file's content in chunks; b"" once for an empty file."""
        stream: BinaryIO = await self._in_thread(lambda: path.open("rb"))
        try:
            chunk = await self._in_thread(stream.read, size)
            yield chunk
            while chunk := await self._in_thread(stream.read, size):
                yield chunk
        finally:
            stream.close()

    async def _admit(self, header: Header) -> tuple[Run, Attempt | None]:
        """Checks that a record belongs to a run, and looks for the attempt's verdict."""
        run = await self._store.run(header.run_id)
        if header.scenario not in run.plan.scenarios:
            raise InvalidInput(
                f"scenario {header.scenario} is not in the plan of run {header.run_id}",
                reason="NOT_PLANNED",
            )
        if header.trial >= run.plan.trials:
            raise InvalidInput(
                f"trial {header.trial} is not in the plan of run {header.run_id}, which has "
                f"{run.plan.trials}",
                reason="NOT_PLANNED",
            )
        known = await self._store.attempt(_key(header))
        if known is None:
            check_open(run)
        return run, known

    async def _store_record(self, run: Run, spool: Spool) -> Attempt:
        conversation = await self._in_thread(spool.finish)
        header = conversation.header
        verdict, metrics = await self._in_thread(self._score, run, conversation, spool.folder)
        async with self._run_lock(header.run_id):
            known = await self._store.attempt(_key(header))
            if known is not None:  # The same attempt came twice at once.
                return known
            check_open(await self._store.run(header.run_id))
            # First the files, then the verdict: a verdict without its record is never seen.
            await self._in_thread(
                layout.adopt,
                spool.folder,
                self._folder(header.run_id),
                layout.attempt_path(header.scenario, header.trial, header.attempt_id),
            )
            stored = await self._store.add_attempt(
                _key(header), verdict["outcome"], verdict, metrics
            )
        logger.info(
            "%s %s trial %d: %s", header.run_id, header.scenario, header.trial, verdict["outcome"]
        )
        return stored

    def _score(
        self, run: Run, conversation: Conversation, folder: Path
    ) -> tuple[dict[str, Any], str]:
        """Scores a record and writes its files beside it; runs in a thread."""
        header = conversation.header
        directory = layout.scenario_path(header.scenario, header.trial, run.plan.trials)
        scored = score(conversation, self.catalog, directory)
        layout.write_files(folder, attempt_files(scored))
        return scored.verdict_dict(), dump_line(scored.metrics).decode().strip()

    async def _place(self, run: Run, attempt: Attempt) -> None:
        """Brings the counting attempt's folder to its scenario; safe to repeat."""
        key = attempt.key
        counting = await self._store.counting(key.run_id, key.scenario, key.trial)
        if counting is not None:
            placed = await self._in_thread(
                layout.place,
                self._folder(key.run_id),
                key.scenario,
                key.trial,
                run.plan.trials,
                counting.key.attempt_id,
            )
            if not placed:
                logger.warning("the artifacts of %s are gone", counting.key)
        await self._store.mark_placed(attempt.sequence)

    async def _fresh(self, attempt: Attempt) -> Attempt:
        return await self._store.attempt(attempt.key) or attempt

    async def _write_summary(self, run_id: str) -> tuple[dict[str, Any], str]:
        run, attempts, summary = await self.run(run_id)

        def write() -> str:
            folder = self._folder(run_id)
            text = summary_text(summary)
            table = latencies_csv(_rows(attempts), run.plan.trials)
            layout.replace_file(folder / "all_metrics.json", dump_json(summary))
            layout.replace_file(folder / "all_summary.txt", text.encode())
            layout.replace_file(folder / "all_latencies.csv", table.encode())
            return text

        return summary, await self._in_thread(write)

    async def _write_if_missing(self, run: Run) -> None:
        run_id = run.plan.run_id
        if not (self._folder(run_id) / "all_metrics.json").is_file():
            async with self._run_lock(run_id):
                await self._write_summary(run_id)

    def _folder(self, run_id: str) -> Path:
        return self._root / check_name("run_id", run_id)

    @asynccontextmanager
    async def _run_lock(self, run_id: str) -> AsyncIterator[None]:
        """Holds a run's files and verdicts for one writer of this process."""
        lock = self._run_locks.setdefault(run_id, _CountedLock())
        lock.users += 1
        try:
            async with lock.lock:
                yield
        finally:
            lock.users -= 1
            if not lock.users:
                self._run_locks.pop(run_id, None)

    async def _in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: function(*arguments)
        )


class _CountedLock:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0


def _key(header: Header) -> AttemptKey:
    return AttemptKey(header.run_id, header.scenario, header.trial, header.attempt_id)


def _rows(attempts: Sequence[Attempt]) -> list[Row]:
    return [
        Row(
            attempt.key.scenario,
            attempt.key.trial,
            attempt.verdict,
            orjson.loads(attempt.metrics_json),
        )
        for attempt in attempts
    ]


def _files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
