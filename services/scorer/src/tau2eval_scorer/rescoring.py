"""Scores stored conversations again, from their records alone."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass

import orjson

from tau2eval_common.errors import InvalidInput, NotFound
from tau2eval_scorer import layout
from tau2eval_scorer.artifacts import attempt_files
from tau2eval_scorer.judge import JudgeResult, JudgeSettings
from tau2eval_scorer.record import Conversation, RecordLimits
from tau2eval_scorer.run_files import InThread, RunFiles, place_of
from tau2eval_scorer.scoring_job import ConversationScorer
from tau2eval_scorer.spool import read_record
from tau2eval_scorer.storage import Artifacts, Place
from tau2eval_scorer.store import Attempt, Run, RunStore
from tau2eval_scorer.submission import numbered, to_scoring

logger = logging.getLogger(__name__)

PARALLEL = 4
"""Trials that are scored at once; a judge's answer takes seconds."""
_TRIES = 3


@dataclass(frozen=True)
class ScoredAgain:
    """One conversation after another scoring.

    Attributes:
        attempt: As the store has it now.
        before: Its outcome before.
        total: Conversations that are scored in all.
        done: With this one.
        problem: Why its verdict stands as it was; empty when it was scored.
    """

    run: Run
    attempt: Attempt
    before: str
    total: int
    done: int
    problem: str


class Rescorer:
    """Scores runs again.

    Args:
        limits: Bounds of a stored record.
    """

    def __init__(
        self,
        store: RunStore,
        artifacts: Artifacts,
        files: RunFiles,
        scorer: ConversationScorer,
        in_thread: InThread,
        limits: RecordLimits,
    ) -> None:
        self._store = store
        self._artifacts = artifacts
        self._files = files
        self._scorer = scorer
        self._in_thread = in_thread
        self._limits = limits

    async def score(
        self,
        run_id: str,
        judge: JudgeSettings | None,
        scenarios: Sequence[str] = (),
        only_unjudged: bool = False,
    ) -> AsyncGenerator[ScoredAgain, None]:
        """Scores a run's conversations again and yields each, in the order of the plan.

        Beside the attempts that count, those are scored that could come to count: with a score
        already, or waiting for a judge. So all scores of a run are of one scorer. Each conversation
        is stored by itself; who stops half-way keeps what is done.

        Args:
            run_id: The run, open or finished.
            judge: The judge to ask; None for the plan's, with judgements that stand kept.
            scenarios: Only these; all when empty.
            only_unjudged: Only conversations that wait for a judge, of trials without a score.

        Raises:
            NotFound: When there is no such run.
            InvalidInput: When a scenario is not planned.
        """
        run = await self._store.run(run_id)
        if unknown := sorted(set(scenarios) - set(run.plan.scenarios)):
            raise InvalidInput(
                f"scenario {unknown[0][:140]!r} is not in the plan of run {run_id}",
                reason="NOT_PLANNED",
            )
        chosen = _choose(
            run, await self._store.attempts(run_id, judge=False), set(scenarios), only_unjudged
        )
        total = sum(map(len, chosen))
        done = 0
        waiting = iter(chosen)
        running: deque[asyncio.Task[list[tuple[Attempt, Attempt, str]]]] = deque()
        try:
            while True:
                for attempts in itertools.islice(waiting, PARALLEL - len(running)):
                    running.append(asyncio.ensure_future(self._score_trial(run, attempts, judge)))
                if not running:
                    break
                for before, attempt, problem in await running[0]:
                    done += 1
                    yield ScoredAgain(run, attempt, before.outcome, total, done, problem)
                running.popleft()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            if total:
                async with self._files.locks.hold(run_id):
                    await self._files.settle(run_id)

    async def _score_trial(
        self, run: Run, attempts: Sequence[Attempt], judge: JudgeSettings | None
    ) -> list[tuple[Attempt, Attempt, str]]:
        # Oldest first: of several that come to a score, the first one counts.
        return [(attempt, *await self._score_attempt(run, attempt, judge)) for attempt in attempts]

    async def _score_attempt(
        self, run: Run, attempt: Attempt, judge: JudgeSettings | None
    ) -> tuple[Attempt, str]:
        key = attempt.key
        try:
            conversation = await self._read(run, attempt)
            header = conversation.header
            if (header.run_id, header.scenario, header.trial, header.attempt_id) != (
                key.run_id,
                key.scenario,
                key.trial,
                key.attempt_id,
            ):
                return await self._fresh(attempt), "its stored record is of another attempt"
            scored = await self._scorer.score(
                conversation,
                layout.scenario_path(key.scenario, key.trial, run.plan.trials),
                run.plan.judge if judge is None else judge,
                await self._kept(attempt, run.plan.judge) if judge is None else None,
            )
        except (InvalidInput, NotFound, OSError) as error:
            logger.warning("%s cannot be scored again: %s", key, error)
            return await self._fresh(attempt), f"its record cannot be scored again: {error}"
        kind = scored.composite.not_run_kind
        if attempt.scored and kind == "judge_error":
            # A judge that fails now is no reason to lose what is known.
            return await self._fresh(attempt), scored.composite.explanation
        if attempt.scored and kind == "judge_off" and judge is None:
            # Another judge than the plan's, which has none, gave this score; nobody took it back.
            return await self._fresh(attempt), (
                f"{scored.composite.explanation}, and the run has none; name the one that judged it"
            )
        async with self._files.locks.hold(key.run_id):
            current = await self._fresh(attempt)
            scored = numbered(scored, current.scoring.number + 1)
            derived = {
                name: data
                for name, data in attempt_files(scored).items()
                if name not in (layout.METRICS_FILE, layout.JUDGE_FILE)
            }
            await self._in_thread(self._artifacts.update, place_of(run, current), derived)
            stored = await self._store.add_scoring(key, to_scoring(scored))
            await self._files.place(run, key.scenario, key.trial)
        return stored, ""

    async def _read(self, run: Run, attempt: Attempt) -> Conversation:
        for left in reversed(range(_TRIES)):
            current = await self._fresh(attempt)
            try:
                return await self._in_thread(self._read_now, place_of(run, current))
            except FileNotFoundError:
                # It may just be moved to its scenario, or away from it.
                if not left:
                    raise
        raise AssertionError("unreachable")

    async def _fresh(self, attempt: Attempt) -> Attempt:
        return await self._store.attempt(attempt.key) or attempt

    def _read_now(self, place: Place) -> Conversation:
        with self._artifacts.record(place) as stored:
            return read_record(stored.path, stored.wav_bytes, self._limits)

    async def _kept(self, attempt: Attempt, judge: JudgeSettings) -> JudgeResult | None:
        """Returns the newest judgement of an attempt by a judge.

        Whether it answers the question that would be asked now is the scorer's affair.
        """
        found = []
        for scoring in reversed(await self._store.scorings(attempt)):
            if not scoring.judge_json:
                continue
            try:
                result = JudgeResult.from_dict(orjson.loads(scoring.judge_json))
            except ValueError:
                continue
            if result.judged and result.model == judge.model:
                found.append(result)
        same = [result for result in found if dict(result.settings) == judge.to_dict()]
        return next(iter(same or found), None)


def _choose(
    run: Run, attempts: Sequence[Attempt], scenarios: set[str], only_unjudged: bool
) -> list[list[Attempt]]:
    """Returns the attempts to score, a list for each trial, in the order of the plan."""
    at: dict[tuple[str, int], list[Attempt]] = {}
    for attempt in attempts:
        at.setdefault((attempt.key.scenario, attempt.key.trial), []).append(attempt)

    def wanted(trial: Sequence[Attempt]) -> Iterator[Attempt]:
        scored = any(attempt.scored and attempt.counts for attempt in trial)
        for attempt in trial:
            if only_unjudged:
                if attempt.awaits_judge and not scored:
                    yield attempt
            elif attempt.counts or attempt.scored or attempt.awaits_judge:
                yield attempt

    places = [place for place in run.plan.trial_places() if not scenarios or place[0] in scenarios]
    lists = [list(wanted(at.get(place, ()))) for place in places]
    return [chosen for chosen in lists if chosen]
