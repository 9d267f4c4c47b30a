"""Facts about conversations in Redis, shared by several gateways.

A store that is away never costs a call more than `Patience.total_seconds`, and only now and then:
after a failure it is left alone for a while. Meanwhile facts are kept in this process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from tau2eval_gateway.flows.state_store import MAX_FACTS, MemoryStateStore

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

# The braces keep all keys in one slot of a cluster that a proxy hides.
_PREFIX = "{tau2eval-state}:"
_INDEX = f"{_PREFIX}index"
_MAX_FALLBACK_KEYS = 2_000
_FALLBACK_CHARS = 16_000_000
_ADD = """
local kept = redis.call('HLEN', KEYS[1])
local standing = {}
for at = 4, #ARGV, 2 do
  local value = redis.call('HGET', KEYS[1], ARGV[at])
  if not value and kept < tonumber(ARGV[1]) then
    value = ARGV[at + 1]
    redis.call('HSET', KEYS[1], ARGV[at], value)
    kept = kept + 1
  end
  if value then
    standing[#standing + 1] = ARGV[at]
    standing[#standing + 1] = value
  end
end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('ZADD', KEYS[2], now, KEYS[1])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[2])
local over = redis.call('ZCARD', KEYS[2]) - ARGV[3]
if over > 0 then
  for _, old in ipairs(redis.call('ZRANGE', KEYS[2], 0, math.min(over, 100) - 1)) do
    redis.call('DEL', old)
    redis.call('ZREM', KEYS[2], old)
  end
end
return standing
"""
"""Adds fields: the first value stays, the key lives on, the oldest keys go. One step for Redis."""


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Where Redis is.

    Attributes:
        db: Number of the database.
        password: Never shown.
        tls: Whether the connection is encrypted.
        ca_file: Certificates to trust; empty: the system's.
    """

    host: str
    port: int = 6379
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca_file: str = ""

    def __str__(self) -> str:
        """Returns the address without its secrets, for logs."""
        return f"{self.host}:{self.port}/{self.db}"


@dataclass(frozen=True, slots=True)
class Patience:
    """How long Redis is waited for.

    Attributes:
        total_seconds: One operation, connecting included.
        first_pause_seconds: After a failure; doubled with each one more.
        longest_pause_seconds: The bound on that.
    """

    total_seconds: float = 0.5
    first_pause_seconds: float = 1.0
    longest_pause_seconds: float = 15.0


class RedisStateStore:
    """Implements `StateStore` on Redis; nothing that goes wrong there is raised.

    Args:
        address: Where it is.
        max_keys: The keys written least recently are forgotten beyond this.
        max_age_seconds: Keys that were not written for so long are forgotten.
        patience: Bounds on waiting.
        clock: Seconds; for tests.
    """

    def __init__(
        self,
        address: RedisAddress,
        max_keys: int = 10_000,
        max_age_seconds: float = 86_400.0,
        patience: Patience | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._patience = patience or Patience()
        self._clock = clock
        self._bounds = [str(MAX_FACTS), str(max(1, int(max_age_seconds * 1000))), str(max_keys)]
        self._fallback = MemoryStateStore(
            min(max_keys, _MAX_FALLBACK_KEYS), max_age_seconds, clock, _FALLBACK_CHARS
        )
        self._redis = Redis(connection_pool=_pool(address, self._patience.total_seconds))
        self._script = self._redis.register_script(_ADD)
        self._failures = 0
        self._again_at = 0.0
        self._refusals = 0

    async def load(self, keys: Sequence[str]) -> list[dict[str, str]]:
        """Returns the fields under each key; none while Redis is away, but for this process's."""
        own = await self._fallback.load(keys)
        shared = await self._guarded(lambda: self._load(keys))
        if shared is None:
            return own
        return [{**kept, **found} for kept, found in zip(own, shared, strict=True)]

    async def add(self, key: str, fields: Mapping[str, str]) -> Mapping[str, str]:
        """Adds fields under a key; of two values for one field the first stays."""
        if not fields:
            return {}
        standing = await self._guarded(lambda: self._add(key, fields))
        return await self._fallback.add(key, fields) if standing is None else standing

    async def aclose(self) -> None:
        """Closes all connections."""
        try:
            async with asyncio.timeout(self._patience.total_seconds):
                await self._redis.aclose()
                await self._redis.connection_pool.disconnect()
        except Exception as error:
            logger.debug("closing the state store failed (%s)", type(error).__name__)

    async def _load(self, keys: Sequence[str]) -> list[dict[str, str]]:
        pipeline = self._redis.pipeline(transaction=False)
        for key in keys:
            pipeline.hgetall(_PREFIX + key)
        answers = await pipeline.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, Exception):
                # One key that is not ours does not take the others away.
                if not isinstance(answer, ResponseError):
                    raise answer
                self._note_refusal(answer)
        return [answer if isinstance(answer, dict) else {} for answer in answers]

    async def _add(self, key: str, fields: Mapping[str, str]) -> dict[str, str]:
        pairs = [word for item in fields.items() for word in item]
        answer = await self._script(keys=[_PREFIX + key, _INDEX], args=[*self._bounds, *pairs])
        words = [str(word) for word in answer]
        return dict(zip(words[::2], words[1::2], strict=True))

    async def _guarded(self, act: Callable[[], Awaitable[Result]]) -> Result | None:
        """Returns what an operation gives, within its time; None when Redis is of no use now."""
        now = self._clock()
        if now < self._again_at:
            return None
        failures = self._failures
        if failures:
            # One call tries; those beside it do not wait for the answer.
            self._again_at = now + self._pause()
        try:
            async with asyncio.timeout(self._patience.total_seconds):
                result = await act()
        except ResponseError as error:
            # It is there, and refuses: no memory left, a replica, a key of another kind.
            self._note_refusal(error)
            return None
        except Exception as error:
            # Calls that failed beside one another count once.
            if self._failures == failures:
                self._note_failure(error)
            return None
        if self._failures:
            logger.info("the state store at %s answers again", self._address)
        self._failures, self._again_at = 0, 0.0
        return result

    def _pause(self) -> float:
        patience = self._patience
        doubled = patience.first_pause_seconds * 2.0 ** min(max(self._failures - 1, 0), 16)
        return max(min(doubled, patience.longest_pause_seconds), patience.total_seconds)

    def _note_failure(self, error: Exception) -> None:
        self._failures += 1
        self._again_at = self._clock() + self._pause()
        if self._failures == 1:
            # The text of an error may hold what a client sent to log in.
            logger.warning(
                "the state store at %s is away (%s): conversations go on without shared state",
                self._address,
                type(error).__name__,
            )

    def _note_refusal(self, error: ResponseError) -> None:
        self._refusals += 1
        # The 1st, 2nd, 4th, 8th ...: a store that refuses everything does not fill the log.
        if self._refusals & (self._refusals - 1) == 0:
            logger.warning(
                "the state store at %s refused an operation (%s), %d so far",
                self._address,
                str(error).split(" ", 1)[0][:40],
                self._refusals,
            )


def _pool(address: RedisAddress, seconds: float) -> BlockingConnectionPool:
    options: dict[str, Any] = {
        "host": address.host,
        "port": address.port,
        "db": address.db,
        "username": address.username,
        "password": address.password,
        "socket_connect_timeout": seconds,
        "socket_timeout": seconds,
        "decode_responses": True,
        "protocol": 2,
        # A connection that Redis closed meanwhile is opened again, once.
        "retry": Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
    }
    if address.tls and address.ca_file:
        options["ssl_ca_certs"] = address.ca_file
    return BlockingConnectionPool(
        max_connections=32,
        timeout=seconds,
        connection_class=SSLConnection if address.tls else Connection,
        **options,
    )
