"""The official toolkit in its own process, asked over JSON lines; every wait has a bound."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from tau2eval_airline import SEED_DB_HASH, source_from_env

from .ours import Records
from .sequences import Call

START_SECONDS = 180.0
ANSWER_SECONDS = 120.0
CPU_SECONDS = 8  # Of one sequence; an ordinary one takes half a second.
WORKER = Path(__file__).with_name("peer_worker.py")


class PeerError(RuntimeError):
    """The toolkit's process did not start, ended, or did not answer in time."""


class Theirs(NamedTuple):
    """How a sequence went on the toolkit.

    Attributes:
        hung: It was ended for using its CPU time up; the rest is empty then.
        ok: Whether each call succeeded.
        errors: Each call's message, empty where it succeeded.
        records: The changed records.
        match: The official evaluator's database check; None if none was asked for.
    """

    hung: bool
    ok: tuple[bool, ...]
    errors: tuple[str, ...]
    records: Records
    match: bool | None


class Answers:
    """The toolkit's answers, kept in a file: the same calls on the same data end the same.

    A key holds the calls, the worker's source, and the hash of the database; the file lies in the
    toolkit's environment, which stands for its version. Lines that cannot be read are asked again.

    Args:
        path: The file; None keeps nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._known: dict[str, dict[str, Any]] = {}
        self._salt = hashlib.sha256(WORKER.read_bytes() + SEED_DB_HASH.encode()).hexdigest()
        self.used = 0
        self._old: set[str] = set()
        for line in path.read_text().splitlines() if path and path.is_file() else ():
            with contextlib.suppress(ValueError, KeyError, TypeError):  # Cut off by an interrupt.
                entry = json.loads(line)
                self._known[entry["key"]] = entry["answer"]
        self._old = {*self._known}

    def get(self, question: dict[str, Any]) -> dict[str, Any] | None:
        """Returns a kept answer, or None."""
        with self._lock:
            key = self._key(question)
            self.used += key in self._old
            return self._known.get(key)

    def put(self, question: dict[str, Any], answer: dict[str, Any]) -> None:
        """Keeps an answer."""
        key = self._key(question)
        with self._lock:
            self._known[key] = answer
            if self._path:
                with self._path.open("a") as file:
                    file.write(json.dumps({"key": key, "answer": answer}) + "\n")

    def _key(self, question: dict[str, Any]) -> str:
        text = self._salt + json.dumps(question, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


class Peer:
    """One worker process.

    Args:
        python: The Python of the toolkit's environment.
        answers: Where its answers are kept, so that none is worked out twice.

    Raises:
        PeerError: If it does not get ready.
    """

    def __init__(self, python: Path, answers: Answers | None = None) -> None:
        self._answers = answers or Answers(None)
        source = source_from_env()
        environment = {
            **{name: value for name, value in os.environ.items() if "KEY" not in name},
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "PYTHONWARNINGS": "ignore",
        }
        self._process = subprocess.Popen(
            [str(python), str(WORKER), str(source.folder.absolute()), str(CPU_SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._errors: list[str] = []
        for target in (self._read, self._read_errors):
            threading.Thread(target=target, daemon=True).start()
        try:
            self.version: str = self._answer(START_SECONDS)["version"]
        except PeerError:
            self.close()
            raise

    def run(
        self, calls: list[Call], task: str | None = None, leave_out: list[str] | None = None
    ) -> Theirs:
        """Runs calls on a pristine database.

        Args:
            calls: The calls.
            task: tau2_id of the task that the official evaluator judges the end by.
            leave_out: Ids of gold actions that it leaves out.

        Raises:
            PeerError: If there is no answer.
        """
        question = {
            "calls": [call.data() for call in calls],
            "task": task,
            "leave_out": leave_out or [],
        }
        answer = self._answers.get(question)
        if answer is None:
            answer = self._ask(question)
            if not answer["hung"]:  # How much time is too much is no lasting fact.
                self._answers.put(question, answer)
        return Theirs(
            hung=answer["hung"],
            ok=tuple(outcome["ok"] for outcome in answer["outcomes"]),
            errors=tuple(outcome["error"] for outcome in answer["outcomes"]),
            records={(table, key): record for table, key, record in answer["changed"]},
            match=answer["db_match"],
        )

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        request = {"id": time.monotonic_ns(), **question}
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise PeerError(f"the toolkit's process is gone: {error}\n{self._tail()}") from error
        answer = self._answer(ANSWER_SECONDS)
        if answer.pop("id", None) != request["id"] or answer["error"]:
            raise PeerError(f"the toolkit's process answered {answer.get('error') or answer}")
        return answer

    def close(self) -> None:
        """Ends the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _answer(self, seconds: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            raise PeerError(f"no answer in {seconds:g} s\n{self._tail()}") from None
        if line is None:
            raise PeerError(f"the toolkit's process ended\n{self._tail()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _tail(self) -> str:
        return "".join(self._errors[-20:])

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors.append(line)


def peer_python(venv: Path) -> Path:
    """Returns the Python of an environment that scripts/peer_env.sh made.

    Raises:
        PeerError: If there is none.
    """
    python = venv / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if not (venv / ".installed").is_file():
        raise PeerError(f"{venv} holds no toolkit; `make validity` makes it")
    return python
