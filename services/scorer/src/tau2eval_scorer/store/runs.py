"""The store of runs: plans, every attempt with its scorings, claims, and resumptions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from tau2eval_common.errors import AlreadyExists, NotFound
from tau2eval_scorer.store import attempts, claims
from tau2eval_scorer.store.database import Database
from tau2eval_scorer.store.tables import ATTEMPTS, RESUMES, RUNS, SCENARIOS
from tau2eval_scorer.store.values import (
    Attempt,
    AttemptKey,
    Claim,
    ClaimAnswer,
    Plan,
    Resume,
    Run,
    Scoring,
    check_open,
)

_INSERTED_AT_ONCE = 500


class RunStore:
    """Runs in a database; several processes may use it at once.

    Args:
        url: SQLAlchemy URL with an asynchronous driver.
    """

    def __init__(self, url: str) -> None:
        self.database = Database(url)

    async def open(self) -> None:
        """Connects, and brings the tables to this version.

        Raises:
            StoreError: When that fails.
        """
        await self.database.open()

    async def close(self) -> None:
        """Ends the connections."""
        await self.database.close()

    async def create_run(self, plan: Plan) -> Run:
        """Creates a run, or returns it when it is there with the same plan.

        Raises:
            AlreadyExists: When it is there with another plan.
        """
        places = [
            {"run_id": plan.run_id, "scenario": name, "trial": trial, "position": at}
            for at, (name, trial) in enumerate(plan.trial_places())
        ]
        try:
            async with self.database.writing() as connection:
                await connection.execute(
                    RUNS.insert().values(run_id=plan.run_id, plan=plan.to_json(), created_at=_now())
                )
                for at in range(0, len(places), _INSERTED_AT_ONCE):
                    await connection.execute(
                        SCENARIOS.insert(), places[at : at + _INSERTED_AT_ONCE]
                    )
        except IntegrityError:
            run = await self.run(plan.run_id)
            if run.plan.to_json() != plan.to_json():
                raise AlreadyExists(
                    f"run {plan.run_id} exists with another plan; choose another run_id",
                    reason="RUN_EXISTS",
                ) from None
            return run
        return await self.run(plan.run_id)

    async def run(self, run_id: str) -> Run:
        """Returns a run.

        Raises:
            NotFound: When there is none.
        """
        async with self.database.reading() as connection:
            return await _run(connection, run_id)

    async def runs(self) -> list[tuple[Run, Mapping[str, int]]]:
        """Returns all runs, newest first, with their verdicts counted by outcome.

        Their resumptions are left out.
        """
        async with self.database.reading() as connection:
            rows = await connection.execute(
                RUNS.select().order_by(RUNS.c.created_at.desc(), RUNS.c.run_id)
            )
            runs = [_to_run(row) for row in rows]
            counts: dict[str, dict[str, int]] = {}
            groups = await connection.execute(
                sa.select(ATTEMPTS.c.run_id, ATTEMPTS.c.outcome, sa.func.count())
                .where(ATTEMPTS.c.counts.is_(True))
                .group_by(ATTEMPTS.c.run_id, ATTEMPTS.c.outcome)
            )
            for run_id, outcome, count in groups:
                counts.setdefault(run_id, {})[outcome] = count
        return [(run, counts.get(run.plan.run_id, {})) for run in runs]

    async def finish_run(self, run_id: str) -> Run:
        """Closes a run; again at no effect.

        Raises:
            NotFound: When there is none.
        """
        async with self.database.writing() as connection:
            await _hold(connection, run_id)
            await connection.execute(
                RUNS.update()
                .where(RUNS.c.run_id == run_id, RUNS.c.finished_at == "")
                .values(finished_at=_now())
            )
            return await _run(connection, run_id)

    async def resume_run(
        self, run_id: str, settings: Mapping[str, Any], changes: Sequence[Mapping[str, Any]]
    ) -> Run:
        """Opens a run again and notes with which settings it goes on.

        Raises:
            NotFound: When there is none.
        """
        async with self.database.writing() as connection:
            await _hold(connection, run_id)
            await connection.execute(
                RUNS.update().where(RUNS.c.run_id == run_id).values(finished_at="")
            )
            await connection.execute(
                RESUMES.insert().values(
                    run_id=run_id,
                    at=_now(),
                    settings=json.dumps(settings, sort_keys=True),
                    changes=json.dumps(list(changes)),
                )
            )
            return await _run(connection, run_id)

    async def attempt(self, key: AttemptKey) -> Attempt | None:
        """Returns an attempt, or None."""
        async with self.database.reading() as connection:
            return await attempts.find_attempt(connection, key)

    async def counting(self, run_id: str, scenario: str, trial: int) -> Attempt | None:
        """Returns the attempt that counts for a scenario and trial, or None."""
        place = attempts.same_place(run_id, scenario, trial)
        rows = await self._select(*place, ATTEMPTS.c.counts.is_(True))
        return rows[0] if rows else None

    async def verdicts(self, run_id: str) -> list[Attempt]:
        """Returns a run's counting attempts, in the order in which they were stored."""
        return await self._select(ATTEMPTS.c.run_id == run_id, ATTEMPTS.c.counts.is_(True))

    async def changed_verdicts(self, run_id: str, after: int) -> list[Attempt]:
        """Returns counting attempts with a sequence above `after`, by their sequence."""
        async with self.database.reading() as connection:
            return await attempts.select_attempts(
                connection,
                ATTEMPTS.c.run_id == run_id,
                ATTEMPTS.c.counts.is_(True),
                ATTEMPTS.c.revision > after,
                order=ATTEMPTS.c.revision,
            )

    async def attempts(self, run_id: str, *, judge: bool = True) -> list[Attempt]:
        """Returns every attempt of a run, in the order in which they were stored.

        Args:
            run_id: The run.
            judge: Whether with the judge's results, which are long; empty otherwise.
        """
        return await self._select(ATTEMPTS.c.run_id == run_id, judge=judge)

    async def attempts_at(self, run_id: str, scenario: str, trial: int) -> list[Attempt]:
        """Returns every attempt at a scenario and trial, in the order in which they were stored.

        They come without the judge's results.
        """
        return await self._select(*attempts.same_place(run_id, scenario, trial), judge=False)

    async def scorings(self, attempt: Attempt) -> list[Scoring]:
        """Returns every scoring of an attempt, oldest first."""
        async with self.database.reading() as connection:
            return await attempts.select_scorings(connection, attempt.row)

    async def add_attempt(self, key: AttemptKey, scoring: Scoring) -> Attempt:
        """Stores an attempt, ends its claim, and settles which attempt counts.

        The same key again changes nothing.

        Raises:
            NotFound: When there is no such run.
            FailedPrecondition: When the run is finished.
        """
        async with self.database.writing() as connection:
            revision = await _hold(connection, key.run_id)
            known = await attempts.find_attempt(connection, key)
            if known is not None:
                return known
            check_open(await _run(connection, key.run_id))
            await attempts.insert_attempt(connection, key, scoring, revision, _now())
            await claims.release(connection, key)
            return await _stored(connection, key)

    async def add_scoring(self, key: AttemptKey, scoring: Scoring) -> Attempt:
        """Stores another scoring of an attempt and settles which attempt counts.

        Raises:
            NotFound: When there is no such run or attempt.
        """
        async with self.database.writing() as connection:
            revision = await _hold(connection, key.run_id)
            known = await attempts.find_attempt(connection, key)
            if known is None:
                raise NotFound(
                    f"run {key.run_id} has no attempt {key.attempt_id}", reason="NO_SUCH_ATTEMPT"
                )
            await attempts.insert_scoring(connection, known, scoring, revision, _now())
            return await _stored(connection, key)

    async def unplaced(self, run_id: str) -> list[Attempt]:
        """Returns a run's attempts whose files may not be as they should, oldest first."""
        return await self._select(ATTEMPTS.c.run_id == run_id, ATTEMPTS.c.placed.is_(False))

    async def runs_unplaced(self) -> list[str]:
        """Returns the runs that have such attempts."""
        async with self.database.reading() as connection:
            rows = await connection.execute(
                sa.select(ATTEMPTS.c.run_id).where(ATTEMPTS.c.placed.is_(False)).distinct()
            )
            return sorted(rows.scalars())

    async def mark_placed(self, attempt: Attempt) -> None:
        """Notes that an attempt's files are as they should be, unless it has changed since."""
        async with self.database.writing() as connection:
            await connection.execute(
                ATTEMPTS.update()
                .where(ATTEMPTS.c.id == attempt.row, ATTEMPTS.c.revision == attempt.sequence)
                .values(placed=True)
            )

    async def claim(self, key: AttemptKey, holder: str, lease_seconds: float) -> ClaimAnswer:
        """Takes a trial for an attempt, or renews its lease.

        Raises:
            NotFound: When there is no such run.
            FailedPrecondition: When the run is finished.
            InvalidInput: When the trial is not planned.
        """
        async with self.database.writing() as connection:
            await _hold(connection, key.run_id)
            check_open(await _run(connection, key.run_id))
            return await claims.take(connection, key, holder, lease_seconds)

    async def release(self, key: AttemptKey) -> None:
        """Ends an attempt's claim, if it has one.

        Raises:
            NotFound: When there is no such run.
        """
        async with self.database.writing() as connection:
            await _hold(connection, key.run_id)
            await claims.release(connection, key)

    async def claims(self, run_id: str) -> dict[tuple[str, int], Claim]:
        """Returns the claims of a run that have not ended, by scenario and trial."""
        async with self.database.reading() as connection:
            return await claims.live(connection, run_id)

    async def _select(self, *where: sa.ColumnElement[bool], judge: bool = True) -> list[Attempt]:
        async with self.database.reading() as connection:
            return await attempts.select_attempts(connection, *where, judge=judge)


async def _hold(connection: AsyncConnection, run_id: str) -> int:
    """Takes a run for this transaction and returns its new revision."""
    held = await connection.execute(
        RUNS.update()
        .where(RUNS.c.run_id == run_id)
        .values(revision=RUNS.c.revision + 1)
        .returning(RUNS.c.revision)
    )
    revision = held.scalar_one_or_none()
    if revision is None:
        raise _no_run(run_id)
    return int(revision)


async def _stored(connection: AsyncConnection, key: AttemptKey) -> Attempt:
    attempt = await attempts.find_attempt(connection, key)
    assert attempt is not None
    return attempt


async def _run(connection: AsyncConnection, run_id: str) -> Run:
    row = (await connection.execute(RUNS.select().where(RUNS.c.run_id == run_id))).one_or_none()
    if row is None:
        raise _no_run(run_id)
    resumes = await connection.execute(
        RESUMES.select().where(RESUMES.c.run_id == run_id).order_by(RESUMES.c.id)
    )
    return _to_run(
        row,
        tuple(
            Resume(item.at, json.loads(item.settings), tuple(json.loads(item.changes)))
            for item in resumes
        ),
    )


def _no_run(run_id: str) -> NotFound:
    return NotFound(f"there is no run {run_id[:140]!r}; CreateRun makes it", reason="NO_SUCH_RUN")


def _to_run(row: sa.Row[Any], resumes: tuple[Resume, ...] = ()) -> Run:
    return Run(Plan.from_json(row.plan), row.created_at, row.finished_at, resumes)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
