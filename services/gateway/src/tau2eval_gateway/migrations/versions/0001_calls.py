"""One row for every upstream call, as the first gateway made it without migrations.

A ledger of that gateway has this table and no version; it is adopted at this revision.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0001"
down_revision = None


def upgrade(op: Operations) -> None:
    """Makes the table."""
    op.create_table(
        "gateway_calls",
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
    )
    op.create_index("gateway_calls_day", "gateway_calls", ["day"])
    op.create_index("gateway_calls_run", "gateway_calls", ["run_id"])


def downgrade(op: Operations) -> None:
    """Removes the table."""
    op.drop_table("gateway_calls")
