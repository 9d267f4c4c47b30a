"""One call to the bridge: hold a scenario and follow it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc

from tau2eval.bridge.v1 import bridge_pb2, bridge_pb2_grpc
from tau2eval.scorer.v1 import scorer_pb2

SILENCE_SECONDS = 120.0
"""The bridge sends something every few seconds; after this long without, the call is lost."""

EXTRA_SECONDS = 600.0
"""What scoring may take, and what a call's media time may lag behind the wall clock at least."""


class CapacityBusy(Exception):
    """No free call at the bridge or in a bot; nothing was started."""


class BridgeUnreachable(Exception):
    """The call did not reach the bridge; nothing was started."""


class CallBroken(Exception):
    """The call was refused, or the bridge was lost in the middle of it."""


@dataclass(frozen=True)
class CallLimits:
    """Bounds of the waits for the bridge, in seconds of the wall clock.

    Attributes:
        silence: Between two events.
        extra: Beyond twice the call's own ceiling, for the whole call.
    """

    silence: float = SILENCE_SECONDS
    extra: float = EXTRA_SECONDS


async def hold_call(
    bridge: bridge_pb2_grpc.BridgeServiceStub,
    request: bridge_pb2.RunScenarioRequest,
    on_event: Callable[[bridge_pb2.ScenarioEvent], None],
    limits: CallLimits,
) -> scorer_pb2.Verdict:
    """Holds one scenario and returns its verdict.

    Cancelling the task cancels the call, which the bridge then records as cancelled.

    Args:
        bridge: Stub of the bridge.
        request: The scenario and its settings.
        on_event: Told of every event.
        limits: Bounds of the waits.

    Raises:
        CapacityBusy: Nothing was started; try again.
        BridgeUnreachable: Nothing was started; try again, or give up.
        CallBroken: It was refused, or began and was lost; never try again blindly.
    """
    call: Any = bridge.RunScenario(request)  # The stubs' type has no read().
    loop = asyncio.get_running_loop()
    started = False
    deadline = float("inf")
    try:
        while True:
            until = min(loop.time() + limits.silence, deadline)
            try:
                async with asyncio.timeout_at(until):
                    response = await call.read()
            except TimeoutError:
                raise CallBroken(
                    "the call exceeded every limit"
                    if until == deadline
                    else f"the bridge sent nothing for {limits.silence:g} s"
                ) from None
            if response is grpc.aio.EOF:
                raise CallBroken(await _status(call))
            event = response.event
            on_event(event)
            kind = event.WhichOneof("event")
            if kind == "started":
                started = True
                deadline = loop.time() + 2 * event.started.max_duration_seconds + limits.extra
            if kind == "finished":
                verdict: scorer_pb2.Verdict = event.finished.verdict
                return verdict
    except grpc.aio.AioRpcError as error:
        raise _fault(error, started) from error
    finally:
        call.cancel()


def _fault(error: grpc.aio.AioRpcError, started: bool) -> Exception:
    text = f"{error.code().name}: {error.details()}"
    if started:
        return CallBroken(f"the bridge was lost in mid-call ({text})")
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return CapacityBusy(error.details() or "no free call")
    # gRPC cancels a call that reaches a server in the moment in which it begins to drain.
    if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return BridgeUnreachable(error.details() or "unavailable")
    return CallBroken(f"the bridge refused the call ({text})")


async def _status(call: Any) -> str:
    code = await call.code()
    return f"the bridge ended the call without a verdict ({code.name}: {await call.details()})"
