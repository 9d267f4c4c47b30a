"""The scripted models and the gateway before them, as processes on free ports."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc

from tau2eval.gateway.v1 import gateway_pb2, gateway_pb2_grpc

START_SECONDS = 60.0
ANSWER_SECONDS = 20.0
KEY = "tau2-cli-key"
"""Bearer key of the gateway in this test; it opens nothing else."""
HELPERS = ("gpt-4o-mini", "gpt-4.1", "gpt-4.1-mini")
"""Default ids of the models that tau2 calls on its own account."""
_MODELS = """\
model_list:
  - model_name: scripted/*
    litellm_params: {{model: openai/scripted/*, api_base: "{base}", api_key: none}}
    model_info: {{tau2eval_own: true}}
"""
_HELPER = """\
  - model_name: {name}
    litellm_params: {{model: openai/scripted/judge, api_base: "{base}", api_key: none}}
    model_info: {{tau2eval_own: true}}
"""


class StackError(RuntimeError):
    """A process did not start."""


class Process:
    """A service of ours; its first line on standard output tells where it listens.

    Raises:
        StackError: It does not get ready.
    """

    def __init__(self, module: str, settings: Mapping[str, str]) -> None:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TAU2EVAL_", "MARINA_", "MODEL_API_KEYS", "DATABASE_URL"))
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**kept, **settings},
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.said: list[str] = []
        for target in (self._read, self._read_errors):
            threading.Thread(target=target, daemon=True).start()
        self.addresses = self._ready(module)

    def close(self) -> None:
        """Ends it in order, and in any case."""
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _ready(self, module: str) -> dict[str, Any]:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                self.close()
                raise StackError(f"{module} did not start:\n" + "".join(self.said[-20:]))
            if '"listening"' in line:
                addresses: dict[str, Any] = json.loads(line)
                return addresses

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.said.append(line)


class Stack:
    """Both processes. Nothing behind the gateway is outside of this machine.

    Args:
        folder: For the ledger and the model list.

    Raises:
        StackError: They do not get ready.
    """

    def __init__(self, folder: Path) -> None:
        settings = {"TAU2EVAL_SCRIPTED_PORT": "0", "TAU2EVAL_SCRIPTED_EXIT_WITH_PARENT": "true"}
        self._models = Process("tau2eval_scripted", settings)
        try:
            models = folder / "models.yaml"
            base = f"http://{self._models.addresses['http']}/v1"
            entries = [_MODELS, *(_HELPER.replace("{name}", name) for name in HELPERS)]
            models.write_text("".join(entry.format(base=base) for entry in entries))
            self.gateway = Process(
                "tau2eval_gateway",
                {
                    "MODEL_API_KEYS": KEY,
                    "TAU2EVAL_GATEWAY_MODEL_CONFIG": str(models),
                    "TAU2EVAL_GATEWAY_DATA_DIR": str(folder),
                    "TAU2EVAL_GATEWAY_HTTP_PORT": "0",
                    "TAU2EVAL_GATEWAY_PORT": "0",
                    "TAU2EVAL_GATEWAY_EXIT_WITH_PARENT": "true",
                },
            )
        except BaseException:
            self._models.close()
            raise

    @property
    def api_base(self) -> str:
        """Address of the gateway's OpenAI-compatible API."""
        return f"http://{self.gateway.addresses['http']}/v1"

    def spend(self, run_id: str) -> list[gateway_pb2.SpendRow]:
        """Returns the ledger's sums of a run, by day, model, role and arm."""
        with grpc.insecure_channel(self.gateway.addresses["grpc"]) as channel:
            answer = gateway_pb2_grpc.SpendServiceStub(channel).ListDailySpend(
                gateway_pb2.ListDailySpendRequest(), timeout=ANSWER_SECONDS
            )
        return [row for row in answer.rows if row.run_id == run_id]

    def close(self) -> None:
        """Ends both."""
        self.gateway.close()
        self._models.close()

    def __enter__(self) -> Stack:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
