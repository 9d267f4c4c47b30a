"""Brings the ledger's database to this version's schema."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError

FIRST: Final = "0001"
"""What a ledger without a version is, when it has its table: made before there were migrations."""
VERSION_TABLE: Final = "gateway_alembic_version"
"""A name of its own: the scorer keeps its runs in the same database when both have one URL."""
_LOCK: Final = 0x7A7532_4741_5445
"""Key of PostgreSQL's advisory lock; any number that nobody else in this database uses."""


class SchemaError(OSError):
    """A newer gateway made this database."""


def scripts() -> ScriptDirectory:
    """Returns the migrations."""
    return ScriptDirectory(str(Path(__file__).parent / "migrations"))


def lock(connection: sa.Connection) -> None:
    """Lets one gateway at a time go on until its transaction ends; SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))


def upgrade(connection: sa.Connection, to: str = "head") -> None:
    """Upgrades within the connection's transaction, which must be a writing one.

    Of several gateways that start at once one upgrades and the others find it done.

    Raises:
        SchemaError: A newer gateway made the database.
    """
    script = scripts()
    lock(connection)
    tables = set(sa.inspect(connection).get_table_names())
    if VERSION_TABLE not in tables and "gateway_calls" in tables:
        _context(connection, lambda rev, _: script._stamp_revs(FIRST, rev)).run_migrations()
    context = _context(connection, lambda rev, _: script._upgrade_revs(to, rev))
    try:
        context.run_migrations(op=Operations(context))
    except CommandError as error:
        raise SchemaError(
            f"the ledger's database is of another version of the gateway ({error}); use that "
            "version, or another database"
        ) from None


def downgrade(connection: sa.Connection, to: str) -> None:
    """Goes back to a revision, or to "base"; what it cannot hold is lost."""
    script = scripts()
    context = _context(connection, lambda rev, _: script._downgrade_revs(to, rev))
    context.run_migrations(op=Operations(context))


def _context(connection: sa.Connection, steps: Callable[[Any, Any], Any]) -> MigrationContext:
    options = {"fn": steps, "transactional_ddl": True, "version_table": VERSION_TABLE}
    return MigrationContext.configure(connection, opts=options)
