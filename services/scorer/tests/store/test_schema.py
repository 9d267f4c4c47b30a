"""The schema and its history, on SQLite and PostgreSQL."""

import asyncio
import json
import re

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from tau2eval_common.errors import Unavailable
from tau2eval_scorer.settings import ScorerSettings
from tau2eval_scorer.store import (
    AttemptKey,
    Plan,
    RunLocks,
    RunStore,
    Scoring,
    StoreError,
    migrate,
)
from tau2eval_scorer.store.database import Database, async_url
from tau2eval_scorer.store.tables import METADATA

VERDICT = {"outcome": "passed", "not_run_kind": "", "explanation": "old"}
METRICS = json.dumps({"attempt_id": "a1", "versions": {"scorer": "0.0.9"}})


def old_tables():
    """The tables as the first scorer made them, by create_all and without a version."""
    metadata = sa.MetaData()
    sa.Table(
        "runs",
        metadata,
        sa.Column("run_id", sa.String(128), primary_key=True),
        sa.Column("plan", sa.Text, nullable=False),
        sa.Column("created_at", sa.String(40), nullable=False),
        sa.Column("finished_at", sa.String(40), nullable=False, server_default=""),
        sa.Column("revision", sa.Integer, nullable=False, server_default="0"),
    )
    attempts = sa.Table(
        "attempts",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.ForeignKey("runs.run_id"), nullable=False),
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
    sa.Index(
        "one_attempt_counts",
        attempts.c.run_id,
        attempts.c.scenario,
        attempts.c.trial,
        unique=True,
        sqlite_where=attempts.c.counts.is_(True),
        postgresql_where=attempts.c.counts.is_(True),
    )
    return metadata


def fill_old(connection):
    metadata = old_tables()
    metadata.create_all(connection)
    plan = {"run_id": "old", "scenarios": ["s", "t"], "trials": 2, "settings": {"a": 1}}
    connection.execute(
        metadata.tables["runs"].insert(),
        {"run_id": "old", "plan": json.dumps(plan), "created_at": "2026-01-01T00:00:00.000Z"},
    )
    rows = [("s", 0, "a0", "not_run", False), ("s", 0, "a1", "passed", True)]
    rows += [("t", 1, f"b{at}", "failed", at == 0) for at in range(450)]
    connection.execute(
        metadata.tables["attempts"].insert(),
        [
            {
                "run_id": "old",
                "scenario": scenario,
                "trial": trial,
                "attempt_id": attempt_id,
                "outcome": outcome,
                "verdict": json.dumps({**VERDICT, "outcome": outcome}),
                "metrics": METRICS,
                "created_at": "2026-01-02T00:00:00.000Z",
                "counts": counts,
                "placed": True,
            }
            for scenario, trial, attempt_id, outcome, counts in rows
        ],
    )


async def in_transaction(url, *functions):
    """Runs functions of a synchronous connection, each in a transaction."""
    engine = Database.engine(sa.engine.make_url(async_url(url)))
    results = []
    try:
        for function in functions:
            async with engine.execution_options(writes=True).begin() as connection:
                results.append(await connection.run_sync(function))
    finally:
        await engine.dispose()
    return results


def differences(connection):
    # Alembic cannot read an empty default of SQLite; the migrations are the same for both.
    defaults = connection.dialect.name == "postgresql"
    context = MigrationContext.configure(
        connection, opts={"compare_type": True, "compare_server_default": defaults}
    )
    return compare_metadata(context, METADATA)


def names(connection):
    return sorted(sa.inspect(connection).get_table_names())


@pytest.fixture
def folder(database_url, tmp_path):
    (tmp_path / "deep").mkdir(exist_ok=True)


async def test_migrations_make_the_tables_that_the_code_has(database_url, folder):
    assert (await in_transaction(database_url, migrate.upgrade, differences))[-1] == []


async def test_a_store_of_the_first_scorer_is_adopted(database_url, folder):
    await in_transaction(database_url, fill_old)
    store = RunStore(async_url(database_url))
    await store.open()
    run = await store.run("old")
    assert run.plan.settings == {"a": 1}
    assert not run.plan.judge.enabled
    assert run.resumes == ()
    # The same plan again is the same run, though a plan has a judge now.
    assert await store.create_run(Plan("old", ("s", "t"), 2, {"a": 1})) == run
    attempts = await store.attempts("old")
    assert len(attempts) == 452
    assert [a.key.attempt_id for a in attempts if a.counts] == ["a1", "b0"]
    first = attempts[1].scoring
    assert (first.number, first.outcome, first.metrics_json) == (1, "passed", METRICS)
    assert first.verdict == VERDICT
    assert first.versions == {"scorer": "0.0.9"}
    assert first.created_at == "2026-01-02T00:00:00.000Z"
    assert await store.unplaced("old") == []
    assert len(await store.changed_verdicts("old", 0)) == 2
    # It goes on as any other: claims know the planned trials, and scorings are numbered on.
    answer = await store.claim(AttemptKey("old", "t", 0, "c"), "me", 30)
    assert answer.state == "granted"
    again = await store.add_scoring(attempts[1].key, Scoring("failed", VERDICT, "{}"))
    assert again.scoring.number == 2
    await store.close()


async def test_down_and_up_again_keeps_the_newest_scoring(database_url, folder):
    await in_transaction(database_url, fill_old, migrate.upgrade)
    store = RunStore(async_url(database_url))
    await store.open()
    key = AttemptKey("old", "s", 0, "a1")
    await store.add_scoring(key, Scoring("failed", {**VERDICT, "outcome": "failed"}, '{"n": 2}'))
    await store.close()

    def read_old(connection):
        rows = connection.execute(
            sa.text("SELECT outcome, verdict, metrics FROM attempts WHERE attempt_id = 'a1'")
        )
        return rows.one()

    _, old, tables = await in_transaction(
        database_url, lambda connection: migrate.downgrade(connection, "0001"), read_old, names
    )
    assert tables == ["alembic_version", "attempts", "runs"]
    assert old.outcome == "failed"
    assert json.loads(old.verdict)["outcome"] == "failed"
    assert old.metrics == '{"n": 2}'
    results = await in_transaction(
        database_url,
        lambda connection: migrate.upgrade(connection),
        differences,
        lambda connection: migrate.downgrade(connection, "base"),
        names,
        migrate.upgrade,
        differences,
    )
    assert results[1] == results[5] == []
    assert results[3] == ["alembic_version"]


@pytest.mark.parametrize("old", [False, True])
async def test_several_scorers_may_start_at_once(database_url, folder, old):
    if old:
        await in_transaction(database_url, fill_old)
    stores = [RunStore(async_url(database_url)) for _ in range(6)]
    await asyncio.gather(*(store.open() for store in stores))
    for store in stores:
        assert len(await store.runs()) == int(old)
        await store.close()


async def test_a_store_of_a_newer_scorer_is_left_alone(database_url, folder):
    def newer(connection):
        migrate.upgrade(connection)
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))

    await in_transaction(database_url, newer)
    with pytest.raises(StoreError, match="another version of the scorer"):
        await RunStore(async_url(database_url)).open()


async def test_a_migration_that_fails_changes_nothing(database_url, folder):
    def broken(connection):
        fill_old(connection)
        connection.execute(sa.text("UPDATE runs SET plan = 'no JSON'"))

    await in_transaction(database_url, broken)
    with pytest.raises(json.JSONDecodeError):
        await RunStore(async_url(database_url)).open()
    (tables,) = await in_transaction(database_url, names)
    assert tables == ["attempts", "runs"]


async def test_a_store_that_cannot_be_opened_says_so_without_its_password(postgres):
    for url in (
        "nonsense+driver://user:hush@host/db",
        f"postgresql://tau2:hush@127.0.0.1:{postgres.port}/none",
        "postgresql://tau2:hush@127.0.0.1:1/none",
        "postgresql://tau2:x@127.0.0.1:hush/none",
    ):
        with pytest.raises(StoreError, match=re.escape(url.partition("://")[0])) as caught:
            await RunStore(async_url(url)).open()
        assert "hush" not in str(caught.value)


async def test_a_connection_that_is_ended_in_a_transaction_is_no_fault_of_the_caller(postgres):
    database = Database(async_url(await asyncio.to_thread(postgres.database)))
    await database.open()

    async def ended(using):
        own = sa.text("SELECT pg_backend_pid()")
        async with using() as connection:
            pid = (await connection.execute(own)).scalar_one()
            async with database.reading() as other:
                await other.execute(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
            await connection.execute(own)

    async def wrong():
        async with database.reading() as connection:
            await connection.execute(sa.text("SELECT nothing FROM nowhere"))

    try:
        for using in (database.reading, database.writing):
            with pytest.raises(Unavailable):
                await ended(using)
        with pytest.raises(sa.exc.ProgrammingError):
            await wrong()
        locks = RunLocks(database, 5)
        await asyncio.to_thread(postgres.stop)
        try:
            with pytest.raises(Unavailable):
                async with locks.hold("run-1"):
                    pass
        finally:
            await asyncio.to_thread(postgres.start)
        async with locks.hold("run-1"):  # Lost while it is held: the work that was done stands.
            await asyncio.to_thread(postgres.stop)
            await asyncio.to_thread(postgres.start)
        await locks.close()
    finally:
        await database.close()


async def test_a_database_that_is_away_for_a_while_is_no_fault_of_the_caller(postgres):
    store = RunStore(async_url(await asyncio.to_thread(postgres.database)))
    await store.open()
    await store.create_run(Plan("r", ("s",), 1, {}))
    await asyncio.to_thread(postgres.stop)
    try:
        with pytest.raises(Unavailable):
            await store.run("r")
    finally:
        await asyncio.to_thread(postgres.start)
    assert (await store.run("r")).plan.run_id == "r"
    await store.close()


def test_urls_as_other_tools_write_them(monkeypatch):
    assert async_url("postgres://u@h/d?sslmode=require") == (
        "postgresql+asyncpg://u@h/d?ssl=require"
    )
    assert async_url("postgresql://u@h/d") == "postgresql+asyncpg://u@h/d"
    assert async_url("sqlite:///x.db") == "sqlite+aiosqlite:///x.db"
    assert async_url("postgresql+asyncpg://u@h/d") == "postgresql+asyncpg://u@h/d"
    monkeypatch.setenv("DATABASE_URL", "postgres://u@h/plain")
    assert ScorerSettings().store_url == "postgresql+asyncpg://u@h/plain"
    monkeypatch.setenv("TAU2EVAL_SCORER_DATABASE_URL", "postgres://u@h/ours")
    assert ScorerSettings().store_url == "postgresql+asyncpg://u@h/ours"
    assert ScorerSettings(database_url="sqlite:///x").store_url == "sqlite+aiosqlite:///x"
