"""Starts the services of one evaluation on this machine, keeps them alive, and ends them."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from tau2eval_cli.child import Addresses, Child, StartError
from tau2eval_cli.environment import child_environment
from tau2eval_cli.services import START_ORDER, STOP_ORDER, ServiceSpec
from tau2eval_cli.wiring import Wiring

MAX_RESTARTS = 5
"""How often a service that died is started again."""

Command = Callable[[ServiceSpec], Sequence[str]]


def python_module(spec: ServiceSpec) -> Sequence[str]:
    """Returns the command line of a service in this Python."""
    return [sys.executable, "-m", spec.module]


@dataclass(frozen=True)
class SupervisorConfig:
    """What the supervisor is told.

    Attributes:
        wiring: Ports, addresses and folders.
        logs_dir: Folder of the services' logs.
        environ: Environment of this command, from which each child's is made.
        gateway_names: Further environment variables that the gateway gets.
        start_seconds: How long each service may take until it listens.
        grace_seconds: How long a service may take to end after each SIGTERM.
        restart_pause_seconds: Pause before the first restart; doubled for each further one.
        command: Command line of a service.
    """

    wiring: Wiring
    logs_dir: Path
    environ: Mapping[str, str]
    gateway_names: Sequence[str] = ()
    start_seconds: float = 120.0
    grace_seconds: float = 5.0
    restart_pause_seconds: float = 0.2
    command: Command = field(default=python_module)


class Supervisor:
    """The services of one evaluation.

    As a context manager it starts all of them and ends all of them. A service that dies in between
    is started again on its port, `MAX_RESTARTS` times at most.

    Attributes:
        running: Where each service listens, by name.
        given_up: Set when a service died for good.
        complete: Set while no service is being started again.
    """

    def __init__(self, config: SupervisorConfig, notify: Callable[[str], None]) -> None:
        self.running: dict[str, Addresses] = {}
        self.given_up = asyncio.Event()
        self.complete = asyncio.Event()
        self.complete.set()
        self._down: set[str] = set()
        self._config = config
        self._notify = notify
        self._children: dict[str, Child] = {}
        self._keepers: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Supervisor:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    def pids(self) -> dict[str, int]:
        """Returns the process id of each service that runs, by name."""
        return {name: child.pid for name, child in self._children.items()}

    async def start(self) -> None:
        """Starts all services; when that fails, `stop` ends those that did start.

        Raises:
            StartError: When a service does not come up.
        """
        for group in START_ORDER:
            await self._start_group(spec for spec in group if self._config.wiring.wanted(spec))

    async def stop(self) -> None:
        """Ends all services, in the order in which they depend on each other."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        for group in STOP_ORDER:
            children = [self._children.pop(spec.name, None) for spec in group]
            await asyncio.gather(
                *(child.end(self._config.grace_seconds) for child in children if child is not None)
            )

    def kill(self) -> None:
        """Ends all services at once, without any order."""
        for child in self._children.values():
            child.send(signal.SIGKILL)

    async def _start_group(self, specs: Iterable[ServiceSpec]) -> None:
        tasks = [asyncio.create_task(self._start(spec)) for spec in specs]
        try:
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def _start(self, spec: ServiceSpec) -> None:
        child = await self._launch(spec)
        self._keepers.append(asyncio.create_task(self._keep(spec, child)))

    async def _launch(self, spec: ServiceSpec) -> Child:
        config = self._config
        child = await Child.spawn(
            spec.name,
            config.command(spec),
            child_environment(
                spec,
                config.environ,
                defaults=config.wiring.defaults(spec),
                forced=config.wiring.forced(spec, self.running),
                gateway_names=config.gateway_names,
            ),
            config.logs_dir / f"{spec.name}.log",
        )
        self._children[spec.name] = child
        self.running[spec.name] = await child.wait_until_listening(config.start_seconds)
        return child

    async def _keep(self, spec: ServiceSpec, child: Child) -> None:
        for attempt in range(MAX_RESTARTS):
            await child.wait()
            self._down.add(spec.name)
            self.complete.clear()
            self._notify(
                f"{spec.name} {child.describe_end()}; starting it again "
                f"({attempt + 1} of {MAX_RESTARTS})"
            )
            await child.release()
            await asyncio.sleep(self._config.restart_pause_seconds * 2**attempt)
            try:
                child = await self._launch(spec)
            except StartError as error:
                self._notify(error.message)
                child = self._children[spec.name]
                await child.end(self._config.grace_seconds)
                continue
            self._down.discard(spec.name)
            if not self._down:
                self.complete.set()
            self._notify(f"{spec.name} listens again")
        await child.wait()
        self._notify(f"{spec.name} {child.describe_end()} once more and is given up")
        # Nobody need wait for it any more.
        self._down.discard(spec.name)
        if not self._down:
            self.complete.set()
        self.given_up.set()
