"""A redis-server of a test, ended by its id."""

import shutil
import socket
import subprocess
import time

from redis.asyncio import Redis

from tau2eval_gateway.flows.redis_state import Patience, RedisStateStore
from tau2eval_gateway.flows.state_factory import read_redis_url

PASSWORD = "s3cret-pass"


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class RedisServer:
    def __init__(self, folder):
        self.folder, self.port, self.process = folder, free_port(), None

    def start(self):
        program = shutil.which("redis-server")
        assert program, "these tests need Debian's redis-server"
        command = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        command += ["--appendonly", "no", "--dir", str(self.folder), "--requirepass", PASSWORD]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        end = time.monotonic() + 20
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return
            except OSError:
                assert time.monotonic() < end, "redis-server does not listen"
                assert self.process.poll() is None, "redis-server has ended"
                time.sleep(0.02)

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    @property
    def url(self):
        return f"redis://:{PASSWORD}@127.0.0.1:{self.port}/0"

    def store(self, **more):
        # Patient for a machine that is busy; the bounds themselves have tests of their own.
        more.setdefault("patience", Patience(total_seconds=10.0, first_pause_seconds=0.01))
        return RedisStateStore(read_redis_url(self.url), **more)

    def client(self):
        return Redis.from_url(self.url, decode_responses=True)
