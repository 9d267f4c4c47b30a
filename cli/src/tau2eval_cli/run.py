"""`run`: services if need be, the trials, the summary."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from tau2eval.scorer.v1 import scorer_pb2
from tau2eval_cli import fingerprint
from tau2eval_cli.environment import check_environment, keeps_artifacts_elsewhere
from tau2eval_cli.errors import EXIT_DONE, EXIT_INTERRUPTED, Interrupted, WrongUse
from tau2eval_cli.gates import Gates
from tau2eval_cli.holding import Patience
from tau2eval_cli.judging import (
    NL_ASSERTION,
    JudgeFlags,
    check_judge,
)
from tau2eval_cli.kept import SpoolFolder
from tau2eval_cli.plan import (
    RunOptions,
    check_run_id,
    choose_scenarios,
    locate_run,
    make_folder,
    new_run_id,
)
from tau2eval_cli.preflight import ModelUse, check_models, check_targets
from tau2eval_cli.progress import make_progress
from tau2eval_cli.results import RunResult
from tau2eval_cli.resume import (
    JUDGE_OFF,
    KEEP,
    Preview,
    check_judge_kept,
    options_of,
    settings_of,
)
from tau2eval_cli.runner import Runner, RunPlace
from tau2eval_cli.scorer_client import ScorerClient
from tau2eval_cli.services import BRIDGE, GATEWAY, SCORER
from tau2eval_cli.session import ScorerTarget, make_console, open_session
from tau2eval_cli.signals import two_step_end
from tau2eval_cli.summary import print_summary
from tau2eval_cli.supervisor import Supervisor, SupervisorConfig
from tau2eval_cli.trials import Trial, Work, in_order
from tau2eval_cli.wiring import Wiring
from tau2eval_common.client import open_channel

LEAST_SESSIONS = 8
SPOOL = ".bridge"


@dataclass(frozen=True)
class RunRequest:
    """What a person asks `run` for.

    Attributes:
        options: Settings of the run.
        names: Scenarios by name.
        domain: Or all scenarios of a domain.
        run_id: Id of a new run; empty makes one.
        resume: Id or folder of a run to go on with; empty begins one.
        allow_mixed: Go on with other settings than the run began with.
        preview: Only say what a resumption would do.
        judge: Flags of the judge.
        gates: What the result is held to.
        explicit: Names of the options that were given, not left at their defaults.
        as_json: Print the result as JSON on standard output, and all else on standard error.
        gateway_names: Further environment variables that the gateway gets.
        preflight: Check the models before the first call, where the gateway is known.
    """

    options: RunOptions
    names: Sequence[str] = ()
    domain: str = ""
    run_id: str = ""
    resume: str = ""
    allow_mixed: bool = False
    preview: bool = False
    judge: JudgeFlags = field(default_factory=JudgeFlags)
    gates: Gates = field(default_factory=Gates)
    explicit: frozenset[str] = frozenset()
    as_json: bool = False
    gateway_names: Sequence[str] = ()
    preflight: bool = True

    def check(self) -> None:
        """Refuses what cannot work.

        Raises:
            WrongUse: With what to do instead.
        """
        self.options.check()
        self.judge.check()
        if self.resume:
            for flag, given in (
                ("--scenarios", bool(self.names)),
                ("--domain", bool(self.domain)),
                ("--trials", "trials" in self.explicit),
                ("--run-id", bool(self.run_id)),
            ):
                if given:
                    raise WrongUse(
                        f"--resume goes on with the plan of a run; leave {flag} out, or start "
                        "another run"
                    )
            return
        for flag, given in (("--preview", self.preview), ("--allow-mixed", self.allow_mixed)):
            if given:
                raise WrongUse(f"{flag} belongs to --resume ID")
        if self.run_id:
            check_run_id(self.run_id)
        self.judge.for_run(self.options)

    @property
    def target(self) -> ScorerTarget:
        """The scorer that has the run."""
        return ScorerTarget(self.options.output_dir, self.options.scorer_address)


class RunCommand:
    """One `tau2-eval run`, from its request to its exit code.

    Args:
        request: What is asked for.
        patience: Bounds of the waits.
    """

    def __init__(self, request: RunRequest, *, patience: Patience | None = None) -> None:
        if request.resume:
            run_id, folder = locate_run(request.resume, request.options.output_dir)
            request = replace(
                request, resume=run_id, options=replace(request.options, output_dir=folder)
            )
        self._request = request
        self._options = request.options
        self._patience = patience
        self._console = make_console(request.as_json)
        self._run_id = request.resume or request.run_id
        self._supervisor: Supervisor | None = None
        self._runner: Runner | None = None
        self._planned: list[Trial] = []
        self._stopping = False

    def execute(self) -> int:
        """Runs it and returns the exit code.

        Raises:
            CommandError: For wrong use, and when there is no result.
        """
        request, options = self._request, self._options
        request.check()
        scenarios: list[str] = []
        if options.embedded:
            from tau2eval_cli import catalog

            check_environment(os.environ)
            if not request.resume:
                known = catalog.known_scenarios()
                scenarios = choose_scenarios(known, request.names, request.domain)
            catalog.check_fixtures()
        elif not request.resume and bool(request.names) == bool(request.domain):
            choose_scenarios([], request.names, request.domain)
        if request.resume:
            request.target.check()
        make_folder(options.output_dir)
        if repeated := [name for name, count in Counter(request.names).items() if count > 1]:
            print(f"note: named twice, held once: {', '.join(repeated)}", file=sys.stderr)
        if not self._run_id:
            self._run_id = new_run_id(datetime.now().astimezone())
        self._planned = in_order(scenarios, options.trials)
        try:
            result = asyncio.run(self._interruptible(scenarios))
        except asyncio.CancelledError:
            self._print_partial()
            raise Interrupted("interrupted before any call began") from None
        if result is None:
            return EXIT_DONE
        print_summary(self._console, result)
        if request.as_json:
            self._print_json(result.to_json())
        return result.exit_code

    async def _interruptible(self, scenarios: list[str]) -> RunResult | None:
        task = asyncio.ensure_future(self._begin(scenarios))

        def first() -> None:
            if self._runner is not None and not self._stopping:
                self._say("interrupted: ending the calls in order; once more to end at once")
                self._runner.interrupt()
            elif not self._stopping:
                task.cancel()

        with two_step_end(first, self._end_at_once):
            return await task

    async def _begin(self, scenarios: list[str]) -> RunResult | None:
        # The first line, whatever follows: a script can resume what it began.
        self._say(f"run {self._run_id}")
        await check_targets(self._targets())
        if self._request.resume:
            return await self._resume()
        return await self._start(scenarios)

    async def _start(self, scenarios: list[str]) -> RunResult:
        options, request = self._options, self._request
        async with contextlib.AsyncExitStack() as stack:
            scorer, bridge_address, gateway_address = await self._services(stack, options)
            if not options.embedded:
                known = await scorer.scenario_names()
                scenarios = choose_scenarios(known, request.names, request.domain)
                self._planned = in_order(scenarios, options.trials)
            judge = request.judge.for_run(options)
            await self._warn_of_judge(scorer, scenarios, judge)
            if await scorer.find_run(self._run_id) is not None:
                raise WrongUse(
                    f"there is a run {self._run_id} already; `tau2-eval run --resume "
                    f"{self._run_id}` goes on with it"
                )
            await self._check_models(gateway_address, options, judge)
            settings = {**options.settings(), **self._surroundings()}
            plan = scorer_pb2.RunPlan(
                run_id=self._run_id,
                scenarios=scenarios,
                trials=options.trials,
                settings_json=json.dumps(settings, sort_keys=True),
                judge=judge if judge.model else None,
            )
            await scorer.create_run(plan)
            calls = len(self._planned)
            self._say(
                f"run {self._run_id}: {calls} calls, {options.parallel} at a time, "
                f"judge {judge.model or 'off'}"
            )
            place = RunPlace(
                plan=plan,
                folder=options.output_dir / self._run_id,
                work=[Work(trial) for trial in self._planned],
                local=self._local,
                gates=request.gates,
                records=self._records(scorer),
                settings=settings,
            )
            return await self._work(place, options, bridge_address, scorer)

    async def _resume(self) -> RunResult | None:
        request, run_id = self._request, self._run_id
        async with open_session(request.target, self._say, started=self._note) as session:
            run = await session.scorer.run(run_id)
            options = options_of(run.plan, self._options, request.explicit)
            options.check()
            self._planned = in_order(run.plan.scenarios, run.plan.trials)
            settings = settings_of(run.plan, options, self._surroundings())
            settings_json = json.dumps(settings, sort_keys=True)
            check_judge_kept(run_id, run.plan, request.judge)
            response = await session.scorer.resume(run_id, settings_json, preview=True)
            preview = Preview.of(response)
            if request.preview:
                if request.as_json:
                    self._print_json(preview.to_json())
                else:
                    preview.print(self._console)
                return None
            preview.check(request.allow_mixed)
            check_judge(run.plan.judge.model, options.agent_model, options.agent_url)
            self._tell(preview)
            if not preview.work():
                # Nothing is held, so nothing more has to be started.
                place = self._place(run, preview, options, settings, session.scorer, [])
                return await self._work(place, options, "127.0.0.1:1", session.scorer)
        async with contextlib.AsyncExitStack() as stack:
            scorer, bridge_address, gateway_address = await self._services(stack, options)
            await self._check_models(gateway_address, options, run.plan.judge)
            response = await scorer.resume(run_id, settings_json, allow_mixed=request.allow_mixed)
            preview = Preview.of(response)
            run = await scorer.run(run_id)
            place = self._place(run, preview, options, settings, scorer, preview.work())
            return await self._work(place, options, bridge_address, scorer)

    def _place(
        self,
        run: scorer_pb2.GetRunResponse,
        preview: Preview,
        options: RunOptions,
        settings: Mapping[str, Any],
        scorer: ScorerClient,
        work: Sequence[Work],
    ) -> RunPlace:
        stands = set(preview.those(KEEP, JUDGE_OFF))
        return RunPlace(
            plan=run.plan,
            folder=options.output_dir / self._run_id,
            work=work,
            kept=[verdict for verdict in run.verdicts if Trial.of(verdict) in stands],
            mixed_settings_json=json.dumps(settings, sort_keys=True) if preview.changes else "",
            resumed=True,
            local=self._local,
            gates=self._request.gates,
            records=self._records(scorer),
            settings=settings,
        )

    async def _services(
        self, stack: contextlib.AsyncExitStack, options: RunOptions
    ) -> tuple[ScorerClient, str, str]:
        """Starts the services if need be; returns scorer, bridge's and gateway's address."""
        bridge, scorer = options.bridge_address, options.scorer_address
        gateway = options.gateway_address
        if options.embedded:
            self._say("starting the services ...")
            supervisor = Supervisor(self._supervision(options), self._say)
            self._note(supervisor)
            await stack.enter_async_context(supervisor)
            bridge = supervisor.running[BRIDGE.name].grpc
            scorer = supervisor.running[SCORER.name].grpc
            gateway = supervisor.running[GATEWAY.name].grpc
        return await stack.enter_async_context(ScorerClient(scorer)), bridge, gateway

    async def _work(
        self, place: RunPlace, options: RunOptions, bridge_address: str, scorer: ScorerClient
    ) -> RunResult:
        total = len(place.work)
        complete = self._supervisor.complete if self._supervisor is not None else None
        async with open_channel(bridge_address) as bridge:
            with make_progress(self._console, total, options.parallel) as progress:
                runner = Runner(place, options, bridge, scorer, progress, self._patience, complete)
                self._runner = runner
                result = await runner.run()
        self._stopping = True
        return result

    def _tell(self, preview: Preview) -> None:
        for line in (preview.line(), preview.judge_line(), *preview.change_lines()):
            if line:
                self._say(line)

    def _targets(self) -> dict[str, str]:
        """Returns what must listen first, by flag. A bridge elsewhere reaches bots itself."""
        options = self._options
        if options.embedded:
            return {"--agent-url": options.agent_url, "--user-url": options.user_url}
        return {
            "--bridge-address": options.bridge_address,
            "--scorer-address": options.scorer_address,
            "--gateway-address": options.gateway_address if self._request.preflight else "",
        }

    async def _warn_of_judge(
        self, scorer: ScorerClient, scenarios: list[str], judge: scorer_pb2.JudgeConfig
    ) -> None:
        """Tells which scenarios cannot pass without a judge, when there is none."""
        if judge.model:
            return
        if self._options.embedded:
            from tau2eval_cli import catalog

            signals = catalog.success_signals(scenarios)
        else:
            signals = await scorer.success_signals(scenarios)
        waiting = [name for name in scenarios if NL_ASSERTION in signals[name]]
        if waiting:
            self._say(
                f"warning: the judge is off, and {len(waiting)} of {len(scenarios)} scenarios need "
                f"one; they will be not run (judge_off) until `tau2-eval score {self._run_id} "
                f"--judge-model MODEL` judges them: {', '.join(waiting)}"
            )

    async def _check_models(
        self, gateway_address: str, options: RunOptions, judge: scorer_pb2.JudgeConfig
    ) -> None:
        """Asks the gateway for the models of our own bots and the judge's.

        Raises:
            WrongUse: When one cannot be used.
        """
        if not self._request.preflight or not gateway_address:
            return
        uses = []
        if not options.agent_url:
            uses.append(ModelUse("agent", options.agent_model, options.agent_params))
        if not options.user_url:
            uses.append(ModelUse("user", options.user_model, options.user_params))
        if judge.model:
            uses.append(ModelUse("judge", judge.model, judge.parameters_json))
        async with open_channel(gateway_address) as channel:
            for fault in await check_models(channel, self._run_id, uses):
                self._say(fault)

    @property
    def _local(self) -> bool:
        return self._options.embedded and not keeps_artifacts_elsewhere(os.environ)

    def _surroundings(self) -> dict[str, Any]:
        """Returns what of this machine can change a result; empty where services are elsewhere."""
        if not self._options.embedded:
            return {}
        return {
            "services": fingerprint.service_settings(os.environ),
            "versions": fingerprint.versions(),
        }

    def _records(self, scorer: ScorerClient) -> SpoolFolder | None:
        if not self._options.embedded:
            return None
        given = os.environ.get(BRIDGE.key("spool_dir"))
        folder = Path(given) if given else self._options.output_dir.absolute() / SPOOL
        return SpoolFolder(folder, self._run_id, scorer.address, os.environ, self._say)

    def _supervision(self, options: RunOptions) -> SupervisorConfig:
        return SupervisorConfig(
            wiring=Wiring(
                artifacts_dir=options.output_dir.absolute(),
                agent_address=options.agent_url,
                user_address=options.user_url,
                sessions=max(LEAST_SESSIONS, options.parallel),
                speech=options.modality == "voice",
            ),
            logs_dir=options.output_dir.absolute() / self._run_id / "logs",
            environ=os.environ,
            gateway_names=self._request.gateway_names,
        )

    def _note(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        self._console.file.flush()

    def _print_json(self, value: object) -> None:
        print(json.dumps(value, indent=2, ensure_ascii=False), flush=True)

    def _print_partial(self) -> None:
        """Prints as JSON what is known, when the command ends without a whole result."""
        if not self._request.as_json or self._request.preview:
            return
        if self._runner is not None:
            self._print_json(self._runner.result().to_json())
            return
        nothing = RunResult(
            run_id=self._run_id,
            output_dir=self._options.output_dir / self._run_id,
            trials=[],
            planned=self._options.trials,
            not_started=self._planned,
            interrupted=True,
            resumed=bool(self._request.resume),
        )
        self._print_json(nothing.to_json())

    def _end_at_once(self) -> NoReturn:
        if self._supervisor is not None:
            self._supervisor.kill()
        with contextlib.suppress(Exception):
            self._console.show_cursor(True)
        with contextlib.suppress(Exception):
            self._print_partial()
        os._exit(EXIT_INTERRUPTED)
