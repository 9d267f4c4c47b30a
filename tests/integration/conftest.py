"""The real processes together, started by the real command."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

CLI = (sys.executable, "-m", "tau2eval_cli")
START_SECONDS = 180
CALL_SECONDS = 280
EXIT_WRONG_USE = 2

MODULES = {
    "gateway": "tau2eval_gateway",
    "agent-bot": "tau2eval_agent_bot",
    "user-bot": "tau2eval_user_bot",
    "bridge": "tau2eval_bridge",
    "scorer": "tau2eval_scorer",
    "scripted-models": "tau2eval_scripted",
}


class Lines:
    """Lines of a pipe, read in the background so that it never fills."""

    def __init__(self, pipe: Any) -> None:
        self.all: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        self._thread = threading.Thread(target=self._read, args=(pipe,), daemon=True)
        self._thread.start()

    def wait_for(self, *parts: str, seconds: float = CALL_SECONDS) -> str:
        """Returns the first new line that holds all parts."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._queue.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            assert line is not None, f"no line with {parts} in:\n" + "".join(self.all)
            if all(part in line for part in parts):
                return line

    def text(self) -> str:
        """Waits for the end of the pipe and returns all of it."""
        self._thread.join(30)
        return "".join(self.all)

    def _read(self, pipe: Any) -> None:
        for line in pipe:
            self.all.append(line)
            self._queue.put(line)
        self._queue.put(None)


@dataclass
class Finished:
    """A `run --json` that has ended."""

    code: int
    result: dict[str, Any]
    stderr: str

    def scenario(self, name: str) -> dict[str, Any]:
        """Returns the entry of a scenario."""
        return next(entry for entry in self.result["scenarios"] if entry["name"] == name)

    def folder(self, name: str) -> Path:
        """Returns the artifacts of a scenario."""
        return Path(self.result["output_dir"]) / name

    def metrics(self, name: str) -> dict[str, Any]:
        """Returns the metrics.json of a scenario."""
        return json.loads((self.folder(name) / "metrics.json").read_text())


class Run:
    """A `run --json` in progress."""

    def __init__(self, arguments: list[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [*CLI, "run", "--json", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        self.stdout = Lines(self.process.stdout)
        self.stderr = Lines(self.process.stderr)

    def finish(self, seconds: float = CALL_SECONDS) -> Finished:
        """Waits for the end; the process is ended when it does not come."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError("the run did not end:\n" + self.stderr.text()) from None
        out, err = self.stdout.text(), self.stderr.text()
        if code == EXIT_WRONG_USE:
            assert not out
            return Finished(code, {}, err)
        assert out, err
        return Finished(code, json.loads(out), err)


class Stack:
    """A `tau2-eval up` and what it started."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.output_dir = folder / "runs"
        self.client_dir = folder / "fetched"
        self.env_file = folder / "services.env"
        self.env = env
        self.process = subprocess.Popen(
            [
                *(*CLI, "up", "--json", "--output-dir", str(self.output_dir)),
                *("--env-file", str(self.env_file)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        self.stdout = Lines(self.process.stdout)
        self.stderr = Lines(self.process.stderr)
        try:
            ready = json.loads(self.stdout.wait_for('"ready"', seconds=START_SECONDS))
        except AssertionError:
            self.stop()
            raise AssertionError(self.stderr.text()) from None
        self.services: dict[str, dict[str, Any]] = ready["services"]

    def stop(self) -> int:
        """Ends it in order, and in any case; returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def pid(self, service: str) -> int:
        """Returns the process id of a service, also of one that was started again."""
        return child_pid(self.process.pid, service)

    def start_run(self, *arguments: str) -> Run:
        """Begins a run against these services."""
        return Run(
            [
                *("--bridge-address", self.services["bridge"]["grpc"]),
                *("--scorer-address", self.services["scorer"]["grpc"]),
                *("--output-dir", str(self.client_dir)),
                *arguments,
            ],
            self.env,
        )

    def run(self, *arguments: str, seconds: float = CALL_SECONDS) -> Finished:
        """Holds a run against these services."""
        return self.start_run(*arguments).finish(seconds)


def child_pid(parent: int, service: str) -> int:
    """Returns the process id of a service among the children of a process."""
    for child in psutil.Process(parent).children():
        if MODULES[service] in child.cmdline():
            return child.pid
    raise AssertionError(f"{service} is not running")


def clean_environment(**settings: str) -> dict[str, str]:
    """Returns this environment without settings of ours, but for those given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TAU2EVAL_")}
    return {**kept, **settings}


TEXT_ONLY = {
    "TAU2EVAL_AGENT_BOT_SPEECH_PRELOAD": "false",
    "TAU2EVAL_USER_BOT_SPEECH_PRELOAD": "false",
    "TAU2EVAL_SCRIPTED_SLOW_SECONDS": "0.5",
    "MARINA_OPEN_API": "true",
}


@pytest.fixture(scope="module")
def text_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Services without speech models."""
    stack = Stack(tmp_path_factory.mktemp("text"), clean_environment(**TEXT_ONLY))
    try:
        yield stack
    finally:
        stack.stop()


@pytest.fixture
def make_stack(tmp_path: Path) -> Iterator[Callable[[], Stack]]:
    """Starts services without speech models, for one test."""
    stacks: list[Stack] = []

    def make() -> Stack:
        stacks.append(Stack(tmp_path, clean_environment(**TEXT_ONLY)))
        return stacks[-1]

    yield make
    for stack in stacks:
        stack.stop()


@pytest.fixture(scope="module")
def voice_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Services with speech models."""
    stack = Stack(tmp_path_factory.mktemp("voice"), clean_environment())
    try:
        yield stack
    finally:
        stack.stop()


@pytest.fixture
def start_run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Begins runs that start their own services, without speech."""
    runs: list[Run] = []

    def start(*arguments: str, **settings: str) -> Run:
        run = Run(
            ["--output-dir", str(tmp_path / "runs"), *arguments],
            clean_environment(**{**TEXT_ONLY, **settings}),
        )
        runs.append(run)
        return run

    yield start
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()


@pytest.fixture(scope="session")
def run_once() -> Callable[..., Finished]:
    """Holds a run that starts its own services, without speech, to its end."""

    def hold(folder: Path, *arguments: str, **settings: str) -> Finished:
        run = Run(
            ["--output-dir", str(folder), *arguments],
            clean_environment(**{**TEXT_ONLY, **settings}),
        )
        return run.finish()

    return hold


@pytest.fixture(scope="session")
def command() -> Callable[..., str]:
    """Runs another command of tau2-eval and returns its standard output."""

    def call(*arguments: str) -> str:
        done = subprocess.run(
            [*CLI, *arguments],
            capture_output=True,
            text=True,
            timeout=CALL_SECONDS,
            env=clean_environment(**TEXT_ONLY),
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


@pytest.fixture
def find_pid() -> Callable[[int, str], int]:
    """Finds a service among the children of a process."""
    return child_pid


@pytest.fixture
def expected() -> Callable[[str, str], dict[str, Any]]:
    """What the table of the scripted models says of an agent in a scenario, with its judge."""
    from tau2eval_airline import get_scenario
    from tau2eval_scripted.models import EXPECTED_OUTCOMES

    def look_up(model: str, name: str) -> dict[str, Any]:
        scenario = get_scenario(name)
        actions = [action["name"] for action in scenario.reference_answer["actions"]]
        row = EXPECTED_OUTCOMES[model].expectation(
            gold_writes=scenario.gold_mutates,
            gold_transfers="transfer_to_human_agents" in actions,
            asserted=bool(scenario.nl_assertions),
        )
        return {
            "outcome": row.outcome,
            "kind": row.not_run_kind or None,
            "failed": sorted(row.failing_signals),
            "stop_reason": row.stop_reason,
        }

    return look_up


@pytest.fixture
def observed() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The same facts of a scenario's result."""

    def pick(entry: dict[str, Any]) -> dict[str, Any]:
        return {
            "outcome": entry["outcome"],
            "kind": entry["kind"],
            "failed": sorted(entry["success_breakdown"]["failed"]),
            "stop_reason": entry["stop_reason"],
        }

    return pick
