"""The gateway as it is shipped: its own process, event loop and collector settings."""

import asyncio
import gc
import json
import os
import sqlite3
import sys
from contextlib import asynccontextmanager

import aiohttp
import pytest

from tau2eval.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from tau2eval_common.client import open_channel
from tau2eval_gateway.__main__ import GatewayProcess, loop_factory
from tau2eval_gateway.model_list import Deployment
from tau2eval_gateway.settings import GatewaySettings, SeedSettings


@asynccontextmanager
async def running(upstream, folder):
    kept = ("TAU2EVAL_", "MODEL_API_KEYS", "MARINA_", "DATABASE_URL")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(kept)}
    environ |= {
        "TAU2EVAL_GATEWAY_PORT": "0",
        "TAU2EVAL_GATEWAY_HTTP_PORT": "0",
        "TAU2EVAL_GATEWAY_HTTP_DRAIN_SECONDS": "1",
        "TAU2EVAL_GATEWAY_DATA_DIR": str(folder),
        "TAU2EVAL_GATEWAY_SCRIPTED_ADDRESS": upstream.address,
        "MODEL_API_KEYS": "key-of-the-test",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tau2eval_gateway", env=environ, stdout=asyncio.subprocess.PIPE
    )
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        yield process, json.loads(line)
    finally:
        if process.returncode is None:
            process.kill()
        await asyncio.wait_for(process.wait(), 20)


async def test_both_transports_share_the_loop_and_every_call_has_its_row(upstream, h, tmp_path):
    upstream.replies["scripted/plain"] = upstream.answer(h.completion())
    pieces = [h.chunk({"content": "a"}), h.chunk({"content": "b"}), h.chunk({}, "stop")]
    upstream.replies["scripted/stream"] = upstream.stream(*pieces)
    upstream.replies["scripted/slow"] = upstream.stream(*pieces, pause_after=1)
    headers = {"Authorization": "Bearer key-of-the-test"}
    async with running(upstream, tmp_path) as (process, told):
        url = f"http://{told['http']}/v1/chat/completions"

        async def plain(session):
            async with session.post(url, json=h.ask("scripted/plain")) as response:
                assert response.status == 200
                assert await response.json() == h.completion()

        async def streamed(session):
            async with session.post(url, json=h.ask("scripted/stream", stream=True)) as response:
                text = await response.text()
                assert text.count("data: ") == 4
                assert text.endswith("data: [DONE]\n\n")

        async def by_grpc(stub):
            body = json.dumps(h.ask("scripted/plain")).encode()
            request = gateway_pb2.ChatCompletionRequest(body_json=body)
            response = await stub.ChatCompletion(request, timeout=20)
            assert json.loads(response.body_json) == h.completion()

        async with (
            aiohttp.ClientSession(headers=headers) as session,
            open_channel(told["grpc"]) as channel,
            asyncio.timeout(60),
        ):
            stub = gateway_pb2_grpc.ChatServiceStub(channel)
            await asyncio.gather(
                *(ask(session) for ask in (plain, streamed) for _ in range(20)),
                *(by_grpc(stub) for _ in range(20)),
            )
            async with session.post(url, json=h.ask("scripted/slow", stream=True)) as response:
                await response.content.readany()
            # Leaving the block closes the connection of a stream that goes on.
            await upstream.cancelled.wait()
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 30) == 0
    database = sqlite3.connect(tmp_path / "gateway.sqlite3")
    rows = database.execute("SELECT status, streamed, COUNT(*) FROM gateway_calls GROUP BY 1, 2")
    assert sorted(rows) == [("cancelled", 1, 1), ("ok", 0, 40), ("ok", 1, 20)]
    database.close()


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop is not made for it")
def test_the_process_runs_on_uvloop():
    factory = loop_factory()
    assert factory is not None
    loop = factory()
    try:
        assert type(loop).__module__.startswith("uvloop")
    finally:
        loop.close()


async def test_what_has_come_to_stay_is_spared_by_the_collector(tmp_path):
    before = gc.get_threshold()
    service = GatewayProcess(
        GatewaySettings(http_port=0, data_dir=tmp_path, exit_with_parent=True),
        SeedSettings(MARINA_OPEN_API="true"),
        [Deployment(model_name="*", model="*")],
        {},
    )
    try:
        await service.start()
        assert gc.get_freeze_count() > 10_000
        assert gc.isenabled()
    finally:
        await service.stop()
        gc.unfreeze()
        gc.set_threshold(*before)
