"""Artifacts in an object store, by fsspec: s3://bucket/prefix.

An object store has no rename. So an attempt's objects stay where they were first written, among the
attempts of the run, and only the store of runs says which attempt counts; readers are given the
paths that they know from a folder. An object appears whole or not at all, and an attempt's verdict
is stored after its objects, so a reader of the scorer never sees half an attempt.
"""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import fsspec

from tau2eval_scorer.layout import files_below
from tau2eval_scorer.spool import INCOMING, RECORD_FILE, WAV_FILE
from tau2eval_scorer.storage.base import Place, StoredFile, StoredRecord, not_answering

T = TypeVar("T")

_CONNECT_SECONDS = 10
_READ_SECONDS = 60
_TRIES = 4


class ObjectArtifacts:
    """Artifacts below a prefix of an object store.

    Args:
        url: "s3://bucket/prefix", or another URL that fsspec knows. Endpoint and keys come from
            the provider's own environment: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and so on.
        staging: A folder of this machine for what is on its way.
    """

    def __init__(self, url: str, staging: Path) -> None:
        self._url = url.rstrip("/")
        self._staging = staging / INCOMING
        self._system: Any = None
        self._prefix = ""

    def check(self) -> None:
        """See `Artifacts.check`."""
        options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
        if self._url.startswith("s3://"):
            options["config_kwargs"] = {
                "connect_timeout": _CONNECT_SECONDS,
                "read_timeout": _READ_SECONDS,
                "retries": {"max_attempts": _TRIES, "mode": "standard"},
            }
        try:
            self._system, self._prefix = fsspec.core.url_to_fs(self._url, **options)
            probe = f"{self._prefix}/.tau2eval"
            self._system.pipe_file(probe, b"tau2-eval keeps its runs here.\n")
            self._system.cat_file(probe)
        except Exception as error:
            raise OSError(
                f"the artifacts at {self._url} cannot be used ({type(error).__name__}: {error}); "
                "check the bucket and the AWS_ variables"
            ) from error

    def adopt(self, staged: Path, place: Place) -> None:
        """See `Artifacts.adopt`."""
        base = self._key(place.run_id, place.aside)
        for path in files_below(staged):
            self._try(self._system.put_file, str(path), f"{base}/{path.relative_to(staged)}")

    def place(self, place: Place) -> bool:
        """See `Artifacts.place`: nothing is moved."""
        key = self._key(place.run_id, f"{place.aside}/{RECORD_FILE}")
        return bool(self._try(self._system.exists, key))

    def update(self, place: Place, files: Mapping[str, bytes | None]) -> bool:
        """See `Artifacts.update`."""
        if not self.place(place):
            return False
        for name, data in files.items():
            key = self._key(place.run_id, f"{place.aside}/{name}")
            if data is None:
                with contextlib.suppress(FileNotFoundError):
                    self._try(self._system.rm_file, key)
                continue
            with contextlib.suppress(FileNotFoundError):
                if self._try(self._system.size, key) == len(data) and (
                    self._try(self._system.cat_file, key) == data
                ):
                    continue
            self._try(self._system.pipe_file, key, data)
        return True

    def write(self, run_id: str, path: str, data: bytes) -> None:
        """See `Artifacts.write`."""
        self._try(self._system.pipe_file, self._key(run_id, path), data)

    def attempt_files(self, place: Place) -> Sequence[StoredFile]:
        """See `Artifacts.attempt_files`."""
        base = self._key(place.run_id, place.aside)
        found: Mapping[str, Any] = self._try(
            lambda: self._system.find(base, detail=True, refresh=True)
        )
        return [
            StoredFile(f"{place.path}/{key.removeprefix(base).lstrip('/')}", key, int(info["size"]))
            for key, info in sorted(found.items())
            if info["type"] == "file"
        ]

    def run_file(self, run_id: str, path: str) -> StoredFile | None:
        """See `Artifacts.run_file`."""
        key = self._key(run_id, path)
        try:
            info = self._try(lambda: self._system.info(key, refresh=True))
        except FileNotFoundError:
            return None
        return StoredFile(path, key, int(info["size"])) if info["type"] == "file" else None

    def open_file(self, file: StoredFile) -> BinaryIO:
        """See `Artifacts.open_file`."""
        return cast(BinaryIO, self._try(self._system.open, file.location, "rb"))

    @contextlib.contextmanager
    def record(self, place: Place) -> Iterator[StoredRecord]:
        """See `Artifacts.record`."""
        sizes = {file.path.rpartition("/")[2]: file for file in self.attempt_files(place)}
        if RECORD_FILE not in sizes:
            raise FileNotFoundError(f"the artifacts of attempt {place.attempt_id} are gone")
        folder = self._staging / uuid.uuid4().hex
        folder.mkdir(parents=True)
        try:
            local = folder / RECORD_FILE
            self._try(self._system.get_file, sizes[RECORD_FILE].location, str(local))
            # Only the recording's length is needed to score, so the recording stays there.
            yield StoredRecord(local, sizes[WAV_FILE].size if WAV_FILE in sizes else 0)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _key(self, run_id: str, path: str) -> str:
        return f"{self._prefix}/{run_id}/{path}"

    def _try(self, function: Callable[..., T], *arguments: Any) -> T:
        """Calls the object store; what fails there is no fault of a record.

        Raises:
            FileNotFoundError: When there is no such object.
            Unavailable: When it fails otherwise.
        """
        try:
            return function(*arguments)
        except FileNotFoundError:
            raise
        except Exception as error:
            # Each provider's client has its own kinds of errors.
            raise not_answering(error) from error
