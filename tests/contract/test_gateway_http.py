"""The gateway as a process, seen by ordinary clients: OpenAI's own, raw HTTP and gRPC."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import openai
import pytest
from aiohttp import web
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tau2eval.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from tau2eval_common.client import open_channel
from tau2eval_common.errors import error_info

KEY = "a-contract-test-key"
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
WORDS = ["One ", "two ", "three."]


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": "x",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
    }


async def _upstream(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8, "cost": 0.0}
    if body["messages"][-1]["content"] == "fail":
        error = {"message": "too long", "type": "invalid_request_error", "param": "messages"}
        return web.json_response(
            {"error": {**error, "code": "context_length_exceeded"}}, status=400
        )
    if not body.get("stream"):
        message: dict[str, Any] = {"role": "assistant", "content": "".join(WORDS)}
        if body.get("tools"):
            call = {"id": "t1", "type": "function"}
            call["function"] = {"name": "look", "arguments": "{}"}  # type: ignore[assignment]
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        finish = "tool_calls" if body.get("tools") else "stop"
        choice = {"index": 0, "message": message, "finish_reason": finish}
        answer = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
        return web.json_response({**answer, "choices": [choice], "usage": usage})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    chunks = [_chunk({"role": "assistant"}), *(_chunk({"content": word}) for word in WORDS)]
    cut = body["messages"][-1]["content"] == "cut"
    if not cut:
        chunks += [_chunk({}, "stop"), {**_chunk({}), "choices": [], "usage": usage}]
    for item in chunks:
        await response.write(b"data: " + json.dumps(item).encode() + b"\n\n")
    if not cut:
        await response.write(b"data: [DONE]\n\n")
    return response


@dataclass
class Running:
    process: asyncio.subprocess.Process
    http: str
    grpc: str
    folder: Path


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Running]:
    app = web.Application()
    app.router.add_post("/v1/chat/completions", _upstream)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    environ = {k: v for k, v in os.environ.items() if not k.startswith("TAU2EVAL_")}
    environ |= {
        "TAU2EVAL_GATEWAY_PORT": "0",
        "TAU2EVAL_GATEWAY_HTTP_PORT": "0",
        "TAU2EVAL_GATEWAY_DATA_DIR": str(tmp_path),
        "TAU2EVAL_GATEWAY_EXIT_WITH_PARENT": "true",
        "TAU2EVAL_GATEWAY_SCRIPTED_ADDRESS": f"127.0.0.1:{runner.addresses[0][1]}",
        "MODEL_API_KEYS": KEY,
    }
    environ.pop("DATABASE_URL", None)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tau2eval_gateway",
        env=environ,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
        yield Running(process, line["http"], line["grpc"], tmp_path)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0
        await runner.cleanup()


def _client(gateway: Running, key: str = KEY) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(
        base_url=f"http://{gateway.http}/v1", api_key=key, max_retries=0, timeout=30
    )


async def test_openai_client(gateway: Running) -> None:
    async with _client(gateway) as client:
        messages: Any = [{"role": "user", "content": "Count."}]
        raw = await client.chat.completions.with_raw_response.create(
            model="scripted/x", messages=messages
        )
        assert raw.parse().choices[0].message.content == "One two three."
        assert raw.headers["x-marina-upstream-model"] == "scripted/x"
        assert raw.headers["x-marina-cost-usd"] == "0.0"
        assert raw.headers["x-request-id"]
        with_tools = await client.chat.completions.create(
            model="scripted/x",
            messages=messages,
            tools=TOOLS,  # type: ignore[arg-type]
        )
        assert with_tools.choices[0].message.tool_calls[0].function.name == "look"
        stream: Any = await client.chat.completions.create(
            model="scripted/x", messages=messages, stream=True
        )
        heard = [
            chunk.choices[0].delta.content
            async for chunk in stream
            if chunk.choices and chunk.choices[0].delta.content
        ]
        assert heard == WORDS
        cut: Any = await client.chat.completions.create(
            model="scripted/x", messages=[{"role": "user", "content": "cut"}], stream=True
        )
        heard = []
        with pytest.raises(openai.APIError):
            heard += [chunk async for chunk in cut]
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(
                model="scripted/x", messages=[{"role": "user", "content": "fail"}]
            )
        assert refused.value.code == "context_length_exceeded"
        with pytest.raises(openai.BadRequestError) as later:
            await client.chat.completions.create(
                model="marina/verify:scripted/x+", messages=messages
            )
        assert later.value.code == "invalid_model"
        assert [model.id async for model in client.models.list()] == []
    async with _client(gateway, "wrong-key") as client:
        with pytest.raises(openai.AuthenticationError):
            await client.models.list()


async def test_both_transports_share_one_ledger(gateway: Running) -> None:
    body = {"model": "scripted/x", "messages": [{"role": "user", "content": "Count."}]}
    headers = {
        "Authorization": f"Bearer {KEY}",
        "x-tau2eval-run": "run-1",
        "x-tau2eval-role": "agent",
    }
    url = f"http://{gateway.http}/v1/chat/completions"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=body, headers=headers) as response,
    ):
        assert response.status == 200
    async with open_channel(gateway.grpc) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", "tau2eval.gateway.v1.ChatService", "tau2eval.gateway.v1.SpendService"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name), timeout=20)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        chat = gateway_pb2_grpc.ChatServiceStub(channel)
        context = gateway_pb2.CallContext(run_id="run-1", role="user")
        request = gateway_pb2.StreamChatCompletionRequest(
            context=context, body_json=json.dumps(body).encode()
        )
        kinds = [
            message.WhichOneof("message")
            async for message in chat.StreamChatCompletion(request, timeout=20)
        ]
        assert kinds == ["chunk_json"] * 6 + ["metadata"]
        body["messages"] = [{"role": "user", "content": "fail"}]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await chat.ChatCompletion(
                gateway_pb2.ChatCompletionRequest(
                    context=context, body_json=json.dumps(body).encode()
                ),
                timeout=20,
            )
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        info = error_info(caught.value)
        assert info is not None
        assert (info.domain, info.reason) == ("tau2eval.gateway", "CONTEXT_LENGTH_EXCEEDED")
        assert info.metadata["http_status"] == "400"
        spend = gateway_pb2_grpc.SpendServiceStub(channel)
        rows = (
            await spend.ListRunSpend(gateway_pb2.ListRunSpendRequest(run_id="run-1"), timeout=20)
        ).rows
    assert {row.role: (row.calls, row.prompt_tokens) for row in rows} == {
        "agent": (1, 5),
        "user": (2, 5),
    }
    gateway.process.send_signal(signal.SIGTERM)
    await asyncio.wait_for(gateway.process.wait(), 30)
    with sqlite3.connect(gateway.folder / "gateway.sqlite3") as database:
        statuses = database.execute(
            "SELECT status, key_id LIKE 'key_%' FROM gateway_calls ORDER BY time"
        )
        assert statuses.fetchall() == [("ok", 1), ("ok", 0), ("context_length_exceeded", 0)]
    database.close()
