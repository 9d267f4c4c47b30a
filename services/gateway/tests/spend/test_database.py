"""The ledger's database, on SQLite and on PostgreSQL: schema, history, sums and reservations."""

import asyncio
import time

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from tau2eval_gateway import migrate
from tau2eval_gateway.ledger import Ledger, LedgerError
from tau2eval_gateway.ledger_schema import METADATA, Standing, Wanted
from tau2eval_gateway.ledger_store import LedgerStore

OLD_ROW = """
INSERT INTO gateway_calls VALUES
  ('{id}', '2026-01-31 12:00:00', '{day}', 'q', 'k', 'm', 'm', 'p', 'agent', 'r', 's', 0, 'single',
   '', 10, 5, 0, 0, 0, {no}, {cost}, 1.0, NULL, 'ok', 200, {no})
"""


async def make_old(url, tmp_path):
    """A ledger as the gateway before migrations made it: one table, and no version."""
    store = LedgerStore(url, tmp_path)

    def fill(connection):
        from alembic.operations import Operations

        script = migrate.scripts().get_revision("0001").module
        script.upgrade(Operations(MigrationContext.configure(connection)))
        no = "0" if connection.dialect.name == "sqlite" else "false"
        for at, (day, cost) in enumerate(
            [("2026-01-30", "0.25"), ("2026-01-31", "0.5"), ("2026-01-31", "NULL")]
        ):
            connection.execute(sa.text(OLD_ROW.format(id=f"old{at}", day=day, cost=cost, no=no)))

    async with store.engine.begin() as connection:
        await connection.run_sync(fill)
    await store.close()


async def spend_daily(store):
    async with store.engine.begin() as connection:
        result = await connection.execute(sa.text("SELECT * FROM spend_daily ORDER BY day, role"))
        return [dict(row) for row in result.mappings()]


async def test_a_ledger_of_the_version_before_is_upgraded_without_loss(database_url, tmp_path, row):
    await make_old(database_url, tmp_path)
    ledger = Ledger(database_url, tmp_path)
    await ledger.start()
    ledger.record(row("new", cost_usd=1.0))
    found = {one["call_id"]: one["cost_usd"] for one in await ledger.rows()}
    assert found == {"old0": 0.25, "old1": 0.5, "old2": None, "new": 1.0}
    store = ledger.store
    assert (await store.standing("2026-01-30", 0.0)).counted_usd == 0.25
    assert (await store.standing("2026-01-31", 0.0)).counted_usd == 1.5
    first, second = await spend_daily(store)
    assert (first["day"], first["calls"], first["cost_usd"]) == ("2026-01-30", 1, 0.25)
    assert (second["calls"], second["cost_usd"], second["calls_without_cost"]) == (3, 1.5, 1)
    await ledger.stop()


async def test_the_migrations_make_what_the_queries_expect(database_url, tmp_path):
    store = LedgerStore(database_url, tmp_path)
    await store.open()

    def differences(connection):
        context = MigrationContext.configure(
            connection,
            opts={
                "compare_type": True,
                "version_table": migrate.VERSION_TABLE,
                "include_object": lambda thing, name, kind, *_: (
                    kind != "table" or name in METADATA.tables
                ),
            },
        )
        return compare_metadata(context, METADATA)

    async with store.engine.begin() as connection:
        assert await connection.run_sync(differences) == []
        await connection.run_sync(lambda c: migrate.downgrade(c, "0001"))
        assert not await connection.run_sync(lambda c: sa.inspect(c).get_view_names())
        await connection.run_sync(lambda c: migrate.upgrade(c))
        await connection.run_sync(lambda c: migrate.downgrade(c, "base"))
        tables = await connection.run_sync(lambda c: sa.inspect(c).get_table_names())
        assert tables == [migrate.VERSION_TABLE]
    await store.close()


async def test_a_ledger_of_a_newer_gateway_is_left_alone(database_url, tmp_path):
    store = LedgerStore(database_url, tmp_path)
    await store.open()
    async with store.engine.begin() as connection:
        await connection.execute(
            sa.text(f"UPDATE {migrate.VERSION_TABLE} SET version_num = '9999'")
        )
    await store.close()
    with pytest.raises(LedgerError, match="another version"):
        await Ledger(database_url, tmp_path).start()


async def test_gateways_that_start_together_upgrade_once(database_url, tmp_path, row):
    await make_old(database_url, tmp_path)
    ledgers = [Ledger(database_url, tmp_path / str(at)) for at in range(4)]
    await asyncio.gather(*(ledger.start() for ledger in ledgers))
    for at, ledger in enumerate(ledgers):
        ledger.record(row(f"c{at}"))
    await asyncio.gather(*(ledger.flush() for ledger in ledgers))
    assert len(await ledgers[0].rows()) == 7
    for ledger in ledgers:
        await ledger.stop()


async def test_the_scorer_may_share_the_database(database_url, tmp_path, row):
    """Both read DATABASE_URL, and both keep a version."""
    ledger = Ledger(database_url, tmp_path)
    await ledger.start()
    async with ledger.engine.begin() as connection:
        # As the scorer's migrations keep theirs.
        await connection.execute(sa.text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
        await connection.execute(sa.text("INSERT INTO alembic_version VALUES ('scorers')"))
    await ledger.stop()
    again = Ledger(database_url, tmp_path)
    await again.start()
    again.record(row())
    assert len(await again.rows()) == 1
    await again.stop()


async def test_spend_daily_says_null_where_no_cost_is_known(database_url, tmp_path, row):
    ledger = Ledger(database_url, tmp_path)
    await ledger.start()
    ledger.record(row(role="agent", cost_usd=0.5))
    ledger.record(row(role="agent", cost_usd=0.25, estimated=True))
    ledger.record(row(role="agent", cost_usd=None, counted_usd=0.05))
    ledger.record(row(role="judge", cost_usd=None, counted_usd=0.05))
    refused = {"prompt_tokens": 0, "completion_tokens": 0, "status": "rate_limit_exceeded"}
    ledger.record(row(role="user", cost_usd=None, counted_usd=0.0, http_status=429, **refused))
    await ledger.flush()
    agent, judge, user = await spend_daily(ledger.store)
    assert (agent["cost_usd"], agent["cost_estimated_usd"]) == (0.75, 0.25)
    assert agent["counted_usd"] == pytest.approx(0.8)
    assert (agent["calls"], agent["calls_estimated"], agent["calls_without_cost"]) == (3, 1, 1)
    assert (agent["prompt_tokens"], agent["cached_tokens"]) == (30, 12)
    assert (agent["cache_write_tokens"], agent["reasoning_tokens"]) == (9, 6)
    assert (judge["cost_usd"], judge["calls_without_cost"]) == (None, 1)
    assert (user["cost_usd"], user["calls_without_cost"], user["calls_failed"]) == (None, 0, 1)
    # What SpendService says is the same.
    for view, item in zip((agent, judge, user), await ledger.daily("", ""), strict=True):
        for name in ("day", "key_id", "model", "role", "run_id", "arm", "calls", "prompt_tokens",
                     "calls_without_cost", "calls_estimated", "cached_tokens",
                     "cache_write_tokens", "reasoning_tokens"):  # fmt: skip
            assert getattr(item, name) == view[name], name
        assert item.cost_usd == (view["cost_usd"] or 0.0)
        assert item.cost_estimated_usd == (view["cost_estimated_usd"] or 0.0)
    await ledger.stop()


def wanted(call_id, usd, day="2026-01-31", expires=1e12):
    return Wanted(call_id, day, usd, expires)


async def test_a_row_takes_the_place_of_its_reservation(database_url, tmp_path, row):
    store = LedgerStore(database_url, tmp_path)
    await store.open()
    assert await store.reserve([wanted("a", 0.4), wanted("b", 0.5)], 1.0, 0.0) == [None, None]
    assert await store.standing("2026-01-31", 0.0) == Standing(0.0, pytest.approx(0.9))
    (refused,) = await store.reserve([wanted("c", 0.2)], 1.0, 0.0)
    assert refused == Standing(0.0, pytest.approx(0.9))
    await store.write([row("a", cost_usd=0.1)])
    assert await store.standing("2026-01-31", 0.0) == Standing(0.1, 0.5)
    # Written again, it counts once; a released one counts no more.
    await store.write([row("a", cost_usd=0.1)], ["b"])
    assert await store.standing("2026-01-31", 0.0) == Standing(0.1, 0.0)
    assert await store.reserve([wanted("c", 0.9)], 1.0, 0.0) == [None]
    await store.close()


async def test_what_fits_is_granted_beside_what_does_not(database_url, tmp_path):
    store = LedgerStore(database_url, tmp_path)
    await store.open()
    batch = [wanted("a", 0.6), wanted("b", 0.6), wanted("c", 0.4), wanted("d", 0.1, "2026-02-01")]
    granted = [result is None for result in await store.reserve(batch, 1.0, 0.0)]
    assert granted == [True, False, True, True]
    await store.close()


async def test_reservations_of_dead_gateways_expire(database_url, tmp_path):
    store = LedgerStore(database_url, tmp_path)
    await store.open()
    now = time.time()
    assert await store.reserve([wanted("a", 1.0, expires=now + 5)], 1.0, now) == [None]
    assert await store.reserve([wanted("b", 1.0)], 1.0, now) != [None]
    assert await store.reserve([wanted("b", 1.0)], 1.0, now + 6) == [None]
    await store.remove_expired(now + 6)
    assert (await store.standing("2026-01-31", 0.0)).reserved_usd == 1.0
    await store.close()


async def test_many_gateways_cannot_pass_the_cap_together(database_url, tmp_path):
    stores = [LedgerStore(database_url, tmp_path) for _ in range(4)]
    for store in stores:
        await store.open()
    results = await asyncio.gather(
        *(
            store.reserve([wanted(f"{at}-{number}", 0.3)], 2.0, 0.0)
            for number in range(8)
            for at, store in enumerate(stores)
        )
    )
    assert sum(result == [None] for result in results) == 6
    standing = await stores[0].standing("2026-01-31", 0.0)
    assert standing.reserved_usd == pytest.approx(1.8)
    for store in stores:
        await store.close()


async def test_rows_of_many_gateways_add_up(database_url, tmp_path, row):
    ledgers = [Ledger(database_url, tmp_path / str(at)) for at in range(3)]
    for ledger in ledgers:
        await ledger.start()
    for number in range(150):
        for at, ledger in enumerate(ledgers):
            ledger.record(row(f"{at}-{number}", cost_usd=0.25))
        if number % 30 == 0:
            await asyncio.sleep(0.05)
    await asyncio.gather(*(ledger.flush(60) for ledger in ledgers))
    (day,) = await ledgers[0].daily("", "")
    assert (day.calls, day.cost_usd) == (450, 112.5)
    assert (await ledgers[0].store.standing("2026-01-31", 0.0)).counted_usd == 112.5
    for ledger in ledgers:
        await ledger.stop()


async def test_postgresql_that_was_away_gets_every_row(postgres, tmp_path, row):
    ledger = Ledger(await asyncio.to_thread(postgres.database), tmp_path)
    await ledger.start()
    ledger.record(row("before"))
    await ledger.flush()
    await asyncio.to_thread(postgres.stop)
    for at in range(5):
        ledger.record(row(f"during{at}"))
    async with asyncio.timeout(60):
        while not ledger.failing:
            await asyncio.sleep(0.02)
    await asyncio.to_thread(postgres.start)
    await ledger.flush(60)
    assert len(await ledger.rows()) == 6
    assert not ledger.failing
    await ledger.stop()
