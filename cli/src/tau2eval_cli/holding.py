"""Holds one call, with new tries as long as nothing was started."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import grpc

from tau2eval.bridge.v1 import bridge_pb2, bridge_pb2_grpc
from tau2eval.scorer.v1 import scorer_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_cli.calls import BridgeUnreachable, CallBroken, CallLimits, CapacityBusy, hold_call
from tau2eval_cli.claims import Leases
from tau2eval_cli.plan import RunOptions
from tau2eval_cli.records import Attempt


@dataclass(frozen=True)
class Patience:
    """Bounds of the waits of a run, in seconds.

    Attributes:
        capacity: For a free call; longer than the longest calls of others.
        reach: For a bridge or a scorer that cannot be reached, a restart included.
        settle: For the record of a call that was cancelled.
        others: For a trial that other runners hold: a call, its scoring, and their patience.
        look: Between two looks at such a trial.
        first_pause: Before the first new try; doubled up to `longest_pause`.
        longest_pause: Between two tries.
        judge: For the next conversation that is judged again.
        limits: Of one call.
        leases: Of claims.
    """

    capacity: float = 3600.0
    reach: float = 60.0
    settle: float = 30.0
    others: float = 7200.0
    look: float = 2.0
    first_pause: float = 0.5
    longest_pause: float = 10.0
    judge: float = 1800.0
    limits: CallLimits = field(default_factory=CallLimits)
    leases: Leases = field(default_factory=Leases)


@dataclass
class Call:
    """A call as it goes.

    Attributes:
        attempt: What it is an attempt at.
        asked: Whether the bridge was asked and has not answered with a refusal.
        begun: Whether the bridge has said anything.
    """

    attempt: Attempt
    asked: bool = False
    begun: bool = False


class CallHolder:
    """Holds calls at one bridge.

    Args:
        options: Settings of the calls.
        bridge: Channel to the bridge.
        patience: Bounds of the waits.
        complete: Set while no service of ours is being started again; None when none is ours.
        waiting: Told of an attempt that cannot begin, and why.
        on_event: Told of every event of a call.
    """

    def __init__(
        self,
        options: RunOptions,
        bridge: grpc.aio.Channel,
        patience: Patience,
        complete: asyncio.Event | None,
        waiting: Callable[[Attempt, str], None],
        on_event: Callable[[Attempt, bridge_pb2.ScenarioEvent], None],
    ) -> None:
        self._options = options
        self._bridge = bridge_pb2_grpc.BridgeServiceStub(bridge)
        self._patience = patience
        self._complete = complete
        self._waiting = waiting
        self._on_event = on_event
        # Of all calls together: a bridge that is gone is waited for once, not once a trial.
        self._unreachable_since: float | None = None

    async def hold(self, call: Call) -> scorer_pb2.Verdict:
        """Holds a call and returns its verdict.

        Raises:
            CallBroken: When it cannot be held.
        """
        patience = self._patience
        loop = asyncio.get_running_loop()
        first = loop.time()
        pause = patience.first_pause
        attempt = call.attempt

        def on_event(event: bridge_pb2.ScenarioEvent) -> None:
            call.begun = True
            self._unreachable_since = None
            self._on_event(attempt, event)

        while True:
            await self._all_services(attempt)
            call.asked = True
            try:
                return await hold_call(
                    self._bridge, self._request(attempt), on_event, patience.limits
                )
            except CapacityBusy as error:
                self._unreachable_since = None
                if loop.time() - first > patience.capacity:
                    raise CallBroken(
                        f"no free call within {patience.capacity:g} s ({error})"
                    ) from error
                self._waiting(attempt, f"no free call: {error}")
            except BridgeUnreachable as error:
                if self._unreachable_since is None:
                    self._unreachable_since = loop.time()
                if loop.time() - self._unreachable_since > patience.reach:
                    raise CallBroken(
                        f"the bridge could not be reached within {patience.reach:g} s ({error})"
                    ) from error
                self._waiting(attempt, f"the bridge cannot be reached: {error}")
            call.asked = False
            # Spread, so that parallel runs do not knock together.
            await asyncio.sleep(pause * random.uniform(0.75, 1.25))  # noqa: S311 no secret
            pause = min(2 * pause, patience.longest_pause)

    async def _all_services(self, attempt: Attempt) -> None:
        """Waits, within bounds, until no service of ours is being started again.

        A call that begins while the gateway is away, say, would be lost for nothing.
        """
        if self._complete is None or self._complete.is_set():
            return
        self._waiting(attempt, "a service is being started again")
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._complete.wait(), self._patience.reach)

    def _request(self, attempt: Attempt) -> bridge_pb2.RunScenarioRequest:
        options = self._options
        return bridge_pb2.RunScenarioRequest(
            run_id=attempt.run_id,
            scenario=attempt.trial.scenario,
            trial=attempt.trial.number,
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
