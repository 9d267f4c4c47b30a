"""The least that a gateway does, on several servers and clients: for docs/adr/0006.

    .venv-bench/bin/python bench/gateway_through.py SERVER CLIENT LOOP PORT UPSTREAM_PORT

SERVER is aiohttp, starlette (on uvicorn with httptools) or granian (one worker, the same Starlette
application); CLIENT is aiohttp or httpx; LOOP is asyncio or uvloop. It reads the body, sends it on,
and gives the answer back: whole, or piece by piece when the body asks for a stream.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

_JSON = {"Content-Type": "application/json"}


class Client(Protocol):
    """What the servers need of a client."""

    async def whole(self, body: bytes) -> bytes: ...

    def pieces(self, body: bytes) -> Any: ...

    async def close(self) -> None: ...


class AiohttpClient:
    def __init__(self, url: str) -> None:
        import aiohttp

        self._url = url
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar()
        )

    async def whole(self, body: bytes) -> bytes:
        async with self._session.post(self._url, data=body, headers=_JSON) as response:
            return await response.read()

    @asynccontextmanager
    async def pieces(self, body: bytes) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self._session.post(self._url, data=body, headers=_JSON) as response:
            yield response.content.iter_any()

    async def close(self) -> None:
        await self._session.close()


class HttpxClient:
    def __init__(self, url: str) -> None:
        import httpx

        self._url = url
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        self._client = httpx.AsyncClient(limits=limits, timeout=60, trust_env=False)

    async def whole(self, body: bytes) -> bytes:
        response = await self._client.post(self._url, content=body, headers=_JSON)
        return response.content

    @asynccontextmanager
    async def pieces(self, body: bytes) -> AsyncIterator[AsyncIterator[bytes]]:
        asked = self._client.stream("POST", self._url, content=body, headers=_JSON)
        async with asked as response:
            yield response.aiter_raw()

    async def close(self) -> None:
        await self._client.aclose()


CLIENTS = {"aiohttp": AiohttpClient, "httpx": HttpxClient}


def streams(body: bytes) -> bool:
    return b'"stream": true' in body


def aiohttp_server(kind: str, url: str, loop: str, port: int) -> None:
    from aiohttp import web

    client: Client

    async def started(_: web.Application) -> AsyncIterator[None]:
        nonlocal client
        client = CLIENTS[kind](url)
        yield
        await client.close()

    async def chat(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if not streams(body):
            whole = await client.whole(body)
            return web.Response(body=whole, content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        async with client.pieces(body) as pieces:
            await response.prepare(request)
            async for piece in pieces:
                await response.write(piece)
        await response.write_eof()
        return response

    async def serve() -> None:
        application = web.Application(client_max_size=10_000_000)
        application.cleanup_ctx.append(started)
        application.router.add_post("/v1/chat/completions", chat)
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        await asyncio.Event().wait()

    if loop == "uvloop":
        import uvloop

        uvloop.run(serve())
    else:
        asyncio.run(serve())


def starlette_application(kind: str, url: str) -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    client: Client

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        nonlocal client
        client = CLIENTS[kind](url)
        yield
        await client.close()

    async def chat(request: Request) -> Response:
        body = await request.body()
        if not streams(body):
            return Response(await client.whole(body), media_type="application/json")

        async def told() -> AsyncIterator[bytes]:
            async with client.pieces(body) as pieces:
                async for piece in pieces:
                    yield piece

        return StreamingResponse(told(), media_type="text/event-stream")

    route = Route("/v1/chat/completions", chat, methods=["POST"])
    return Starlette(routes=[route], lifespan=lifespan)


def uvicorn_server(kind: str, url: str, loop: str, port: int) -> None:
    import uvicorn

    application = starlette_application(kind, url)
    uvicorn.run(
        application, port=port, loop=loop, http="httptools", access_log=False, log_level="error"
    )


def granian_server(kind: str, url: str, loop: str, port: int) -> None:
    from granian import Granian

    # Granian imports the application in a process that it starts: see `application` below.
    os.environ["THROUGH_CLIENT"], os.environ["THROUGH_URL"] = kind, url
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    Granian(
        "gateway_through:application",
        factory=True,
        address="127.0.0.1",
        port=port,
        interface="asgi",
        workers=1,
        loop=loop,
        log_access=False,
        log_enabled=False,
    ).serve()


def application() -> Any:
    return starlette_application(os.environ["THROUGH_CLIENT"], os.environ["THROUGH_URL"])


SERVERS = {"aiohttp": aiohttp_server, "starlette": uvicorn_server, "granian": granian_server}


def main() -> None:
    server, client, loop, port, upstream = sys.argv[1:]
    url = f"http://127.0.0.1:{upstream}/v1/chat/completions"
    SERVERS[server](client, url, loop, int(port))


if __name__ == "__main__":
    main()
