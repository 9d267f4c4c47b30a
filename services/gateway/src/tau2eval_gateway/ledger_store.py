"""The ledger's database: SQLite in a file or PostgreSQL, shared by any number of gateways."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from tau2eval_gateway import migrate
from tau2eval_gateway.ledger_schema import (
    CALLS,
    DAYS,
    RESERVATIONS,
    LedgerRow,
    SpendSum,
    Standing,
    Wanted,
    decide,
    sum_by,
    to_sum,
)
from tau2eval_gateway.ledger_sqlite import SqliteFile

CONNECT_SECONDS: Final = 10.0
STATEMENT_SECONDS: Final = 60.0
_BUSY_MILLISECONDS: Final = 5_000
_DRIVERS: Final = {
    "sqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
}
_PASSING_STATES: Final = frozenset({"08", "40", "53", "57"})
"""Classes of SQLSTATE that pass: lost connections, deadlocks, a server that is full or ends."""


class LedgerError(OSError):
    """The ledger's database cannot be used."""


class LedgerStore:
    """Queries of the ledger. Every method is one transaction.

    Args:
        database_url: SQLAlchemy URL; empty: a SQLite file in `data_dir`.
        data_dir: An existing folder.

    Raises:
        LedgerError: The URL cannot be read, or names a driver that is not there.
    """

    def __init__(self, database_url: str, data_dir: Path) -> None:
        url = _normal_url(database_url or f"sqlite:///{data_dir.resolve() / 'gateway.sqlite3'}")
        self._engine = _engine(url)
        self._writers = self._engine.execution_options(writes=True)
        self._file: SqliteFile | None = None
        if _is_file(url):
            self._file = SqliteFile(str(url.database), _BUSY_MILLISECONDS / 1000)

    @property
    def engine(self) -> AsyncEngine:
        """Connections to the database."""
        return self._engine

    async def open(self) -> None:
        """Makes or upgrades the schema.

        Raises:
            LedgerError: The database cannot be used.
        """
        try:
            async with self._writers.begin() as connection:
                await connection.run_sync(migrate.upgrade)
        except migrate.SchemaError as error:
            await self.close()
            raise LedgerError(str(error)) from error
        except Exception as error:
            # A driver may raise errors of its own while it connects. Texts may hold the password.
            await self.close()
            if not isinstance(error, (SQLAlchemyError, OSError)) and not is_passing(error):
                raise
            raise LedgerError(
                f"the ledger's database cannot be used ({kind_of(error)}); check "
                "DATABASE_URL and TAU2EVAL_GATEWAY_DATA_DIR"
            ) from error

    async def close(self) -> None:
        """Closes the connections."""
        if self._file is not None:
            await self._file.close()
        await self._engine.dispose()

    async def write(self, rows: Sequence[LedgerRow], released: Sequence[str] = ()) -> None:
        """Inserts the rows that are not there yet, in place of their reservations.

        Args:
            rows: Calls that have ended.
            released: Ids of reservations whose calls were never made.
        """
        if self._file is not None:
            await self._file.write(rows, released)
            return
        by_id = {row.call_id: row.values() for row in rows}
        async with self._writing() as connection:
            if by_id:
                await _insert(connection, by_id)
            gone = [*by_id, *released]
            if gone:
                await connection.execute(
                    sa.delete(RESERVATIONS).where(RESERVATIONS.c.call_id.in_(gone))
                )

    async def reserve(
        self, wanted: Sequence[Wanted], cap_usd: float, now: float
    ) -> list[Standing | None]:
        """Reserves what still fits under the cap, in order.

        Args:
            wanted: Reservations.
            cap_usd: Dollars a day.
            now: Seconds since 1970.

        Returns:
            None for each that is granted, or where its day stands, in which it found no place.
        """
        if self._file is not None:
            return await self._file.reserve(wanted, cap_usd, now)
        async with self._writing() as connection:
            days = {
                day: await _standing(connection, day, now) for day in {one.day for one in wanted}
            }
            results = decide(wanted, days, cap_usd)
            granted = [
                {"call_id": one.call_id, "day": one.day, "usd": one.usd, "expires": one.expires}
                for one, result in zip(wanted, results, strict=True)
                if result is None
            ]
            if granted:
                await connection.execute(sa.insert(RESERVATIONS), granted)
        return results

    async def remove_expired(self, now: float) -> None:
        """Removes the reservations of gateways that have died."""
        async with self._writing() as connection:
            await connection.execute(sa.delete(RESERVATIONS).where(RESERVATIONS.c.expires <= now))

    async def standing(self, day: str, now: float) -> Standing:
        """Returns where a day stands."""
        async with self._engine.begin() as connection:
            return await _standing(connection, day, now)

    async def sums(
        self, groups: tuple[str, ...], conditions: list[sa.ColumnElement[bool]]
    ) -> list[SpendSum]:
        """Adds calls up by columns of the table."""
        async with self._engine.begin() as connection:
            result = await connection.execute(sum_by(groups, conditions))
            return [to_sum(row) for row in result.mappings()]

    async def largest(self, from_day: str, limit: int) -> list[tuple[str, float, int]]:
        """Returns the largest known cost, and the most tokens written, of each model since a day.

        Args:
            from_day: The first day.
            limit: Models at most.
        """
        query = (
            sa.select(
                CALLS.c.model,
                sa.func.max(CALLS.c.cost_usd),
                sa.func.max(CALLS.c.completion_tokens),
            )
            .where(CALLS.c.day >= from_day, CALLS.c.cost_usd.is_not(None), CALLS.c.status == "ok")
            .group_by(CALLS.c.model)
            .limit(limit)
        )
        async with self._engine.begin() as connection:
            return [(str(m), float(c), int(t)) for m, c, t in await connection.execute(query)]

    async def rows(self) -> list[Mapping[str, Any]]:
        """Returns every row in order of time."""
        async with self._engine.begin() as connection:
            result = await connection.execute(sa.select(CALLS).order_by(CALLS.c.time))
            return [dict(row) for row in result.mappings()]

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[AsyncConnection]:
        async with self._writers.begin() as connection:
            if connection.dialect.name == "postgresql":
                # One writer at a time, so that no two count the same money as free.
                await connection.run_sync(migrate.lock)
            yield connection


async def _insert(connection: AsyncConnection, by_id: dict[str, dict[str, Any]]) -> None:
    query = sa.select(CALLS.c.call_id).where(CALLS.c.call_id.in_(list(by_id)))
    known = set((await connection.execute(query)).scalars())
    fresh = [row for call_id, row in by_id.items() if call_id not in known]
    if not fresh:
        return
    await connection.execute(sa.insert(CALLS), fresh)
    days: dict[str, float] = {}
    for row in fresh:
        counted = row["counted_usd"] if row["counted_usd"] is not None else row["cost_usd"]
        days[row["day"]] = days.get(row["day"], 0.0) + (counted or 0.0)
    for day, usd in sorted(days.items()):
        await connection.execute(_ADD_TO_DAY, {"day": day, "usd": usd})


# Both databases understand this; SQLAlchemy's own form of it is bound to one of them.
_ADD_TO_DAY: Final = sa.text(
    "INSERT INTO gateway_spend_days (day, counted_usd) VALUES (:day, :usd) "
    "ON CONFLICT (day) DO UPDATE SET "
    "counted_usd = gateway_spend_days.counted_usd + excluded.counted_usd"
)


async def _standing(connection: AsyncConnection, day: str, now: float) -> Standing:
    counted = sa.select(DAYS.c.counted_usd).where(DAYS.c.day == day).scalar_subquery()
    reserved = (
        sa.select(sa.func.sum(RESERVATIONS.c.usd))
        .where(RESERVATIONS.c.day == day, RESERVATIONS.c.expires > now)
        .scalar_subquery()
    )
    row = (await connection.execute(sa.select(counted, reserved))).one()
    return Standing(float(row[0] or 0.0), float(row[1] or 0.0))


def is_passing(error: BaseException) -> bool:
    """Whether an error says that the database is away or full: the same row may fare better."""
    passing = (OperationalError, InterfaceError, PoolTimeout, OSError, sqlite3.OperationalError)
    if isinstance(error, passing):
        return True
    if isinstance(error, DBAPIError):
        # SQLAlchemy has no kind of its own for most of what asyncpg raises.
        state = str(getattr(error.orig, "sqlstate", None) or "")
        return error.connection_invalidated or state[:2] in _PASSING_STATES
    # While it connects, asyncpg's own errors come as they are.
    return type(error).__module__.split(".")[0] == "asyncpg"


def kind_of(error: BaseException) -> str:
    """Returns the name of an error's kind; texts of databases may hold values and passwords."""
    return type(getattr(error, "orig", None) or error).__name__


def _normal_url(url: str) -> sa.URL:
    try:
        parsed = sa.make_url(url)
    except (SQLAlchemyError, ValueError):
        raise LedgerError("DATABASE_URL is not a database URL") from None
    parsed = parsed.set(drivername=_DRIVERS.get(parsed.drivername, parsed.drivername))
    if parsed.drivername == "postgresql+asyncpg" and "sslmode" in parsed.query:
        # libpq's name, which other tools write.
        query = dict(parsed.query)
        query["ssl"] = query.pop("sslmode")
        parsed = parsed.set(query=query)
    return parsed


def _is_file(url: sa.URL) -> bool:
    """Whether it is a plain SQLite file, which a second connection finds by its path."""
    return (
        url.drivername == "sqlite+aiosqlite"
        and bool(url.database)
        and url.database != ":memory:"
        and not str(url.database).startswith("file:")
        and not url.query
    )


def _engine(url: sa.URL) -> AsyncEngine:
    options: dict[str, Any] = {}
    if not url.drivername.startswith("sqlite"):
        options = {"pool_pre_ping": True, "pool_size": 5, "pool_timeout": CONNECT_SECONDS}
    if url.drivername == "postgresql+asyncpg":
        options["connect_args"] = {"timeout": CONNECT_SECONDS, "command_timeout": STATEMENT_SECONDS}
    try:
        engine = create_async_engine(url, **options)
    except (ModuleNotFoundError, SQLAlchemyError) as error:
        raise LedgerError(
            f"DATABASE_URL needs the driver {url.drivername}, which is not installed "
            f"({type(error).__name__})"
        ) from None
    if url.drivername.startswith("sqlite"):
        sa.event.listen(engine.sync_engine, "connect", _prepare_sqlite)
        sa.event.listen(engine.sync_engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    # Transactions begin where `_begin_sqlite` says, also before changes of the schema.
    connection.isolation_level = None
    with contextlib.closing(connection.cursor()) as cursor:
        for pragma in (
            f"busy_timeout={_BUSY_MILLISECONDS}",
            "journal_mode=WAL",
            "synchronous=NORMAL",
        ):
            cursor.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: sa.Connection) -> None:
    # A writer takes its lock first: one that reads and then upgrades its lock may be refused.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
