"""The processes of the gateway's bench: started, waited for, weighed, and ended by their ids."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
PEER_BIN = ROOT / ".venv-bench" / "bin"
KEY = "sk-bench"
START_SECONDS = 120.0
END_SECONDS = 20.0

_MODELS = """\
model_list:
  - model_name: bench-model
    litellm_params:
      model: openai/bench-model
      api_base: http://127.0.0.1:{port}/v1
      api_key: sk-upstream
    model_info:
      input_cost_per_token: 0.000001
      output_cost_per_token: 0.000004
"""
_LITELLM_KEY = """\
general_settings:
  master_key: {key}
"""


class Running:
    """A server process; `port` is where it listens."""

    def __init__(self, name: str, process: subprocess.Popen[str], log: Path) -> None:
        self.name = name
        self.port = 0
        self._process = process
        self._log = log

    def wait_line(self, key: str) -> None:
        """Waits for a line of JSON on standard output that tells the port."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self.fail("ended before it listened")
        self.port = int(str(json.loads(line)[key]).rsplit(":", 1)[-1])

    def wait_port(self, port: int) -> None:
        """Waits until a port takes connections."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            if self._process.poll() is not None:
                self.fail("ended before it listened")
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    self.port = port
                    return
            time.sleep(0.1)
        self.fail(f"does not listen after {START_SECONDS:g} s")

    def fail(self, why: str) -> None:
        self.stop()
        tail = self._log.read_text(errors="replace")[-2000:]
        raise SystemExit(f"{self.name} {why}:\n{tail}")

    def megabytes(self) -> float:
        """Returns resident memory, child processes included, in MB (10^6 bytes)."""
        return sum(member.memory_info().rss for member in self._family()) / 1e6

    def cpu_seconds(self) -> float:
        """Returns the CPU time that it and its children have used so far.

        A busy machine disturbs this figure least. psutil counts in hundredths of a second, which
        is too coarse for one turn; Linux tells nanoseconds by thread.
        """
        total = 0.0
        for member in self._family():
            threads = list(Path(f"/proc/{member.pid}/task").glob("*/schedstat"))
            if threads:
                total += sum(_nanoseconds(thread) for thread in threads) / 1e9
            else:
                total += sum(member.cpu_times()[:2])
        return total

    def _family(self) -> list[psutil.Process]:
        parent = psutil.Process(self._process.pid)
        return [parent, *parent.children(recursive=True)]

    def stop(self) -> None:
        """Ends the process: SIGTERM, then SIGKILL for it and its children."""
        if self._process.poll() is not None:
            return
        children = psutil.Process(self._process.pid).children(recursive=True)
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(END_SECONDS)
        for child in children:
            if child.is_running():
                child.kill()


class Stage:
    """Starts processes in a folder of its own and ends them all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: list[Running] = []

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *_: object) -> None:
        for running in reversed(self._running):
            running.stop()

    def mock(self) -> Running:
        mock = self._start("mock", [sys.executable, str(BENCH / "gateway_mock.py")])
        mock.wait_line("port")
        return mock

    def gateway(self, mock: Running, name: str = "tau2-eval", **environ: str) -> Running:
        """Starts our gateway as it is shipped: ledger in a SQLite file, keys on."""
        models = self.folder / "models.yaml"
        models.write_text(_MODELS.format(port=mock.port))
        gateway = self._start(
            name,
            [sys.executable, "-m", "tau2eval_gateway"],
            TAU2EVAL_GATEWAY_PORT="0",
            TAU2EVAL_GATEWAY_HTTP_PORT="0",
            TAU2EVAL_GATEWAY_DATA_DIR=str(self.data_dir(name)),
            TAU2EVAL_GATEWAY_MODEL_CONFIG=str(models),
            MODEL_API_KEYS=KEY,
            **environ,
        )
        gateway.wait_line("http")
        return gateway

    def data_dir(self, name: str) -> Path:
        """Returns the folder of a gateway's ledger."""
        return self.folder / f"data-{name}"

    def litellm(self, mock: Running) -> Running:
        """Starts LiteLLM's proxy: one worker, no database, its own key on."""
        config = self.folder / "litellm.yaml"
        config.write_text(_MODELS.format(port=mock.port) + _LITELLM_KEY.format(key=KEY))
        port = free_port()
        litellm = self._start(
            "litellm",
            [
                str(PEER_BIN / "litellm"), "--config", str(config), "--host", "127.0.0.1",
                "--port", str(port), "--num_workers", "1", "--telemetry", "False",
            ],
            LITELLM_LOCAL_MODEL_COST_MAP="True",
            LITELLM_LOG="ERROR",
            PATH=f"{PEER_BIN}:{os.environ['PATH']}",
        )  # fmt: skip
        litellm.wait_port(port)
        return litellm

    def through(self, mock: Running, server: str, client: str, loop: str) -> Running:
        """Starts a minimal pass-through."""
        port = free_port()
        program = [str(PEER_BIN / "python"), str(BENCH / "gateway_through.py")]
        told = [server, client, loop, str(port), str(mock.port)]
        through = self._start(f"{server}-{client}-{loop}", [*program, *told])
        through.wait_port(port)
        return through

    def _start(self, name: str, command: list[str], **environ: str) -> Running:
        log = self.folder / f"{name}.log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**_clean_environ(), **environ},
                cwd=self.folder,
            )
        running = Running(name, process, log)
        self._running.append(running)
        return running


def load(port: int, *, concurrency: int, stream: bool = False, **bounds: float) -> dict[str, Any]:
    """Runs the load generator; bounds are `seconds` or `requests`."""
    command = [sys.executable, str(BENCH / "gateway_load.py"), str(port), "--key", KEY]
    command += ["--concurrency", str(concurrency), *(["--stream"] if stream else [])]
    for name, value in bounds.items():
        command += [f"--{name}", f"{value:g}" if name == "seconds" else str(int(value))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def wrk(folder: Path, port: int, concurrency: int, seconds: float) -> float | None:
    """Returns requests a second as wrk counts them; None when wrk is not installed."""
    program = shutil.which("wrk")
    if program is None:
        return None
    body = '{"model":"bench-model","messages":[{"role":"user","content":"Hello"}]}'
    script = folder / "post.lua"
    script.write_text(
        f"wrk.method='POST'\nwrk.body='{body}'\nwrk.headers['Content-Type']='application/json'\n"
        f"wrk.headers['Authorization']='Bearer {KEY}'\n"
        "function done(summary)\n"
        "  io.write(string.format('%d %d %d\\n', summary.requests, summary.duration, "
        "summary.errors.status + summary.errors.read + summary.errors.timeout))\nend\n"
    )
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    told = ["-t1", f"-c{concurrency}", f"-d{max(1, round(seconds))}s", "-s", str(script), url]
    done = subprocess.run([program, *told], stdout=subprocess.PIPE, text=True, check=True)
    requests, microseconds, errors = map(int, done.stdout.splitlines()[-1].split())
    if errors:
        raise SystemExit(f"wrk: {errors} of {requests} answers were errors")
    return round(requests / (microseconds / 1e6), 1)


def _nanoseconds(path: Path) -> int:
    try:
        return int(path.read_text().split()[0])
    except FileNotFoundError:
        # A thread that has just ended.
        return 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(true: Callable[[], bool], seconds: float) -> bool:
    """Waits for a condition and says whether it came."""
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def _clean_environ() -> dict[str, str]:
    unwanted = ("TAU2EVAL_", "MARINA_", "MODEL_API_KEYS", "DATABASE_URL", "LITELLM", "OPENAI_")
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(unwanted) and not name.lower().endswith("_proxy")
    }
