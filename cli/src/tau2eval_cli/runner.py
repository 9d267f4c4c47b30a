"""Holds the scenarios of a run, several at a time, and loses none of them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

import grpc

from tau2eval.bridge.v1 import bridge_pb2, bridge_pb2_grpc
from tau2eval.scorer.v1 import record_pb2, scorer_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_cli import words
from tau2eval_cli.calls import BridgeUnreachable, CallBroken, CallLimits, CapacityBusy, hold_call
from tau2eval_cli.plan import RunOptions
from tau2eval_cli.results import RunResult, ScenarioResult
from tau2eval_cli.scorer_client import Attempt, ScorerClient, ScorerUnusable


class Progress(Protocol):
    """Is told how a run goes."""

    def waiting(self, scenario: str, why: str) -> None:
        """A call cannot begin yet."""

    def event(self, scenario: str, event: bridge_pb2.ScenarioEvent) -> None:
        """Something happened in a call."""

    def done(self, result: ScenarioResult) -> None:
        """A scenario has its result."""

    def notice(self, text: str) -> None:
        """Something that a person should know."""


@dataclass(frozen=True)
class Patience:
    """Bounds of the waits of a run, in seconds.

    Attributes:
        capacity: For a free call; longer than the longest calls of others.
        reach: For a bridge that cannot be reached, a restart included.
        settle: For the record of a call that was cancelled.
        first_pause: Before the first new try; doubled up to `longest_pause`.
        longest_pause: Between two tries.
        limits: Of one call.
    """

    capacity: float = 3600.0
    reach: float = 60.0
    settle: float = 30.0
    first_pause: float = 0.5
    longest_pause: float = 10.0
    limits: CallLimits = field(default_factory=CallLimits)


class Runner:
    """One run over a bridge and a scorer that are there.

    Attributes:
        interrupted: Whether `interrupt` was called.
    """

    def __init__(
        self,
        run_id: str,
        options: RunOptions,
        bridge: grpc.aio.Channel,
        scorer: ScorerClient,
        progress: Progress,
        patience: Patience | None = None,
        complete: asyncio.Event | None = None,
    ) -> None:
        self.interrupted = False
        self._run_id = run_id
        self._options = options
        self._bridge = bridge_pb2_grpc.BridgeServiceStub(bridge)
        self._scorer = scorer
        self._progress = progress
        self._patience = patience or Patience()
        self._complete = complete
        self._stop = asyncio.Event()
        self._problems: list[str] = []
        # Of all calls together: a bridge that is gone is waited for once, not once a scenario.
        self._unreachable_since: float | None = None
        self._output_dir = options.output_dir / run_id

    def interrupt(self) -> None:
        """Ends the calls in order and begins no other."""
        self.interrupted = True
        self._stop.set()

    async def run(self, scenarios: list[str]) -> RunResult:
        """Creates the run, holds the scenarios, finishes the run.

        Raises:
            ScorerUnusable: When the run cannot be created.
        """
        await self._scorer.create_run(self._run_id, scenarios, self._options.settings())
        queue = deque(scenarios)
        results: dict[str, ScenarioResult] = {}

        async def work() -> None:
            while queue and not self._stop.is_set():
                name = queue.popleft()
                result = await self._scenario(name)
                if result is not None:
                    results[name] = result
                    self._progress.done(result)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._options.parallel, len(scenarios))):
                group.create_task(work())
        summary_text = await self._finish()
        return RunResult(
            run_id=self._run_id,
            output_dir=self._output_dir,
            scenarios=[results[name] for name in scenarios if name in results],
            not_started=[name for name in scenarios if name not in results],
            interrupted=self.interrupted,
            summary_text=summary_text,
            problems=self._problems,
        )

    async def _scenario(self, name: str) -> ScenarioResult | None:
        """Returns the result of a scenario; None when it was not begun before an interrupt."""
        attempt = Attempt(
            run_id=self._run_id,
            scenario=name,
            attempt_id=uuid.uuid4().hex,
            modality=words.modality(self._options.modality),
            min_agent_turns=self._options.min_agent_turns,
            settings=self._options.settings(),
        )
        call = _Call(attempt)
        holding = asyncio.create_task(self._hold(call))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({holding, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not holding.done():
                holding.cancel()
            (outcome,) = await asyncio.gather(holding, return_exceptions=True)
        finally:
            stopping.cancel()
            holding.cancel()
        if isinstance(outcome, scorer_pb2.Verdict):
            result = ScenarioResult(outcome)
        elif isinstance(outcome, CallBroken):
            result = await self._not_run(
                attempt, record_pb2.STOP_REASON_HARNESS_ERROR, str(outcome)
            )
        elif isinstance(outcome, asyncio.CancelledError):
            if not call.begun and not call.asked:
                return None
            cancelled = await self._cancelled(call)
            if cancelled is None:
                return None
            result = cancelled
        else:
            assert isinstance(outcome, BaseException)
            raise outcome
        if not self._options.embedded and result.stored:
            await self._download(name)
        return result

    async def _hold(self, call: _Call) -> scorer_pb2.Verdict:
        """Holds a call, with new tries as long as nothing was started.

        Raises:
            CallBroken: When it cannot be held.
        """
        patience = self._patience
        loop = asyncio.get_running_loop()
        first = loop.time()
        pause = patience.first_pause
        name = call.attempt.scenario

        def on_event(event: bridge_pb2.ScenarioEvent) -> None:
            call.begun = True
            self._unreachable_since = None
            self._progress.event(name, event)

        while True:
            await self._all_services(name)
            call.asked = True
            try:
                return await hold_call(
                    self._bridge, self._request(call.attempt), on_event, patience.limits
                )
            except CapacityBusy as error:
                self._unreachable_since = None
                if loop.time() - first > patience.capacity:
                    raise CallBroken(
                        f"no free call within {patience.capacity:g} s ({error})"
                    ) from error
                self._progress.waiting(name, f"no free call: {error}")
            except BridgeUnreachable as error:
                if self._unreachable_since is None:
                    self._unreachable_since = loop.time()
                if loop.time() - self._unreachable_since > patience.reach:
                    raise CallBroken(
                        f"the bridge could not be reached within {patience.reach:g} s ({error})"
                    ) from error
                self._progress.waiting(name, f"the bridge cannot be reached: {error}")
            call.asked = False
            # Spread, so that parallel runs do not knock together.
            await asyncio.sleep(pause * random.uniform(0.75, 1.25))  # noqa: S311 no secret
            pause = min(2 * pause, patience.longest_pause)

    async def _all_services(self, name: str) -> None:
        """Waits, within bounds, until no service of ours is being started again.

        A call that begins while the gateway is away, say, would be lost for nothing.
        """
        if self._complete is None or self._complete.is_set():
            return
        self._progress.waiting(name, "a service is being started again")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._complete.wait(), self._patience.reach)

    async def _cancelled(self, call: _Call) -> ScenarioResult | None:
        """Waits for the bridge's record of a cancelled call; makes one if none comes.

        Returns:
            None when it turns out that the call had not begun.
        """
        attempt = call.attempt
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience.settle
        while loop.time() < deadline:
            verdict = await self._scorer.verdict_of(attempt)
            if verdict is not None:
                return ScenarioResult(verdict)
            await asyncio.sleep(0.25)
        if not call.begun:
            return None
        return await self._not_run(
            attempt, record_pb2.STOP_REASON_CANCELLED, "the run was interrupted"
        )

    async def _not_run(
        self, attempt: Attempt, reason: record_pb2.StopReason.ValueType, detail: str
    ) -> ScenarioResult:
        try:
            return ScenarioResult(await self._scorer.submit_not_run(attempt, reason, detail))
        except ScorerUnusable as error:
            self._problem(f"{attempt.scenario} is not in the run's store: {error.message}")
        verdict = scorer_pb2.Verdict(
            run_id=attempt.run_id,
            scenario=attempt.scenario,
            attempt_id=attempt.attempt_id,
            outcome=scorer_pb2.OUTCOME_NOT_RUN,
            not_run_kind=words.stop_reason(reason),
            stop_reason=reason,
            explanation=detail,
        )
        return ScenarioResult(verdict, stored=False)

    async def _finish(self) -> str:
        try:
            response = await self._scorer.finish_run(self._run_id)
        except ScorerUnusable as error:
            self._problem(error.message)
            return ""
        if not self._options.embedded:
            await self._download("")
        return response.summary_text

    async def _download(self, scenario: str) -> None:
        try:
            await self._scorer.download(self._run_id, scenario, self._output_dir)
        except (ScorerUnusable, OSError) as error:
            self._problem(f"artifacts of {scenario or 'the run'} were not fetched: {error}")

    def _problem(self, text: str) -> None:
        self._problems.append(text)
        self._progress.notice(text)

    def _request(self, attempt: Attempt) -> bridge_pb2.RunScenarioRequest:
        options = self._options
        return bridge_pb2.RunScenarioRequest(
            run_id=attempt.run_id,
            scenario=attempt.scenario,
            attempt_id=attempt.attempt_id,
            agent_model=voice_pb2.ModelConfig(
                model=options.agent_model, parameters_json=options.agent_params
            ),
            user_model=voice_pb2.ModelConfig(
                model=options.user_model, parameters_json=options.user_params
            ),
            modality=attempt.modality,
            max_duration_seconds=options.duration,
            min_agent_turns=options.min_agent_turns,
            agent_address=options.agent_url,
            user_address=options.user_url,
            recording_sample_rate_hz=options.output_sample_rate,
        )


@dataclass
class _Call:
    """A call as it goes.

    Attributes:
        attempt: What it is an attempt at.
        asked: Whether the bridge was asked and has not answered with a refusal.
        begun: Whether the bridge has said anything.
    """

    attempt: Attempt
    asked: bool = False
    begun: bool = False
