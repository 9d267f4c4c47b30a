"""The busy queries of the ledger on a SQLite file, in a thread of their own.

A transaction is one hop to the thread and back. Over SQLAlchemy's asynchronous layer the same
transaction takes several, and milliseconds of the event loop's thread that calls would wait for.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeVar

from tau2eval_gateway.ledger_schema import CALLS, LedgerRow, Standing, Wanted, decide

_COLUMNS: Final = tuple(column.name for column in CALLS.columns)
_INSERT: Final = (
    f"INSERT INTO gateway_calls ({', '.join(_COLUMNS)}) "  # noqa: S608
    f"VALUES ({', '.join('?' * len(_COLUMNS))})"
)
_ADD_TO_DAY: Final = (
    "INSERT INTO gateway_spend_days (day, counted_usd) VALUES (?, ?) ON CONFLICT (day) "
    "DO UPDATE SET counted_usd = counted_usd + excluded.counted_usd"
)
_STANDING: Final = (
    "SELECT (SELECT counted_usd FROM gateway_spend_days WHERE day = ?), "
    "(SELECT SUM(usd) FROM gateway_reservations WHERE day = ? AND expires > ?)"
)
T = TypeVar("T")


class SqliteFile:
    """One connection, used by one thread.

    Args:
        path: The database, whose schema is there already.
        busy_seconds: How long another process may hold the lock.
    """

    def __init__(self, path: str, busy_seconds: float) -> None:
        self._path = path
        self._busy_seconds = busy_seconds
        self._thread = ThreadPoolExecutor(1, "ledger")
        self._connection: sqlite3.Connection | None = None

    async def write(self, rows: Sequence[LedgerRow], released: Sequence[str]) -> None:
        """See `LedgerStore.write`."""
        await self._run(lambda connection: _write(connection, rows, released))

    async def reserve(
        self, wanted: Sequence[Wanted], cap_usd: float, now: float
    ) -> list[Standing | None]:
        """See `LedgerStore.reserve`."""
        return await self._run(lambda connection: _reserve(connection, wanted, cap_usd, now))

    async def close(self) -> None:
        """Closes the connection, after the transaction in progress."""
        await asyncio.to_thread(self._thread.shutdown)
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, lambda: self._in_transaction(work)
        )

    def _in_transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._connection is None:
            self._connection = self._connect()
        with _transaction(self._connection) as connection:
            return work(connection)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path,
            timeout=self._busy_seconds,
            isolation_level=None,
            # Closed by whoever closes the ledger, when the thread has ended.
            check_same_thread=False,
        )
        connection.execute("PRAGMA synchronous=NORMAL")
        return connection


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    # The lock first: who reads and then wants to write may be refused.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _write(
    connection: sqlite3.Connection, rows: Sequence[LedgerRow], released: Sequence[str]
) -> None:
    by_id = {row.call_id: row.values() for row in rows}
    marks = ", ".join("?" * len(by_id))
    query = f"SELECT call_id FROM gateway_calls WHERE call_id IN ({marks})"  # noqa: S608
    known = {row[0] for row in connection.execute(query, list(by_id))}
    fresh = [values for call_id, values in by_id.items() if call_id not in known]
    days: dict[str, float] = {}
    for values in fresh:
        # As SQLAlchemy writes times.
        values["time"] = values["time"].replace(tzinfo=None).isoformat(" ", "microseconds")
        counted = values["counted_usd"]
        counted = values["cost_usd"] if counted is None else counted
        days[values["day"]] = days.get(values["day"], 0.0) + (counted or 0.0)
    connection.executemany(_INSERT, [[one[name] for name in _COLUMNS] for one in fresh])
    connection.executemany(_ADD_TO_DAY, days.items())
    connection.executemany(
        "DELETE FROM gateway_reservations WHERE call_id = ?",
        [(call_id,) for call_id in (*by_id, *released)],
    )


def _reserve(
    connection: sqlite3.Connection, wanted: Sequence[Wanted], cap_usd: float, now: float
) -> list[Standing | None]:
    days = {}
    for day in {item.day for item in wanted}:
        counted, reserved = connection.execute(_STANDING, (day, day, now)).fetchone()
        days[day] = Standing(counted or 0.0, reserved or 0.0)
    results = decide(wanted, days, cap_usd)
    connection.executemany(
        "INSERT INTO gateway_reservations (call_id, day, usd, expires) VALUES (?, ?, ?, ?)",
        [
            (item.call_id, item.day, item.usd, item.expires)
            for item, result in zip(wanted, results, strict=True)
            if result is None
        ],
    )
    return results
