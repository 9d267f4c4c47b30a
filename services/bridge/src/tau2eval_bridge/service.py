"""BridgeService: the thin servicer around `Call`, and the process's Service."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import AsyncIterator, Sequence

import grpc

from tau2eval.bridge.v1 import bridge_pb2, bridge_pb2_grpc
from tau2eval_bridge.bot_session import OpenChannel
from tau2eval_bridge.call import Call
from tau2eval_bridge.settings import BridgeSettings
from tau2eval_common.client import open_channel
from tau2eval_common.sessions import SessionLimit

logger = logging.getLogger(__name__)

STOP_SECONDS = 60.0
ORPHAN_STOP_SECONDS = 5.0
"""With the process that started this one the scorer goes too: trying to reach it is of no use."""
"""How long calls that were cut off may take to be recorded and submitted."""


class BridgeServicer(bridge_pb2_grpc.BridgeServiceServicer):
    """Holds calls as tasks of its own, so that one outlives its client in order."""

    def __init__(self, settings: BridgeSettings, open_channel: OpenChannel = open_channel) -> None:
        self._settings = settings
        self._parent = os.getppid()
        self._open_channel = open_channel
        self._limit = SessionLimit(settings.max_sessions, "bridge")
        self._calls: dict[asyncio.Task[None], Call] = {}

    async def RunScenario(
        self,
        request: bridge_pb2.RunScenarioRequest,
        context: grpc.aio.ServicerContext[
            bridge_pb2.RunScenarioRequest, bridge_pb2.RunScenarioResponse
        ],
    ) -> AsyncIterator[bridge_pb2.RunScenarioResponse]:
        """Holds one scenario; see bridge.proto."""
        call = Call(request, self._settings, self._open_channel)
        task = asyncio.create_task(self._hold(call), name=f"call {request.scenario}")
        self._calls[task] = call
        task.add_done_callback(lambda done: self._calls.pop(done, None))
        try:
            async for event in call.feed.events():
                yield bridge_pb2.RunScenarioResponse(event=event)
            await asyncio.shield(task)
        finally:
            # Here the client has gone, or everything is done.
            if not task.done():
                call.cancel()
                task.add_done_callback(_log_failure)

    async def _hold(self, call: Call) -> None:
        try:
            with self._limit.hold():
                await call.run()
        finally:
            call.feed.close()

    async def stop(self) -> None:
        """Ends calls that still go on, and waits for their records; bounded."""
        for call in list(self._calls.values()):
            call.cancel()
        tasks = list(self._calls)
        if not tasks:
            return
        orphan = self._settings.exit_with_parent and os.getppid() != self._parent
        seconds = ORPHAN_STOP_SECONDS if orphan else STOP_SECONDS
        _, late = await asyncio.wait(tasks, timeout=seconds)
        for task in late:
            task.cancel()
        if late:
            logger.error("%d calls were not submitted in time; their records are kept", len(late))
            await asyncio.wait(late, timeout=5.0)


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.warning("a call without a client failed: %s", task.exception())


class BridgeService:
    """The bridge as `run_service` runs it."""

    name = "bridge"

    def __init__(self, settings: BridgeSettings) -> None:
        self._settings = settings
        self._servicer: BridgeServicer | None = None

    async def start(self) -> None:
        """Checks the spool folder.

        Raises:
            OSError: When it cannot be made.
        """
        folder = self._settings.spool_folder()
        folder.mkdir(parents=True, exist_ok=True)
        kept = sorted(folder.glob("*.record"))
        if kept:
            logger.warning(
                "%d records of earlier calls are kept in %s; submit one with "
                "`python -m tau2eval_bridge.resubmit FILE`",
                len(kept),
                folder,
            )
        self._servicer = BridgeServicer(self._settings)
        # What is loaded by now stays: the collector need not look at it during calls.
        gc.collect()
        gc.freeze()

    def register(self, server: grpc.aio.Server) -> Sequence[str]:
        """Adds the servicer."""
        assert self._servicer is not None
        bridge_pb2_grpc.add_BridgeServiceServicer_to_server(self._servicer, server)
        return [bridge_pb2.DESCRIPTOR.services_by_name["BridgeService"].full_name]

    def addresses(self) -> dict[str, str]:
        """Returns no further addresses."""
        return {}

    async def stop(self) -> None:
        """Waits for the records of calls that were cut off."""
        if self._servicer is not None:
            await self._servicer.stop()
