"""Events on their way to the client, who may read slowly or not at all."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from tau2eval.bridge.v1 import bridge_pb2

_DROPPED_FIRST = ("bot_event", "turn")


class ClientFeed:
    """A bounded queue that never holds the call up.

    When it is full, the oldest bot event goes, then the oldest turn; Started, Stopped and Finished
    always arrive. Heartbeats are made while reading, when nothing else came for a while.

    Attributes:
        dropped: Events that were given up.
    """

    def __init__(self, limit: int, heartbeat_seconds: float, now: Callable[[], float]) -> None:
        self._limit = limit
        self._heartbeat = heartbeat_seconds
        self._now = now
        self._events: deque[bridge_pb2.ScenarioEvent] = deque()
        self._changed = asyncio.Event()
        self._closed = False
        self.dropped = 0

    def emit(self, event: bridge_pb2.ScenarioEvent) -> None:
        """Queues an event."""
        if self._closed:
            return
        self._events.append(event)
        if len(self._events) > self._limit:
            self._drop_one()
        self._changed.set()

    def close(self) -> None:
        """Ends the feed behind what is queued."""
        self._closed = True
        self._changed.set()

    def _drop_one(self) -> None:
        for kind in _DROPPED_FIRST:
            for index, event in enumerate(self._events):
                if event.WhichOneof("event") == kind:
                    del self._events[index]
                    self.dropped += 1
                    return

    async def events(self) -> AsyncIterator[bridge_pb2.ScenarioEvent]:
        """Yields the events, and heartbeats in between, until the feed is closed."""
        while True:
            while self._events:
                yield self._events.popleft()
            if self._closed:
                return
            self._changed.clear()
            try:
                async with asyncio.timeout(self._heartbeat):
                    await self._changed.wait()
            except TimeoutError:
                yield bridge_pb2.ScenarioEvent(
                    time_seconds=self._now(), heartbeat=bridge_pb2.Heartbeat()
                )
