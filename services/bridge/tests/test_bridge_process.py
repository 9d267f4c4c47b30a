"""The bridge as a process: settings, the listening line, the drain."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from bridge_fakes import FakeBot, FakeScorer, polite_agent, polite_user, serve_fake

from tau2eval.bridge.v1 import bridge_pb2, bridge_pb2_grpc
from tau2eval.scorer.v1 import record_pb2
from tau2eval_common.client import open_channel


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tau2eval_bridge", *arguments],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_help_names_every_setting() -> None:
    done = run("--help")
    assert done.returncode == 0
    for name in ("AGENT_ADDRESS", "STALL_SECONDS", "MAX_SESSIONS", "SPOOL_DIR"):
        assert f"TAU2EVAL_BRIDGE_{name} " in done.stdout
    # Every setting has its meaning on the line below.
    lines = done.stdout.splitlines()
    for line, below in itertools.pairwise(lines):
        if "TAU2EVAL_BRIDGE_" in line:
            assert below.strip(), line


def test_wrong_use_exits_with_2() -> None:
    assert run("--verbose").returncode == 2
    done = run(TAU2EVAL_BRIDGE_STALL_SECOND="3")
    assert done.returncode == 2
    assert "TAU2EVAL_BRIDGE_STALL_SECONDS" in done.stderr
    done = run(TAU2EVAL_BRIDGE_RECORDING_SAMPLE_RATE_HZ="11025")
    assert done.returncode == 2
    assert "RECORDING_SAMPLE_RATE_HZ" in done.stderr


async def test_a_call_in_progress_outlives_sigterm(tmp_path: Path) -> None:
    scorer = FakeScorer()
    async with (
        serve_fake(FakeBot(polite_agent)) as agent,
        serve_fake(FakeBot(polite_user)) as user,
        serve_fake(scorer) as scorer_address,
    ):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tau2eval_bridge",
            env={
                **os.environ,
                "TAU2EVAL_BRIDGE_PORT": "0",
                "TAU2EVAL_BRIDGE_AGENT_ADDRESS": agent,
                "TAU2EVAL_BRIDGE_USER_ADDRESS": user,
                "TAU2EVAL_BRIDGE_SCORER_ADDRESS": scorer_address,
                "TAU2EVAL_BRIDGE_SPOOL_DIR": str(tmp_path / "spool"),
                "TAU2EVAL_BRIDGE_DRAIN_SECONDS": "40",
            },
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(60):
                line = json.loads(await process.stdout.readline())
                assert (line["event"], line["service"]) == ("listening", "bridge")
                async with open_channel(line["grpc"]) as channel:
                    stub = bridge_pb2_grpc.BridgeServiceStub(channel)
                    request = bridge_pb2.RunScenarioRequest(run_id="r", scenario="fake__1")
                    last = ""
                    async for response in stub.RunScenario(request, timeout=60):
                        last = response.event.WhichOneof("event") or ""
                        if last == "started":
                            process.send_signal(signal.SIGTERM)
                    assert last == "finished"
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    (parts,) = scorer.records
    assert parts[-1].footer.stop_reason == record_pb2.STOP_REASON_AGENT_EXIT
    assert not list((tmp_path / "spool").iterdir())
