"""One service as a child process: start, listening line, log, end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tau2eval_cli.errors import EXIT_NOT_VALID, EXIT_WRONG_USE, NotValid

_TAIL_LINES = 12
_LINE_LIMIT = 1 << 20


class StartError(NotValid):
    """A service did not come up.

    A service that itself ended with "wrong use" (its settings, its fixtures) makes the command's
    exit code that, too.
    """

    def __init__(self, message: str, exit_code: int = EXIT_NOT_VALID) -> None:
        super().__init__(message)
        self.exit_code = EXIT_WRONG_USE if exit_code == EXIT_WRONG_USE else EXIT_NOT_VALID


@dataclass(frozen=True)
class Addresses:
    """Where a service listens, as "host:port"; empty where it does not."""

    grpc: str = ""
    http: str = ""

    @staticmethod
    def port(address: str) -> int:
        """Returns the port of an address."""
        return int(address.rsplit(":", 1)[1])


class Child:
    """A running service.

    Its standard input is a pipe that stays open as long as this process lives, so that a service
    with exit_with_parent never outlives us. It has a session of its own: Ctrl-C in the terminal
    reaches us alone. Standard error goes to the log file, which is appended to.

    Attributes:
        name: Name of the service.
        addresses: Where it listens, after `wait_until_listening`.
    """

    def __init__(
        self, name: str, process: asyncio.subprocess.Process, log: IO[bytes], log_path: Path
    ) -> None:
        self.name = name
        self.addresses = Addresses()
        self._process = process
        self._log = log
        self._log_path = log_path
        self._log_start = log.tell()
        self._drain: asyncio.Task[None] | None = None

    @classmethod
    async def spawn(
        cls, name: str, command: Sequence[str], environment: Mapping[str, str], log_path: Path
    ) -> Child:
        """Starts the process.

        Raises:
            StartError: When the program or the log file cannot be opened.
        """
        try:
            log_path.parent.mkdir(parents=True, exist_ok=True)
            log = log_path.open("ab")
        except OSError as error:
            raise StartError(f"{name}: its log cannot be written: {error}") from error
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=dict(environment),
                start_new_session=True,
                limit=_LINE_LIMIT,
            )
        except BaseException as error:
            log.close()
            if isinstance(error, OSError):
                raise StartError(f"{name} cannot be started: {error}") from error
            raise
        return cls(name, process, log, log_path)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit status; None while it runs."""
        return self._process.returncode

    async def wait_until_listening(self, timeout_seconds: float) -> Addresses:
        """Waits for the listening line on standard output.

        Raises:
            StartError: When the process ends first, or says nothing in time; with the end of its
                log.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                line = await self._read_listening_line()
        except TimeoutError:
            raise StartError(
                f"{self.name} did not listen within {timeout_seconds:g} s.\n{self._log_tail()}"
            ) from None
        if line is None:
            code = await self._process.wait()
            raise StartError(
                f"{self.name} {_ending(code)} before it listened.\n{self._log_tail()}", code
            )
        self.addresses = Addresses(grpc=str(line.get("grpc", "")), http=str(line.get("http", "")))
        self._drain = asyncio.create_task(self._copy_stdout())
        return self.addresses

    async def wait(self) -> int:
        """Waits until the process has ended and returns its exit status."""
        return await self._process.wait()

    def describe_end(self) -> str:
        """Says how the process ended, in words ("was ended by SIGKILL")."""
        return _ending(self._process.returncode)

    def send(self, number: signal.Signals) -> None:
        """Sends a signal, if the process still runs."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def end(self, grace_seconds: float) -> None:
        """Ends the process in order, and in any case.

        SIGTERM lets it finish its calls; a second one, after `grace_seconds`, ends those; SIGKILL
        follows after as long again.
        """
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            if self.returncode is not None:
                break
            self.send(number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_seconds):
                    await self._process.wait()
        await self.release()

    async def release(self) -> None:
        """Closes what is held for a process that has ended."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._drain is not None:
            self._drain.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._drain
        self._log.close()

    async def _read_listening_line(self) -> dict[str, object] | None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and event.get("event") == "listening":
                    return event
            self._write_log(line)
        return None

    async def _copy_stdout(self) -> None:
        assert self._process.stdout is not None
        while chunk := await self._process.stdout.read(65536):
            self._write_log(chunk)

    def _write_log(self, data: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._log.write(data)
            self._log.flush()

    def _log_tail(self) -> str:
        try:
            with self._log_path.open("rb") as file:
                file.seek(self._log_start)
                lines = deque(file, maxlen=_TAIL_LINES)
        except OSError:
            lines = deque()
        tail = b"".join(lines).decode(errors="replace").rstrip()
        return f"{tail}\n(log: {self._log_path})" if tail else f"Its log is empty: {self._log_path}"


def _ending(code: int | None) -> str:
    if code is None:
        return "still runs"
    if code < 0:
        try:
            return f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"was ended by signal {-code}"
    return f"ended with exit code {code}"
