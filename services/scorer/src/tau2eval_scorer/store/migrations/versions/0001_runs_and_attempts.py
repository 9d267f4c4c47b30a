"""Runs and attempts, as the first scorer made them without migrations.

A store of that scorer has these tables and no version; it is adopted at this revision.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0001"
down_revision = None


def upgrade(op: Operations) -> None:
    """Makes the tables."""
    op.create_table(
        "runs",
        sa.Column("run_id", sa.String(128), primary_key=True),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("created_at", sa.String(40), nullable=False),
        sa.Column("finished_at", sa.String(40), nullable=False, server_default=""),
        sa.Column("revision", sa.Integer, nullable=False, server_default="0"),
    )
    attempts = op.create_table(
        "attempts",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.String(128), sa.ForeignKey("runs.run_id"), nullable=False),
        sa.Column("scenario", sa.String(128), nullable=False),
        sa.Column("trial", sa.Integer, nullable=False),
        sa.Column("attempt_id", sa.String(128), nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("metrics", sa.Text, nullable=False),
        sa.Column("created_at", sa.String(40), nullable=False),
        sa.Column("counts", sa.Boolean, nullable=False),
        sa.Column("placed", sa.Boolean, nullable=False),
        sa.UniqueConstraint("run_id", "scenario", "trial", "attempt_id"),
    )
    op.create_index(
        "one_attempt_counts",
        "attempts",
        ["run_id", "scenario", "trial"],
        unique=True,
        sqlite_where=attempts.c.counts.is_(True),
        postgresql_where=attempts.c.counts.is_(True),
    )


def downgrade(op: Operations) -> None:
    """Removes the tables."""
    op.drop_table("attempts")
    op.drop_table("runs")
