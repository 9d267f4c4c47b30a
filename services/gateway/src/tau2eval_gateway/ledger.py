"""The spend ledger: one row an upstream call, written beside the call and never lost."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from tau2eval_common.errors import Unavailable
from tau2eval_gateway.ledger_schema import CALLS, METADATA, LedgerRow, SpendSum, sum_by, to_sum

logger = logging.getLogger(__name__)

QUEUE_ROWS = 10_000
BATCH_ROWS = 500
FLUSH_SECONDS = 10.0
_RETRY_SECONDS = (0.1, 0.5, 2.0, 5.0)
SPILL_NAME = "spend-not-yet-written.jsonl"
REFUSED_NAME = "spend-refused.jsonl"
"""Rows that the database will not take; for a person to look at."""
_PASSING = (OperationalError, InterfaceError, PoolTimeout, OSError)
"""Faults of the connection, which the same row may survive later."""
_DAILY = ("day", "key_id", "model", "role", "run_id", "arm")
_RUN = ("scenario", "role", "model")

Values = dict[str, Any]


class LedgerError(OSError):
    """The ledger's database cannot be used."""


class Ledger:
    """Writes rows in batches from a queue.

    Rows that find the queue full, or the database out of reach at the end, go to a file in the
    data folder; they are written at the next start.

    Args:
        database_url: SQLAlchemy URL; empty: a SQLite file in `data_dir`.
        data_dir: Folder that is made when missing.

    Raises:
        LedgerError: The URL names a driver that is not there, or the folder cannot be made.
    """

    def __init__(self, database_url: str, data_dir: Path) -> None:
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LedgerError(f"{data_dir} cannot be made: {error.strerror}") from error
        self._spill = data_dir / SPILL_NAME
        self._refused = data_dir / REFUSED_NAME
        url = _normal_url(database_url or f"sqlite:///{data_dir.resolve() / 'gateway.sqlite3'}")
        self._engine = _engine(url)
        self._queue: asyncio.Queue[Values] = asyncio.Queue(QUEUE_ROWS)
        self._writer: asyncio.Task[None] | None = None
        self.failing = False

    @property
    def engine(self) -> AsyncEngine:
        """The database, for what else is kept in it; it ends with `stop`."""
        return self._engine

    async def start(self) -> None:
        """Makes the table, writes what an earlier process left, and starts the writer.

        Raises:
            LedgerError: The database cannot be reached.
        """
        try:
            async with self._engine.begin() as connection:
                await connection.run_sync(METADATA.create_all)
            await self._recover()
        except (SQLAlchemyError, OSError) as error:
            await self._engine.dispose()
            raise LedgerError(
                f"the ledger's database cannot be used ({type(error).__name__}); check "
                "DATABASE_URL and TAU2EVAL_GATEWAY_DATA_DIR"
            ) from error
        self._writer = asyncio.create_task(self._write_forever(), name="ledger-writer")

    def record(self, row: LedgerRow) -> None:
        """Takes a row; does not wait."""
        values = row.values()
        try:
            self._queue.put_nowait(values)
        except asyncio.QueueFull:
            self._keep([values])

    async def flush(self) -> None:
        """Waits until every row taken so far is in the database.

        Raises:
            Unavailable: That takes too long.
        """
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._queue.join()
        except TimeoutError:
            raise Unavailable(
                "the spend ledger cannot be written now; its rows are kept and tried again",
                reason="LEDGER_UNAVAILABLE",
            ) from None

    async def stop(self) -> None:
        """Writes the rest and closes the database."""
        with contextlib.suppress(Unavailable):
            await self.flush()
        if self._writer is not None:
            self._writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._writer
        left: list[Values] = []
        while not self._queue.empty():
            left.append(self._queue.get_nowait())
        if left:
            self._keep(left)
        await self._engine.dispose()

    async def daily(self, from_day: str, to_day: str) -> list[SpendSum]:
        """Adds calls up by day, key, model, role, run and arm; empty bounds are open."""
        conditions: list[sa.ColumnElement[bool]] = []
        if from_day:
            conditions.append(CALLS.c.day >= from_day)
        if to_day:
            conditions.append(CALLS.c.day <= to_day)
        return await self._sums(_DAILY, conditions)

    async def run(self, run_id: str) -> list[SpendSum]:
        """Adds the calls of a run up by scenario, role and model."""
        return await self._sums(_RUN, [CALLS.c.run_id == run_id])

    async def rows(self) -> list[Mapping[str, Any]]:
        """Returns every row in order of time; for tests and export."""
        await self.flush()
        async with self._engine.connect() as connection:
            result = await connection.execute(sa.select(CALLS).order_by(CALLS.c.time))
            return [dict(row) for row in result.mappings()]

    async def _sums(
        self, groups: tuple[str, ...], conditions: list[sa.ColumnElement[bool]]
    ) -> list[SpendSum]:
        await self.flush()
        try:
            async with self._engine.connect() as connection:
                result = await connection.execute(sum_by(groups, conditions))
                return [to_sum(row) for row in result.mappings()]
        except (SQLAlchemyError, OSError) as error:
            raise Unavailable(
                f"the spend ledger cannot be read ({type(error).__name__})",
                reason="LEDGER_UNAVAILABLE",
            ) from error

    async def _write_forever(self) -> None:
        while True:
            batch = [await self._queue.get()]
            while len(batch) < BATCH_ROWS and not self._queue.empty():
                batch.append(self._queue.get_nowait())
            try:
                await self._write(batch)
            except asyncio.CancelledError:
                self._keep(batch)
                raise
            finally:
                for _ in batch:
                    self._queue.task_done()

    async def _write(self, batch: Sequence[Values]) -> None:
        attempt = 0
        while True:
            try:
                async with self._engine.begin() as connection:
                    await _insert(connection, batch)
            except _PASSING as error:
                wait = _RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS) - 1)]
                attempt += 1
                self.failing = True
                logger.error(
                    "%d ledger rows could not be written (%s); trying again in %.1f s",
                    len(batch),
                    type(error).__name__,
                    wait,
                )
                await asyncio.sleep(wait)
            except Exception as error:
                # Trying again would not help, and would hold up every later row.
                if len(batch) > 1:
                    for row in batch:
                        await self._write([row])
                    return
                logger.error(
                    "the database refuses %d ledger rows (%s); they are in %s",
                    len(batch),
                    type(error).__name__,
                    self._refused,
                )
                self._keep(batch, self._refused)
                return
            else:
                self.failing = False
                return

    def _keep(self, rows: Sequence[Values], path: Path | None = None) -> None:
        _append(path or self._spill, [{**row, "time": row["time"].isoformat()} for row in rows])

    async def _recover(self) -> None:
        if not self._spill.exists():
            return
        rows: list[Values] = []
        for line in self._spill.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
                row["time"] = datetime.fromisoformat(row["time"])
            except (ValueError, KeyError, TypeError):
                logger.error("%s holds a line that is no row; see %s", self._spill, self._refused)
                _append(self._refused, [line])
                continue
            rows.append(row)
        for at in range(0, len(rows), BATCH_ROWS):
            batch = rows[at : at + BATCH_ROWS]
            try:
                async with self._engine.begin() as connection:
                    await _insert(connection, batch)
            except _PASSING:
                raise
            except Exception as error:
                logger.error("the database refuses kept rows (%s)", type(error).__name__)
                self._keep(batch, self._refused)
        self._spill.unlink()
        logger.info("%d ledger rows of an earlier process were taken up", len(rows))


def _append(path: Path, lines: Sequence[object]) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        # The last resort: the log. Rows hold no key and no prompt text.
        logger.error("%s cannot be written (%s); ledger rows: %s", path, error, text)


async def _insert(connection: AsyncConnection, rows: Sequence[Values]) -> None:
    """Inserts the rows that are not there yet."""
    by_id = {row["call_id"]: row for row in rows}
    query = sa.select(CALLS.c.call_id).where(CALLS.c.call_id.in_(list(by_id)))
    known = set((await connection.execute(query)).scalars())
    fresh = [row for call_id, row in by_id.items() if call_id not in known]
    if fresh:
        await connection.execute(sa.insert(CALLS), fresh)


def _normal_url(url: str) -> sa.URL:
    try:
        parsed = sa.make_url(url)
    except SQLAlchemyError:
        raise LedgerError("DATABASE_URL is not a database URL") from None
    drivers = {
        "sqlite": "sqlite+aiosqlite",
        "postgres": "postgresql+asyncpg",
        "postgresql": "postgresql+asyncpg",
    }
    return parsed.set(drivername=drivers.get(parsed.drivername, parsed.drivername))


def _engine(url: sa.URL) -> AsyncEngine:
    options: dict[str, Any] = {}
    if not url.drivername.startswith("sqlite"):
        options = {"pool_pre_ping": True, "pool_size": 5}
    try:
        engine = create_async_engine(url, **options)
    except (ModuleNotFoundError, SQLAlchemyError) as error:
        raise LedgerError(
            f"DATABASE_URL needs the driver {url.drivername}, which is not installed "
            f"({type(error).__name__})"
        ) from None
    if url.drivername.startswith("sqlite"):
        sa.event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=5000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
