"""Takes conversation records: received, scored, judged, stored, placed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from tau2eval.scorer.v1 import record_pb2
from tau2eval_common.errors import DeadlineExceeded, InvalidInput
from tau2eval_common.sessions import SessionLimit
from tau2eval_scorer import layout
from tau2eval_scorer.artifacts import attempt_files
from tau2eval_scorer.jsonio import dump_line
from tau2eval_scorer.record import Header, RecordLimits
from tau2eval_scorer.run_files import InThread, RunFiles
from tau2eval_scorer.scoring import ScoredConversation
from tau2eval_scorer.scoring_job import ConversationScorer
from tau2eval_scorer.spool import Spool
from tau2eval_scorer.storage import Artifacts, Place
from tau2eval_scorer.store import Attempt, AttemptKey, Run, RunStore, Scoring, check_open

logger = logging.getLogger(__name__)


class Submissions:
    """Takes records. Idempotent by attempt.

    A record that has arrived whole is scored and stored also when its sender goes away; the same
    attempt sent again meanwhile waits for that and is not judged twice.

    Args:
        staging: Folder in which records arrive.
        part_timeout: Longest wait for the next part of a record in seconds.
    """

    def __init__(
        self,
        store: RunStore,
        artifacts: Artifacts,
        files: RunFiles,
        scorer: ConversationScorer,
        in_thread: InThread,
        *,
        staging: Path,
        limits: RecordLimits,
        max_sessions: int,
        part_timeout: float,
    ) -> None:
        self._store = store
        self._artifacts = artifacts
        self._files = files
        self._scorer = scorer
        self._in_thread = in_thread
        self._staging = staging
        self._limits = limits
        self._sessions = SessionLimit(max_sessions, "the scorer")
        self._timeout = part_timeout
        self._jobs: dict[AttemptKey, asyncio.Task[Attempt]] = {}

    async def take(self, parts: AsyncIterator[record_pb2.RecordPart]) -> tuple[Run, Attempt]:
        """Takes a record and returns its stored verdict.

        Nothing is stored unless the record is whole and well-formed. When this returns, the verdict
        and the artifacts are stored.

        Raises:
            InvalidInput: When the record is malformed or not part of its run's plan.
            NotFound: When there is no such run.
            FailedPrecondition: When the run is finished.
            CapacityExhausted: When the record is too large, or too many arrive at once.
            DeadlineExceeded: When the next part does not come.
            Unavailable: When the store or the artifacts do not answer.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(self._sessions.hold())
            spool = stack.enter_context(Spool(self._staging, self._limits))
            run, attempt = await self._receive(parts, spool)
            assert spool.reader.header is not None
            if attempt is None:
                attempt = await self._once(run, spool, stack)
            elif not attempt.placed:
                async with self._files.locks.hold(run.plan.run_id, settles=True):
                    await self._files.settle_unless_others_do(run.plan.run_id)
        return run, await self._store.attempt(attempt.key) or attempt

    async def stop(self) -> None:
        """Gives up what is still being scored; its sender sends it again."""
        jobs = list(self._jobs.values())
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)

    async def _receive(
        self, parts: AsyncIterator[record_pb2.RecordPart], spool: Spool
    ) -> tuple[Run, Attempt | None]:
        run: Run | None = None
        known: Attempt | None = None
        while True:
            try:
                part = await asyncio.wait_for(anext(parts), self._timeout)
            except StopAsyncIteration:
                break
            except TimeoutError:
                raise DeadlineExceeded(
                    f"no part of the record came for {self._timeout:.0f} s",
                    reason="RECORD_STALLED",
                ) from None
            # A known record is read to its end too: the sender is still writing.
            spool.feed(part)
            if run is None:
                assert spool.reader.header is not None
                run, known = await self._admit(spool.reader.header)
        if run is None:
            raise InvalidInput("conversation record: the record is empty", reason="BAD_RECORD")
        return run, known

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

    async def _once(self, run: Run, spool: Spool, stack: contextlib.ExitStack) -> Attempt:
        """Stores a received record, unless the same attempt is just being stored."""
        assert spool.reader.header is not None
        key = _key(spool.reader.header)
        job = self._jobs.get(key)
        if job is None:
            # The job owns the spool from here on.
            job = asyncio.ensure_future(self._store_record(run, key, spool, stack.pop_all()))
            self._jobs[key] = job
            job.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(job)

    def _ended(self, key: AttemptKey, job: asyncio.Task[Attempt]) -> None:
        self._jobs.pop(key, None)
        if not job.cancelled() and (error := job.exception()) is not None:
            logger.warning("the record of %s was not stored: %s", key, error)

    async def _store_record(
        self, run: Run, key: AttemptKey, spool: Spool, stack: contextlib.ExitStack
    ) -> Attempt:
        with stack:
            conversation = await self._in_thread(spool.finish)
            directory = layout.scenario_path(key.scenario, key.trial, run.plan.trials)
            scored = numbered(await self._scorer.score(conversation, directory, run.plan.judge), 1)
            await self._in_thread(layout.write_files, spool.folder, attempt_files(scored))
            async with self._files.locks.hold(key.run_id, settles=True):
                stored = await self._store.attempt(key)
                if stored is None:  # Nobody stored it meanwhile.
                    check_open(await self._store.run(key.run_id))
                    # First the files, then the verdict: a verdict without its record is never seen.
                    trials = run.plan.trials
                    place = Place(
                        key.run_id, key.scenario, key.trial, trials, key.attempt_id, False
                    )
                    await self._in_thread(self._artifacts.adopt, spool.folder, place)
                    stored = await self._store.add_attempt(key, to_scoring(scored))
                await self._files.settle_unless_others_do(key.run_id)
        logger.info("%s %s trial %d: %s", key.run_id, key.scenario, key.trial, stored.outcome)
        return stored


def numbered(scored: ScoredConversation, number: int) -> ScoredConversation:
    """Returns a scored conversation that says in its metrics how often it was scored."""
    return replace(scored, metrics={**scored.metrics, "scoring": number})


def to_scoring(scored: ScoredConversation) -> Scoring:
    """Returns a scored conversation as the store takes it."""
    verdict = scored.verdict_dict()
    judgement = scored.judgement
    if judgement is not None and judgement.status == "not_needed":
        judgement = None
    return Scoring(
        outcome=verdict["outcome"],
        verdict=verdict,
        metrics_json=dump_line(scored.metrics).decode().strip(),
        judge_json=dump_line(judgement.to_dict()).decode().strip() if judgement else "",
        versions=scored.metrics["versions"],
    )


def _key(header: Header) -> AttemptKey:
    return AttemptKey(header.run_id, header.scenario, header.trial, header.attempt_id)
