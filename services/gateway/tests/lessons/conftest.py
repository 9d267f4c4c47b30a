"""A real PostgreSQL, started here and ended by its process id."""

from __future__ import annotations

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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

START_SECONDS = 120


def program(name: str) -> str | None:
    """Debian keeps the server's programs off the PATH."""
    versions = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name)
    )
    for folder in (*reversed(versions), *os.environ.get("PATH", "").split(os.pathsep)):
        if os.access(Path(folder) / name, os.X_OK):
            return str(Path(folder) / name)
    return None


class Postgres:
    """A server on 127.0.0.1 and a free port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.as_user: dict[str, Any] = {}
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root.
            try:
                user = pwd.getpwnam("postgres")
            except KeyError:
                pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
            self.as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
            os.chown(folder, user.pw_uid, user.pw_gid)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        command = [program("initdb"), "-D", str(self.folder / "data"), "-U", "tau2"]
        command += ["-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        subprocess.run(
            command, check=True, capture_output=True, timeout=120, cwd="/", **self.as_user
        )

    def start(self) -> None:
        command = [program("postgres"), "-D", str(self.folder / "data"), "-h", "127.0.0.1"]
        command += ["-p", str(self.port), "-k", "", "-c", "fsync=off"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd="/", **self.as_user
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return asyncio.run(self._execute("SELECT 1"))
            except (OSError, asyncpg.PostgresError):
                assert self.process.poll() is None, (self.folder / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def stop(self) -> None:
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGINT)  # Ends connections; SIGTERM waits for them.
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(30)

    def database(self) -> str:
        """Makes an empty database and returns its URL, as other tools write it."""
        name = f"t{uuid.uuid4().hex}"
        asyncio.run(self._execute(f"CREATE DATABASE {name}"))
        return f"postgresql://tau2@127.0.0.1:{self.port}/{name}"

    async def _execute(self, statement: str) -> None:
        connection = await asyncpg.connect(
            host="127.0.0.1", port=self.port, user="tau2", database="postgres", timeout=10
        )
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


@contextlib.contextmanager
def running_postgres() -> Iterator[Postgres]:
    if not (program("initdb") and program("postgres")):
        pytest.skip("PostgreSQL's server programs are not installed")
    folder = Path(tempfile.mkdtemp(prefix="tau2pg"))
    server = Postgres(folder)
    try:
        server.make()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """One that the test may stop."""
    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database; every test that takes it runs on both kinds."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'gateway.sqlite3'}"
    url: str = request.getfixturevalue("postgres").database()
    return url
