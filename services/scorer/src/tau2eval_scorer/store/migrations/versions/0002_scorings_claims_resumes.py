"""Several scorings of an attempt, planned trials, claims on them, and resumptions.

Each attempt's verdict becomes its first scoring; the planned trials come from the plans.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0002"
down_revision = "0001"

_ROWS = 200

_attempts = sa.table(
    "attempts",
    sa.column("id", sa.Integer),
    sa.column("outcome", sa.String),
    sa.column("verdict", sa.Text),
    sa.column("metrics", sa.Text),
    sa.column("created_at", sa.String),
    sa.column("scoring", sa.Integer),
    sa.column("revision", sa.Integer),
)


def upgrade(op: Operations) -> None:
    """Makes the tables and moves the verdicts."""
    planned = op.create_table(
        "scenarios",
        sa.Column("run_id", sa.String(128), sa.ForeignKey("runs.run_id"), primary_key=True),
        sa.Column("scenario", sa.String(128), primary_key=True),
        sa.Column("trial", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("position", sa.Integer, nullable=False),
    )
    scorings = op.create_table(
        "scorings",
        sa.Column("attempt", sa.Integer, sa.ForeignKey("attempts.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("metrics", sa.Text, nullable=False),
        sa.Column("judge_result", sa.Text, nullable=False, server_default=""),
        sa.Column("versions", sa.Text, nullable=False),
        sa.Column("created_at", sa.String(40), nullable=False),
    )
    op.create_table(
        "claims",
        sa.Column("run_id", sa.String(128), primary_key=True),
        sa.Column("scenario", sa.String(128), primary_key=True),
        sa.Column("trial", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("attempt_id", sa.String(128), nullable=False),
        sa.Column("holder", sa.String(200), nullable=False),
        sa.Column("expires_at", sa.Double, nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id", "scenario", "trial"],
            ["scenarios.run_id", "scenarios.scenario", "scenarios.trial"],
        ),
    )
    op.create_table(
        "resumes",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column(
            "run_id", sa.String(128), sa.ForeignKey("runs.run_id"), nullable=False, index=True
        ),
        sa.Column("at", sa.String(40), nullable=False),
        sa.Column("settings", sa.Text, nullable=False),
        sa.Column("changes", sa.Text, nullable=False),
    )
    op.add_column("attempts", sa.Column("scoring", sa.Integer, nullable=False, server_default="1"))
    op.add_column("attempts", sa.Column("revision", sa.Integer, nullable=False, server_default="0"))
    connection = op.get_bind()
    _plan_trials(connection, planned)
    _move_verdicts(connection, scorings)
    op.drop_column("attempts", "verdict")
    op.drop_column("attempts", "metrics")


def downgrade(op: Operations) -> None:
    """Keeps each attempt's newest scoring and drops the rest."""
    op.add_column("attempts", sa.Column("verdict", sa.Text, nullable=False, server_default="{}"))
    op.add_column("attempts", sa.Column("metrics", sa.Text, nullable=False, server_default="{}"))
    connection = op.get_bind()
    scorings = sa.table(
        "scorings",
        sa.column("attempt", sa.Integer),
        sa.column("number", sa.Integer),
        sa.column("verdict", sa.Text),
        sa.column("metrics", sa.Text),
    )
    newest = (scorings.c.attempt == _attempts.c.id) & (scorings.c.number == _attempts.c.scoring)
    connection.execute(
        _attempts.update().values(
            verdict=sa.select(scorings.c.verdict).where(newest).scalar_subquery(),
            metrics=sa.select(scorings.c.metrics).where(newest).scalar_subquery(),
        )
    )
    op.drop_column("attempts", "revision")
    op.drop_column("attempts", "scoring")
    for table in ("resumes", "claims", "scorings", "scenarios"):
        op.drop_table(table)


def _plan_trials(connection: sa.Connection, planned: sa.Table) -> None:
    runs = sa.table("runs", sa.column("run_id", sa.String), sa.column("plan", sa.Text))
    for run_id, text in connection.execute(sa.select(runs.c.run_id, runs.c.plan)).all():
        plan = json.loads(text)
        places = [(name, trial) for name in plan["scenarios"] for trial in range(plan["trials"])]
        rows = [
            {"run_id": run_id, "scenario": name, "trial": trial, "position": at}
            for at, (name, trial) in enumerate(places)
        ]
        connection.execute(planned.insert(), rows)


def _move_verdicts(connection: sa.Connection, scorings: sa.Table) -> None:
    after = 0
    while True:
        rows = connection.execute(
            sa.select(_attempts).where(_attempts.c.id > after).order_by(_attempts.c.id).limit(_ROWS)
        ).all()
        if not rows:
            return
        after = rows[-1].id
        connection.execute(
            scorings.insert(),
            [
                {
                    "attempt": row.id,
                    "number": 1,
                    "outcome": row.outcome,
                    "verdict": row.verdict,
                    "metrics": row.metrics,
                    "judge_result": "",
                    "versions": json.dumps(_versions(row.metrics)),
                    "created_at": row.created_at,
                }
                for row in rows
            ],
        )
        # Watchers ask for what has a higher revision than they have seen.
        connection.execute(
            _attempts.update()
            .where(_attempts.c.id.in_([row.id for row in rows]))
            .values(revision=1)
        )


def _versions(metrics: str) -> Any:
    return json.loads(metrics).get("versions") or {}
