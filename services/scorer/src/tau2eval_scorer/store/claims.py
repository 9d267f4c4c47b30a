"""Claims: leases on planned trials, within a transaction that holds the run."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tau2eval_common.errors import InvalidInput
from tau2eval_scorer.store.database import now_seconds
from tau2eval_scorer.store.tables import ATTEMPTS, CLAIMS, SCENARIOS
from tau2eval_scorer.store.values import AttemptKey, Claim, ClaimAnswer

MAX_HOLDER_CHARS = 200


async def take(
    connection: AsyncConnection, key: AttemptKey, holder: str, lease_seconds: float
) -> ClaimAnswer:
    """Takes or renews a claim; the run must be held, so that no two attempts get one.

    Raises:
        InvalidInput: When the trial is not planned.
    """
    planned = await connection.execute(sa.select(SCENARIOS.c.position).where(*_of(SCENARIOS, key)))
    if planned.one_or_none() is None:
        raise InvalidInput(
            f"{key.scenario[:140]!r}, trial {key.trial}, is not in the plan of run {key.run_id}",
            reason="NOT_PLANNED",
        )
    scored = await connection.execute(
        sa.select(ATTEMPTS.c.id).where(
            *_of(ATTEMPTS, key), ATTEMPTS.c.counts.is_(True), ATTEMPTS.c.outcome != "not_run"
        )
    )
    if scored.one_or_none() is not None:
        return ClaimAnswer("scored")
    now = await now_seconds(connection)
    current = (await connection.execute(CLAIMS.select().where(*_of(CLAIMS, key)))).one_or_none()
    held = current is not None and current.expires_at > now
    if current is not None and held and current.attempt_id != key.attempt_id:
        return ClaimAnswer("taken", _to_claim(current, now))
    values = {
        "attempt_id": key.attempt_id,
        "holder": _printable(holder),
        "expires_at": now + lease_seconds,
    }
    if current is None:
        place = {"run_id": key.run_id, "scenario": key.scenario, "trial": key.trial}
        await connection.execute(CLAIMS.insert().values(**place, **values))
    else:
        await connection.execute(CLAIMS.update().where(*_of(CLAIMS, key)).values(**values))
    return ClaimAnswer("granted")


async def release(connection: AsyncConnection, key: AttemptKey) -> None:
    """Ends an attempt's claim, if it has one."""
    await connection.execute(
        CLAIMS.delete().where(*_of(CLAIMS, key), CLAIMS.c.attempt_id == key.attempt_id)
    )


async def live(connection: AsyncConnection, run_id: str) -> dict[tuple[str, int], Claim]:
    """Returns the claims of a run that have not ended, by scenario and trial."""
    now = await now_seconds(connection)
    rows = await connection.execute(
        CLAIMS.select().where(CLAIMS.c.run_id == run_id, CLAIMS.c.expires_at > now)
    )
    return {(row.scenario, row.trial): _to_claim(row, now) for row in rows}


def _of(table: sa.Table, key: AttemptKey) -> tuple[sa.ColumnElement[bool], ...]:
    return (
        table.c.run_id == key.run_id,
        table.c.scenario == key.scenario,
        table.c.trial == key.trial,
    )


def _to_claim(row: sa.Row[Any], now: float) -> Claim:
    return Claim(row.scenario, row.trial, row.attempt_id, row.holder, row.expires_at - now)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:MAX_HOLDER_CHARS].strip()
