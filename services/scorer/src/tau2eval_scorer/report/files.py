"""The files that a page is made of, wherever they lie."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO, Protocol

from tau2eval_scorer.storage import StoredFile

METRICS = "metrics.json"
JUDGE = "judge_result.json"
DIFFERENCES = "db_diff.json"
EVENTS = "events.jsonl"
RECORDING = "conversation_log.wav"
METADATA = "scenario_config/metadata.json"
REFERENCE = "scenario_config/reference_answer.json"
READ = (METRICS, JUDGE, DIFFERENCES, EVENTS, METADATA, REFERENCE)
"""What is read as a whole; the recording is read in blocks."""


class AttemptFiles(Protocol):
    """The files of one attempt, by their paths below its folder."""

    def names(self) -> Iterable[str]:
        """Returns the paths of all files."""

    def size(self, name: str) -> int | None:
        """Returns the size of a file in bytes, or None when there is no such file."""

    def read(self, name: str) -> bytes | None:
        """Returns a file, or None when there is no such file."""

    def open(self, name: str) -> BinaryIO | None:
        """Opens a file, or returns None when there is no such file."""


class MemoryFiles:
    """Files that are in memory."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def names(self) -> list[str]:
        """See `AttemptFiles.names`."""
        return sorted(self._files)

    def size(self, name: str) -> int | None:
        """See `AttemptFiles.size`."""
        return len(self._files[name]) if name in self._files else None

    def read(self, name: str) -> bytes | None:
        """See `AttemptFiles.read`."""
        return self._files.get(name)

    def open(self, name: str) -> BinaryIO | None:
        """See `AttemptFiles.open`."""
        return io.BytesIO(self._files[name]) if name in self._files else None


class StoredFiles:
    """Files among the artifacts.

    Args:
        files: What `Artifacts.attempt_files` returned.
        folder: The attempt's folder below the run's, which their paths begin with.
        opener: `Artifacts.open_file`.
    """

    def __init__(
        self, files: Iterable[StoredFile], folder: str, opener: Callable[[StoredFile], BinaryIO]
    ) -> None:
        self._files = {file.path.removeprefix(f"{folder}/"): file for file in files}
        self._opener = opener

    def names(self) -> list[str]:
        """See `AttemptFiles.names`."""
        return sorted(self._files)

    def size(self, name: str) -> int | None:
        """See `AttemptFiles.size`."""
        file = self._files.get(name)
        return None if file is None else file.size

    def read(self, name: str) -> bytes | None:
        """See `AttemptFiles.read`."""
        stream = self.open(name)
        if stream is None:
            return None
        with stream:
            return stream.read()

    def open(self, name: str) -> BinaryIO | None:
        """See `AttemptFiles.open`.

        Raises:
            FileNotFoundError: When it was moved or removed since it was listed.
        """
        file = self._files.get(name)
        return None if file is None else self._opener(file)


def as_object(data: bytes | None) -> dict[str, Any] | None:
    """Returns a JSON object of a file; None for no file, and for anything else in it."""
    if data is None:
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
