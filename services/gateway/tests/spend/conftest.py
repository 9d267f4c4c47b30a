"""A real PostgreSQL, started here and ended by its process id; rows to fill ledgers with."""

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import pytest

from tau2eval_gateway.ledger_schema import LedgerRow

START_SECONDS = 120


def program(name):
    """Debian keeps the server's programs off the PATH."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parent.name))
    for folder in (*reversed(versions), *os.environ.get("PATH", "").split(os.pathsep)):
        if os.access(Path(folder) / name, os.X_OK):
            return str(Path(folder) / name)
    return None


class Postgres:
    """A server on 127.0.0.1 and a free port."""

    def __init__(self, folder):
        self.folder = folder
        self.user = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root.
            with contextlib.suppress(KeyError):
                user = pwd.getpwnam("postgres")
                self.user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
                os.chown(folder, user.pw_uid, user.pw_gid)
            if not self.user:
                pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]
        self.process = None

    def start(self):
        data = str(self.folder / "data")
        if not (self.folder / "data").exists():
            subprocess.run(
                [program("initdb"), "-D", data, "-U", "tau2", "-A", "trust", "-E", "UTF8",
                 "--no-locale", "--no-sync"],
                check=True, capture_output=True, timeout=START_SECONDS, cwd="/", **self.user,
            )  # fmt: skip
        log = self.folder / "log"
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [program("postgres"), "-D", data, "-h", "127.0.0.1", "-p", str(self.port),
                 "-k", "", "-c", "fsync=off", "-c", "max_connections=80"],
                stdout=output, stderr=output, cwd="/", **self.user,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return asyncio.run(self.execute("SELECT 1"))
            except (OSError, asyncpg.PostgresError):
                assert self.process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # Closes open connections too.
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(30)

    def database(self):
        name = f"t{uuid.uuid4().hex}"
        asyncio.run(self.execute(f"CREATE DATABASE {name}"))
        return f"postgresql://tau2@127.0.0.1:{self.port}/{name}"

    async def execute(self, statement):
        connection = await asyncpg.connect(
            host="127.0.0.1", port=self.port, user="tau2", database="postgres", timeout=10
        )
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


@pytest.fixture(scope="session")
def postgres():
    if not (program("initdb") and program("postgres")):
        pytest.skip("PostgreSQL's server programs are not installed")
    folder = Path(tempfile.mkdtemp(prefix="tau2pg"))
    server = Postgres(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request, tmp_path):
    """An empty database; every test that takes it runs on both kinds."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shared.sqlite3'}"
    return request.getfixturevalue("postgres").database()


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def make_row(call_id="", **more):
    values = {
        "call_id": call_id or uuid.uuid4().hex, "time": NOON, "request_id": "q", "key_id": "k",
        "model": "m", "model_served": "m", "provider": "p", "role": "agent", "run_id": "r",
        "scenario": "s", "trial": 0, "arm": "single", "session_id": "", "prompt_tokens": 10,
        "completion_tokens": 5, "cached_tokens": 4, "cache_write_tokens": 3,
        "reasoning_tokens": 2, "estimated": False, "cost_usd": 0.5, "latency_seconds": 1.0,
        "first_byte_seconds": None, "status": "ok", "http_status": 200, "streamed": False,
        "counted_usd": more.get("cost_usd", 0.5),
    }  # fmt: skip
    return LedgerRow(**{**values, **more})


@pytest.fixture
def row():
    return make_row
