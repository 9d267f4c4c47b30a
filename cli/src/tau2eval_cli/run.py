"""`run`: services if need be, the scenarios, the summary."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import NoReturn

from rich.console import Console

from tau2eval_cli.environment import check_environment
from tau2eval_cli.errors import EXIT_INTERRUPTED, Interrupted
from tau2eval_cli.plan import RunOptions, choose_scenarios, make_folder, new_run_id
from tau2eval_cli.preflight import ModelUse, check_models, check_targets
from tau2eval_cli.progress import make_progress
from tau2eval_cli.report import print_summary
from tau2eval_cli.results import RunResult
from tau2eval_cli.runner import Patience, Runner
from tau2eval_cli.scorer_client import ScorerClient
from tau2eval_cli.services import BRIDGE, GATEWAY, SCORER
from tau2eval_cli.signals import two_step_end
from tau2eval_cli.supervisor import Supervisor, SupervisorConfig
from tau2eval_cli.wiring import Wiring
from tau2eval_common.client import open_channel

LEAST_SESSIONS = 8
_PIPE_WIDTH = 140


def make_console(stderr: bool) -> Console:
    """Returns a console that is as wide as the terminal, and wide enough without one."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=_PIPE_WIDTH)


class RunCommand:
    """One `tau2-eval run`, from its options to its exit code.

    Args:
        options: Settings of the run.
        names: Scenarios by name.
        domain: Or all scenarios of a domain.
        as_json: Print the result as JSON on standard output, and all else on standard error.
        gateway_names: Further environment variables that the gateway gets.
        preflight: Check the models before the first call, where the gateway is known.
        patience: Bounds of the waits.
    """

    def __init__(
        self,
        options: RunOptions,
        names: Sequence[str],
        domain: str,
        *,
        as_json: bool = False,
        gateway_names: Sequence[str] = (),
        preflight: bool = True,
        patience: Patience | None = None,
    ) -> None:
        self._options = options
        self._names = names
        self._domain = domain
        self._as_json = as_json
        self._gateway_names = gateway_names
        self._preflight = preflight
        self._patience = patience
        self._console = make_console(as_json)
        self._supervisor: Supervisor | None = None
        self._runner: Runner | None = None
        self._stopping = False

    def execute(self) -> int:
        """Runs it and returns the exit code.

        Raises:
            CommandError: For wrong use, and when there is no result.
        """
        self._options.check()
        scenarios: list[str] = []
        if self._options.embedded:
            from tau2eval_cli import catalog

            check_environment(os.environ)
            scenarios = choose_scenarios(catalog.known_scenarios(), self._names, self._domain)
            catalog.check_fixtures()
        elif bool(self._names) == bool(self._domain):
            choose_scenarios([], self._names, self._domain)
        make_folder(self._options.output_dir)
        if repeated := [name for name, count in Counter(self._names).items() if count > 1]:
            print(f"note: named twice, held once: {', '.join(repeated)}", file=sys.stderr)
        try:
            result = asyncio.run(self._interruptible(scenarios))
        except asyncio.CancelledError:
            raise Interrupted("interrupted before any call began") from None
        print_summary(self._console, result)
        if self._as_json:
            print(json.dumps(result.to_json(), indent=2, ensure_ascii=False), flush=True)
        return result.exit_code

    async def _interruptible(self, scenarios: list[str]) -> RunResult:
        task = asyncio.ensure_future(self._run(scenarios))

        def first() -> None:
            if self._runner is not None and not self._stopping:
                self._say("interrupted: ending the calls in order; once more to end at once")
                self._runner.interrupt()
            elif not self._stopping:
                task.cancel()

        with two_step_end(first, self._end_at_once):
            return await task

    async def _run(self, scenarios: list[str]) -> RunResult:
        options = self._options
        run_id = new_run_id(datetime.now().astimezone())
        await check_targets(self._targets())
        async with contextlib.AsyncExitStack() as stack:
            bridge_address, scorer_address = options.bridge_address, options.scorer_address
            if options.embedded:
                self._say("starting the services ...")
                supervisor = Supervisor(self._supervision(run_id), self._say)
                self._supervisor = supervisor
                await stack.enter_async_context(supervisor)
                bridge_address = supervisor.running[BRIDGE.name].grpc
                scorer_address = supervisor.running[SCORER.name].grpc
            scorer = await stack.enter_async_context(ScorerClient(scorer_address))
            if not options.embedded:
                known = await scorer.scenario_names()
                scenarios = choose_scenarios(known, self._names, self._domain)
            gateway_address = options.gateway_address
            if self._supervisor is not None:
                gateway_address = self._supervisor.running[GATEWAY.name].grpc
            if self._preflight and gateway_address:
                await self._check_models(gateway_address, run_id)
            bridge = await stack.enter_async_context(open_channel(bridge_address))
            self._say(f"run {run_id}: {len(scenarios)} scenarios, {options.parallel} at a time")
            with make_progress(self._console, len(scenarios), options.parallel) as progress:
                complete = self._supervisor.complete if self._supervisor is not None else None
                runner = Runner(run_id, options, bridge, scorer, progress, self._patience, complete)
                self._runner = runner
                result = await runner.run(scenarios)
            self._stopping = True
            return result

    def _targets(self) -> dict[str, str]:
        """Returns what must listen first, by flag. A bridge elsewhere reaches bots itself."""
        options = self._options
        if options.embedded:
            return {"--agent-url": options.agent_url, "--user-url": options.user_url}
        return {
            "--bridge-address": options.bridge_address,
            "--scorer-address": options.scorer_address,
            "--gateway-address": options.gateway_address if self._preflight else "",
        }

    async def _check_models(self, gateway_address: str, run_id: str) -> None:
        """Asks the gateway for the models of our own bots.

        Raises:
            WrongUse: When one cannot be used.
        """
        options = self._options
        uses = []
        if not options.agent_url:
            uses.append(ModelUse("agent", options.agent_model, options.agent_params))
        if not options.user_url:
            uses.append(ModelUse("user", options.user_model, options.user_params))
        async with open_channel(gateway_address) as channel:
            for fault in await check_models(channel, run_id, uses):
                self._say(fault)

    def _supervision(self, run_id: str) -> SupervisorConfig:
        options = self._options
        return SupervisorConfig(
            wiring=Wiring(
                artifacts_dir=options.output_dir.absolute(),
                agent_address=options.agent_url,
                user_address=options.user_url,
                sessions=max(LEAST_SESSIONS, options.parallel),
                speech=options.modality == "voice",
            ),
            logs_dir=options.output_dir.absolute() / run_id / "logs",
            environ=os.environ,
            gateway_names=self._gateway_names,
        )

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _end_at_once(self) -> NoReturn:
        if self._supervisor is not None:
            self._supervisor.kill()
        with contextlib.suppress(Exception):
            self._console.show_cursor(True)
        os._exit(EXIT_INTERRUPTED)
