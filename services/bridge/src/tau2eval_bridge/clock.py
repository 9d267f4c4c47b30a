"""Media time: tick n begins at n * 20 ms. Pacing is injected, so tests run without waiting."""

from __future__ import annotations

import asyncio
import time
from array import array
from typing import Protocol

import numpy as np

from tau2eval.scorer.v1 import record_pb2

TICKS_PER_SECOND = 50
"""Ticks a second; one tick is one 20 ms frame in each direction."""

TICK_SECONDS = 1 / TICKS_PER_SECOND

MAX_CATCH_UP_SECONDS = 1.0
"""After a longer pause of the process, media time stands still instead of being caught up."""


def tick_time(tick: int) -> float:
    """Returns the media time in seconds at which a tick begins."""
    return tick / TICKS_PER_SECOND


class Pacer(Protocol):
    """Holds media time to some clock."""

    def start(self) -> None:
        """Puts tick 0 at the present."""

    async def wait_for(self, tick: int) -> float:
        """Returns when a tick is due: the time of that on `now`'s clock, in seconds.

        Gives other tasks a chance to run in any case.
        """

    def now(self) -> float:
        """Returns the time in seconds on the clock that paces."""


class RealTimePacer:
    """Paces against the monotonic clock.

    Each tick's time is computed from the start, so that no error adds up. A process that was held
    up for less than `MAX_CATCH_UP_SECONDS` catches up; after a longer pause the schedule is moved,
    since a burst of seconds would reach the bots faster than they can listen.
    """

    def __init__(self) -> None:
        self._start = 0.0

    def start(self) -> None:
        """Puts tick 0 at the present."""
        self._start = time.monotonic()

    async def wait_for(self, tick: int) -> float:
        """Sleeps until a tick is due."""
        due = self._start + tick / TICKS_PER_SECOND
        wait = due - time.monotonic()
        if wait < -MAX_CATCH_UP_SECONDS:
            self._start -= wait
        await asyncio.sleep(max(wait, 0.0))
        return due

    def now(self) -> float:
        """Returns the monotonic clock in seconds."""
        return time.monotonic()


class VirtualPacer:
    """Lets ticks follow each other at once: time is what the ticks say."""

    def __init__(self) -> None:
        self._now = 0.0

    def start(self) -> None:
        """Puts tick 0 at 0."""
        self._now = 0.0

    async def wait_for(self, tick: int) -> float:
        """Jumps to a tick."""
        await asyncio.sleep(0)
        self._now = tick / TICKS_PER_SECOND
        return self._now

    def now(self) -> float:
        """Returns the newest tick's time in seconds."""
        return self._now


class LatenessLog:
    """How late each frame left, in seconds on the wall clock."""

    def __init__(self) -> None:
        self._values = array("d")

    def add(self, seconds: float) -> None:
        """Notes the lateness of one frame."""
        self._values.append(max(seconds, 0.0))

    @staticmethod
    def line_quality(*logs: LatenessLog) -> record_pb2.LineQuality:
        """Returns the percentiles of several logs together, in milliseconds."""
        values = np.concatenate([np.asarray(log._values, dtype=np.float64) for log in logs])
        if not len(values):
            return record_pb2.LineQuality()
        p50, p99 = np.percentile(values, [50, 99])
        return record_pb2.LineQuality(
            frame_lateness_p50_ms=float(p50) * 1000,
            frame_lateness_p99_ms=float(p99) * 1000,
            frame_lateness_max_ms=float(values.max()) * 1000,
            frames=len(values),
        )
