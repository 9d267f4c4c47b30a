"""Brings a store to this version's schema."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError

from tau2eval_scorer.store.values import StoreError

FIRST = "0001"
"""What a store without a version is, when it has tables: made before there were migrations."""

_LOCK = 0x7A7532_5343_4F52
"""Key of PostgreSQL's advisory lock; any number that nobody else in this database uses."""


def scripts() -> ScriptDirectory:
    """Returns the migrations."""
    return ScriptDirectory(str(Path(__file__).parent / "migrations"))


def upgrade(connection: sa.Connection, to: str = "head") -> None:
    """Upgrades within the connection's transaction, which must be a writing one.

    Of several scorers that start at once one upgrades and the others find it done: SQLite has one
    writer, and PostgreSQL holds a lock until the transaction ends.

    Raises:
        StoreError: When a newer scorer made the store.
    """
    script = scripts()
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    tables = set(sa.inspect(connection).get_table_names())
    if "alembic_version" not in tables and {"runs", "attempts"} <= tables:
        _context(connection, lambda rev, _: script._stamp_revs(FIRST, rev)).run_migrations()
    context = _context(connection, lambda rev, _: script._upgrade_revs(to, rev))
    try:
        context.run_migrations(op=Operations(context))
    except CommandError as error:
        raise StoreError(
            f"the schema of the run store is of another version of the scorer ({error}); use that "
            "version, or another store"
        ) from None


def downgrade(connection: sa.Connection, to: str) -> None:
    """Goes back to a revision, or to "base"; what it cannot hold is lost."""
    script = scripts()
    context = _context(connection, lambda rev, _: script._downgrade_revs(to, rev))
    context.run_migrations(op=Operations(context))


def _context(connection: sa.Connection, steps: Callable[[Any, Any], Any]) -> MigrationContext:
    return MigrationContext.configure(
        connection, opts={"fn": steps, "transactional_ddl": True, "compare_type": True}
    )
