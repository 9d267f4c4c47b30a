"""A scorer to ask: one that runs somewhere, or one of our own for as long as a command takes."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

from rich.console import Console

from tau2eval_cli.environment import check_environment, keeps_artifacts_elsewhere
from tau2eval_cli.errors import EXIT_INTERRUPTED, Interrupted, WrongUse
from tau2eval_cli.plan import check_target
from tau2eval_cli.preflight import check_targets
from tau2eval_cli.scorer_client import ScorerClient
from tau2eval_cli.services import GATEWAY, SCORER
from tau2eval_cli.signals import two_step_end
from tau2eval_cli.supervisor import Supervisor, SupervisorConfig
from tau2eval_cli.wiring import READING, Wiring

LOGS = "logs"
_PIPE_WIDTH = 140
T = TypeVar("T")


def make_console(stderr: bool) -> Console:
    """Returns a console that is as wide as the terminal, and wide enough without one."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=_PIPE_WIDTH)


@dataclass(frozen=True)
class ScorerTarget:
    """Which scorer a command asks.

    Attributes:
        output_dir: Folder of runs; of a scorer elsewhere, where its artifacts are copied to.
        address: A running scorer; empty starts one on that folder.
        gateway_address: Gateway of running services; empty when it is not known.
        gateway_names: Further environment variables that a gateway of ours gets.
    """

    output_dir: Path
    address: str = ""
    gateway_address: str = ""
    gateway_names: Sequence[str] = ()

    @property
    def local(self) -> bool:
        """Whether the artifacts are in `output_dir` by themselves."""
        return not self.address and not keeps_artifacts_elsewhere(os.environ)

    def check(self) -> None:
        """Refuses what cannot work.

        Raises:
            WrongUse: With what to do instead.
        """
        check_target("--scorer-address", self.address)
        check_target("--gateway-address", self.gateway_address)
        if self.address:
            return
        check_environment(os.environ)
        elsewhere = os.environ.get("DATABASE_URL") or os.environ.get(SCORER.key("database_url"))
        if not self.output_dir.is_dir() and not elsewhere:
            raise WrongUse(
                f"there is no folder of runs {self.output_dir}; --output-dir names the one that "
                "`tau2-eval run` wrote to"
            )


@dataclass(frozen=True)
class Session:
    """A scorer that listens.

    Attributes:
        scorer: Its client.
        supervisor: Of the services that are ours; None when the scorer is not.
        gateway_address: The gateway's gRPC target; empty when it is not known.
        http_address: host:port of the scorer's pages; empty when it is not known.
    """

    scorer: ScorerClient
    supervisor: Supervisor | None = None
    gateway_address: str = ""
    http_address: str = ""


@asynccontextmanager
async def open_session(
    target: ScorerTarget,
    say: Callable[[str], None],
    services: frozenset[str] = READING,
    started: Callable[[Supervisor], None] | None = None,
) -> AsyncIterator[Session]:
    """Reaches the scorer, or starts it with what else is needed.

    Args:
        target: Which scorer.
        say: Told what happens to services of ours.
        services: What is started where nothing runs.
        started: Told the supervisor before anything is started.

    Raises:
        WrongUse: When nothing listens where it should.
        NotValid: When a service of ours does not start.
    """
    if target.address:
        await check_targets({"--scorer-address": target.address})
        async with ScorerClient(target.address) as scorer:
            yield Session(scorer, gateway_address=target.gateway_address)
        return
    supervisor = Supervisor(
        SupervisorConfig(
            wiring=Wiring(artifacts_dir=target.output_dir.absolute(), services=services),
            logs_dir=target.output_dir.absolute() / LOGS,
            environ=os.environ,
            gateway_names=target.gateway_names,
        ),
        say,
    )
    if started is not None:
        started(supervisor)
    async with supervisor:
        running = supervisor.running
        async with ScorerClient(running[SCORER.name].grpc) as scorer:
            yield Session(
                scorer,
                supervisor,
                running[GATEWAY.name].grpc if GATEWAY.name in running else "",
                running[SCORER.name].http,
            )


class Interruptible:
    """Runs a command that Ctrl-C or SIGTERM ends; a second one ends it at once.

    Attributes:
        supervisor: Of the services of ours, once there is one.
    """

    def __init__(self) -> None:
        self.supervisor: Supervisor | None = None

    def note(self, supervisor: Supervisor) -> None:
        """Notes the supervisor whose services end with the command."""
        self.supervisor = supervisor

    def run(self, main: Callable[[], Awaitable[T]]) -> T:
        """Returns what a coroutine function returns.

        Raises:
            Interrupted: When it was ended by a signal.
        """
        try:
            return asyncio.run(self._main(main))
        except asyncio.CancelledError:
            raise Interrupted("interrupted; what was done is kept") from None

    async def _main(self, main: Callable[[], Awaitable[T]]) -> T:
        task = asyncio.ensure_future(main())
        with two_step_end(lambda: _cancel(task), self.end_at_once):
            return await task

    def end_at_once(self) -> NoReturn:
        """Ends everything without any order."""
        if self.supervisor is not None:
            self.supervisor.kill()
        with contextlib.suppress(Exception):
            Console(stderr=True).show_cursor(True)
        os._exit(EXIT_INTERRUPTED)


def _cancel(task: asyncio.Future[T]) -> None:
    task.cancel()
