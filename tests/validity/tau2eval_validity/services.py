"""The real services, started once by `tau2-eval up`, and runs of `tau2-eval` against them."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CLI = (sys.executable, "-m", "tau2eval_cli")
START_SECONDS = 180.0
RUN_SECONDS = 420.0
SETTINGS = {
    "TAU2EVAL_AGENT_BOT_SPEECH_PRELOAD": "false",
    "TAU2EVAL_USER_BOT_SPEECH_PRELOAD": "false",
    "TAU2EVAL_SCRIPTED_SLOW_SECONDS": "0.5",
}


class ServiceError(RuntimeError):
    """The services did not start, or a command did not end as commands do."""


@dataclass
class Run:
    """A run that has ended.

    Attributes:
        code: The exit code.
        result: What `run --json` printed.
        stderr: What it said.
    """

    code: int
    result: dict[str, Any]
    stderr: str

    @property
    def run_id(self) -> str:
        """Its id."""
        return str(self.result["run_id"])

    @property
    def folder(self) -> Path:
        """Its folder."""
        return Path(self.result["output_dir"])

    def scenarios(self) -> dict[str, dict[str, Any]]:
        """Returns the entries of the scenarios by name."""
        return {entry["name"]: entry for entry in self.result["scenarios"]}

    def read(self, entry: dict[str, Any], file: str) -> dict[str, Any]:
        """Reads a JSON file of a scenario; an empty object if there is none."""
        path = self.folder / entry["artifacts_path"] / file
        data: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
        return data


class Services:
    """All services on free ports, without speech models.

    Args:
        folder: Where runs are kept.

    Raises:
        ServiceError: If they do not get ready.
    """

    def __init__(self, folder: Path) -> None:
        self.runs = folder / "runs"  # The scorer's own folder, so that it is the one to look at.
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("TAU2EVAL_")},
            **SETTINGS,
        }
        self._process = subprocess.Popen(
            [
                *(*CLI, "up", "--json", "--output-dir", str(self.runs)),
                *("--env-file", str(folder / "services.env")),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._said: list[str] = []
        for target in (self._read, self._read_errors):
            threading.Thread(target=target, daemon=True).start()
        self.addresses = self._ready()

    def run(self, *arguments: str) -> Run:
        """Holds a run and returns its result.

        Args:
            *arguments: Further arguments of `tau2-eval run --json`.

        Raises:
            ServiceError: If it does not end in time, or prints no result.
        """
        done = self.command(
            *("run", "--json", "--output-dir", str(self.runs)),
            *("--bridge-address", self.addresses["bridge"]["grpc"]),
            *("--scorer-address", self.addresses["scorer"]["grpc"]),
            *arguments,
        )
        if not done.stdout.strip():
            raise ServiceError(f"run {' '.join(arguments)} printed nothing:\n{done.stderr[-2000:]}")
        return Run(done.returncode, json.loads(done.stdout), done.stderr)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of tau2-eval to its end.

        Raises:
            ServiceError: If it does not end in time.
        """
        try:
            return subprocess.run(
                [*CLI, *arguments],
                capture_output=True,
                text=True,
                timeout=RUN_SECONDS,
                env=self.environment,
            )
        except subprocess.TimeoutExpired:
            words = " ".join(arguments)
            raise ServiceError(f"{words}: no end in {RUN_SECONDS:g} s") from None

    def close(self) -> None:
        """Ends the services in order, and in any case."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Services:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _ready(self) -> dict[str, dict[str, Any]]:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                self.close()
                raise ServiceError("the services did not start:\n" + "".join(self._said[-20:]))
            if '"ready"' in line:
                services: dict[str, dict[str, Any]] = json.loads(line)["services"]
                return services

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._said.append(line)
