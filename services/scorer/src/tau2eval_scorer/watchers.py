"""Wakes those who wait for news of a run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator


class Watchers:
    """Events by run id; one event for each watcher, so that no news is missed.

    A watcher enters `watch` before it looks at the store and waits after it, so that what comes in
    between wakes it at once.
    """

    def __init__(self) -> None:
        self._events: dict[str, set[asyncio.Event]] = {}

    @contextlib.contextmanager
    def watch(self, run_id: str) -> Iterator[asyncio.Event]:
        """Returns an event that is set by the next news of a run."""
        event = asyncio.Event()
        watching = self._events.setdefault(run_id, set())
        watching.add(event)
        try:
            yield event
        finally:
            watching.discard(event)
            if not watching and self._events.get(run_id) is watching:
                del self._events[run_id]

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        """Waits for news, at most so long."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), seconds)

    def wake(self, run_id: str) -> None:
        """Tells the watchers of a run that there is news."""
        for event in self._events.get(run_id, ()):
            event.set()

    def wake_all(self) -> None:
        """Wakes every watcher."""
        for run_id in list(self._events):
            self.wake(run_id)
