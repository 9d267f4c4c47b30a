"""When a process ends: by signals, and with the process that started it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading


def stop_on_signals(stopping: asyncio.Event, at_once: asyncio.Event) -> None:
    """Sets `stopping` at the first SIGTERM or SIGINT, and `at_once` at the second."""

    def on_signal() -> None:
        if stopping.is_set():
            at_once.set()
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)


def stop_with_parent(stopping: asyncio.Event, at_once: asyncio.Event) -> None:
    """Sets both events when standard input ends: the parent is gone and nobody wants the result."""
    loop = asyncio.get_running_loop()

    def on_end() -> None:
        stopping.set()
        at_once.set()

    def wait_for_end() -> None:
        with contextlib.suppress(OSError, ValueError):
            # Not by sys.stdin: its lock, held by this thread, would abort the process at its end.
            while os.read(sys.stdin.fileno(), 4096):
                pass
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(on_end)

    threading.Thread(target=wait_for_end, name="parent-watch", daemon=True).start()
