"""The daily cap: every upstream call reserves its worst case before it is made.

Reservations stand in the ledger's database, so that several gateways keep one cap together. The
row of a call takes the place of its reservation in the same transaction.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import grpc

from tau2eval_common.errors import Unavailable
from tau2eval_gateway.errors import GatewayError, TooMany
from tau2eval_gateway.estimates import CostEstimates
from tau2eval_gateway.ledger import Ledger
from tau2eval_gateway.ledger_schema import Standing, Wanted, utc_day
from tau2eval_gateway.ledger_store import kind_of
from tau2eval_gateway.upstreams.base import Upstream, UpstreamCall

logger = logging.getLogger(__name__)

RESERVE_SECONDS: Final = 5.0
"""How long a call may wait for its place under the cap."""
_EXPIRY_MARGIN_SECONDS: Final = 60.0
_SWEEP_SECONDS: Final = 60.0


class LedgerUnavailable(GatewayError):
    """There is a cap and no ledger to keep it by."""

    code = grpc.StatusCode.UNAVAILABLE
    default_status = 503
    default_type = "server_error"


@dataclass(frozen=True, slots=True)
class Reservation:
    """A place under the cap, for one call.

    Attributes:
        call_id: Id of the row that takes its place.
        time: When the call began, UTC; its row is booked on this day.
        usd: Dollars reserved.
    """

    call_id: str
    time: datetime
    usd: float


class Reservations:
    """Hands out places under MARINA_DAILY_SPEND_CAP_USD.

    Calls that ask at the same moment share one transaction.

    Args:
        ledger: Whose database keeps them.
        estimates: What calls may cost.
        cap_usd: Dollars a UTC day; None: no cap, and nothing is reserved.
        clock: Seconds since 1970.
    """

    def __init__(
        self,
        ledger: Ledger,
        estimates: CostEstimates,
        cap_usd: float | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._ledger = ledger
        self._estimates = estimates
        self._cap_usd = None if cap_usd is None or math.isinf(cap_usd) else cap_usd
        self._waiting: list[tuple[Wanted, asyncio.Future[Standing | None]]] = []
        self._clerk: asyncio.Task[None] | None = None
        self._swept = time.monotonic()

    @property
    def active(self) -> bool:
        """Whether there is a cap."""
        return self._cap_usd is not None

    @property
    def cap_usd(self) -> float | None:
        """The cap in dollars; None: none."""
        return self._cap_usd

    @property
    def estimates(self) -> CostEstimates:
        """What calls may cost."""
        return self._estimates

    async def start(self) -> None:
        """Learns from the ledger what calls of each model cost lately.

        Raises:
            Unavailable: The ledger cannot be read.
        """
        if self.active:
            yesterday = utc_day(self._now() - timedelta(days=1))
            self._estimates.load(await self._ledger.largest(yesterday))

    async def reserve(self, call: UpstreamCall, upstream: Upstream) -> Reservation:
        """Takes a place under the cap. A row of the same call id, or `release`, gives it back.

        Raises:
            TooMany: spend_cap_reached; nothing was asked of the upstream.
            LedgerUnavailable: The cap cannot be kept, so no money is spent.
        """
        now = self._now()
        usd = self._estimates.worst_case(call, upstream)
        reservation = Reservation(uuid.uuid4().hex, now, usd)
        if self._cap_usd is None or usd <= 0:
            # What costs nothing needs no place.
            return reservation
        wanted = Wanted(
            reservation.call_id,
            utc_day(now),
            usd,
            now.timestamp() + call.total_seconds + _EXPIRY_MARGIN_SECONDS,
        )
        try:
            async with asyncio.timeout(RESERVE_SECONDS):
                refused_at = await self._ask(wanted)
                if refused_at is not None:
                    # Calls that have ended may still hold their worst case: book their real cost.
                    await self._ledger.flush()
                    refused_at = await self._ask(wanted)
        except (TimeoutError, Unavailable):
            self.release(reservation)
            raise _ledger_unavailable() from None
        if refused_at is not None:
            raise self._refusal(wanted, refused_at)
        return reservation

    def release(self, reservation: Reservation) -> None:
        """Gives a place back whose call was not made."""
        if self.active:
            self._ledger.release(reservation.call_id)

    async def stop(self) -> None:
        """Waits for the transaction in progress."""
        if self._clerk is not None:
            await asyncio.wait([self._clerk], timeout=RESERVE_SECONDS)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    async def _ask(self, wanted: Wanted) -> Standing | None:
        future: asyncio.Future[Standing | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, future))
        if self._clerk is None or self._clerk.done():
            self._clerk = asyncio.create_task(self._serve(), name="spend-reservations")
        try:
            return await future
        except asyncio.CancelledError:
            # It may be granted all the same.
            self._ledger.release(wanted.call_id)
            raise

    async def _serve(self) -> None:
        assert self._cap_usd is not None
        while self._waiting:
            batch, self._waiting = self._waiting, []
            # Whoever has gone needs no place.
            batch = [(wanted, future) for wanted, future in batch if not future.done()]
            try:
                results = await self._ledger.store.reserve(
                    [wanted for wanted, _ in batch], self._cap_usd, self._clock()
                )
            except Exception as error:
                logger.error("no reservation can be made (%s)", kind_of(error))
                for _, future in batch:
                    if not future.done():
                        future.set_exception(_ledger_unavailable())
                continue
            for (wanted, future), result in zip(batch, results, strict=True):
                if not future.done():
                    future.set_result(result)
                elif result is None:
                    self._ledger.release(wanted.call_id)
            await self._sweep()

    async def _sweep(self) -> None:
        """Removes the reservations of gateways that have died, now and then."""
        if time.monotonic() - self._swept < _SWEEP_SECONDS:
            return
        self._swept = time.monotonic()
        try:
            await self._ledger.store.remove_expired(self._clock())
        except Exception as error:
            logger.warning("expired reservations were not removed (%s)", kind_of(error))

    def _refusal(self, wanted: Wanted, standing: Standing) -> TooMany:
        now = self._clock()
        midnight = (now // 86_400 + 1) * 86_400
        free = (self._cap_usd or 0.0) - standing.counted_usd
        if wanted.usd > free:
            what = "the rest of the day's cap is too small for this call"
            wait = math.ceil(midnight - now)
        else:
            what = "calls in progress have reserved the rest of the day's cap"
            wait = 1
        return TooMany(
            f"{what}: MARINA_DAILY_SPEND_CAP_USD is {self._cap_usd:g}, the calls of {wanted.day} "
            f"count {standing.counted_usd:.4f} and calls in progress have reserved "
            f"{standing.reserved_usd:.4f}; this call may cost {wanted.usd:.4f} (a smaller "
            "max_tokens makes it less)",
            error_code="spend_cap_reached",
            error_type="insufficient_quota",
            retry_after=str(wait),
        )


def _ledger_unavailable() -> LedgerUnavailable:
    return LedgerUnavailable(
        "the spend ledger does not answer, so the daily cap cannot be kept and no call is made; "
        "try again later",
        error_code="ledger_unavailable",
        retry_after="5",
    )
