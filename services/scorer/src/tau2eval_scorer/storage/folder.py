"""Artifacts in a folder of this machine, moved by renames; `layout` says what lies where."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from tau2eval_scorer import layout
from tau2eval_scorer.spool import RECORD_FILE, WAV_FILE
from tau2eval_scorer.storage.base import Place, StoredFile, StoredRecord

_TRIES = 3


class FolderArtifacts:
    """Artifacts below a folder.

    Args:
        root: The folder; each run has one in it.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def check(self) -> None:
        """See `Artifacts.check`."""
        self._root.mkdir(parents=True, exist_ok=True)

    def adopt(self, staged: Path, place: Place) -> None:
        """See `Artifacts.adopt`."""
        layout.adopt(staged, self._root / place.run_id, place.aside)

    def place(self, place: Place) -> bool:
        """See `Artifacts.place`."""
        return layout.place(
            self._root / place.run_id, place.scenario, place.trial, place.trials, place.attempt_id
        )

    def update(self, place: Place, files: Mapping[str, bytes | None]) -> bool:
        """See `Artifacts.update`."""
        folder = self._find(place)
        if folder is None:
            return False
        for name, data in files.items():
            path = folder / name
            if data is None:
                path.unlink(missing_ok=True)
                continue
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_size == len(data) and path.read_bytes() == data:
                    continue
            layout.replace_file(path, data)
        return True

    def write(self, run_id: str, path: str, data: bytes) -> None:
        """See `Artifacts.write`."""
        layout.replace_file(self._root / run_id / path, data)

    def attempt_files(self, place: Place) -> Sequence[StoredFile]:
        """See `Artifacts.attempt_files`."""
        for _ in range(_TRIES):
            folder = self._find(place)
            if folder is None:
                return ()
            # The folder may be moved to its scenario, or away from it, between the two looks.
            with contextlib.suppress(FileNotFoundError):
                return [
                    StoredFile(
                        f"{place.path}/{path.relative_to(folder).as_posix()}",
                        str(path),
                        path.stat().st_size,
                    )
                    for path in layout.files_below(folder)
                ]
        return ()

    def run_file(self, run_id: str, path: str) -> StoredFile | None:
        """See `Artifacts.run_file`."""
        file = self._root / run_id / path
        if not file.is_file() or file.is_symlink():
            return None
        return StoredFile(path, str(file), file.stat().st_size)

    def open_file(self, file: StoredFile) -> BinaryIO:
        """See `Artifacts.open_file`."""
        return Path(file.location).open("rb")

    @contextlib.contextmanager
    def record(self, place: Place) -> Iterator[StoredRecord]:
        """See `Artifacts.record`."""
        folder = self._find(place)
        if folder is None:
            raise FileNotFoundError(f"the artifacts of attempt {place.attempt_id} are gone")
        wav = folder / WAV_FILE
        yield StoredRecord(folder / RECORD_FILE, wav.stat().st_size if wav.exists() else 0)

    def _find(self, place: Place) -> Path | None:
        """Returns where an attempt's files lie now: at its scenario, or aside."""
        run = self._root / place.run_id
        at_scenario = run / layout.scenario_path(place.scenario, place.trial, place.trials)
        aside = run / place.aside
        for _ in range(_TRIES):
            if layout.attempt_in(at_scenario) == place.attempt_id:
                return at_scenario
            if aside.is_dir():
                return aside
        return None
