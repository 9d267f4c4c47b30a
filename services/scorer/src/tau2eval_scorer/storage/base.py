"""Where the artifacts of runs lie: what every kind of place can do.

All methods block and are called in threads. An attempt is addressed by its identity, never by where
its files happen to be; readers see the paths that `layout` describes, whatever lies beneath.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from tau2eval_common.errors import Unavailable
from tau2eval_scorer.layout import attempt_path, scenario_path


@dataclass(frozen=True)
class Place:
    """An attempt among the artifacts.

    Attributes:
        trials: Of the run; a run of one trial has no folders of trials.
        counts: Whether it is the one that counts.
    """

    run_id: str
    scenario: str
    trial: int
    trials: int
    attempt_id: str
    counts: bool

    @property
    def path(self) -> str:
        """Where a reader finds it below the run's folder, with forward slashes."""
        if self.counts:
            return scenario_path(self.scenario, self.trial, self.trials)
        return self.aside

    @property
    def aside(self) -> str:
        """Where it lies as long as it does not count."""
        return attempt_path(self.scenario, self.trial, self.attempt_id)


@dataclass(frozen=True)
class StoredFile:
    """One file.

    Attributes:
        path: Below the run's folder, as a reader knows it.
        location: Where it is, for `Artifacts.open_file` alone.
        size: In bytes.
    """

    path: str
    location: str
    size: int


@dataclass(frozen=True)
class StoredRecord:
    """A record to read: its file on this machine, and the length of its recording in bytes."""

    path: Path
    wav_bytes: int


class Artifacts(Protocol):
    """The artifacts of all runs."""

    def check(self) -> None:
        """Makes sure that it can be used.

        Raises:
            OSError: When it cannot; the message says what to do.
        """

    def adopt(self, staged: Path, place: Place) -> None:
        """Takes over a finished attempt's folder, over one that a killed process left.

        When it returns the files are stored. The staged folder may be gone.
        """

    def place(self, place: Place) -> bool:
        """Brings the files of a counting attempt to its scenario; can be repeated after a kill.

        Returns:
            False when they are nowhere (somebody removed them).
        """

    def update(self, place: Place, files: Mapping[str, bytes | None]) -> bool:
        """Writes files of an attempt, each as a whole; None removes one.

        The same bytes again are not written.

        Returns:
            False when the attempt's files are nowhere.
        """

    def write(self, run_id: str, path: str, data: bytes) -> None:
        """Writes a file of the run itself as a whole."""

    def attempt_files(self, place: Place) -> Sequence[StoredFile]:
        """Returns the files of an attempt in the order of their paths; none when it is gone."""

    def run_file(self, run_id: str, path: str) -> StoredFile | None:
        """Returns a file of the run itself, or None."""

    def open_file(self, file: StoredFile) -> BinaryIO:
        """Opens a file.

        Raises:
            FileNotFoundError: When it has been moved or removed since it was listed.
        """

    def record(self, place: Place) -> AbstractContextManager[StoredRecord]:
        """Gives the stored record of an attempt, for as long as the context lasts.

        Raises:
            FileNotFoundError: When it is not there.
        """


def not_answering(error: BaseException) -> Unavailable:
    """Returns what to raise when the place of the artifacts fails."""
    return Unavailable(
        f"the artifacts cannot be reached ({type(error).__name__}); try again later",
        reason="ARTIFACTS_UNAVAILABLE",
    )
