"""Finds values in a JSON text without reading them, so that no byte of the others changes.

The texts have been checked by a parser before; nothing here recurses or reads a number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import orjson

_SPACE = re.compile(rb"[ \t\r\n]*")
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_SCALAR = re.compile(rb"[^\s,\]}]+")


def member_spans(raw: bytes, name: str) -> list[tuple[int, int]]:
    """Returns where the values of a top-level key stand, as (start, end) in bytes.

    A key may occur twice in JSON; parsers then differ in which one they read, so all are given.

    Raises:
        ValueError: The text is no JSON object.
    """
    spans: list[tuple[int, int]] = []
    wanted = name.encode()
    at = _skip(raw, 0)
    if raw[at : at + 1] != b"{":
        raise ValueError("no object")
    at = _skip(raw, at + 1)
    while raw[at : at + 1] != b"}":
        end = value_end(raw, at)
        key = raw[at + 1 : end - 1]
        if b"\\" in key:
            key = str(orjson.loads(raw[at:end])).encode()
        at = _skip(raw, end)
        if raw[at : at + 1] != b":":
            raise ValueError("no colon")
        start = _skip(raw, at + 1)
        end = value_end(raw, start)
        if key == wanted:
            spans.append((start, end))
        at = _skip(raw, end)
        if raw[at : at + 1] == b",":
            at = _skip(raw, at + 1)
    return spans


def set_members(raw: bytes, members: Mapping[str, bytes]) -> bytes:
    """Returns an object with some members set and no other byte changed; new ones come last.

    Args:
        raw: A JSON object with at least one member.
        members: JSON texts by key.

    Raises:
        ValueError: The text is no JSON object.
    """
    for name, value in members.items():
        spans = member_spans(raw, name)
        for start, end in reversed(spans):
            raw = raw[:start] + value + raw[end:]
        if not spans:
            end = raw.rindex(b"}")
            raw = b'%b,"%b":%b%b' % (raw[:end], name.encode(), value, raw[end:])
    return raw


def item_start(raw: bytes, start: int, index: int) -> int:
    """Returns where an item of the list that begins at `start` begins, in bytes.

    Raises:
        ValueError: The list has no such item.
    """
    at = _skip(raw, start + 1)
    for _ in range(index):
        at = _skip(raw, value_end(raw, at))
        if raw[at : at + 1] != b",":
            raise ValueError("no comma")
        at = _skip(raw, at + 1)
    return at


def value_end(raw: bytes, at: int) -> int:
    """Returns where the value that begins at `at` ends.

    Raises:
        ValueError: No value begins there.
    """
    first = raw[at : at + 1]
    if first == b'"':
        match = _STRING.match(raw, at)
    elif first in (b"{", b"["):
        depth = 0
        for token in _TOKEN.finditer(raw, at):
            mark = token[0]
            if mark in (b"{", b"["):
                depth += 1
            elif mark in (b"}", b"]"):
                depth -= 1
                if depth == 0:
                    return token.end()
        match = None
    else:
        match = _SCALAR.match(raw, at)
    if match is None:
        raise ValueError("no value")
    return match.end()


def _skip(raw: bytes, at: int) -> int:
    match = _SPACE.match(raw, at)
    assert match is not None
    return match.end()
