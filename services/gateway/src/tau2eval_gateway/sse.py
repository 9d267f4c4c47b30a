"""Server-sent events, split at their ends without changing a byte."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import orjson

DONE = b"[DONE]"
DONE_EVENT = b"data: [DONE]\n\n"
MAX_EVENT_BYTES = 16 * 1024 * 1024

# Two line ends in a row. A CR is a line end of its own only where no LF follows it.
_END = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
_LINE = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class SseEvent(NamedTuple):
    """One event.

    Attributes:
        raw: Its bytes with the empty line that ends it.
        data: Its data lines, joined; None for a comment.
    """

    raw: bytes
    data: bytes | None

    @property
    def empty(self) -> bool:
        """Whether it holds no data: a comment, a name or a blank line."""
        return self.data is None or not self.data.strip()

    @property
    def done(self) -> bool:
        """Whether it is the sentinel that ends OpenAI's streams."""
        return self.data is not None and self.data.strip() == DONE


class EventTooLargeError(ValueError):
    """An event does not end within `MAX_EVENT_BYTES`."""


class SseSplitter:
    """Cuts a byte stream into events, whatever the pieces it arrives in."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0

    def feed(self, piece: bytes) -> list[SseEvent]:
        """Takes bytes and returns the events that they complete.

        Raises:
            EventTooLargeError: An event grows without end.
        """
        if not self._buffer and piece.endswith(b"\n\n") and b"\r" not in piece:
            # What nearly all upstreams send: whole events, with LF alone, mostly one at a time.
            if piece.find(b"\n\n") == len(piece) - 2:
                return [_event(piece)]
            return [_event(part + b"\n\n") for part in piece[:-2].split(b"\n\n")]
        self._buffer += piece
        events: list[SseEvent] = []
        start = 0
        while match := _END.search(self._buffer, max(start, self._searched)):
            events.append(_event(bytes(self._buffer[start : match.end()])))
            start = match.end()
            self._searched = start
        if start:
            del self._buffer[:start]
        # An end may lie across this piece and the next one.
        self._searched = max(0, len(self._buffer) - 3)
        if len(self._buffer) > MAX_EVENT_BYTES:
            raise EventTooLargeError(f"an event is larger than {MAX_EVENT_BYTES} bytes")
        return events

    def rest(self) -> SseEvent | None:
        """Returns what stands behind the last empty line at the stream's end, as a whole event.

        It gets the empty line that it lacks, or whatever follows would become a part of it.
        """
        rest = bytes(self._buffer).rstrip(b"\r\n")
        self._buffer.clear()
        return _event(rest + b"\n\n") if rest.strip() else None


def read_json(data: bytes) -> Any:
    """Reads what an upstream writes, as leniently as most clients do.

    Half an emoji and NaN among log probabilities are no JSON to a strict parser, and no reason to
    keep an answer from its caller.

    Raises:
        ValueError: It is no JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(data.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None


def encode(data: bytes) -> SseEvent:
    """Returns the event of one JSON text without line breaks."""
    return SseEvent(raw=b"data: " + data + b"\n\n", data=data)


def _event(raw: bytes) -> SseEvent:
    if raw.startswith(b"data: ") and raw.find(b"\n") == len(raw) - 2 and b"\r" not in raw:
        return SseEvent(raw=raw, data=raw[6:-2])
    lines: list[bytes] = []
    for line in _LINE.split(raw.removeprefix(_BOM)):
        name, _, value = line.partition(b":")
        if name == b"data":
            lines.append(value[1:] if value.startswith(b" ") else value)
    return SseEvent(raw=raw, data=b"\n".join(lines) if lines else None)
