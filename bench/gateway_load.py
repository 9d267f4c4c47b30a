"""A load generator of raw sockets, in a process of its own.

    .venv/bin/python bench/gateway_load.py PORT --concurrency 16 --seconds 3 [--stream] [--key KEY]
    .venv/bin/python bench/gateway_load.py PORT --concurrency 16 --requests 10000

Every connection sends its next request when the answer to the last one is whole. An answer counts
only when it is what the mock said: status 200, the whole body, and of a stream [DONE]; anything
else ends the measurement. Prints one line of JSON with times in seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import re
import sys
import time
from typing import Any

ANSWER_SECONDS = 60.0
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


def request_body(stream: bool, kilobytes: float) -> bytes:
    """Returns a chat body of about that size."""
    filler = "The customer flies from Seattle to New York and pays with the card on file. "
    system = filler * max(1, round(kilobytes * 1000 / len(filler)))
    body: dict[str, Any] = {
        "model": "bench-model",
        "messages": [
            {"role": "system", "content": system},
            {"role": "user", "content": "Please change my reservation EHGLP3 to economy."},
        ],
        "temperature": 0.0,
    }
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return json.dumps(body).encode()


def request_bytes(port: int, key: str, body: bytes) -> bytes:
    lines = [
        "POST /v1/chat/completions HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Accept: */*",
        "User-Agent: bench",
        "Content-Type: application/json",
        f"Authorization: Bearer {key}",
        f"Content-Length: {len(body)}",
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Tally:
    """What all connections of one measurement have seen."""

    def __init__(self, until: float, requests: int) -> None:
        self.until = until
        self.left = requests
        self.seconds: list[float] = []
        self.first: list[float] = []
        self.fault = ""

    def more(self) -> bool:
        """Takes the right to send one more request."""
        if self.fault or time.perf_counter() >= self.until or self.left == 0:
            return False
        self.left -= 1
        return True


class Client(asyncio.Protocol):
    """One connection; `done` is set when it has nothing more to ask."""

    def __init__(self, request: bytes, stream: bool, tally: Tally) -> None:
        self._request = request
        self._stream = stream
        self._tally = tally
        self._buffer = bytearray()
        self._asking = False
        self._first = 0.0
        self._sent = 0.0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if self._asking:
            self._fail("the connection was closed before the answer was whole")
        self._end()

    def data_received(self, data: bytes) -> None:
        if self._stream:
            self._stream_data(data)
        else:
            self._plain_data(data)

    def _next(self) -> None:
        self._buffer.clear()
        self._first = 0.0
        if not self._tally.more():
            self._end()
            return
        self._asking = True
        self._sent = time.perf_counter()
        self._transport.write(self._request)

    def _plain_data(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        length = _LENGTH.search(self._buffer, 0, end + 2)
        if length is None:
            self._fail(f"no Content-Length: {bytes(self._buffer[:300])!r}")
        elif len(self._buffer) >= end + 4 + int(length.group(1)):
            self._whole(self._buffer.find(b'"finish_reason"', end) > 0)

    def _stream_data(self, data: bytes) -> None:
        self._buffer += data
        if not self._first and b"data:" in self._buffer:
            self._first = time.perf_counter() - self._sent
        if self._buffer.endswith(b"0\r\n\r\n"):
            self._whole(b"data: [DONE]" in self._buffer and b"word19" in self._buffer)
        elif len(self._buffer) > 12 and not self._buffer.startswith(b"HTTP/1.1 200"):
            self._whole(False)

    def _whole(self, right: bool) -> None:
        now = time.perf_counter()
        self._asking = False
        if not right or not self._buffer.startswith(b"HTTP/1.1 200"):
            self._fail(f"a wrong answer: {bytes(self._buffer[:500])!r}")
            return
        self._tally.seconds.append(now - self._sent)
        if self._stream:
            self._tally.first.append(self._first)
        self._next()

    def _fail(self, why: str) -> None:
        self._tally.fault = self._tally.fault or why
        self._asking = False
        self._end()

    def _end(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


async def measure(
    port: int, request: bytes, stream: bool, concurrency: int, seconds: float, requests: int
) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    begun = time.perf_counter()
    tally = Tally(begun + seconds, requests)
    clients = []
    for _ in range(concurrency):
        _, client = await loop.create_connection(
            lambda: Client(request, stream, tally), "127.0.0.1", port
        )
        clients.append(client)
    async with asyncio.timeout(seconds + ANSWER_SECONDS):
        await asyncio.gather(*(client.done for client in clients))
    wall = time.perf_counter() - begun
    for client in clients:
        client._transport.close()
    if tally.fault:
        raise SystemExit(f"gateway_load: {tally.fault}")
    return figures(tally, wall)


def figures(tally: Tally, wall: float) -> dict[str, Any]:
    result: dict[str, Any] = {
        "requests": len(tally.seconds),
        "per_second": len(tally.seconds) / wall,
        "p50": percentile(tally.seconds, 0.5),
        "p99": percentile(tally.seconds, 0.99),
    }
    if tally.first:
        result["first_byte_p50"] = percentile(tally.first, 0.5)
        result["first_byte_p99"] = percentile(tally.first, 0.99)
    return result


def percentile(values: list[float], share: float) -> float:
    """Returns the smallest value that at least that share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("port", type=int)
    parser.add_argument("--concurrency", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--requests", type=int, default=-1, help="stop after so many; -1: no limit")
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--key", default="sk-bench")
    parser.add_argument("--kilobytes", type=float, default=2.0, help="size of the request")
    asked = parser.parse_args()
    body = request_body(asked.stream, asked.kilobytes)
    request = request_bytes(asked.port, asked.key, body)
    work = measure(
        asked.port, request, asked.stream, asked.concurrency, asked.seconds, asked.requests
    )
    try:
        import uvloop
    except ImportError:
        print(json.dumps(asyncio.run(work)))
    else:
        print(json.dumps(uvloop.run(work)))


if __name__ == "__main__":
    sys.exit(main())
