"""How many requests one key may make."""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from tau2eval_gateway.errors import TooMany

_MAX_KEYS: Final = 10_000


class RateLimiter:
    """A token bucket for every key id: a minute's requests at once, then one as each comes in.

    It counts requests of callers, not upstream calls, and only of this process.

    Args:
        per_minute: Requests of one key; 0: no limit.
        clock: Seconds that only grow.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._size = float(per_minute)
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What is left, and when that was so; the key that asked last is at the end."""

    def take(self, key_id: str) -> None:
        """Counts one request.

        Raises:
            TooMany: rate_limit_exceeded, with the seconds until the next one is free.
        """
        if not self._size:
            return
        now = self._clock()
        left, at = self._buckets.pop(key_id, (self._size, now))
        per_second = self._size / 60.0
        left = min(self._size, left + (now - at) * per_second)
        allowed = left >= 1.0
        self._buckets[key_id] = (left - 1.0 if allowed else left, now)
        if len(self._buckets) > _MAX_KEYS:
            # The one that has been silent the longest has most likely a full bucket again.
            self._buckets.popitem(last=False)
        if not allowed:
            raise TooMany(
                f"this key has made more than {self._size:g} requests in a minute, which is its "
                "limit (TAU2EVAL_GATEWAY_RATE_LIMIT_PER_MINUTE); try again later",
                error_code="rate_limit_exceeded",
                error_type="requests",
                retry_after=str(max(1, math.ceil((1.0 - left) / per_second))),
            )
