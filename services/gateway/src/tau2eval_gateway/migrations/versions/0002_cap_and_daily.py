"""The daily cap: what calls count for, reservations, and spend_daily for people who ask by SQL."""

from __future__ import annotations

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0002"
down_revision = "0001"

# cost_usd is NULL, not 0, where no call of the group has a known cost. A call that the provider
# refused before it read anything has no cost that could be unknown.
_VIEW = """
CREATE VIEW spend_daily AS
SELECT
  day, key_id, model, role, run_id, arm,
  COUNT(*) AS calls,
  SUM(CASE WHEN status <> 'ok' THEN 1 ELSE 0 END) AS calls_failed,
  SUM(CASE WHEN cost_usd IS NULL AND (status = 'ok' OR prompt_tokens + completion_tokens > 0)
      THEN 1 ELSE 0 END) AS calls_without_cost,
  SUM(CASE WHEN estimated THEN 1 ELSE 0 END) AS calls_estimated,
  CAST(SUM(prompt_tokens) AS BIGINT) AS prompt_tokens,
  CAST(SUM(completion_tokens) AS BIGINT) AS completion_tokens,
  CAST(SUM(cached_tokens) AS BIGINT) AS cached_tokens,
  CAST(SUM(cache_write_tokens) AS BIGINT) AS cache_write_tokens,
  CAST(SUM(reasoning_tokens) AS BIGINT) AS reasoning_tokens,
  SUM(cost_usd) AS cost_usd,
  SUM(CASE WHEN estimated THEN cost_usd END) AS cost_estimated_usd,
  SUM(COALESCE(counted_usd, cost_usd, 0)) AS counted_usd
FROM gateway_calls
GROUP BY day, key_id, model, role, run_id, arm
"""


def upgrade(op: Operations) -> None:
    """Adds what a cap needs; the days so far count what their calls are known to have cost."""
    op.add_column("gateway_calls", sa.Column("counted_usd", sa.Float, nullable=True))
    op.create_table(
        "gateway_spend_days",
        sa.Column("day", sa.String(10), primary_key=True),
        sa.Column("counted_usd", sa.Float, nullable=False),
    )
    op.create_table(
        "gateway_reservations",
        sa.Column("call_id", sa.String(64), primary_key=True),
        sa.Column("day", sa.String(10), nullable=False),
        sa.Column("usd", sa.Float, nullable=False),
        sa.Column("expires", sa.Float, nullable=False),
    )
    op.create_index("gateway_reservations_day", "gateway_reservations", ["day"])
    op.execute(
        "INSERT INTO gateway_spend_days (day, counted_usd) "
        "SELECT day, COALESCE(SUM(cost_usd), 0) FROM gateway_calls GROUP BY day"
    )
    op.execute(_VIEW)


def downgrade(op: Operations) -> None:
    """Removes all of it; the calls stay."""
    op.execute("DROP VIEW spend_daily")
    op.drop_table("gateway_reservations")
    op.drop_table("gateway_spend_days")
    op.drop_column("gateway_calls", "counted_usd")
