"""The lessons that a running gateway knows: read again every few seconds, never waited for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from tau2eval_common.errors import Unavailable
from tau2eval_gateway.lesson_store import LessonStore
from tau2eval_gateway.lessons import (
    NO_LESSONS,
    Lesson,
    LessonIndex,
    LessonMatch,
    insert_lessons,
)
from tau2eval_gateway.requests import ChatRequest

logger = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 5.0
STALE_SECONDS: Final = 60.0
"""Lessons that could not be read again for so long ride no more."""


class LessonBook:
    """Finds the lessons for a request among those read last.

    Args:
        store: Where they are kept.
        mode: MARINA_LESSONS.
        refresh_seconds: Between two readings.
        stale_seconds: How long a list that cannot be read again counts.
    """

    def __init__(
        self,
        store: LessonStore,
        mode: str,
        *,
        refresh_seconds: float = REFRESH_SECONDS,
        stale_seconds: float = STALE_SECONDS,
    ) -> None:
        self._store = store
        self._mode = mode
        self._refresh_seconds = refresh_seconds
        self._stale_seconds = stale_seconds
        self._lessons: list[Lesson] = []
        self._index = LessonIndex([])
        self._read_at = float("-inf")
        self._failing = False
        # One reading at a time, so that an old list never takes the place of a newer one.
        self._reading = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    @property
    def mode(self) -> str:
        """MARINA_LESSONS."""
        return self._mode

    async def start(self) -> None:
        """Reads the lessons, and goes on to; a database that is away is no error."""
        if self._mode == "off" or self._task is not None:
            return
        await self.refresh()
        self._task = asyncio.create_task(self._refresh_forever(), name="lessons")

    async def stop(self) -> None:
        """Reads no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def refresh(self) -> None:
        """Reads the lessons again; a database that is away is no error."""
        async with self._reading:
            await self._read()

    async def _read(self) -> None:
        try:
            lessons = await self._store.lessons()
        except Unavailable as error:
            if not self._failing:
                logger.warning("%s; calls go on without new lessons", error.message)
            self._failing = True
            return
        if lessons != self._lessons:
            # In a thread: hundreds of lessons take longer than a call should wait.
            index = await asyncio.to_thread(LessonIndex, lessons)
            if index.refused:
                logger.warning("%d kept lessons are not well formed and never ride", index.refused)
            self._lessons, self._index = lessons, index
        self._read_at, self._failing = time.monotonic(), False

    async def match(self, body: Mapping[str, Any]) -> LessonMatch:
        """Returns the lessons for a chat body. Never raises and never waits for the database."""
        if self._mode == "off" or time.monotonic() - self._read_at > self._stale_seconds:
            return NO_LESSONS
        try:
            return self._index.match(body)
        except Exception as error:
            # A lesson is never worth a call.
            logger.error("lessons could not be matched (%s)", type(error).__name__)
            return NO_LESSONS

    def insert(self, request: ChatRequest, message: str) -> ChatRequest:
        """Returns the request with the message after the caller's leading system messages."""
        return insert_lessons(request, message)

    async def _refresh_forever(self) -> None:
        while True:
            await asyncio.sleep(self._refresh_seconds)
            try:
                await self.refresh()
            except Exception as error:
                logger.error("lessons could not be read (%s)", type(error).__name__)
