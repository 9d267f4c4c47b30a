"""One writer at a time of a run's files, among all scorers of a store.

With SQLite the scorers are on one machine, so a lock on a file beside the database holds the
others off; with PostgreSQL an advisory lock does. Both end with the process that holds them, also
when it is killed. Rows of the store have locks of their own: should a lock be lost, the store stays
whole.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import asyncpg
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from tau2eval_common.errors import Unavailable
from tau2eval_scorer.store.database import Database

WAIT_SECONDS = 120.0
_FIRST_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.25
_MAX_CONNECTIONS = 8
"""PostgreSQL connections that hold locks at once; whoever else wants one waits its turn."""


_AWAY = (SQLAlchemyError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError)


class RunLocks:
    """Locks by run id.

    Args:
        database: The open store.
        wait_seconds: Longest wait for another process.
    """

    def __init__(self, database: Database, wait_seconds: float = WAIT_SECONDS) -> None:
        self._database = database
        self._wait = wait_seconds
        self._local: dict[str, _Counted] = {}
        self._connections = asyncio.Semaphore(_MAX_CONNECTIONS)
        self._engine: AsyncEngine | None = None

    @asynccontextmanager
    async def hold(self, run_id: str, *, settles: bool = False) -> AsyncIterator[None]:
        """Holds a run's files.

        Args:
            run_id: The run.
            settles: Whether the holder brings all files of the run up to date.

        Raises:
            Unavailable: When another scorer does not let go of them, or the store does not answer.
        """
        lock = self._local.setdefault(run_id, _Counted())
        lock.users += 1
        lock.settling += settles
        try:
            async with lock.lock:
                lock.settling -= settles
                settles = False
                url = self._database.url
                if url.get_backend_name() == "postgresql":
                    async with self._connections, self._advisory(run_id):
                        yield
                elif url.database and url.database != ":memory:":
                    async with self._file(Path(url.database), run_id):
                        yield
                else:
                    yield
        finally:
            lock.users -= 1
            lock.settling -= settles
            if not lock.users:
                self._local.pop(run_id, None)

    def others_settle(self, run_id: str) -> bool:
        """Whether somebody of this process waits to bring the run's files up to date."""
        lock = self._local.get(run_id)
        return lock is not None and lock.settling > 0

    async def close(self) -> None:
        """Ends the connections."""
        if self._engine is not None:
            await self._engine.dispose()
            self._engine = None

    @asynccontextmanager
    async def _file(self, database: Path, run_id: str) -> AsyncIterator[None]:
        folder = database.with_name(f"{database.name}.locks")
        folder.mkdir(exist_ok=True)
        name = hashlib.sha256(run_id.encode()).hexdigest()[:32]
        file = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            async for _ in self._tries(run_id):
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    continue
            yield
        finally:
            os.close(file)

    @asynccontextmanager
    async def _advisory(self, run_id: str) -> AsyncIterator[None]:
        if self._engine is None:
            # Apart from the store's pool: whoever holds a lock can always have a connection there.
            self._engine = self._database.engine(self._database.url, pooled=False)
        number = int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:8], "big", signed=True)
        connection = self._engine.connect()
        try:
            await connection.start()
            # The lock goes with the connection, which is closed below; no transaction stays open.
            await connection.execution_options(isolation_level="AUTOCOMMIT")
            async for _ in self._tries(run_id):
                taken = await connection.execute(sa.select(sa.func.pg_try_advisory_lock(number)))
                if taken.scalar_one():
                    break
        except _AWAY as error:
            await _close(connection)
            raise Unavailable(
                f"the run store does not answer ({type(error).__name__}); try again later",
                reason="STORE_UNAVAILABLE",
            ) from error
        except BaseException:
            await _close(connection)
            raise
        try:
            yield
        finally:
            await _close(connection)

    async def _tries(self, run_id: str) -> AsyncIterator[None]:
        ends = asyncio.get_running_loop().time() + self._wait
        pause = _FIRST_PAUSE_SECONDS
        while True:
            yield
            if asyncio.get_running_loop().time() >= ends:
                raise Unavailable(
                    f"another scorer has held the files of run {run_id} for {self._wait:g} s; try "
                    "again later",
                    reason="RUN_BUSY",
                )
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)


async def _close(connection: AsyncConnection) -> None:
    # One that never came about, or is lost, cannot be closed; it holds no lock either.
    with suppress(*_AWAY):
        await connection.close()


class _Counted:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self.settling = 0
