"""The scorer without a transport: keeps runs, takes records, gives verdicts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, BinaryIO, TypeVar

import grpc

from tau2eval.scorer.v1 import record_pb2
from tau2eval_common.client import open_channel
from tau2eval_common.errors import InvalidInput, Unavailable
from tau2eval_scorer.catalog import Catalog, ScenarioCard
from tau2eval_scorer.compare import compare_runs
from tau2eval_scorer.judge import ChatModel, GatewayChat, JudgeSettings, LLMJudge
from tau2eval_scorer.names import check_name
from tau2eval_scorer.record import RecordLimits
from tau2eval_scorer.report.library import ReportLibrary
from tau2eval_scorer.rescoring import Rescorer, ScoredAgain
from tau2eval_scorer.resume import ResumeItem, changed_settings, check_unchanged, resume_items
from tau2eval_scorer.run_files import RunFiles, place_of, rows
from tau2eval_scorer.scoring_job import ConversationScorer
from tau2eval_scorer.settings import ScorerSettings
from tau2eval_scorer.spool import remove_stale
from tau2eval_scorer.stats import DEFAULT_SAMPLES
from tau2eval_scorer.storage import StoredFile, open_artifacts
from tau2eval_scorer.store import (
    Attempt,
    AttemptKey,
    ClaimAnswer,
    Plan,
    Run,
    RunLocks,
    RunStore,
)
from tau2eval_scorer.submission import Submissions
from tau2eval_scorer.watchers import Watchers

logger = logging.getLogger(__name__)

T = TypeVar("T")

MAX_TRIALS = 1000
MIN_LEASE_SECONDS = 1.0
MAX_LEASE_SECONDS = 600.0
WATCH_POLL_SECONDS = 2.0
"""A watcher looks into the store this often too: another process may have written to it."""


class ScorerCore:
    """Everything that the services do.

    Args:
        settings: Where things lie, and bounds.
        catalog: The scenarios.
        chat: What the judge talks to; None for the gateway of the settings.
    """

    def __init__(
        self, settings: ScorerSettings, catalog: Catalog, chat: ChatModel | None = None
    ) -> None:
        self.catalog = catalog
        self.settings = settings
        self._root = settings.artifacts_dir.absolute()
        self._limits = RecordLimits(settings.max_record_bytes, settings.max_record_text_bytes)
        self._threads = ThreadPoolExecutor(settings.scoring_threads, thread_name_prefix="score")
        self._watchers = Watchers()
        self._chat = chat
        self._channel: grpc.aio.Channel | None = None
        self._draining = False
        self.store = RunStore(settings.store_url)
        self.artifacts = open_artifacts(settings.artifacts_url, self._root)
        self.locks = RunLocks(self.store.database)
        self.files = RunFiles(self.store, self.artifacts, self.locks, self.in_thread)
        self.reports = ReportLibrary(self.store, self.artifacts, self.files, self.in_thread)
        self._submissions: Submissions | None = None
        self._rescorer: Rescorer | None = None

    async def start(self) -> None:
        """Checks the fixtures, opens the store, and ends what a killed process left half done.

        Raises:
            tau2eval_airline.FixtureError: When a fixture is missing or altered.
            OSError: When a folder or the store cannot be used.
        """
        await self.in_thread(self.catalog.load)
        await self.in_thread(lambda: self._root.mkdir(parents=True, exist_ok=True))
        await self.in_thread(self.artifacts.check)
        await self.store.open()
        self._assemble()
        removed = await self.in_thread(remove_stale, self._root)
        if removed:
            logger.info("removed %d unfinished records", removed)
        for run_id in await self.store.runs_unplaced():
            try:
                async with self.locks.hold(run_id):
                    await self.files.settle(run_id)
            except Unavailable as error:
                # Another scorer is at work on it, and will leave it as it should be.
                logger.warning("%s was not looked through: %s", run_id, error)

    def drain(self) -> None:
        """Ends the calls that only wait or could go on for long; no new ones come."""
        self._draining = True
        self._watchers.wake_all()

    async def stop(self) -> None:
        """Releases the store and the threads."""
        self.drain()
        if self._submissions is not None:
            await self._submissions.stop()
        if self._channel is not None:
            await self._channel.close()
            self._channel = None
        await self.locks.close()
        await self.store.close()
        self._threads.shutdown(wait=True, cancel_futures=True)

    async def scenario(self, name: str) -> ScenarioCard:
        """Returns a scenario's facts.

        Raises:
            NotFound: When there is no such scenario.
        """
        return await self.in_thread(self.catalog.card, name)

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
        run = await self.store.create_run(plan)
        await self.files.write_arguments(run)
        return run

    async def submit(self, parts: AsyncIterator[record_pb2.RecordPart]) -> tuple[Run, Attempt]:
        """Takes a record and returns its stored verdict; see `Submissions.take`."""
        assert self._submissions is not None
        run, attempt = await self._submissions.take(parts)
        self._watchers.wake(run.plan.run_id)
        return run, attempt

    async def run(self, run_id: str) -> tuple[Run, list[Attempt], dict[str, Any]]:
        """Returns a run, its counting verdicts in order, and its summary.

        Raises:
            NotFound: When there is none.
        """
        return await self.files.summary(run_id, judge=True)

    async def runs(self) -> list[tuple[Run, Mapping[str, int]]]:
        """Returns all runs, newest first, with their verdicts counted by outcome."""
        return await self.store.runs()

    async def attempts(self, run_id: str) -> tuple[Run, list[Attempt]]:
        """Returns a run and every attempt of it, in the order in which they were stored.

        Raises:
            NotFound: When there is no such run.
        """
        return await self.store.run(run_id), await self.store.attempts(run_id)

    async def compare(
        self, run_id_a: str, run_id_b: str, samples: int
    ) -> tuple[list[tuple[Run, list[Attempt]]], dict[str, Any]]:
        """Returns both runs with their counting attempts, and the comparison of B with A.

        Args:
            run_id_a: The base line.
            run_id_b: The run that is judged.
            samples: Resamples of the bootstraps; 0 for the usual number.

        Raises:
            NotFound: When there is no such run.
            InvalidInput: When there are too few samples, or too many.
        """
        runs = [await self.attempts(run_id) for run_id in (run_id_a, run_id_b)]
        counting = [[item for item in attempts if item.counts] for _, attempts in runs]
        others = [[item for item in attempts if not item.counts] for _, attempts in runs]
        comparison = await self.in_thread(
            lambda: compare_runs(
                runs[0][0],
                rows(counting[0]),
                runs[1][0],
                rows(counting[1]),
                samples or DEFAULT_SAMPLES,
                others_a=rows(others[0]),
                others_b=rows(others[1]),
            )
        )
        return [(run, own) for (run, _), own in zip(runs, counting, strict=True)], comparison

    async def finish(self, run_id: str) -> tuple[Run, dict[str, Any], str]:
        """Closes a run and returns it with its summary, as values and as text.

        Raises:
            NotFound: When there is none.
        """
        async with self.locks.hold(run_id):
            run = await self.store.finish_run(run_id)
            summary, text = await self.files.settle(run_id)
        self._watchers.wake(run_id)
        return run, summary, text

    async def resume(
        self, run_id: str, settings: Mapping[str, Any] | None, allow_mixed: bool, preview: bool
    ) -> tuple[Run, list[ResumeItem], list[dict[str, Any]]]:
        """Opens a run again and returns it with what is left to do and the changed settings.

        Args:
            run_id: The run.
            settings: Those of the runner that goes on; None for the plan's.
            allow_mixed: Goes on with settings that are not the plan's, which the run then shows.
            preview: Changes nothing, and refuses nothing.

        Raises:
            NotFound: When there is no such run.
            FailedPrecondition: When the settings changed and may not.
        """
        run = await self.store.run(run_id)
        settings = run.plan.settings if settings is None else settings
        changes = changed_settings(run.plan.settings, settings)
        if not preview:
            if not allow_mixed:
                check_unchanged(run_id, changes)
            async with self.locks.hold(run_id):
                run = await self.store.resume_run(run_id, settings, changes)
                await self.files.settle(run_id)
            self._watchers.wake(run_id)
        attempts = await self.store.attempts(run_id, judge=False)
        claims = await self.store.claims(run_id)
        return run, resume_items(run.plan, attempts, claims), changes

    async def claim(self, key: AttemptKey, holder: str, lease_seconds: float) -> ClaimAnswer:
        """Takes a planned trial for an attempt, or renews its lease.

        Raises:
            InvalidInput: When the trial is not planned, or the lease out of range.
            NotFound: When there is no such run.
            FailedPrecondition: When the run is finished.
        """
        check_name("attempt_id", key.attempt_id)
        if not MIN_LEASE_SECONDS <= lease_seconds <= MAX_LEASE_SECONDS:
            raise InvalidInput(
                f"lease_seconds must be {MIN_LEASE_SECONDS:g} to {MAX_LEASE_SECONDS:g}",
                reason="BAD_LEASE",
            )
        return await self.store.claim(key, holder, lease_seconds)

    async def release(self, key: AttemptKey) -> None:
        """Gives a claim back; without effect when the attempt does not hold it.

        Raises:
            NotFound: When there is no such run.
        """
        await self.store.release(key)

    async def score(
        self,
        run_id: str,
        judge: JudgeSettings | None,
        scenarios: Sequence[str],
        only_unjudged: bool,
    ) -> AsyncGenerator[ScoredAgain, None]:
        """Scores stored conversations again; see `Rescorer.score`.

        Raises:
            Unavailable: When this process is ending; what is done is kept.
        """
        assert self._rescorer is not None
        results = self._rescorer.score(run_id, judge, scenarios, only_unjudged)
        try:
            async for result in results:
                self._watchers.wake(run_id)
                yield result
                if self._draining and result.done < result.total:
                    raise Unavailable(
                        f"the scorer is ending; {result.done} of {result.total} conversations are "
                        "scored, ask again for the others",
                        reason="DRAINING",
                    )
        finally:
            await results.aclose()
            self._watchers.wake(run_id)

    async def watch(self, run_id: str) -> AsyncIterator[tuple[Run, Attempt]]:
        """Yields counting verdicts as they come or change, until the run is finished.

        Raises:
            NotFound: When there is no such run.
            Unavailable: When this process is ending.
        """
        after = 0
        while True:
            with self._watchers.watch(run_id) as woken:
                run = await self.store.run(run_id)
                for attempt in await self.store.changed_verdicts(run_id, after):
                    after = attempt.sequence
                    yield run, attempt
                if run.finished_at:
                    return
                if self._draining:
                    raise Unavailable("the scorer is ending; watch again", reason="DRAINING")
                await self._watchers.wait(woken, WATCH_POLL_SECONDS)

    def artifacts_path(self, run: Run, attempt: Attempt) -> str:
        """Returns where an attempt's files lie below its run's folder."""
        return place_of(run, attempt).path

    async def read_file(self, file: StoredFile, size: int) -> AsyncIterator[bytes]:
        """Yields a file's content in chunks; b"" once for an empty file.

        Raises:
            FileNotFoundError: When it was moved or removed since it was listed.
        """
        stream: BinaryIO = await self.in_thread(self.artifacts.open_file, file)
        try:
            yield await self.in_thread(stream.read, size)
            while chunk := await self.in_thread(stream.read, size):
                yield chunk
        finally:
            with suppress(OSError):
                stream.close()

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> T:
        """Runs a function in one of the scorer's threads."""
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, lambda: function(*arguments)
        )

    def _assemble(self) -> None:
        chat = self._chat
        if chat is None:
            # Nothing is connected before the first judgement.
            self._channel = open_channel(self.settings.gateway_address)
            chat = GatewayChat(self._channel)
        scorer = ConversationScorer(self.catalog, self.in_thread, LLMJudge(chat))
        self._submissions = Submissions(
            self.store,
            self.artifacts,
            self.files,
            scorer,
            self.in_thread,
            staging=self._root,
            limits=self._limits,
            max_sessions=self.settings.max_sessions,
            part_timeout=self.settings.part_timeout_seconds,
        )
        self._rescorer = Rescorer(
            self.store, self.artifacts, self.files, scorer, self.in_thread, self._limits
        )
