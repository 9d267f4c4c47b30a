"""Media time of a session: how much of the other side's audio has arrived."""

from __future__ import annotations

import asyncio


class MediaClock:
    """The newest media time received, in seconds since the conversation started.

    The bridge counts it in samples. A bot never reads a wall clock to pace what it says: it waits
    here until the other side's audio has come far enough.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._waiters: list[tuple[float, asyncio.Future[None]]] = []

    @property
    def now(self) -> float:
        """Media time up to which input was received, in seconds."""
        return self._now

    def advance(self, to_seconds: float) -> None:
        """Notes that input up to `to_seconds` has arrived. Time never goes back."""
        if to_seconds <= self._now:
            return
        self._now = to_seconds
        if not self._waiters:
            return
        due = [future for at, future in self._waiters if at <= to_seconds]
        if due:
            self._waiters = [entry for entry in self._waiters if entry[0] > to_seconds]
            for future in due:
                if not future.done():
                    future.set_result(None)

    async def wait_until(self, seconds: float) -> None:
        """Returns when input up to `seconds` has arrived. The caller bounds the wait."""
        if seconds <= self._now:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (seconds, future)
        self._waiters.append(entry)
        try:
            await future
        finally:
            if entry in self._waiters:
                self._waiters.remove(entry)
