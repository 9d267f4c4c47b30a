"""Real databases and object stores, started here and ended by their process ids."""

import asyncio
import contextlib
import ctypes
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

import asyncpg
import pytest

from tau2eval_scorer.catalog import Catalog
from tau2eval_scorer.core import ScorerCore
from tau2eval_scorer.judge import JudgeCallError, JudgeReply, JudgeUsage
from tau2eval_scorer.settings import ScorerSettings

START_SECONDS = 120


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for_port(port, process, log):
    deadline = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def ends_with_parent():
    """Returns what a child does first, so that it ends also when the tests are killed (Linux)."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    return lambda: prctl(1, signal.SIGINT)  # PR_SET_PDEATHSIG


def end(process, number=signal.SIGTERM):
    if process.poll() is None:
        process.send_signal(number)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)


def postgres_program(name):
    """Debian keeps the server's programs off the PATH."""
    versions = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name)
    )
    for folder in (*reversed(versions), *os.environ.get("PATH", "").split(os.pathsep)):
        if os.access(Path(folder) / name, os.X_OK):
            return str(Path(folder) / name)
    return None


def server_user():
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    pytest.skip("PostgreSQL does not run as root, and there is no user postgres or nobody")


class Postgres:
    """A server of its own, on 127.0.0.1 and a free port."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.user = server_user()
        if self.user:
            os.chown(folder, self.user["user"], self.user["group"])
        self.port = free_port()
        self.process = None

    def make(self):
        subprocess.run(
            [
                *(postgres_program("initdb"), "-D", str(self.folder / "data"), "-U", "tau2"),
                *("-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"),
            ],
            check=True,
            capture_output=True,
            timeout=START_SECONDS,
            cwd="/",
            **self.user,
        )

    def start(self):
        log = self.folder / "log"
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [
                    *(postgres_program("postgres"), "-D", str(self.folder / "data")),
                    *("-h", "127.0.0.1", "-p", str(self.port), "-k", ""),
                    *("-c", "fsync=off", "-c", "max_connections=60"),
                ],
                stdout=output,
                stderr=output,
                cwd="/",
                # The signal comes when the thread ends that started it, not the process.
                preexec_fn=(
                    ends_with_parent()
                    if threading.current_thread() is threading.main_thread()
                    else None
                ),
                **self.user,
            )
        wait_for_port(self.port, self.process, log)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return asyncio.run(self._execute("SELECT 1"))
            except (OSError, asyncpg.PostgresError):
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)

    def stop(self):
        end(self.process, signal.SIGINT)  # Closes open connections; SIGTERM would wait for them.

    def database(self):
        """Makes an empty database and returns its URL, as other tools write it."""
        name = f"t{uuid.uuid4().hex}"
        asyncio.run(self._execute(f"CREATE DATABASE {name}"))
        return f"postgresql://tau2@127.0.0.1:{self.port}/{name}"

    async def _execute(self, statement):
        connection = await asyncpg.connect(
            host="127.0.0.1", port=self.port, user="tau2", database="postgres", timeout=10
        )
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


@pytest.fixture(scope="session")
def postgres():
    if not (postgres_program("initdb") and postgres_program("postgres")):
        pytest.skip("PostgreSQL's server programs are not installed")
    folder = tempfile.mkdtemp(prefix="tau2pg")
    server = Postgres(folder)
    try:
        server.make()
        server.start()
        yield server
    finally:
        if server.process is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request, tmp_path):
    """An empty database; every test that takes it runs on both kinds."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'deep' / 'r.sqlite3'}"
    return request.getfixturevalue("postgres").database()


def s3_program():
    """A real S3-compatible server over a folder, where there is one."""
    program = os.environ.get("VERSITYGW") or shutil.which("versitygw")
    return program if program and os.access(program, os.X_OK) else None


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    """Environment variables of an S3-compatible server, a process of its own."""
    folder, port = tmp_path_factory.mktemp("s3"), free_port()
    keys = {"AWS_ACCESS_KEY_ID": "tau2key", "AWS_SECRET_ACCESS_KEY": "tau2secret"}
    if program := s3_program():
        (folder / "data").mkdir()
        command = [
            *(program, "--access", "tau2key", "--secret", "tau2secret"),
            *("--port", f"127.0.0.1:{port}", "posix", str(folder / "data")),
        ]
    else:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, cwd=folder, preexec_fn=ends_with_parent()
        )
    try:
        wait_for_port(port, process, log)
        yield {
            **keys,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
    finally:
        end(process)


@pytest.fixture
def bucket(s3_server, monkeypatch):
    """A new bucket's URL; the environment leads to it."""
    from botocore.session import Session

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in s3_server.items():
        monkeypatch.setenv(name, value)
    name = f"runs-{uuid.uuid4().hex[:12]}"
    Session().create_client("s3").create_bucket(Bucket=name)
    return f"s3://{name}/deep/prefix"


class FakeChat:
    """A judge's model that finds what a test says, and counts how often it is asked.

    Attributes:
        passes: Whether it finds that every assertion holds.
        broken: Whether its calls fail.
        waiting: Set while a call waits for `go`.
    """

    def __init__(self):
        self.passes, self.broken = True, False
        self.asked = []
        self.go, self.waiting = asyncio.Event(), asyncio.Event()
        self.go.set()

    async def complete(self, body, context, timeout):
        self.asked.append((context.run_id, context.scenario, context.trial, context.session_id))
        self.waiting.set()
        await self.go.wait()
        if self.broken:
            raise JudgeCallError("the fake is broken", transient=False, refused=False)
        content = body["messages"][1]["content"]
        section = content.partition("<nl_assertions>\n")[2].partition("\n</nl_assertions>")[0]
        found = {"passed": self.passes, "reason": "because", "quote": ""}
        answer = {
            "score": 1.0 if self.passes else 0.0,
            "reason": "overall",
            "nl_assertion_verdicts": [
                {"index": item["index"], **found} for item in json.loads(section)
            ],
        }
        usage = JudgeUsage(body["model"], 10, 5, 0, 0.01)
        return JudgeReply(json.dumps(answer), False, usage)


@pytest.fixture
def chat():
    return FakeChat()


@pytest.fixture
def open_core(tmp_path, chat):
    """Makes scorers over one folder and one store: `async with open_core(**settings) as core`."""

    @contextlib.asynccontextmanager
    async def opened(**settings):
        core = ScorerCore(
            ScorerSettings(**{"artifacts_dir": tmp_path / "runs", "http_port": 0, **settings}),
            Catalog(),
            chat,
        )
        await core.start()
        try:
            yield core
        finally:
            await core.stop()

    return opened
