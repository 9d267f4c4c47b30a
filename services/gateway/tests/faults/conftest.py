"""An upstream on the level of bytes, for faults that no HTTP server would commit."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import openai
import pytest

WORDS = [f"word{number} " for number in range(59)] + ["größer→."]
WHOLE = "".join(WORDS)


@dataclass
class Line:
    """One connection, with the request that has come on it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int = 0
    body: dict[str, Any] = field(default_factory=dict)
    requests: int = 0

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Ends the connection with a TCP reset."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def close(self) -> None:
        self.writer.close()

    async def gone(self) -> None:
        """Waits until the gateway leaves."""
        while await self.reader.read(65536):
            pass

    async def head(
        self,
        *more: str,
        status: str = "200 OK",
        kind: str | None = None,
        length: int | None = None,
    ) -> None:
        """Sends the head of an answer; its body comes in chunks unless a length is given."""
        kind = kind or ("text/event-stream" if self.stream else "application/json")
        sized = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", sized, *more]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n")

    async def piece(self, data: bytes) -> None:
        """Sends a chunk of a body in chunks."""
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def error(self, status: str, body: bytes | dict[str, Any], *more: str) -> None:
        """Sends an answer with an error status."""
        kind = "application/json" if isinstance(body, dict) else "text/html"
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        await self.head(*more, status=status, kind=kind, length=len(data))
        await self.send(data)

    async def whole(self) -> None:
        """Sends the whole answer as a healthy provider does."""
        await self.head()
        for event in answer(self.stream):
            await self.piece(event)
        await self.end()


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "served",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }


def sse(event: object) -> bytes:
    return b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n"


def answer(stream: bool) -> list[bytes]:
    """The whole answer in pieces: 63 events, or one JSON text in three parts."""
    usage = {"prompt_tokens": 9, "completion_tokens": 60, "total_tokens": 69, "cost": 0.001}
    if stream:
        last = {**chunk({}, "stop"), "usage": usage}
        events = [chunk({"role": "assistant", "content": ""})]
        events += [chunk({"content": word}) for word in WORDS]
        return [sse(event) for event in [*events, last]] + [b"data: [DONE]\n\n"]
    message = {"role": "assistant", "content": WHOLE}
    body = {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "served",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": usage,
    }
    text = json.dumps(body, ensure_ascii=False).encode()
    return [text[:50], text[50:400], text[400:]]


Script = Callable[[Line], Awaitable[None]]


@dataclass
class Wire:
    """The upstream: a script for every model id."""

    address: str = ""
    scripts: dict[str, Script] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    attempts: list[str] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        line = Line(reader, writer)
        self.lines.append(line)
        try:
            while (head := await reader.readuntil(b"\r\n\r\n")) and not writer.is_closing():
                length = next(
                    int(item.split(b":")[1])
                    for item in head.split(b"\r\n")
                    if item.lower().startswith(b"content-length:")
                )
                line.body = json.loads(await reader.readexactly(length))
                line.requests += 1
                model = line.body["model"]
                self.attempts.append(model)
                line.number = self.attempts.count(model)
                await self.scripts.get(model, Line.whole)(line)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.tasks.discard(task)
            writer.close()


@pytest.fixture
async def wire() -> AsyncIterator[Wire]:
    wire = Wire()
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    wire.address = f"{host}:{port}"
    try:
        yield wire
    finally:
        server.close()
        for task in list(wire.tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@dataclass
class Outcome:
    """What a client makes of an answer."""

    text: str = ""
    finish: str | None = None
    done: bool = False
    status: int = 0
    code: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether the client takes it for a whole answer."""
        return not self.code and self.finish is not None


async def openai_client(gateway: Any, model: str, stream: bool) -> Outcome:
    """Asks as OpenAI's own client does."""
    outcome = Outcome()
    async with openai.AsyncOpenAI(
        base_url=f"http://{gateway.http}/v1", api_key="any", max_retries=0, timeout=30
    ) as client:
        messages: Any = [{"role": "user", "content": "Sixty words, please."}]
        try:
            given: Any = await client.chat.completions.create(
                model=model, messages=messages, stream=stream
            )
            if not stream:
                outcome.text = given.choices[0].message.content
                outcome.finish = given.choices[0].finish_reason
                return outcome
            async for item in given:
                for choice in item.choices:
                    outcome.text += choice.delta.content or ""
                    outcome.finish = choice.finish_reason or outcome.finish
        except openai.APIStatusError as error:
            outcome.status, outcome.code = error.status_code, error.code or "?"
            outcome.headers = dict(error.response.headers)
        except openai.APIError as error:
            outcome.code = error.code or type(error).__name__
    return outcome


async def raw_client(gateway: Any, model: str, stream: bool) -> Outcome:
    """Asks with bare HTTP and believes nothing but the bytes."""
    outcome = Outcome()
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session,
        session.post(f"http://{gateway.http}/v1/chat/completions", json=body) as response,
    ):
        outcome.status = response.status
        outcome.headers = {name.lower(): value for name, value in response.headers.items()}
        text = await response.text()
        if response.status != 200:
            outcome.code = json.loads(text)["error"]["code"]
        elif not stream:
            choice = json.loads(text)["choices"][0]
            outcome.text, outcome.finish = choice["message"]["content"], choice["finish_reason"]
        else:
            _read_stream(text, outcome)
    return outcome


def _read_stream(text: str, outcome: Outcome) -> None:
    for line in re.split(r"\r\n|\n|\r", text):
        if not line.startswith("data: "):
            continue
        assert not outcome.done, "nothing may follow [DONE]"
        if line == "data: [DONE]":
            outcome.done = True
            continue
        event = json.loads(line[6:])
        if "error" in event:
            outcome.code = event["error"]["code"]
            continue
        assert not outcome.code, "nothing may follow an error"
        for choice in event["choices"]:
            outcome.text += choice["delta"].get("content") or ""
            outcome.finish = choice["finish_reason"] or outcome.finish


@pytest.fixture(params=["openai", "raw"])
def ask(request: pytest.FixtureRequest) -> Callable[[Any, str, bool], Awaitable[Outcome]]:
    return openai_client if request.param == "openai" else raw_client


@dataclass
class Kit:
    """Functions of this file, for the tests."""

    answer = staticmethod(answer)
    chunk = staticmethod(chunk)
    sse = staticmethod(sse)
    raw = staticmethod(raw_client)
    whole = WHOLE


@pytest.fixture
def kit() -> Kit:
    return Kit()
