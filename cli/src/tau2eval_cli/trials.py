"""The trials of a run and the queue of those that are left to hold."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from tau2eval.scorer.v1 import scorer_pb2


@dataclass(frozen=True, order=True)
class Trial:
    """One time that a scenario is held.

    Attributes:
        scenario: Name of the scenario.
        number: 0-based.
    """

    scenario: str
    number: int = 0

    def label(self, several: bool) -> str:
        """Returns the name that people see; the number only in a run of several trials."""
        return f"{self.scenario} trial {self.number}" if several else self.scenario

    @staticmethod
    def of(message: scorer_pb2.Verdict | scorer_pb2.ResumeItem) -> Trial:
        """Returns the trial that a message is about."""
        return Trial(message.scenario, message.trial)


def in_order(scenarios: Iterable[str], trials: int) -> list[Trial]:
    """Returns the trials of a plan as they are held: all scenarios once, then all again."""
    names = list(scenarios)
    return [Trial(name, number) for number in range(trials) for name in names]


@dataclass
class Work:
    """A trial that is left to do.

    Attributes:
        trial: Which.
        judge: Its call is whole; only its judgement is missing.
        taken_since: When another runner was first found to hold it, on the loop's clock.
        seen: Attempt that counted then; empty for none.
    """

    trial: Trial
    judge: bool = False
    taken_since: float | None = None
    seen: str = ""


class TrialQueue:
    """Gives out work, each item to one worker at a time.

    Args:
        work: In order.
        stop: Once set, nothing more is given out.
    """

    def __init__(self, work: Iterable[Work], stop: asyncio.Event) -> None:
        self._ready = deque(work)
        self._later: list[tuple[float, int, Work]] = []
        self._number = itertools.count()
        self._stop = stop

    def defer(self, work: Work, seconds: float) -> None:
        """Takes an item back that another runner holds; it is given out again after a while."""
        due = asyncio.get_running_loop().time() + max(0.0, seconds)
        heapq.heappush(self._later, (due, next(self._number), work))

    async def next(self) -> Work | None:
        """Returns the next item, the deferred ones last; None when no more comes."""
        loop = asyncio.get_running_loop()
        while not self._stop.is_set():
            if self._ready:
                return self._ready.popleft()
            if not self._later:
                return None
            pause = self._later[0][0] - loop.time()
            if pause <= 0:
                return heapq.heappop(self._later)[2]
            try:
                await asyncio.wait_for(self._stop.wait(), pause)
            except TimeoutError:
                continue
        return None
