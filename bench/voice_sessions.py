"""Memory and CPU of voice sessions in one bot process.

Starts an agent-bot as a process, holds sessions that hear silence, and reads the process's
resident memory and CPU time. Prints one line of JSON:

    {"base_mb", "first_session_mb", "per_further_session_mb", "sessions", "cpu_share_per_session"}

usage: python bench/voice_sessions.py [SESSIONS] (default 8)
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator

import grpc
import psutil

from tau2eval.voice.v1 import voice_pb2, voice_pb2_grpc

FRAME = bytes(640)
SETTLE_SECONDS = 4.0
MEASURE_SECONDS = 10.0


class HeldSession:
    """A session that hears silence in real time until it is closed."""

    def __init__(self, channel: grpc.aio.Channel, number: int) -> None:
        self._number = number
        self._over = asyncio.Event()
        self.ready = asyncio.Event()
        stub = voice_pb2_grpc.VoiceBotServiceStub(channel)
        self._call = stub.Converse(self._requests())
        self._reader = asyncio.create_task(self._read())

    async def close(self) -> None:
        self._over.set()
        await asyncio.wait_for(self._reader, 20)

    async def _requests(self) -> AsyncIterator[voice_pb2.ConverseRequest]:
        yield voice_pb2.ConverseRequest(
            setup=voice_pb2.Setup(
                session_id=f"bench-{self._number}",
                role=voice_pb2.ROLE_AGENT,
                prompt="You are idle.",
                tool_domain="tau2_airline",
                tool_names=["EndConversationTool", "GetUserDetailsTool"],
                initialization=voice_pb2.Initialization(db_path="tau2_airline/db.json"),
                model=voice_pb2.ModelConfig(model="none"),
                audio_format=voice_pb2.AudioFormat(sample_rate_hz=16_000),
                modality=voice_pb2.MODALITY_VOICE,
            )
        )
        await self.ready.wait()
        started, count = time.monotonic(), 0
        while not self._over.is_set():
            yield voice_pb2.ConverseRequest(
                audio=voice_pb2.Audio(
                    sequence=count,
                    media_time_seconds=count * 0.02,
                    pcm=FRAME,
                    sample_rate_hz=16_000,
                )
            )
            count += 1
            await asyncio.sleep(max(0.0, started + count * 0.02 - time.monotonic()))
        yield voice_pb2.ConverseRequest(finish=voice_pb2.Finish(reason="bench"))

    async def _read(self) -> None:
        async for _ in self._call:
            self.ready.set()


def memory_mb(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / 2**20


async def measure(process: psutil.Process, address: str, sessions: int) -> dict[str, float]:
    async with grpc.aio.insecure_channel(address) as channel:
        base = memory_mb(process)
        held: list[HeldSession] = []

        async def add() -> float:
            held.append(HeldSession(channel, len(held)))
            await asyncio.wait_for(held[-1].ready.wait(), 60)
            await asyncio.sleep(SETTLE_SECONDS if len(held) in (1, sessions) else 0.2)
            return memory_mb(process)

        first = await add()
        last = first
        for _ in range(sessions - 1):
            last = await add()
        times = process.cpu_times()
        await asyncio.sleep(MEASURE_SECONDS)
        after = process.cpu_times()
        cpu = (after.user + after.system - times.user - times.system) / MEASURE_SECONDS
        for session in held:
            await session.close()
    return {
        "base_mb": round(base, 1),
        "first_session_mb": round(first - base, 1),
        "per_further_session_mb": round((last - first) / (sessions - 1), 2),
        "sessions": sessions,
        "cpu_share_per_session": round(cpu / sessions, 4),
    }


def main(arguments: list[str]) -> int:
    if len(arguments) > 1 or not all(argument.isdigit() for argument in arguments):
        print(__doc__.strip(), "\n\nusage: voice_sessions.py [SESSIONS]", file=sys.stderr)
        return 2
    sessions = int(arguments[0]) if arguments else 8
    if sessions < 2:
        print("at least two sessions are needed", file=sys.stderr)
        return 2
    environment = {
        **os.environ,
        "TAU2EVAL_AGENT_BOT_PORT": "0",
        "TAU2EVAL_AGENT_BOT_MAX_SESSIONS": str(sessions),
        "TAU2EVAL_AGENT_BOT_EXIT_WITH_PARENT": "true",
    }
    bot = subprocess.Popen(
        [sys.executable, "-m", "tau2eval_agent_bot"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert bot.stdout is not None
    try:
        line = bot.stdout.readline()
        if not line:
            return 2
        address = json.loads(line)["grpc"]
        print(json.dumps(asyncio.run(measure(psutil.Process(bot.pid), address, sessions))))
    finally:
        bot.terminate()
        bot.wait(20)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
