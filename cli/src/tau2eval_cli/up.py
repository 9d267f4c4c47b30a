"""`up`: all services on this machine until they are told to end."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tau2eval_cli.child import Addresses
from tau2eval_cli.environment import address_names, check_environment
from tau2eval_cli.errors import EXIT_DONE, EXIT_INTERRUPTED, Interrupted, NotValid, WrongUse
from tau2eval_cli.plan import make_folder
from tau2eval_cli.services import SERVICES
from tau2eval_cli.signals import two_step_end
from tau2eval_cli.supervisor import Supervisor, SupervisorConfig
from tau2eval_cli.wiring import Wiring


def default_ports() -> dict[tuple[str, str], int]:
    """Returns the documented port of every service, by service and setting."""
    ports = {(spec.name, "port"): spec.port for spec in SERVICES.values()}
    return ports | {
        (spec.name, "http_port"): spec.http_port for spec in SERVICES.values() if spec.http_port
    }


def env_lines(running: Mapping[str, Addresses]) -> list[str]:
    """Returns the addresses as lines of an environment file."""
    lines = []
    for spec in SERVICES.values():
        addresses = running.get(spec.name, Addresses())
        grpc_name, http_name = address_names(spec)
        if addresses.grpc:
            lines.append(f"{grpc_name}={addresses.grpc}")
        if addresses.http:
            lines.append(f"{http_name}={addresses.http}")
    return lines


class UpCommand:
    """One `tau2-eval up`.

    Args:
        output_dir: Where the scorer keeps runs; the logs go into its folder "logs".
        ports: Fixed ports by service and setting; free ones otherwise.
        env_file: File that the addresses are written to.
        as_json: Print the addresses as one line of JSON.
        gateway_names: Further environment variables that the gateway gets.
    """

    def __init__(
        self,
        output_dir: Path,
        ports: Mapping[tuple[str, str], int],
        *,
        env_file: Path | None = None,
        as_json: bool = False,
        gateway_names: Sequence[str] = (),
    ) -> None:
        self._output_dir = output_dir.absolute()
        self._ports = ports
        self._env_file = env_file
        self._as_json = as_json
        self._gateway_names = gateway_names
        self._console = Console(stderr=as_json)
        self._written = False

    def execute(self) -> int:
        """Stays until SIGINT or SIGTERM and returns the exit code.

        Raises:
            CommandError: When the services would not start, or one died for good.
        """
        from tau2eval_cli import catalog

        check_environment(os.environ)
        catalog.check_fixtures()
        make_folder(self._output_dir)
        if self._env_file is not None and not self._env_file.absolute().parent.is_dir():
            raise WrongUse(f"--env-file: there is no folder {self._env_file.absolute().parent}")
        try:
            asyncio.run(self._stay())
        except asyncio.CancelledError:
            raise Interrupted("interrupted while the services were starting") from None
        return EXIT_DONE

    async def _stay(self) -> None:
        supervisor = Supervisor(
            SupervisorConfig(
                wiring=Wiring(artifacts_dir=self._output_dir, ports=self._ports),
                logs_dir=self._output_dir / "logs",
                environ=os.environ,
                gateway_names=self._gateway_names,
            ),
            self._say,
        )
        ended = asyncio.Event()
        starting = asyncio.ensure_future(supervisor.start())

        def first() -> None:
            if starting.done():
                ended.set()
            else:
                starting.cancel()

        def second() -> None:
            supervisor.kill()
            os._exit(EXIT_INTERRUPTED)

        with two_step_end(first, second):
            try:
                await starting
                self._tell(supervisor)
                await _either(ended, supervisor.given_up)
                self._say("ending the services ...")
            finally:
                await supervisor.stop()
                if self._env_file is not None and self._written:
                    self._env_file.unlink(missing_ok=True)
        if supervisor.given_up.is_set():
            raise NotValid(f"a service died for good; the logs are in {self._output_dir / 'logs'}")

    def _tell(self, supervisor: Supervisor) -> None:
        running = supervisor.running
        if self._env_file is not None:
            self._env_file.write_text("\n".join(env_lines(running)) + "\n")
            self._written = True
        if self._as_json:
            line = {
                "event": "ready",
                "services": {
                    name: {
                        key: value
                        for key, value in (("grpc", found.grpc), ("http", found.http))
                        if value
                    }
                    | {"pid": supervisor.pids()[name]}
                    for name, found in running.items()
                },
                "output_dir": str(self._output_dir),
                "logs": str(self._output_dir / "logs"),
            }
            print(json.dumps(line), flush=True)
            return
        table = Table(box=None, pad_edge=False)
        for heading in ("service", "gRPC", "HTTP"):
            table.add_column(heading, no_wrap=True)
        for name in SERVICES:
            if name in running:
                table.add_row(name, running[name].grpc or "-", running[name].http or "-")
        self._console.print(table)
        self._say(f"artifacts: {self._output_dir}   logs: {self._output_dir / 'logs'}")
        bridge, scorer, gateway = (running[name].grpc for name in ("bridge", "scorer", "gateway"))
        self._say(
            f"in another terminal: tau2-eval run --domain tau2_airline --bridge-address {bridge} "
            f"--scorer-address {scorer} --gateway-address {gateway}"
        )
        self._say("Ctrl-C ends them")

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


async def _either(*events: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
