"""Asks again, and asks elsewhere, where that is safe.

Safe means that the upstream has done no work for the call, or that it says so itself, and that no
byte of an answer has come: no connection could be opened, a kept connection turned out to be
closed, or the answer was 429, 503 or 529. A completion that may have been written, and billed, is
never asked for a second time: resets on a new connection, slow answers, 500 and 502, and all that
happens in a stream that has begun. Those are for the caller to decide.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from email.utils import parsedate_to_datetime
from typing import TypeVar

from tau2eval_gateway.errors import GatewayError, Retry, TooMany
from tau2eval_gateway.routes import Route

logger = logging.getLogger(__name__)

MAX_RETRY_AFTER_SECONDS = 5.0
"""A provider that wants a longer pause is not asked again; its Retry-After goes to the caller."""
_BASE_SECONDS = 0.25

T = TypeVar("T")
Attempt = Callable[[Route, float], Awaitable[T]]
"""Asks one deployment: (route, seconds that are left). Raises GatewayError."""
Pause = Callable[[float], Awaitable[None]]


async def first_answer(
    routes: Sequence[Route],
    attempt: Attempt[T],
    *,
    retries: int,
    total_seconds: float,
    pause: Pause = asyncio.sleep,
) -> T:
    """Returns the first answer that comes.

    The other deployments of a model are asked before one is asked again, and at once; one that is
    asked again gets the pause that it names, else a growing one.

    Args:
        routes: The deployments that serve the model, in the order of their turn; at least one.
        attempt: Asks one of them and writes the ledger row of this attempt.
        retries: Attempts after the first, over all deployments.
        total_seconds: For all attempts and pauses together.
        pause: Sleeps.

    Raises:
        GatewayError: Of the last upstream that was asked.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + total_seconds
    ready = [0.0] * len(routes)
    failure: GatewayError | None = None
    for number in range(retries + 1):
        index = min(range(len(routes)), key=ready.__getitem__)
        if failure is not None:
            if ready[index] >= deadline:
                break
            logger.info(
                "%s (%s); asking %s again",
                failure.error_code,
                failure.provider,
                routes[index].provider,
            )
            if (seconds := ready[index] - clock()) > 0:
                await pause(seconds)
        try:
            return await attempt(
                routes[index], total_seconds if number == 0 else deadline - clock()
            )
        except GatewayError as error:
            if failure is not None and not error.provider:
                # The gateway's own limits stopped the second try: the first failure says more.
                break
            failure = error
            if error.retry is Retry.NO:
                break
            ready[index] = clock() + _delay(error, number)
    assert failure is not None
    raise failure


def _delay(error: GatewayError, number: int) -> float:
    """Returns after how many seconds the same deployment may be asked again; inf: never."""
    if error.retry is Retry.AT_ONCE:
        return 0.0
    told = retry_after_seconds(error.retry_after)
    if told is not None:
        return told if told <= MAX_RETRY_AFTER_SECONDS else math.inf
    if isinstance(error, TooMany):
        # A limit that does not say when it ends: asking again would only feed it.
        return math.inf
    return _BASE_SECONDS * 2.0**number * random.uniform(0.75, 1.25)  # noqa: S311


def retry_after_seconds(value: str | None) -> float | None:
    """Reads a Retry-After header, seconds or an HTTP date; None when it says nothing."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, OverflowError, OSError):
            return None
        return max(0.0, seconds)
    return seconds if 0 <= seconds < math.inf else None
