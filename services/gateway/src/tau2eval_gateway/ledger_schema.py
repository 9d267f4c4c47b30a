"""The table of the spend ledger; portable between SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
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
    sa.Index("gateway_calls_day", "day"),
    sa.Index("gateway_calls_run", "run_id"),
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

    def values(self) -> dict[str, Any]:
        """Returns the columns of the row."""
        row: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        row["day"] = self.time.strftime("%Y-%m-%d")
        for name in ("model", "model_served"):
            row[name] = row[name][:256]
        row["provider"] = row["provider"][:64]
        row["status"] = row["status"][:128]
        return row


@dataclass(frozen=True, slots=True)
class SpendSum:
    """Calls added up over the group that the filled fields name; the others are empty."""

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
    cost_usd: float
    calls_without_cost: int


_GROUPS: Final = ("day", "key_id", "model", "role", "run_id", "arm", "scenario")


def sum_by(
    groups: tuple[str, ...], conditions: list[sa.ColumnElement[bool]]
) -> sa.Select[tuple[Any, ...]]:
    """Returns the query that adds calls up by columns of the table."""
    columns = [CALLS.c[name] for name in groups]
    return (
        sa.select(
            *columns,
            sa.func.count().label("calls"),
            sa.func.sum(CALLS.c.prompt_tokens).label("prompt_tokens"),
            sa.func.sum(CALLS.c.completion_tokens).label("completion_tokens"),
            sa.func.coalesce(sa.func.sum(CALLS.c.cost_usd), 0.0).label("cost_usd"),
            (sa.func.count() - sa.func.count(CALLS.c.cost_usd)).label("calls_without_cost"),
        )
        .where(*conditions)
        .group_by(*columns)
        .order_by(*columns)
    )


def to_sum(row: Mapping[str, Any]) -> SpendSum:
    """Returns a row of `sum_by`."""
    return SpendSum(
        **{name: str(row.get(name, "")) for name in _GROUPS},
        calls=int(row["calls"]),
        prompt_tokens=int(row["prompt_tokens"]),
        completion_tokens=int(row["completion_tokens"]),
        cost_usd=float(row["cost_usd"]),
        calls_without_cost=int(row["calls_without_cost"]),
    )
