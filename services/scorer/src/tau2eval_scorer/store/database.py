"""The database: SQLite in a file or PostgreSQL, with one kind of transaction for writers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from tau2eval_common.errors import Unavailable
from tau2eval_scorer.store import migrate
from tau2eval_scorer.store.values import StoreError

CONNECT_SECONDS = 10.0
STATEMENT_SECONDS = 60.0
CLOSE_SECONDS = 5.0
"""How long transactions in progress may take before the connections are ended under them."""
_BUSY_MILLISECONDS = 15_000
_DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
}
_NO_ANSWER = (
    OperationalError,
    InterfaceError,
    PoolTimeout,
    OSError,
    # While it connects, asyncpg's own errors come as they are.
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
)
_PASSING_STATES = frozenset({"08", "40", "53", "57"})
"""Classes of SQLSTATE that pass: lost connections, deadlocks, a server that is full or ends."""


def async_url(url: str) -> str:
    """Returns a database's URL with the driver that is used here.

    The forms that other tools write are understood: postgres://, postgresql:// and libpq's sslmode.
    """
    scheme, separator, rest = url.partition("://")
    driver = _DRIVERS.get(scheme, scheme)
    if driver == "postgresql+asyncpg":
        rest = rest.replace("?sslmode=", "?ssl=").replace("&sslmode=", "&ssl=")
    return f"{driver}{separator}{rest}"


class Database:
    """Connections to the store.

    Args:
        url: SQLAlchemy URL with an asynchronous driver.
    """

    def __init__(self, url: str) -> None:
        self._text = url
        self._engine: AsyncEngine | None = None
        self._writers: AsyncEngine | None = None
        self._url: URL | None = None
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()

    async def open(self) -> None:
        """Connects and upgrades the schema.

        Raises:
            StoreError: When that fails.
        """
        engine: AsyncEngine | None = None
        safe = self._text.partition("://")[0][:40]
        try:
            url = make_url(self._text)
        except (ArgumentError, ValueError):
            # What cannot be read may hold a password anywhere.
            raise StoreError(
                f"the URL of the run store ({safe}) cannot be read; write it as "
                "postgresql://USER:PASSWORD@HOST:PORT/NAME"
            ) from None
        try:
            if url.get_backend_name() == "sqlite" and url.database:
                Path(url.database).parent.mkdir(parents=True, exist_ok=True)
            engine = self.engine(url)
            writers = engine.execution_options(writes=True)
            async with writers.begin() as connection:
                await connection.run_sync(migrate.upgrade)
        except StoreError:
            await _dispose(engine)
            raise
        except (SQLAlchemyError, ImportError, *_NO_ANSWER) as error:
            await _dispose(engine)
            raise StoreError(f"the run store ({safe}) cannot be opened: {error}") from error
        self._url, self._engine, self._writers = url, engine, writers

    async def close(self) -> None:
        """Ends the connections, after the transactions in progress; no new ones begin."""
        engine, self._engine, self._writers = self._engine, None, None
        # A connection that is closed under a transaction never answers its rollback.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._unused.wait(), CLOSE_SECONDS)
        await _dispose(engine)

    @property
    def url(self) -> URL:
        """The URL, once it is open."""
        if self._url is None:
            raise RuntimeError("the store is not open")
        return self._url

    @staticmethod
    def engine(url: URL, *, pooled: bool = True) -> AsyncEngine:
        """Makes an engine."""
        if url.get_backend_name() == "sqlite":
            engine = create_async_engine(url)
            sa.event.listen(engine.sync_engine, "connect", _prepare_sqlite)
            sa.event.listen(engine.sync_engine, "begin", _begin_sqlite)
            return engine
        arguments: dict[str, Any] = {}
        if url.get_driver_name() == "asyncpg":
            arguments = {"timeout": CONNECT_SECONDS, "command_timeout": STATEMENT_SECONDS}
        if not pooled:
            return create_async_engine(url, poolclass=NullPool, connect_args=arguments)
        # A connection that the server closed meanwhile is found out before it is used.
        return create_async_engine(url, pool_pre_ping=True, connect_args=arguments)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A connection to read with.

        Raises:
            Unavailable: When the database does not answer.
        """
        async with self._using(self._engine) as connection:
            yield connection

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """One transaction: kept as a whole at the end, or not at all after an error.

        Raises:
            Unavailable: When the database does not answer.
        """
        async with self._using(self._writers) as connection:
            yield connection

    @asynccontextmanager
    async def _using(self, engine: AsyncEngine | None) -> AsyncIterator[AsyncConnection]:
        if engine is None:
            raise Unavailable("the run store is not open", reason="STORE_CLOSED")
        self._users += 1
        self._unused.clear()
        try:
            async with engine.begin() as connection:
                yield connection
        except (DBAPIError, *_NO_ANSWER) as error:
            if not _passes(error):
                raise
            kind = type(getattr(error, "orig", None) or error).__name__
            raise Unavailable(
                f"the run store does not answer ({kind}); try again later",
                reason="STORE_UNAVAILABLE",
            ) from error
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()


def _passes(error: BaseException) -> bool:
    """Whether an error says that the database is away, not that it was asked something wrong."""
    if isinstance(error, _NO_ANSWER) or not isinstance(error, DBAPIError):
        return True
    # SQLAlchemy has no kind of its own for most of what asyncpg raises.
    state = str(getattr(error.orig, "sqlstate", None) or "")
    return error.connection_invalidated or state[:2] in _PASSING_STATES


async def now_seconds(connection: AsyncConnection) -> float:
    """Returns the time that leases go by: the database's, so that all scorers share one clock."""
    if connection.dialect.name != "postgresql":
        return time.time()  # SQLite's clock is this machine's.
    text = sa.text("SELECT extract(epoch FROM clock_timestamp())::double precision")
    return float((await connection.execute(text)).scalar_one())


async def _dispose(engine: AsyncEngine | None) -> None:
    if engine is not None:
        await engine.dispose()


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # Transactions begin where `_begin_sqlite` says, also before changes of the schema.
    connection.isolation_level = None
    cursor = connection.cursor()
    try:
        # WAL lets readers go on during a write; FULL keeps what was acknowledged through a crash.
        for pragma in (
            f"busy_timeout={_BUSY_MILLISECONDS}",
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
        ):
            cursor.execute(f"PRAGMA {pragma}")
    finally:
        cursor.close()


def _begin_sqlite(connection: sa.Connection) -> None:
    # A writer takes its lock first: one that reads and then upgrades its lock may be refused.
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
