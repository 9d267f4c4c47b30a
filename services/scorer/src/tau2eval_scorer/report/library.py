"""The pages of stored runs: written among their artifacts, and kept fresh for a server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, BinaryIO

from tau2eval_common.errors import NotFound, Unavailable
from tau2eval_scorer.jsonio import parse_object
from tau2eval_scorer.layout import ATTEMPTS, REPORT_FILE, RUN_FILES
from tau2eval_scorer.report import pages
from tau2eval_scorer.report.files import StoredFiles
from tau2eval_scorer.run_files import InThread, RunFiles, place_of
from tau2eval_scorer.storage import Artifacts, StoredFile
from tau2eval_scorer.store import Attempt, Run, RunStore

_TRIES = 3
_RENDERED_AT_ONCE = 2


class ReportLibrary:
    """Pages and files of all runs, by the paths that readers of the artifacts know.

    How to wire it, in ScorerCore.start after the store is open:

        self.reports = ReportLibrary(self.store, self.artifacts, self.files, self.in_thread)

    RenderReport is then `path, pages = await core.reports.write(run_id)`, and the pages are served
    by `tau2eval_scorer.http.ReportServer(core.reports, host, port)`.
    """

    def __init__(
        self, store: RunStore, artifacts: Artifacts, files: RunFiles, in_thread: InThread
    ) -> None:
        self._store = store
        self._artifacts = artifacts
        self._files = files
        self._in_thread = in_thread
        self._rendering = asyncio.Semaphore(_RENDERED_AT_ONCE)

    async def runs(self) -> list[dict[str, Any]]:
        """Returns the runs, newest first, as `pages.render_runs` takes them."""
        return [
            {
                "run_id": run.plan.run_id,
                "created_at": run.created_at,
                "finished_at": run.finished_at,
                "planned": len(run.plan.scenarios) * run.plan.trials,
                **{name: counts.get(name, 0) for name in ("passed", "failed", "not_run")},
            }
            for run, counts in await self._store.runs()
        ]

    async def write(self, run_id: str) -> tuple[str, int]:
        """Writes the pages of a run and of all its attempts among its artifacts.

        Pages are made while others may write, and put down one by one, so that a run in progress
        is not held up; asking again brings them up to date.

        Returns:
            The path of the run's page below the run's folder, and the number of pages.

        Raises:
            NotFound: When there is no such run.
            Unavailable: When another scorer holds the run's files, or the artifacts are away.
        """
        async with self._files.locks.hold(run_id):
            await self._files.settle(run_id)
        run = await self._store.run(run_id)
        written = 0
        for attempt in await self._store.attempts(run_id):
            page = await self._attempt_page(run, attempt)
            if page is None:
                continue
            async with self._files.locks.hold(run_id):
                place = place_of(run, attempt)
                files = {REPORT_FILE: page}
                written += await self._in_thread(self._artifacts.update, place, files)
        page = await self._run_page(run_id)
        async with self._files.locks.hold(run_id):
            await self._in_thread(self._artifacts.write, run_id, REPORT_FILE, page)
        return REPORT_FILE, written + 1

    async def page(self, run_id: str, path: str) -> bytes:
        """Returns a page as it should be now: the stored one, or a new one where that is stale.

        Args:
            run_id: The run.
            path: Below its folder, ending in "report.html".

        Raises:
            NotFound: When there is no such run or attempt.
            Unavailable: When its files change all the time, or are away.
        """
        if path == REPORT_FILE:
            return await self._run_page(run_id)
        for _ in range(_TRIES):
            listed = await self._listed(run_id, path)
            folder = path.removesuffix(f"/{REPORT_FILE}")
            if not any(file.path == f"{folder}/metrics.json" for file in listed):
                raise _nothing(run_id, path)
            try:
                return await self._render(listed, folder)
            except FileNotFoundError:
                continue
        raise Unavailable("the artifacts change while they are read; ask again", reason="CHANGED")

    async def find(self, run_id: str, path: str) -> StoredFile:
        """Returns a file by its path below the run's folder.

        A path is only ever compared with those of the stored files, so nothing else can be reached.

        Raises:
            NotFound: When there is no such run or file.
        """
        if "/" not in path:
            await self._store.run(run_id)
            known = path in RUN_FILES
            file = await self._in_thread(self._artifacts.run_file, run_id, path) if known else None
            if file is None:
                raise _nothing(run_id, path)
            return file
        for file in await self._listed(run_id, path):
            if file.path == path:
                return file
        raise _nothing(run_id, path)

    async def open(self, file: StoredFile) -> BinaryIO:
        """Opens a file.

        Raises:
            FileNotFoundError: When it was moved or removed since it was found.
        """
        return await self._in_thread(self._artifacts.open_file, file)

    async def _run_page(self, run_id: str) -> bytes:
        run, _, summary = await self._files.summary(run_id)
        arguments = await self._in_thread(self._artifacts.run_file, run_id, "run_args.json")
        settings: dict[str, Any] = {"settings": run.plan.settings}
        if arguments is not None:
            stored = await self._in_thread(self._read_object, arguments)
            settings = settings if stored is None else stored
        async with self._rendering:
            text = await self._in_thread(pages.render_run, summary, settings)
        return text.encode()

    async def _attempt_page(self, run: Run, attempt: Attempt) -> bytes | None:
        """Returns the page of an attempt; None when its files are gone."""
        for _ in range(_TRIES):
            place = place_of(run, attempt)
            listed = await self._in_thread(self._artifacts.attempt_files, place)
            if not any(file.path == f"{place.path}/metrics.json" for file in listed):
                return None
            try:
                return await self._render(listed, place.path)
            except FileNotFoundError:
                continue
        return None

    async def _render(self, listed: Sequence[StoredFile], folder: str) -> bytes:
        files = StoredFiles(listed, folder, self._artifacts.open_file)
        async with self._rendering:
            return await self._in_thread(_fresh_page, files, "../" * (folder.count("/") + 1))

    async def _listed(self, run_id: str, path: str) -> Sequence[StoredFile]:
        """Returns the files of the attempt in whose folder a path would lie."""
        run = await self._store.run(run_id)
        parts = path.split("/")
        if parts[0] == ATTEMPTS and len(parts) > 4:
            scenario, trial, attempt_id = parts[1], _trial(parts[2]), parts[3]
        elif run.plan.trials > 1:
            scenario, trial, attempt_id = parts[0], _trial(parts[1]), ""
        else:
            scenario, trial, attempt_id = parts[0], 0, ""
        if trial is None or not scenario:
            raise _nothing(run_id, path)
        return await self._files.files(run_id, scenario, trial, attempt_id)

    def _read_object(self, file: StoredFile) -> dict[str, Any] | None:
        try:
            with self._artifacts.open_file(file) as stream:
                return parse_object(stream.read().decode())
        except (OSError, ValueError):
            return None


def _fresh_page(files: StoredFiles, up: str) -> bytes:
    """Returns the stored page when it is of these files and this version, else a new one."""
    stored = files.read(REPORT_FILE)
    if stored is not None and pages.fingerprint_of(stored) == pages.scenario_fingerprint(files):
        return stored
    return pages.render_scenario(files, f"{up}{REPORT_FILE}").encode()


def _trial(name: str) -> int | None:
    number = name.removeprefix("trial_")
    known = name != number and number.isascii() and number.isdigit() and len(number) <= 9
    return int(number) if known else None


def _nothing(run_id: str, path: str) -> NotFound:
    return NotFound(f"run {run_id[:140]} has no {path[:200]!r}", reason="NO_SUCH_FILE")
