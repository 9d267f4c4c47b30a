"""Attempts and their scorings, within a transaction.

One attempt counts for each run, scenario and trial. The first one that has a score counts for good;
until there is one, the newest does. So a later failure of the infrastructure never takes a score
away, a not_run may be tried again, and nobody can repeat a scored call until it passes. When an
attempt that did not count gets a score by being scored again, it counts if nothing else has one.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tau2eval_scorer.store.tables import ATTEMPTS, SCORINGS
from tau2eval_scorer.store.values import Attempt, AttemptKey, Scoring

_NEWEST = sa.join(
    ATTEMPTS,
    SCORINGS,
    (SCORINGS.c.attempt == ATTEMPTS.c.id) & (SCORINGS.c.number == ATTEMPTS.c.scoring),
)
_COLUMNS = (
    ATTEMPTS.c.id,
    ATTEMPTS.c.run_id,
    ATTEMPTS.c.scenario,
    ATTEMPTS.c.trial,
    ATTEMPTS.c.attempt_id,
    ATTEMPTS.c.counts,
    ATTEMPTS.c.placed,
    ATTEMPTS.c.revision,
    ATTEMPTS.c.created_at.label("stored_at"),
    SCORINGS.c.number,
    SCORINGS.c.outcome,
    SCORINGS.c.verdict,
    SCORINGS.c.metrics,
    SCORINGS.c.versions,
    SCORINGS.c.created_at,
)


async def select_attempts(
    connection: AsyncConnection,
    *where: sa.ColumnElement[bool],
    order: sa.ColumnElement[Any] = ATTEMPTS.c.id,
    judge: bool = True,
) -> list[Attempt]:
    """Returns attempts with their newest scoring.

    Args:
        connection: In a transaction.
        where: Which ones.
        order: By what they are sorted.
        judge: Whether with the judge's result, which is long; empty otherwise.
    """
    result = SCORINGS.c.judge_result if judge else sa.literal("").label("judge_result")
    rows = await connection.execute(
        sa.select(*_COLUMNS, result)
        .select_from(_NEWEST)
        .where(*where)
        .order_by(order, ATTEMPTS.c.id)
    )
    return [_to_attempt(row) for row in rows]


async def find_attempt(connection: AsyncConnection, key: AttemptKey) -> Attempt | None:
    """Returns an attempt, or None."""
    found = await select_attempts(connection, *same_attempt(key))
    return found[0] if found else None


async def insert_attempt(
    connection: AsyncConnection, key: AttemptKey, scoring: Scoring, revision: int, now: str
) -> None:
    """Stores an attempt with its first scoring; the run must be held."""
    row = await connection.execute(
        ATTEMPTS.insert()
        .values(
            run_id=key.run_id,
            scenario=key.scenario,
            trial=key.trial,
            attempt_id=key.attempt_id,
            outcome=scoring.outcome,
            created_at=now,
            counts=False,
            placed=False,
            scoring=1,
            revision=revision,
        )
        .returning(ATTEMPTS.c.id)
    )
    await _insert_scoring(connection, row.scalar_one(), 1, scoring, now)
    await settle_counts(connection, key, revision)


async def insert_scoring(
    connection: AsyncConnection, attempt: Attempt, scoring: Scoring, revision: int, now: str
) -> None:
    """Stores another scoring of an attempt, which becomes its newest; the run must be held."""
    number = attempt.scoring.number + 1
    await _insert_scoring(connection, attempt.row, number, scoring, now)
    await connection.execute(
        ATTEMPTS.update()
        .where(ATTEMPTS.c.id == attempt.row)
        .values(outcome=scoring.outcome, scoring=number, placed=False, revision=revision)
    )
    await settle_counts(connection, attempt.key, revision)


async def settle_counts(connection: AsyncConnection, key: AttemptKey, revision: int) -> None:
    """Settles which attempt counts for a scenario and trial; the run must be held."""
    rows = (
        await connection.execute(
            sa.select(ATTEMPTS.c.id, ATTEMPTS.c.outcome, ATTEMPTS.c.counts)
            .where(*same_place(key.run_id, key.scenario, key.trial))
            .order_by(ATTEMPTS.c.id)
        )
    ).all()
    current = next((row for row in rows if row.counts), None)
    scored = [row for row in rows if row.outcome != "not_run"]
    chosen = current if current in scored else scored[0] if scored else rows[-1]
    if chosen is current:
        return
    # The index that lets one attempt count refuses two, so the old one goes first. Both may have
    # to move.
    for row, counts in ((current, False), (chosen, True)):
        if row is not None:
            await connection.execute(
                ATTEMPTS.update()
                .where(ATTEMPTS.c.id == row.id)
                .values(counts=counts, placed=False, revision=revision)
            )


async def select_scorings(connection: AsyncConnection, row: int) -> list[Scoring]:
    """Returns every scoring of an attempt, oldest first."""
    rows = await connection.execute(
        SCORINGS.select().where(SCORINGS.c.attempt == row).order_by(SCORINGS.c.number)
    )
    return [_to_scoring(row) for row in rows]


def same_place(run_id: str, scenario: str, trial: int) -> tuple[sa.ColumnElement[bool], ...]:
    """Attempts of one scenario and trial."""
    return (
        ATTEMPTS.c.run_id == run_id,
        ATTEMPTS.c.scenario == scenario,
        ATTEMPTS.c.trial == trial,
    )


def same_attempt(key: AttemptKey) -> tuple[sa.ColumnElement[bool], ...]:
    """One attempt."""
    place = same_place(key.run_id, key.scenario, key.trial)
    return (*place, ATTEMPTS.c.attempt_id == key.attempt_id)


async def _insert_scoring(
    connection: AsyncConnection, row: int, number: int, scoring: Scoring, now: str
) -> None:
    await connection.execute(
        SCORINGS.insert().values(
            attempt=row,
            number=number,
            outcome=scoring.outcome,
            verdict=json.dumps(scoring.verdict),
            metrics=scoring.metrics_json,
            judge_result=scoring.judge_json,
            versions=json.dumps(scoring.versions),
            created_at=now,
        )
    )


def _to_scoring(row: Any) -> Scoring:
    return Scoring(
        outcome=row.outcome,
        verdict=json.loads(row.verdict),
        metrics_json=row.metrics,
        judge_json=row.judge_result,
        versions=json.loads(row.versions),
        number=row.number,
        created_at=row.created_at,
    )


def _to_attempt(row: Any) -> Attempt:
    return Attempt(
        key=AttemptKey(row.run_id, row.scenario, row.trial, row.attempt_id),
        row=row.id,
        sequence=row.revision,
        scoring=_to_scoring(row),
        counts=row.counts,
        created_at=row.stored_at,
        placed=row.placed,
    )
