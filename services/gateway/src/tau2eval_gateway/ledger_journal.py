"""Rows on their way into the database, in files that outlive the process.

A row is appended before anything else is done with it, which takes microseconds; once it is in the
database its file is emptied. The page cache survives a killed process, so a kill loses no row. A
machine that loses power may lose what its disk was not told yet.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

PREFIX: Final = "spend-journal-"
_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class Segment:
    """One file of rows, held by a lock for as long as this process lives.

    Attributes:
        overflowed: It holds rows that found no place in memory.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._size = 0
        self.overflowed = False

    def append(self, line: bytes) -> bool:
        """Adds a line; False when the disk takes it not or in part only (then it is undone)."""
        try:
            count = os.write(self._descriptor, line)
        except OSError:
            count = 0
        if count == len(line):
            self._size += count
            return True
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, self._size)
        return False

    def read(self) -> bytes:
        """Returns what is in it."""
        return self.path.read_bytes()

    def empty(self) -> None:
        """Forgets the rows, which are in the database now."""
        self.overflowed = False
        if self._size:
            os.ftruncate(self._descriptor, 0)
            self._size = 0

    def close(self) -> None:
        """Gives the file up; without rows it is removed."""
        if not self._size:
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)


class Journal:
    """Two files that take turns: rows go to one while those of the other are written.

    Args:
        folder: Where.

    Raises:
        OSError: They cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        name = uuid.uuid4().hex[:12]
        self._current = _make(folder / f"{PREFIX}{name}-a.jsonl")
        self._other = _make(folder / f"{PREFIX}{name}-b.jsonl")
        self._failing = False

    @property
    def failing(self) -> bool:
        """Whether the last row could not be kept."""
        return self._failing

    def append(self, line: bytes) -> bool:
        """Keeps a row; says whether that worked."""
        kept = self._current.append(line)
        if kept == self._failing:
            self._failing = not kept
            if not kept:
                logger.error(
                    "%s cannot be written; until it can, a killed process would lose ledger rows",
                    self._current.path,
                )
        return kept

    def overflow(self) -> None:
        """Notes that the row just kept is nowhere else."""
        self._current.overflowed = True

    def swap(self) -> Segment:
        """Returns the file of the rows so far; later rows go to the other one."""
        self._current, self._other = self._other, self._current
        return self._other

    def close(self) -> None:
        """Closes both; rows in them are taken up by the next gateway in this folder."""
        self._current.close()
        self._other.close()


def _make(path: Path) -> Segment:
    # O_EXCL: the name is random; whoever has it already is not us.
    descriptor = os.open(path, _FLAGS | os.O_EXCL, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        # A gateway that starts at this very moment looks whether it is abandoned: wait for it.
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    if not _same(path, descriptor):
        os.close(descriptor)
        return _make(path)
    return Segment(path, descriptor)


def abandoned(folder: Path) -> Iterator[Path]:
    """Yields the files of gateways that have died, each locked until the next is asked for."""
    for path in sorted(folder.glob(f"{PREFIX}*.jsonl")):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _same(path, descriptor):
                    yield path
        finally:
            os.close(descriptor)


def _same(path: Path, descriptor: int) -> bool:
    """Whether the path still leads to the open file: another gateway may have removed it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
