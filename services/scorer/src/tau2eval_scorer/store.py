"""The store of runs: plans, every attempt, and which attempt counts.

One attempt counts for each run, scenario and trial. The first one that was scored counts for good;
until there is one, the newest does. So a later failure of the infrastructure never takes a score
away, a not_run may be tried again, and nobody can repeat a scored call until it passes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from tau2eval_common.errors import AlreadyExists, FailedPrecondition, NotFound

_metadata = sa.MetaData()

_runs = sa.Table(
    "runs",
    _metadata,
    sa.Column("run_id", sa.String(128), primary_key=True),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("created_at", sa.String(40), nullable=False),
    sa.Column("finished_at", sa.String(40), nullable=False, server_default=""),
    # Counts the writes to a run; a writer takes it first and so holds the run for itself.
    sa.Column("revision", sa.Integer, nullable=False, server_default="0"),
)

_attempts = sa.Table(
    "attempts",
    _metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("run_id", sa.ForeignKey("runs.run_id"), nullable=False),
    sa.Column("scenario", sa.String(128), nullable=False),
    sa.Column("trial", sa.Integer, nullable=False),
    sa.Column("attempt_id", sa.String(128), nullable=False),
    sa.Column("outcome", sa.String(16), nullable=False),
    sa.Column("verdict", sa.Text, nullable=False),
    sa.Column("metrics", sa.Text, nullable=False),
    sa.Column("created_at", sa.String(40), nullable=False),
    sa.Column("counts", sa.Boolean, nullable=False),
    sa.Column("placed", sa.Boolean, nullable=False),
    sa.UniqueConstraint("run_id", "scenario", "trial", "attempt_id"),
)
sa.Index(
    "one_attempt_counts",
    _attempts.c.run_id,
    _attempts.c.scenario,
    _attempts.c.trial,
    unique=True,
    sqlite_where=_attempts.c.counts.is_(True),
    postgresql_where=_attempts.c.counts.is_(True),
)


@dataclass(frozen=True)
class Plan:
    """What a run shall hold. `settings` has no secrets."""

    run_id: str
    scenarios: tuple[str, ...]
    trials: int
    settings: Mapping[str, Any]

    def to_json(self) -> str:
        """Returns the plan in one canonical form."""
        return json.dumps(
            {
                "run_id": self.run_id,
                "scenarios": list(self.scenarios),
                "trials": self.trials,
                "settings": self.settings,
            },
            sort_keys=True,
        )

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Reads what `to_json` wrote."""
        value = json.loads(text)
        return cls(value["run_id"], tuple(value["scenarios"]), value["trials"], value["settings"])


@dataclass(frozen=True)
class Run:
    """A run; `finished_at` is empty while it is open. Times are RFC 3339 in UTC."""

    plan: Plan
    created_at: str
    finished_at: str


@dataclass(frozen=True)
class AttemptKey:
    """Identity of one attempt."""

    run_id: str
    scenario: str
    trial: int
    attempt_id: str


@dataclass(frozen=True)
class Attempt:
    """A stored attempt.

    Attributes:
        sequence: Grows with every attempt of the store.
        verdict: As `scoring.ScoredConversation.verdict_dict` wrote it.
        metrics_json: The metrics.json.
        counts: Whether it is the one that counts for its scenario and trial.
    """

    key: AttemptKey
    sequence: int
    outcome: str
    verdict: Mapping[str, Any]
    metrics_json: str
    counts: bool


class StoreError(OSError):
    """The store cannot be opened; the message says what to do."""


class RunStore:
    """Runs and attempts in a database.

    Args:
        url: SQLAlchemy URL with an asynchronous driver.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._engine: AsyncEngine | None = None

    async def open(self) -> None:
        """Connects, and makes the tables where they are missing.

        Raises:
            StoreError: When that fails.
        """
        try:
            url = make_url(self._url)
            if url.get_backend_name() == "sqlite" and url.database:
                Path(url.database).parent.mkdir(parents=True, exist_ok=True)
            engine = create_async_engine(url)
            if url.get_backend_name() == "sqlite":
                sa.event.listen(engine.sync_engine, "connect", _prepare_sqlite)
            async with engine.begin() as connection:
                await connection.run_sync(_metadata.create_all)
        except (ArgumentError, SQLAlchemyError, ImportError, OSError) as error:
            safe = self._url.partition("://")[0]
            raise StoreError(f"the run store ({safe}) cannot be opened: {error}") from error
        self._engine = engine

    async def close(self) -> None:
        """Ends the connections."""
        if self._engine is not None:
            await self._engine.dispose()
            self._engine = None

    @property
    def _db(self) -> AsyncEngine:
        if self._engine is None:
            raise RuntimeError("the store is not open")
        return self._engine

    async def create_run(self, plan: Plan) -> Run:
        """Creates a run, or returns it when it is there with the same plan.

        Raises:
            AlreadyExists: When it is there with another plan.
        """
        try:
            async with self._db.begin() as connection:
                await connection.execute(
                    _runs.insert().values(
                        run_id=plan.run_id, plan=plan.to_json(), created_at=_now()
                    )
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
        async with self._db.connect() as connection:
            return await _run(connection, run_id)

    async def runs(self) -> list[tuple[Run, Mapping[str, int]]]:
        """Returns all runs, newest first, with their verdicts counted by outcome."""
        async with self._db.connect() as connection:
            rows = await connection.execute(
                _runs.select().order_by(_runs.c.created_at.desc(), _runs.c.run_id)
            )
            runs = [_to_run(row) for row in rows]
            counts: dict[str, dict[str, int]] = {}
            groups = await connection.execute(
                sa.select(_attempts.c.run_id, _attempts.c.outcome, sa.func.count())
                .where(_attempts.c.counts.is_(True))
                .group_by(_attempts.c.run_id, _attempts.c.outcome)
            )
            for run_id, outcome, count in groups:
                counts.setdefault(run_id, {})[outcome] = count
        return [(run, counts.get(run.plan.run_id, {})) for run in runs]

    async def finish_run(self, run_id: str) -> Run:
        """Closes a run; again at no effect.

        Raises:
            NotFound: When there is none.
        """
        async with self._db.begin() as connection:
            await _hold(connection, run_id)
            await connection.execute(
                _runs.update()
                .where(_runs.c.run_id == run_id, _runs.c.finished_at == "")
                .values(finished_at=_now())
            )
            return await _run(connection, run_id)

    async def attempt(self, key: AttemptKey) -> Attempt | None:
        """Returns an attempt, or None."""
        async with self._db.connect() as connection:
            return await _find(connection, key)

    async def counting(self, run_id: str, scenario: str, trial: int) -> Attempt | None:
        """Returns the attempt that counts for a scenario and trial, or None."""
        rows = await self._select(
            _attempts.c.run_id == run_id,
            _attempts.c.scenario == scenario,
            _attempts.c.trial == trial,
            _attempts.c.counts.is_(True),
        )
        return rows[0] if rows else None

    async def verdicts(self, run_id: str, after: int = 0) -> list[Attempt]:
        """Returns a run's counting attempts with a sequence above `after`, oldest first."""
        return await self._select(
            _attempts.c.run_id == run_id, _attempts.c.counts.is_(True), _attempts.c.id > after
        )

    async def add_attempt(
        self, key: AttemptKey, outcome: str, verdict: Mapping[str, Any], metrics_json: str
    ) -> Attempt:
        """Stores an attempt and settles which one counts; the same key again changes nothing.

        Raises:
            NotFound: When there is no such run.
            FailedPrecondition: When the run is finished.
        """
        async with self._db.begin() as connection:
            await _hold(connection, key.run_id)
            known = await _find(connection, key)
            if known is not None:
                return known
            run = await _run(connection, key.run_id)
            check_open(run)
            place = (
                (_attempts.c.run_id == key.run_id)
                & (_attempts.c.scenario == key.scenario)
                & (_attempts.c.trial == key.trial)
                & _attempts.c.counts.is_(True)
            )
            current = (
                await connection.execute(sa.select(_attempts.c.outcome).where(place))
            ).scalar_one_or_none()
            counts = current in (None, "not_run")
            if counts:
                await connection.execute(_attempts.update().where(place).values(counts=False))
            await connection.execute(
                _attempts.insert().values(
                    run_id=key.run_id,
                    scenario=key.scenario,
                    trial=key.trial,
                    attempt_id=key.attempt_id,
                    outcome=outcome,
                    verdict=json.dumps(verdict),
                    metrics=metrics_json,
                    created_at=_now(),
                    counts=counts,
                    placed=False,
                )
            )
            stored = await _find(connection, key)
            assert stored is not None
            return stored

    async def unplaced(self) -> list[Attempt]:
        """Returns attempts whose folders may not lie where they belong yet, oldest first."""
        return await self._select(_attempts.c.placed.is_(False))

    async def mark_placed(self, sequence: int) -> None:
        """Notes that an attempt's folder lies where it belongs."""
        async with self._db.begin() as connection:
            await connection.execute(
                _attempts.update().where(_attempts.c.id == sequence).values(placed=True)
            )

    async def _select(self, *where: sa.ColumnElement[bool]) -> list[Attempt]:
        async with self._db.connect() as connection:
            rows = await connection.execute(
                _attempts.select().where(*where).order_by(_attempts.c.id)
            )
            return [_to_attempt(row) for row in rows]


def check_open(run: Run) -> None:
    """Refuses a change to a finished run.

    Raises:
        FailedPrecondition: When it is finished.
    """
    if run.finished_at:
        raise FailedPrecondition(
            f"run {run.plan.run_id} was finished at {run.finished_at}; start another run",
            reason="RUN_FINISHED",
        )


async def _hold(connection: AsyncConnection, run_id: str) -> None:
    """Takes a run for this transaction: a write first, so that SQLite need not upgrade a lock."""
    held = await connection.execute(
        _runs.update().where(_runs.c.run_id == run_id).values(revision=_runs.c.revision + 1)
    )
    if held.rowcount == 0:
        raise _no_run(run_id)


async def _run(connection: AsyncConnection, run_id: str) -> Run:
    row = (await connection.execute(_runs.select().where(_runs.c.run_id == run_id))).one_or_none()
    if row is None:
        raise _no_run(run_id)
    return _to_run(row)


async def _find(connection: AsyncConnection, key: AttemptKey) -> Attempt | None:
    row = (
        await connection.execute(
            _attempts.select().where(
                _attempts.c.run_id == key.run_id,
                _attempts.c.scenario == key.scenario,
                _attempts.c.trial == key.trial,
                _attempts.c.attempt_id == key.attempt_id,
            )
        )
    ).one_or_none()
    return None if row is None else _to_attempt(row)


def _no_run(run_id: str) -> NotFound:
    return NotFound(f"there is no run {run_id!r}; CreateRun makes it", reason="NO_SUCH_RUN")


def _to_run(row: sa.Row[Any]) -> Run:
    return Run(Plan.from_json(row.plan), row.created_at, row.finished_at)


def _to_attempt(row: sa.Row[Any]) -> Attempt:
    return Attempt(
        key=AttemptKey(row.run_id, row.scenario, row.trial, row.attempt_id),
        sequence=row.id,
        outcome=row.outcome,
        verdict=json.loads(row.verdict),
        metrics_json=row.metrics,
        counts=row.counts,
    )


def _prepare_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    try:
        # WAL lets readers go on during a write; FULL keeps what was acknowledged through a crash.
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "busy_timeout=15000",
            "foreign_keys=ON",
        ):
            cursor.execute(f"PRAGMA {pragma}")
    finally:
        cursor.close()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
