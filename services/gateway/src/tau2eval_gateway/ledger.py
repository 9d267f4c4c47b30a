"""The spend ledger: one row an upstream call, written beside the call and never lost silently."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from tau2eval_common.errors import Unavailable
from tau2eval_gateway.ledger_journal import Journal, Segment, abandoned
from tau2eval_gateway.ledger_schema import CALLS, LedgerRow, SpendSum, Standing, utc_day
from tau2eval_gateway.ledger_store import LedgerError, LedgerStore, is_passing, kind_of

__all__ = ["Ledger", "LedgerError"]

logger = logging.getLogger(__name__)

QUEUE_ROWS = 10_000
"""Rows in memory; further ones wait in the journal alone."""
BATCH_ROWS = 100
WRITE_SECONDS = 0.1
"""Rows are gathered for this long, so that a busy gateway writes few transactions."""
FLUSH_SECONDS = 10.0
_RETRY_SECONDS = (0.1, 0.5, 2.0, 5.0)
SPILL_NAME: Final = "spend-not-yet-written.jsonl"
"""Rows that came after the end, and those of gateways before the journal."""
REFUSED_NAME: Final = "spend-refused.jsonl"
"""Rows that the database will not take; for a person to look at."""
_DAILY: Final = ("day", "key_id", "model", "role", "run_id", "arm")
_MODELS: Final = 1_000
_RUN: Final = ("scenario", "role", "model")
T = TypeVar("T")


class Ledger:
    """Keeps rows in a journal and writes them to the database in batches.

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
        self._folder = data_dir
        self._refused = data_dir / REFUSED_NAME
        self._store = LedgerStore(database_url, data_dir)
        self._journal: Journal | None = None
        self._queue: list[tuple[LedgerRow, bool]] = []
        """Rows, and whether the journal holds them too."""
        self._released: list[str] = []
        self._writing: list[tuple[LedgerRow, bool]] = []
        self._taken = 0
        self._written = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._wake = asyncio.Event()
        self._hurry = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._database_fails = False

    @property
    def store(self) -> LedgerStore:
        """The database below."""
        return self._store

    @property
    def engine(self) -> AsyncEngine:
        """Connections to the database, for what else is kept in it."""
        return self._store.engine

    @property
    def failing(self) -> bool:
        """Whether rows cannot be written just now; they are kept and tried again."""
        journal, writer = self._journal, self._writer
        return (
            self._database_fails
            or (journal is not None and journal.failing)
            or (writer is not None and writer.done())
        )

    @property
    def rows_waiting(self) -> int:
        """Rows that are not in the database yet."""
        return self._taken - self._written

    async def start(self) -> None:
        """Makes or upgrades the schema, takes up what dead gateways left, starts the writer.

        Raises:
            LedgerError: The database or the folder cannot be used.
        """
        await self._store.open()
        try:
            await self._recover()
            await self._store.remove_expired(time.time())
            self._journal = Journal(self._folder)
        except OSError as error:
            await self._store.close()
            raise LedgerError(f"{self._folder} cannot be used: {error.strerror}") from error
        except Exception as error:
            await self._store.close()
            if not is_passing(error):
                raise
            raise LedgerError(
                f"the ledger's database cannot be used ({kind_of(error)}); check DATABASE_URL"
            ) from error
        self._writer = asyncio.create_task(self._write_forever(), name="ledger-writer")

    def record(self, row: LedgerRow) -> None:
        """Takes a row; does not wait."""
        if self._journal is None:
            # A call that ends after the ledger: the next gateway here takes it up.
            _append(self._folder / SPILL_NAME, [_text(row)])
            return
        kept = self._journal.append(_line(row))
        self._taken += 1
        if len(self._queue) < QUEUE_ROWS:
            self._queue.append((row, kept))
        elif kept:
            self._journal.overflow()
        else:
            self._written += 1
            logger.error("neither memory nor disk holds one more ledger row: %s", _text(row))
        self._wake.set()

    def release(self, call_id: str) -> None:
        """Gives a reservation back whose call was never made; does not wait."""
        self._released.append(call_id)
        self._wake.set()

    async def flush(self, seconds: float | None = None) -> None:
        """Waits until every row taken so far is in the database.

        Raises:
            Unavailable: That takes too long.
        """
        if self._taken == self._written and not self._released:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._taken, future))
        self._wake.set()
        self._hurry.set()
        try:
            async with asyncio.timeout(FLUSH_SECONDS if seconds is None else seconds):
                await future
        except TimeoutError:
            raise _unavailable("cannot be written now; its rows are kept and tried again") from None

    async def stop(self) -> None:
        """Writes the rest and closes the database."""
        if self._writer is not None:
            with contextlib.suppress(Unavailable):
                await self.flush()
            self._writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._writer
            self._writer = None
        for row, kept in (*self._writing, *self._queue):
            if not kept and not (self._journal and self._journal.append(_line(row))):
                logger.error("a ledger row cannot be kept anywhere: %s", _text(row))
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        await self._store.close()

    async def daily(self, from_day: str, to_day: str) -> list[SpendSum]:
        """Adds calls up by day, key, model, role, run and arm; empty bounds are open.

        Raises:
            Unavailable: The database does not answer; as for all queries here.
        """
        conditions: list[sa.ColumnElement[bool]] = []
        if from_day:
            conditions.append(CALLS.c.day >= from_day)
        if to_day:
            conditions.append(CALLS.c.day <= to_day)
        return await self._read(lambda: self._store.sums(_DAILY, conditions))

    async def run(self, run_id: str) -> list[SpendSum]:
        """Adds the calls of a run up by scenario, role and model."""
        return await self._read(lambda: self._store.sums(_RUN, [CALLS.c.run_id == run_id]))

    async def today(self) -> Standing:
        """Returns where the current UTC day stands."""
        now = datetime.now(UTC)
        return await self._read(lambda: self._store.standing(utc_day(now), now.timestamp()))

    async def largest(self, from_day: str) -> list[tuple[str, float, int]]:
        """Returns the largest known cost and the longest output of each model since a day."""
        return await self._read(lambda: self._store.largest(from_day, _MODELS))

    async def rows(self) -> list[Mapping[str, Any]]:
        """Returns every row in order of time; for tests and export."""
        return await self._read(self._store.rows)

    async def _read(self, query: Callable[[], Awaitable[T]]) -> T:
        await self.flush()
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                return await query()
        except Exception as error:
            if not isinstance(error, SQLAlchemyError) and not is_passing(error):
                raise
            raise _unavailable(f"cannot be read ({kind_of(error)})") from error

    async def _write_forever(self) -> None:
        while True:
            await self._wake.wait()
            if not self._hurry.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(WRITE_SECONDS):
                        await self._hurry.wait()
            self._wake.clear()
            self._hurry.clear()
            assert self._journal is not None
            upto = self._taken
            released, self._released = self._released, []
            self._writing, self._queue = self._queue, []
            segment = self._journal.swap()
            while self._writing or released:
                batch = [row for row, _ in self._writing[:BATCH_ROWS]]
                await self._write(batch, released)
                released = []
                # Only now: a cancelled writer leaves what it has not written.
                del self._writing[:BATCH_ROWS]
                self._written += len(batch)
            if await self._finish(segment):
                self._written = max(self._written, upto)
                self._answer(upto)

    async def _finish(self, segment: Segment) -> bool:
        """Empties a file whose rows are in the database; says whether all of them are."""
        try:
            if segment.overflowed:
                rows = self._parse(segment.path, segment.read())
                for at in range(0, len(rows), BATCH_ROWS):
                    await self._write(rows[at : at + BATCH_ROWS], [])
            segment.empty()
        except OSError as error:
            # Its rows stay, and are tried again when it is its turn; each is written once.
            logger.error("%s cannot be read or emptied (%s)", segment.path, error.strerror)
            self._wake.set()
            return not segment.overflowed
        return True

    def _answer(self, upto: int) -> None:
        waiting, self._waiting = self._waiting, []
        for target, future in waiting:
            if target > upto:
                self._waiting.append((target, future))
            elif not future.done():
                future.set_result(None)

    async def _write(self, batch: Sequence[LedgerRow], released: Sequence[str]) -> None:
        attempt = 0
        while True:
            try:
                await self._store.write(batch, released)
            except Exception as error:
                if not is_passing(error):
                    await self._write_apart(batch, error)
                    if released and batch:
                        await self._write([], released)
                    return
                wait = _RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS) - 1)]
                attempt += 1
                self._database_fails = True
                logger.error(
                    "%d ledger rows could not be written (%s); trying again in %.1f s",
                    len(batch),
                    kind_of(error),
                    wait,
                )
                await asyncio.sleep(wait)
            else:
                self._database_fails = False
                return

    async def _write_apart(self, batch: Sequence[LedgerRow], error: Exception) -> None:
        """Keeps one bad row from holding up the others: trying it again would not help."""
        if len(batch) > 1:
            for row in batch:
                await self._write([row], [])
            return
        if not batch:
            logger.error("reservations cannot be given back (%s); they expire", kind_of(error))
            return
        logger.error(
            "the database refuses a ledger row (%s); it is in %s",
            kind_of(error),
            self._refused,
        )
        _append(self._refused, [_text(row) for row in batch])

    async def _recover(self) -> None:
        """Writes the rows of gateways that have died, each once."""
        for path in abandoned(self._folder):
            await self._take_up(path)
        spill = self._folder / SPILL_NAME
        if spill.exists():
            await self._take_up(spill)

    async def _take_up(self, path: Path) -> None:
        rows = self._parse(path, await asyncio.to_thread(path.read_bytes))
        for at in range(0, len(rows), BATCH_ROWS):
            batch = rows[at : at + BATCH_ROWS]
            try:
                await self._store.write(batch)
            except Exception as error:
                if is_passing(error):
                    raise
                await self._write_apart(batch, error)
        await asyncio.to_thread(path.unlink, missing_ok=True)
        if rows:
            logger.info("%d ledger rows of an earlier process were taken up", len(rows))

    def _parse(self, path: Path, content: bytes) -> list[LedgerRow]:
        rows: list[LedgerRow] = []
        for line in content.splitlines():
            try:
                values = json.loads(line)
                values.pop("day", None)
                values["time"] = datetime.fromisoformat(values["time"])
                rows.append(LedgerRow(**values))
            except (ValueError, KeyError, TypeError, AttributeError):
                logger.error("%s holds a line that is no row; see %s", path, self._refused)
                _append(self._refused, [line.decode("utf-8", "replace")])
        return rows


def _line(row: LedgerRow) -> bytes:
    try:
        return orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)
    except orjson.JSONEncodeError:
        # Text that is no Unicode.
        values = {**row.values(), "time": row.time.isoformat()}
        return json.dumps(values).encode() + b"\n"


def _text(row: LedgerRow) -> str:
    return _line(row).decode().rstrip("\n")


def _append(path: Path, lines: Sequence[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        # The last resort: the log. Rows hold no key and no prompt text.
        logger.error("%s cannot be written (%s); ledger rows: %s", path, error, text)


def _unavailable(what: str) -> Unavailable:
    return Unavailable(f"the spend ledger {what}", reason="LEDGER_UNAVAILABLE")
