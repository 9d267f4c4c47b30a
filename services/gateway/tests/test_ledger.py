import asyncio
import json
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from tau2eval_gateway import ledger as module
from tau2eval_gateway.ledger import REFUSED_NAME, SPILL_NAME, Ledger, LedgerError
from tau2eval_gateway.ledger_schema import LedgerRow


def row(number, **more):
    values = {
        "call_id": f"c{number}", "time": datetime(2026, 1, 31, 23, 59, number % 60, tzinfo=UTC),
        "request_id": "q", "key_id": "k", "model": "m", "model_served": "m", "provider": "p",
        "role": "agent", "run_id": "r", "scenario": "s", "trial": 0, "arm": "single",
        "session_id": "", "prompt_tokens": 2, "completion_tokens": 1, "cached_tokens": 0,
        "cache_write_tokens": 0, "reasoning_tokens": 0, "estimated": False, "cost_usd": 0.5,
        "latency_seconds": 1.0, "first_byte_seconds": None, "status": "ok", "http_status": 200,
        "streamed": False,
    }  # fmt: skip
    return LedgerRow(**{**values, **more})


async def test_rows_survive_a_restart(tmp_path):
    ledger = Ledger("", tmp_path)
    await ledger.start()
    for number in range(1200):
        ledger.record(row(number))
    await ledger.stop()
    again = Ledger(f"sqlite:///{tmp_path / 'gateway.sqlite3'}", tmp_path)
    await again.start()
    (found,) = await again.run("r")
    assert (found.calls, found.cost_usd, found.prompt_tokens) == (1200, 600.0, 2400)
    (day,) = await again.daily("2026-01-31", "2026-01-31")
    assert day.day == "2026-01-31"
    assert not await again.daily("2026-02-01", "")
    async with again._engine.connect() as connection:
        mode = (await connection.execute(sa.text("PRAGMA journal_mode"))).scalar()
    assert mode == "wal"
    await again.stop()


async def test_a_full_queue_and_a_database_out_of_reach_lose_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "QUEUE_ROWS", 5)
    monkeypatch.setattr(module, "FLUSH_SECONDS", 0.2)
    monkeypatch.setattr(module, "_RETRY_SECONDS", (0.01,))
    insert = module._insert

    async def out_of_reach(connection, rows):
        raise OperationalError("insert", {}, Exception("disk I/O error"))

    monkeypatch.setattr(module, "_insert", out_of_reach)
    ledger = Ledger("", tmp_path)
    await ledger.start()
    for number in range(20):
        ledger.record(row(number))
        await asyncio.sleep(0)
    with pytest.raises(module.Unavailable):
        await ledger.run("r")
    assert ledger.failing
    await ledger.stop()
    kept = (tmp_path / SPILL_NAME).read_text().splitlines()
    assert {json.loads(line)["call_id"] for line in kept} == {f"c{n}" for n in range(20)}
    # A crash between writing and removing the file: rows must not count twice.
    (tmp_path / SPILL_NAME).write_text("\n".join(["{broken", *kept, kept[0]]) + "\n")
    monkeypatch.setattr(module, "_insert", insert)
    again = Ledger("", tmp_path)
    await again.start()
    assert not (tmp_path / SPILL_NAME).exists()
    (found,) = await again.run("r")
    assert found.calls == 20
    await again.stop()


async def test_a_database_that_recovers_gets_every_row_once(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_RETRY_SECONDS", (0.01,))
    insert, failures = module._insert, [1, 2, 3]

    async def sometimes(connection, rows):
        await insert(connection, rows)
        if failures:
            failures.pop()
            raise OperationalError("insert", {}, Exception("locked"))

    monkeypatch.setattr(module, "_insert", sometimes)
    ledger = Ledger("", tmp_path)
    await ledger.start()
    for number in range(10):
        ledger.record(row(number))
    (found,) = await ledger.run("r")
    assert (found.calls, ledger.failing) == (10, False)
    await ledger.stop()


async def test_a_row_that_the_database_refuses_holds_up_no_other(tmp_path):
    ledger = Ledger("", tmp_path)
    await ledger.start()
    for number in range(4):
        ledger.record(row(number, role=None if number == 2 else "agent"))
    await ledger.flush()
    ledger.record(row(9))
    (found,) = await ledger.run("r")
    assert found.calls == 4
    assert not ledger.failing
    refused = (tmp_path / REFUSED_NAME).read_text().splitlines()
    assert [json.loads(line)["call_id"] for line in refused] == ["c2"]
    await ledger.stop()


@pytest.mark.parametrize(
    "url", ["not a url", "postgresql://u:secret-word@127.0.0.1/d", "sqlite:////proc/none/x.db"]
)
async def test_a_database_that_cannot_be_used_is_a_clear_error(tmp_path, url):
    with pytest.raises(LedgerError) as caught:
        await Ledger(url, tmp_path).start()
    assert "DATABASE_URL" in str(caught.value)
    assert "secret-word" not in str(caught.value)
