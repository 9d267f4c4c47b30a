"""Lateness of the bridge's frames with several calls at once, as JSON.

Synthetic bots (tones in turns) run in a process of their own, so that what is measured is the
bridge: `python bench/bridge_lateness.py [--calls 4] [--seconds 20]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

import grpc

sys.path.insert(0, str(Path(__file__).parent.parent / "services" / "bridge" / "tests"))

import bridge_fakes

from tau2eval.bridge.v1 import bridge_pb2, bridge_pb2_grpc
from tau2eval_bridge.service import BridgeServicer
from tau2eval_bridge.settings import BridgeSettings
from tau2eval_common.client import open_channel


async def _bot(kind: str) -> tuple[asyncio.subprocess.Process, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, bridge_fakes.__file__, kind, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    return process, (await process.stdout.readline()).decode().strip()


async def measure(calls: int, seconds: int) -> dict[str, object]:
    """Holds calls of the given length at once and returns the percentiles, in milliseconds."""
    scorer = bridge_fakes.FakeScorer()
    bots = [await _bot("chatty_agent"), await _bot("polite_user")]
    try:
        with tempfile.TemporaryDirectory() as folder:
            async with bridge_fakes.serve_fake(scorer) as address:
                settings = BridgeSettings(
                    agent_address=bots[0][1],
                    user_address=bots[1][1],
                    scorer_address=address,
                    spool_dir=folder,
                    max_sessions=calls,
                )
                server = grpc.aio.server()
                bridge_pb2_grpc.add_BridgeServiceServicer_to_server(
                    BridgeServicer(settings), server
                )
                port = server.add_insecure_port("127.0.0.1:0")
                await server.start()
                async with open_channel(f"127.0.0.1:{port}") as channel:
                    stub = bridge_pb2_grpc.BridgeServiceStub(channel)

                    async def hold(trial: int) -> None:
                        request = bridge_pb2.RunScenarioRequest(
                            run_id="bench",
                            scenario="fake__1",
                            trial=trial,
                            max_duration_seconds=seconds,
                        )
                        async for _ in stub.RunScenario(request, timeout=seconds + 60):
                            pass

                    await asyncio.gather(*(hold(trial) for trial in range(calls)))
                await server.stop(0)
    finally:
        for process, _ in bots:
            process.kill()
            await process.wait()
    qualities = [parts[-1].footer.line_quality for parts in scorer.records]
    return {
        "bench": "bridge_lateness",
        "calls": calls,
        "seconds": seconds,
        "frames": sum(q.frames for q in qualities),
        "p50_ms": round(max(q.frame_lateness_p50_ms for q in qualities), 2),
        "p99_ms": round(max(q.frame_lateness_p99_ms for q in qualities), 2),
        "max_ms": round(max(q.frame_lateness_max_ms for q in qualities), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=20)
    arguments = parser.parse_args()
    print(json.dumps(asyncio.run(measure(arguments.calls, arguments.seconds))))


if __name__ == "__main__":
    main()
