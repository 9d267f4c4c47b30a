"""Ctrl-C and SIGTERM: the first asks for an orderly end, the second ends at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def two_step_end(first: Callable[[], None], second: Callable[[], None]) -> Iterator[None]:
    """Calls `first` on the first SIGINT or SIGTERM and `second` on every further one.

    Needs a running event loop in the main thread.
    """
    loop = asyncio.get_running_loop()
    seen = False

    def on_signal() -> None:
        nonlocal seen
        if seen:
            second()
        else:
            seen = True
            first()

    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
