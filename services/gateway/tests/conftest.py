"""A scripted upstream and a gateway in front of it, both on free ports of this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from aiohttp import web

from tau2eval.gateway.v1 import gateway_pb2_grpc
from tau2eval_common.client import open_channel
from tau2eval_common.interceptors import ErrorInterceptor
from tau2eval_gateway.model_list import Deployment
from tau2eval_gateway.service import GatewayService
from tau2eval_gateway.settings import GatewaySettings, SeedSettings

USAGE = {"prompt_tokens": 12, "completion_tokens": 4, "total_tokens": 16, "cost": 0.0}
Reply = Callable[[web.Request, dict[str, Any]], Any]


@dataclass
class Upstream:
    """What the upstream was sent, and what it answers by model id."""

    address: str = ""
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    replies: dict[str, Reply] = field(default_factory=dict)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        self.bodies.append(raw)
        self.headers.append({k.lower(): v for k, v in request.headers.items()})
        self.arrived.set()
        body = json.loads(raw)
        try:
            return await self.replies[body["model"]](request, body)
        except (asyncio.CancelledError, ConnectionError):
            self.cancelled.set()
            raise

    def stream(
        self,
        *events: object,
        done: bool = True,
        cut: bool = False,
        pause_after: int | None = None,
    ) -> Reply:
        """A reply that streams events: dicts as data, bytes as they are."""

        async def reply(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            for at, event in enumerate(events):
                if at == pause_after:
                    await asyncio.sleep(30)
                raw = event if isinstance(event, bytes) else sse(event)
                await response.write(raw)
            if cut:
                assert request.transport is not None
                request.transport.abort()
                return response
            if done:
                await response.write(b"data: [DONE]\n\n")
            await response.write_eof()
            return response

        return reply

    def answer(
        self, body: object, status: int = 200, headers: dict[str, str] | None = None
    ) -> Reply:
        async def reply(request: web.Request, _: dict[str, Any]) -> web.Response:
            return web.json_response(body, status=status, headers=headers)

        return reply


def sse(event: object) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "served-1",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        **more,
    }


def completion(content: str | None = "Hello.", **more: Any) -> dict[str, Any]:
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "served-1",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": content},
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
        **more,
    }


def raw_answer(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def error_body(message: str, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "provider_type", "code": code, "param": None}}


@dataclass
class Gateway:
    """A running gateway and clients for it."""

    service: GatewayService
    http: str
    channel: grpc.aio.Channel
    session: aiohttp.ClientSession

    @property
    def chat(self) -> gateway_pb2_grpc.ChatServiceStub:
        return gateway_pb2_grpc.ChatServiceStub(self.channel)

    @property
    def spend(self) -> gateway_pb2_grpc.SpendServiceStub:
        return gateway_pb2_grpc.SpendServiceStub(self.channel)

    def post(self, body: object, **options: Any) -> Any:
        if isinstance(body, (bytes, str)):
            options["data"] = body
        else:
            options["json"] = body
        return self.session.post(f"http://{self.http}/v1/chat/completions", **options)

    async def rows(self) -> list[Any]:
        assert self.service._ledger is not None
        return list(await self.service._ledger.rows())

    async def first_row(self) -> Any:
        """Waits for the row of a call that ends without an answer."""
        async with asyncio.timeout(10):
            while not (rows := await self.rows()):
                await asyncio.sleep(0.01)
        return rows[0]


def ask(model: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "Hi"}], **more}


@asynccontextmanager
async def running_upstream() -> AsyncIterator[Upstream]:
    upstream = Upstream()
    app = web.Application(client_max_size=32_000_000)
    app.router.add_post("/v1/chat/completions", upstream.chat)

    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "scripted/gold"}, {"id": "other"}]})

    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    upstream.address = f"127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield upstream
    finally:
        await runner.cleanup()


@asynccontextmanager
async def running_gateway(
    folder: Path,
    deployments: list[Deployment],
    environ: dict[str, str] | None = None,
    seed: dict[str, str] | None = None,
    **settings: Any,
) -> AsyncIterator[Gateway]:
    given = GatewaySettings(
        http_port=0, data_dir=folder, http_drain_seconds=0.2, exit_with_parent=True, **settings
    )
    service = GatewayService(
        given,
        SeedSettings(**(seed or {"MARINA_OPEN_API": "true"})),  # type: ignore[arg-type]
        deployments,
        environ or {},
    )
    async with AsyncExitStack() as stack:
        await service.start()
        stack.push_async_callback(service.stop)
        server = grpc.aio.server(interceptors=[ErrorInterceptor()])
        service.register(server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        stack.push_async_callback(server.stop, 0)
        channel = open_channel(f"127.0.0.1:{port}")
        stack.push_async_callback(channel.close)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        yield Gateway(service, service.addresses()["http"], channel, session)


@dataclass
class Helpers:
    """Functions of this file, for the tests."""

    ask = staticmethod(ask)
    chunk = staticmethod(chunk)
    completion = staticmethod(completion)
    error_body = staticmethod(error_body)
    raw = staticmethod(raw_answer)
    sse = staticmethod(sse)
    gateway = staticmethod(running_gateway)
    usage = USAGE


@pytest.fixture
def h() -> Helpers:
    return Helpers()


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    async with running_upstream() as found:
        yield found


@pytest.fixture
async def gateway(upstream: Upstream, tmp_path: Path) -> AsyncIterator[Gateway]:
    base = f"http://{upstream.address}/v1"
    deployments = [
        Deployment("scripted/*", "openai/scripted/*", base, own=True),
        Deployment("ext/*", "openai/*", base, api_key="os.environ/EXT_KEY"),
        Deployment("nokey", "openai/nokey", base, api_key="os.environ/UNSET_NAME"),
        Deployment("gone", "openai/gone", "http://127.0.0.1:1/v1"),
    ]
    async with running_gateway(tmp_path, deployments, {"EXT_KEY": "very-secret-value"}) as found:
        yield found
