"""One timer for many waits: what `asyncio.timeout` costs per wait, this costs per stream."""

from __future__ import annotations

import asyncio
from types import TracebackType


class Watchdog:
    """Bounds the waits of one task, one after another.

    `with dog.until(due): await ...` raises TimeoutError when the wait is not over at `due`. As with
    `asyncio.timeout`, the task is cancelled for that, and a cancellation from elsewhere stays one.
    The timer is moved only when it fires too early, not at every wait.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._task: asyncio.Task[object] | None = None
        self._due = 0.0
        self._cancelling = 0
        self._fired = False

    def until(self, due: float) -> Watchdog:
        """Sets the end of the wait that begins now.

        Args:
            due: In seconds of the event loop's clock.
        """
        self._due = due
        return self

    def close(self) -> None:
        """Drops the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._fired = False
        if self._timer is None or self._timer_due > self._due:
            self._set(self._due)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        task, self._task = self._task, None
        if not self._fired or task is None:
            return
        self._fired = False
        if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _set(self, due: float) -> None:
        self.close()
        self._timer_due = due
        self._timer = self._loop.call_at(due, self._fire)

    def _fire(self) -> None:
        self._timer = None
        if self._task is None:
            return
        if self._loop.time() < self._due:
            self._set(self._due)
            return
        self._fired = True
        self._task.cancel()
