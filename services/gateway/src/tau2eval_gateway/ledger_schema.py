"""The tables of the spend ledger; portable between SQLite and PostgreSQL.

The migrations make them; what is here is for queries, and must agree with the newest migration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

METADATA: Final = sa.MetaData()

CALLS: Final = sa.Table(
    "gateway_calls",
    METADATA,
    # Made by the gateway before the row is written, so that writing again does not double it.
    sa.Column("call_id", sa.String(64), primary_key=True),
    sa.Column("time", sa.DateTime(timezone=True), nullable=False),
    sa.Column("day", sa.String(10), nullable=False),
    sa.Column("request_id", sa.String(64), nullable=False),
    sa.Column("key_id", sa.String(64), nullable=False),
    sa.Column("model", sa.String(256), nullable=False),
    sa.Column("model_served", sa.String(256), nullable=False),
    sa.Column("provider", sa.String(64), nullable=False),
    sa.Column("role", sa.String(32), nullable=False),
    sa.Column("run_id", sa.String(256), nullable=False),
    sa.Column("scenario", sa.String(256), nullable=False),
    sa.Column("trial", sa.Integer, nullable=False),
    sa.Column("arm", sa.String(256), nullable=False),
    sa.Column("session_id", sa.String(256), nullable=False),
    sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
    sa.Column("completion_tokens", sa.BigInteger, nullable=False),
    sa.Column("cached_tokens", sa.BigInteger, nullable=False),
    sa.Column("cache_write_tokens", sa.BigInteger, nullable=False),
    sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
    sa.Column("estimated", sa.Boolean, nullable=False),
    sa.Column("cost_usd", sa.Float, nullable=True),
    sa.Column("latency_seconds", sa.Float, nullable=False),
    sa.Column("first_byte_seconds", sa.Float, nullable=True),
    sa.Column("status", sa.String(128), nullable=False),
    sa.Column("http_status", sa.Integer, nullable=False),
    sa.Column("streamed", sa.Boolean, nullable=False),
    # NULL in rows of gateways that did not know it yet: their cost counts.
    sa.Column("counted_usd", sa.Float, nullable=True),
    sa.Index("gateway_calls_day", "day"),
    sa.Index("gateway_calls_run", "run_id"),
)

DAYS: Final = sa.Table(
    "gateway_spend_days",
    METADATA,
    sa.Column("day", sa.String(10), primary_key=True),
    sa.Column("counted_usd", sa.Float, nullable=False),
)
"""What the calls of a UTC day count for towards the cap; kept so that it need not be added up."""

RESERVATIONS: Final = sa.Table(
    "gateway_reservations",
    METADATA,
    sa.Column("call_id", sa.String(64), primary_key=True),
    sa.Column("day", sa.String(10), nullable=False),
    sa.Column("usd", sa.Float, nullable=False),
    # Seconds since 1970; then the gateway that made it has died.
    sa.Column("expires", sa.Float, nullable=False),
    sa.Index("gateway_reservations_day", "day"),
)


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One upstream call.

    Attributes:
        time: When it began, UTC.
        key_id: Id of the caller's key, "open" or "internal".
        model: What was asked for; `model_served` is what the upstream says that it used.
        estimated: Tokens are counted from characters.
        cost_usd: In dollars; None when unknown.
        first_byte_seconds: To the first event of a stream; None without one.
        status: "ok", "cancelled", or the error's code.
        http_status: As the HTTP API would answer; 499 for cancelled.
        counted_usd: What it counts for towards the cap: the cost, or an estimate where that is
            unknown; 0 for a call that the provider refused.
    """

    call_id: str
    time: datetime
    request_id: str
    key_id: str
    model: str
    model_served: str
    provider: str
    role: str
    run_id: str
    scenario: str
    trial: int
    arm: str
    session_id: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    estimated: bool
    cost_usd: float | None
    latency_seconds: float
    first_byte_seconds: float | None
    status: str
    http_status: int
    streamed: bool
    counted_usd: float | None = None

    def values(self) -> dict[str, Any]:
        """Returns the columns of the row."""
        row: dict[str, Any] = {name: getattr(self, name) for name in _FIELDS}
        row["day"] = utc_day(self.time)
        for name, size in _SIZES:
            row[name] = _plain(row[name], size)
        return row


_FIELDS: Final = tuple(field.name for field in fields(LedgerRow))
_SIZES: Final = (("model", 256), ("model_served", 256), ("provider", 64), ("status", 128))


def _plain(text: str, size: int) -> str:
    """Returns what providers say as text that any database takes."""
    if len(text) <= size and text.isprintable():
        return text
    return "".join(one if one.isprintable() else "?" for one in text[:size])


def utc_day(time: datetime) -> str:
    """Returns the day of a UTC time as it is kept: YYYY-MM-DD."""
    return time.date().isoformat()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a call reserves before it is made.

    Attributes:
        usd: Dollars that it may cost at most.
        expires: Seconds since 1970, after its end in any case.
    """

    call_id: str
    day: str
    usd: float
    expires: float


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a day stands, in dollars: what its calls count for, and what is reserved."""

    counted_usd: float
    reserved_usd: float


_CENT_FRACTION: Final = 1e-9
"""Dollars by which sums of many small numbers may be off."""


def decide(
    wanted: Sequence[Wanted], days: dict[str, Standing], cap_usd: float
) -> list[Standing | None]:
    """Returns None for what fits under the cap, in order, or else where its day stands.

    Args:
        wanted: Reservations.
        days: Where each of their days stands; changed by what is granted.
        cap_usd: Dollars a day.
    """
    results: list[Standing | None] = []
    for item in wanted:
        standing = days[item.day]
        total = standing.counted_usd + standing.reserved_usd + item.usd
        if total > cap_usd + _CENT_FRACTION:
            results.append(standing)
            continue
        days[item.day] = Standing(standing.counted_usd, standing.reserved_usd + item.usd)
        results.append(None)
    return results


@dataclass(frozen=True, slots=True)
class SpendSum:
    """Calls added up over the group that the filled fields name; the others are empty.

    Attributes:
        cost_usd: Sum of the known costs, in dollars.
        calls_without_cost: Calls that may have been billed and whose cost is unknown.
        calls_estimated: Calls whose tokens are an estimate.
        cost_estimated_usd: Part of `cost_usd` that rests on one.
    """

    day: str
    key_id: str
    model: str
    role: str
    run_id: str
    arm: str
    scenario: str
    calls: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost_usd: float
    calls_without_cost: int
    calls_estimated: int
    cost_estimated_usd: float


_TOKENS: Final = (
    *("prompt_tokens", "completion_tokens", "cached_tokens"),
    *("cache_write_tokens", "reasoning_tokens"),
)


def sum_by(
    groups: tuple[str, ...], conditions: list[sa.ColumnElement[bool]]
) -> sa.Select[tuple[Any, ...]]:
    """Returns the query that adds calls up by columns of the table."""
    columns = [CALLS.c[name] for name in groups]
    known = sa.case((CALLS.c.estimated, CALLS.c.cost_usd), else_=None)
    # A call that was refused before anything was read has no cost to know.
    unknown = CALLS.c.cost_usd.is_(None) & (
        (CALLS.c.status == "ok") | (CALLS.c.prompt_tokens + CALLS.c.completion_tokens > 0)
    )
    return (
        sa.select(
            *columns,
            sa.func.count().label("calls"),
            *(sa.func.sum(CALLS.c[name]).label(name) for name in _TOKENS),
            sa.func.coalesce(sa.func.sum(CALLS.c.cost_usd), 0.0).label("cost_usd"),
            sa.func.sum(sa.case((unknown, 1), else_=0)).label("calls_without_cost"),
            sa.func.sum(sa.case((CALLS.c.estimated, 1), else_=0)).label("calls_estimated"),
            sa.func.coalesce(sa.func.sum(known), 0.0).label("cost_estimated_usd"),
        )
        .where(*conditions)
        .group_by(*columns)
        .order_by(*columns)
    )


def to_sum(row: Mapping[str, Any]) -> SpendSum:
    """Returns a row of `sum_by`."""
    return SpendSum(
        day=str(row.get("day", "")),
        key_id=str(row.get("key_id", "")),
        model=str(row.get("model", "")),
        role=str(row.get("role", "")),
        run_id=str(row.get("run_id", "")),
        arm=str(row.get("arm", "")),
        scenario=str(row.get("scenario", "")),
        calls=int(row["calls"]),
        prompt_tokens=int(row["prompt_tokens"]),
        completion_tokens=int(row["completion_tokens"]),
        cached_tokens=int(row["cached_tokens"]),
        cache_write_tokens=int(row["cache_write_tokens"]),
        reasoning_tokens=int(row["reasoning_tokens"]),
        cost_usd=float(row["cost_usd"]),
        calls_without_cost=int(row["calls_without_cost"]),
        calls_estimated=int(row["calls_estimated"]),
        cost_estimated_usd=float(row["cost_estimated_usd"]),
    )
