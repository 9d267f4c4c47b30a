"""The tables of the store. A change here needs a migration; a test compares the two."""

from __future__ import annotations

import sqlalchemy as sa

METADATA = sa.MetaData()

RUNS = sa.Table(
    "runs",
    METADATA,
    sa.Column("run_id", sa.String(128), primary_key=True),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("created_at", sa.String(40), nullable=False),
    sa.Column("finished_at", sa.String(40), nullable=False, server_default=""),
    # Counts the writes to a run; a writer takes it first and so holds the run for itself.
    sa.Column("revision", sa.Integer, nullable=False, server_default="0"),
)

SCENARIOS = sa.Table(
    "scenarios",
    METADATA,
    sa.Column("run_id", sa.ForeignKey("runs.run_id"), primary_key=True),
    sa.Column("scenario", sa.String(128), primary_key=True),
    sa.Column("trial", sa.Integer, primary_key=True, autoincrement=False),
    # Place in the plan.
    sa.Column("position", sa.Integer, nullable=False),
)

ATTEMPTS = sa.Table(
    "attempts",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("run_id", sa.ForeignKey("runs.run_id"), nullable=False),
    sa.Column("scenario", sa.String(128), nullable=False),
    sa.Column("trial", sa.Integer, nullable=False),
    sa.Column("attempt_id", sa.String(128), nullable=False),
    # Of the newest scoring, whose number is `scoring`.
    sa.Column("outcome", sa.String(16), nullable=False),
    sa.Column("created_at", sa.String(40), nullable=False),
    sa.Column("counts", sa.Boolean, nullable=False),
    sa.Column("placed", sa.Boolean, nullable=False),
    sa.Column("scoring", sa.Integer, nullable=False, server_default="1"),
    # The run's revision at the last change of this row.
    sa.Column("revision", sa.Integer, nullable=False, server_default="0"),
    sa.UniqueConstraint("run_id", "scenario", "trial", "attempt_id"),
)
sa.Index(
    "one_attempt_counts",
    ATTEMPTS.c.run_id,
    ATTEMPTS.c.scenario,
    ATTEMPTS.c.trial,
    unique=True,
    sqlite_where=ATTEMPTS.c.counts.is_(True),
    postgresql_where=ATTEMPTS.c.counts.is_(True),
)

SCORINGS = sa.Table(
    "scorings",
    METADATA,
    sa.Column("attempt", sa.ForeignKey("attempts.id"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("outcome", sa.String(16), nullable=False),
    sa.Column("verdict", sa.Text, nullable=False),
    sa.Column("metrics", sa.Text, nullable=False),
    sa.Column("judge_result", sa.Text, nullable=False, server_default=""),
    sa.Column("versions", sa.Text, nullable=False),
    sa.Column("created_at", sa.String(40), nullable=False),
)

CLAIMS = sa.Table(
    "claims",
    METADATA,
    sa.Column("run_id", sa.String(128), primary_key=True),
    sa.Column("scenario", sa.String(128), primary_key=True),
    sa.Column("trial", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("attempt_id", sa.String(128), nullable=False),
    sa.Column("holder", sa.String(200), nullable=False),
    # Seconds since the epoch, on the database's clock.
    sa.Column("expires_at", sa.Double, nullable=False),
    sa.ForeignKeyConstraint(
        ["run_id", "scenario", "trial"],
        ["scenarios.run_id", "scenarios.scenario", "scenarios.trial"],
    ),
)

RESUMES = sa.Table(
    "resumes",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("run_id", sa.ForeignKey("runs.run_id"), nullable=False, index=True),
    sa.Column("at", sa.String(40), nullable=False),
    sa.Column("settings", sa.Text, nullable=False),
    # The names of the settings that are not the plan's, with their values before and after.
    sa.Column("changes", sa.Text, nullable=False),
)
