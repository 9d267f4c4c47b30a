"""A model upstream on loopback that costs next to nothing: what is measured with it is the gateway.

    .venv/bin/python bench/gateway_mock.py [PORT]

Answers every POST as OpenAI does: a chat.completion, or 20 chunks, usage and [DONE] when the body
asks for a stream. Each chunk is written in a turn of the loop of its own, so that it travels as a
segment of its own, as a model's words do. Prints {"port": N} when it listens.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any

WORDS = 20
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")
_STREAM = re.compile(rb'"stream" *: *true')
_USAGE = {
    "prompt_tokens": 420,
    "completion_tokens": WORDS,
    "total_tokens": 420 + WORDS,
    "prompt_tokens_details": {"cached_tokens": 256},
    "completion_tokens_details": {"reasoning_tokens": 0},
}
_COMMON = {"id": "chatcmpl-bench", "created": 1790000000, "model": "bench-model"}
TEXT = "Your reservation EHGLP3 is changed. Is there anything else that I can do for you?"


def plain_answer() -> bytes:
    """Returns head and body of a whole answer."""
    body = {
        **_COMMON,
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": TEXT},
                "finish_reason": "stop",
            }
        ],
        "usage": _USAGE,
    }
    payload = json.dumps(body).encode()
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(payload)}\r\n"
        "Connection: keep-alive\r\n\r\n"
    )
    return head.encode() + payload


def stream_pieces() -> list[bytes]:
    """Returns head and chunks of a streamed answer, each as one piece of chunked encoding."""
    words = [f"word{at} " for at in range(WORDS)]
    deltas: list[dict[str, Any]] = [{"content": word} for word in words]
    deltas[0]["role"] = "assistant"
    events = [_chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    events[-1] = _chunk([{"index": 0, "delta": deltas[-1], "finish_reason": "stop"}])
    events.append(_chunk([], usage=_USAGE))
    events.append("data: [DONE]\n\n")
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
        "Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n"
    )
    framed = [f"{len(event):x}\r\n{event}\r\n" for event in events]
    framed[0] = head + framed[0]
    framed[-1] += "0\r\n\r\n"
    return [piece.encode() for piece in framed]


def _chunk(choices: list[dict[str, Any]], **more: Any) -> str:
    return (
        "data: "
        + json.dumps(
            {**_COMMON, "object": "chat.completion.chunk", "choices": choices, **more},
            separators=(",", ":"),
        )
        + "\n\n"
    )


class Mock(asyncio.Protocol):
    """One connection, kept alive."""

    def __init__(self, plain: bytes, pieces: list[bytes]) -> None:
        self._plain = plain
        self._pieces = pieces
        self._buffer = b""
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._buffer, 0, end + 2)
            whole = end + 4 + (int(length.group(1)) if length else 0)
            if len(self._buffer) < whole:
                return
            request, self._buffer = self._buffer[:whole], self._buffer[whole:]
            if _STREAM.search(request, end):
                self._say(0)
            else:
                self._transport.write(self._plain)  # type: ignore[attr-defined]

    def _say(self, at: int) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(self._pieces[at])  # type: ignore[attr-defined]
        if at + 1 < len(self._pieces):
            self._loop.call_soon(self._say, at + 1)


async def serve(port: int) -> None:
    plain, pieces = plain_answer(), stream_pieces()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Mock(plain, pieces), "127.0.0.1", port)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
    else:
        uvloop.run(serve(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
