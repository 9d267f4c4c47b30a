"""A conversation record on disk while its call goes on, so that memory stays bounded.

The file is a mark of eight bytes and then RecordParts, each behind its length (4 bytes, big
endian).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

from tau2eval.scorer.v1 import record_pb2

MAGIC = b"t2erec\x00\x01"
SUFFIX = ".record"
MAX_PART_BYTES = 32 * 1024 * 1024
"""Above the largest message that a bot can send, so that what was written can be read."""
_LENGTH = struct.Struct(">I")


class SpoolError(ValueError):
    """A spool file cannot be read."""


class Spool:
    """Writes a record part by part, on its own thread: a slow disk does not hold up the clock."""

    def __init__(self, path: Path) -> None:
        """Creates the file.

        Raises:
            OSError: When it cannot be created, or exists.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file: BinaryIO = path.open("xb")
        self._file.write(MAGIC)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spool")
        self._failed: BaseException | None = None

    def write(self, part: record_pb2.RecordPart) -> None:
        """Queues a part.

        Raises:
            OSError: When an earlier part could not be written.
        """
        if self._failed is not None:
            raise OSError(f"{self.path} cannot be written: {self._failed}") from self._failed
        data = part.SerializeToString()
        self._thread.submit(self._write, data).add_done_callback(self._note)

    def _write(self, data: bytes) -> None:
        self._file.write(_LENGTH.pack(len(data)))
        self._file.write(data)

    def _note(self, future: Future[None]) -> None:
        error = future.exception()
        if error is not None:
            self._failed = self._failed or error

    def close(self) -> None:
        """Waits until everything is in the file; blocks for the disk.

        Raises:
            OSError: When a part could not be written.
        """
        self._thread.shutdown(wait=True)
        try:
            self._file.close()
        except OSError as error:
            self._failed = self._failed or error
        if self._failed is not None:
            raise OSError(f"{self.path} cannot be written: {self._failed}") from self._failed


def read_spool(path: Path) -> Iterator[record_pb2.RecordPart]:
    """Reads the parts of a spool file; one that was cut off in the middle of a part ends before it.

    Raises:
        SpoolError: When the file is no spool file or is damaged.
        OSError: When it cannot be read.
    """
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise SpoolError(f"{path} is not a conversation record of this bridge")
        while len(head := file.read(_LENGTH.size)) == _LENGTH.size:
            (length,) = _LENGTH.unpack(head)
            if length > MAX_PART_BYTES:
                raise SpoolError(f"{path} is damaged: a part of {length} bytes")
            data = file.read(length)
            if len(data) < length:
                return
            try:
                yield record_pb2.RecordPart.FromString(data)
            except Exception as error:
                raise SpoolError(f"{path} is damaged: {error}") from error
