"""Rows reach the database once each, whatever happens to it, to the disk and to the process."""

import asyncio
import json
import logging
import os
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

from tau2eval_gateway import ledger as module
from tau2eval_gateway import ledger_journal, ledger_store
from tau2eval_gateway.ledger import REFUSED_NAME, SPILL_NAME, Ledger, LedgerError
from tau2eval_gateway.ledger_schema import LedgerRow
from tau2eval_gateway.ledger_store import LedgerStore


def row(number, **more):
    values = {
        "call_id": f"c{number}", "time": datetime(2026, 1, 31, 23, 59, number % 60, tzinfo=UTC),
        "request_id": "q", "key_id": "k", "model": "m", "model_served": "m", "provider": "p",
        "role": "agent", "run_id": "r", "scenario": "s", "trial": 0, "arm": "single",
        "session_id": "", "prompt_tokens": 2, "completion_tokens": 1, "cached_tokens": 0,
        "cache_write_tokens": 0, "reasoning_tokens": 0, "estimated": False, "cost_usd": 0.5,
        "latency_seconds": 1.0, "first_byte_seconds": None, "status": "ok", "http_status": 200,
        "streamed": False, "counted_usd": 0.5,
    }  # fmt: skip
    return LedgerRow(**{**values, **more})


def journals(folder):
    return sorted(folder.glob(f"{ledger_journal.PREFIX}*"))


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(module, "FLUSH_SECONDS", 0.2)
    monkeypatch.setattr(module, "WRITE_SECONDS", 0.01)
    monkeypatch.setattr(module, "_RETRY_SECONDS", (0.01,))


class Fault:
    """A database that fails while `on`."""

    def __init__(self, monkeypatch, error):
        self.on = True
        write = LedgerStore.write

        async def faulty(store, rows, released=()):
            if self.on:
                raise error
            await write(store, rows, released)

        monkeypatch.setattr(LedgerStore, "write", faulty)


def away():
    return OperationalError("insert", {}, Exception("disk I/O error"))


async def test_rows_survive_a_restart(tmp_path):
    ledger = Ledger("", tmp_path)
    await ledger.start()
    for number in range(1200):
        ledger.record(row(number))
    await ledger.stop()
    assert journals(tmp_path) == []
    again = Ledger(f"sqlite:///{tmp_path / 'gateway.sqlite3'}", tmp_path)
    await again.start()
    (found,) = await again.run("r")
    assert (found.calls, found.cost_usd, found.prompt_tokens) == (1200, 600.0, 2400)
    (day,) = await again.daily("2026-01-31", "2026-01-31")
    assert day.day == "2026-01-31"
    assert not await again.daily("2026-02-01", "")
    async with again.engine.connect() as connection:
        mode = (await connection.execute(sa.text("PRAGMA journal_mode"))).scalar()
    assert mode == "wal"
    await again.stop()


async def test_a_database_out_of_reach_loses_nothing(tmp_path, monkeypatch, quick):
    monkeypatch.setattr(module, "QUEUE_ROWS", 5)
    fault = Fault(monkeypatch, away())
    ledger = Ledger("", tmp_path)
    await ledger.start()
    for number in range(20):
        ledger.record(row(number))
        await asyncio.sleep(0)
    with pytest.raises(module.Unavailable):
        await ledger.run("r")
    assert ledger.failing
    assert ledger.rows_waiting == 20
    await ledger.stop()
    lines = [line for path in journals(tmp_path) for line in path.read_text().splitlines()]
    assert {json.loads(line)["call_id"] for line in lines} == {f"c{n}" for n in range(20)}
    # What earlier gateways kept, with a torn line and rows that are in the journal too.
    old = [json.dumps({**json.loads(lines[0]), "day": "2026-01-31"})]
    (tmp_path / SPILL_NAME).write_text("\n".join(["{broken", *old, old[0]]) + "\n")
    fault.on = False
    again = Ledger("", tmp_path)
    await again.start()
    assert not (tmp_path / SPILL_NAME).exists()
    (found,) = await again.run("r")
    assert found.calls == 20
    assert (tmp_path / REFUSED_NAME).read_text() == "{broken\n"
    await again.stop()
    assert journals(tmp_path) == []


async def test_rows_beyond_memory_are_written_when_the_database_is_back(
    tmp_path, monkeypatch, quick
):
    monkeypatch.setattr(module, "QUEUE_ROWS", 5)
    fault = Fault(monkeypatch, away())
    ledger = Ledger("", tmp_path)
    await ledger.start()
    for number in range(30):
        ledger.record(row(number))
        await asyncio.sleep(0)
    fault.on = False
    monkeypatch.setattr(module, "FLUSH_SECONDS", 30.0)
    (found,) = await ledger.run("r")
    assert (found.calls, ledger.failing, ledger.rows_waiting) == (30, False, 0)
    assert [path.read_text() for path in journals(tmp_path)] == ["", ""]
    await ledger.stop()


async def test_a_database_that_fails_after_writing_gets_every_row_once(
    tmp_path, monkeypatch, quick
):
    write, failures = LedgerStore.write, [1, 2, 3]

    async def sometimes(store, rows, released=()):
        await write(store, rows, released)
        if failures:
            failures.pop()
            raise OperationalError("insert", {}, Exception("locked"))

    monkeypatch.setattr(LedgerStore, "write", sometimes)
    ledger = Ledger("", tmp_path)
    await ledger.start()
    for number in range(10):
        ledger.record(row(number))
    (found,) = await ledger.run("r")
    assert (found.calls, ledger.failing) == (10, False)
    standing = await ledger.store.standing("2026-01-31", 0.0)
    assert standing.counted_usd == 5.0
    await ledger.stop()


async def test_a_row_that_comes_after_the_end_is_taken_up(tmp_path):
    ledger = Ledger("", tmp_path)
    await ledger.start()
    await ledger.stop()
    ledger.record(row(1))
    again = Ledger("", tmp_path)
    await again.start()
    (found,) = await again.run("r")
    assert found.calls == 1
    assert not (tmp_path / SPILL_NAME).exists()
    await again.stop()


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


async def test_what_providers_say_fits_any_database(tmp_path):
    ledger = Ledger("", tmp_path)
    await ledger.start()
    ledger.record(row(1, model_served="a\x00b\ud800" + "x" * 300, status="s" * 200))
    (found,) = await ledger.rows()
    assert found["model_served"] == "a?b?" + "x" * 252
    assert len(found["status"]) == 128
    await ledger.stop()


async def test_a_locked_database_is_waited_for(tmp_path, monkeypatch, quick):
    monkeypatch.setattr(ledger_store, "_BUSY_MILLISECONDS", 10)
    ledger = Ledger("", tmp_path)
    await ledger.start()
    other = sqlite3.connect(tmp_path / "gateway.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    ledger.record(row(1))
    with pytest.raises(module.Unavailable):
        await ledger.flush(0.5)
    assert ledger.failing
    other.execute("ROLLBACK")
    other.close()
    monkeypatch.setattr(module, "FLUSH_SECONDS", 30.0)
    (found,) = await ledger.run("r")
    assert (found.calls, ledger.failing) == (1, False)
    await ledger.stop()


async def test_a_full_disk_is_told_and_rows_are_in_the_log_at_worst(
    tmp_path, monkeypatch, quick, caplog
):
    Fault(monkeypatch, away())
    ledger = Ledger("", tmp_path)
    await ledger.start()
    write = os.write
    monkeypatch.setattr(
        ledger_journal.os, "write", lambda descriptor, data: write(descriptor, data[:7])
    )
    ledger.record(row(1))
    assert ledger.failing
    assert [path.read_text() for path in journals(tmp_path)] == ["", ""]
    with caplog.at_level(logging.ERROR):
        await ledger.stop()
    assert '"call_id":"c1"' in caplog.text


async def test_a_disk_that_has_room_again_holds_the_rows(tmp_path, monkeypatch, quick):
    fault = Fault(monkeypatch, away())
    ledger = Ledger("", tmp_path)
    await ledger.start()
    with monkeypatch.context() as full:
        full.setattr(ledger_journal.os, "write", lambda descriptor, data: 0)
        ledger.record(row(1))
    assert ledger.failing
    ledger.record(row(2))
    await ledger.stop()
    fault.on = False
    again = Ledger("", tmp_path)
    await again.start()
    (found,) = await again.run("r")
    assert found.calls == 2
    await again.stop()


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from tau2eval_gateway import ledger as module
from tau2eval_gateway.ledger import Ledger
sys.path.insert(0, sys.argv[2])
from test_ledger import row

async def main():
    module.WRITE_SECONDS = float(sys.argv[3])
    ledger = Ledger("", Path(sys.argv[1]))
    await ledger.start()
    for number in range(500):
        ledger.record(row(number))
        if number % 100 == 0:
            await asyncio.sleep(0.002)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.parametrize("write_seconds", [0.0, 60.0])
async def test_a_killed_process_loses_no_row(tmp_path, write_seconds):
    folder = os.path.dirname(__file__)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, str(tmp_path), folder, str(write_seconds),
        stderr=subprocess.PIPE,
    )  # fmt: skip
    _, errors = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == -9, errors.decode()
    assert journals(tmp_path)
    ledger = Ledger("", tmp_path)
    await ledger.start()
    (found,) = await ledger.run("r")
    assert (found.calls, found.cost_usd) == (500, 250.0)
    assert (await ledger.store.standing("2026-01-31", 0.0)).counted_usd == 250.0
    await ledger.stop()
    assert journals(tmp_path) == []


async def test_the_journal_of_a_living_gateway_is_left_alone(tmp_path, monkeypatch, quick):
    fault = Fault(monkeypatch, away())
    first = Ledger("", tmp_path)
    await first.start()
    first.record(row(1))
    second = Ledger("", tmp_path)
    await second.start()
    assert await second.store.rows() == []
    assert len(journals(tmp_path)) == 4
    fault.on = False
    await first.stop()
    (found,) = await second.run("r")
    assert found.calls == 1
    await second.stop()


@pytest.mark.parametrize(
    "url", ["not a url", "postgresql://u:secret-word@127.0.0.1:1/d", "sqlite:////proc/none/x.db"]
)
async def test_a_database_that_cannot_be_used_is_a_clear_error(tmp_path, url):
    with pytest.raises(LedgerError) as caught:
        await Ledger(url, tmp_path).start()
    assert "DATABASE_URL" in str(caught.value)
    assert "secret-word" not in str(caught.value)


FULL = """
import asyncio, json, resource, signal, sys
from pathlib import Path
from tau2eval_gateway import ledger as module
from tau2eval_gateway.ledger import Ledger
sys.path.insert(0, sys.argv[2])
from test_ledger import row

async def main():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    ledger = Ledger("", Path(sys.argv[1]))
    await ledger.start()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # No file may grow beyond this: neither the journal nor the database can take the rows.
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    for number in range(200):
        ledger.record(row(number))
    try:
        await ledger.flush(1.0)
        told = False
    except module.Unavailable:
        told = ledger.failing and ledger.rows_waiting == 200
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    await ledger.flush(60)
    (found,) = await ledger.run("r")
    print(json.dumps([told, found.calls, found.cost_usd]))
    await ledger.stop()

asyncio.run(main())
"""


async def test_a_full_disk_that_is_cleared_has_every_row_once(tmp_path):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", FULL, str(tmp_path), os.path.dirname(__file__)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, errors.decode()
    assert json.loads(out) == [True, 200, 100.0], errors.decode()
    assert b"trying again" in errors
    assert b"would lose ledger rows" in errors
