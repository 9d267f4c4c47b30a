"""What was said in a conversation, to be searched for quotes (statement 11).

A quote counts when it stands in one message of the caller's request: the rules, what the user and
the agent said, or a tool's result. The draft under review is in none of them, and text is never
searched across two messages.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tau2eval_gateway.flows.messages import text_of

MIN_QUOTE_CHARS = 12
"""Shorter excerpts stand in any conversation by chance."""
_MAX_NESTED = 8
_ESCAPES = re.compile(r"(?:\\(?:u[0-9a-fA-F]{4}|[\"\\/bfnrt]))+")


def said_in(messages: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Returns the texts of a conversation with case and white space folded.

    A message gives its text, the texts of its parts and, where a text is JSON, the strings in it
    without their escapes. Arguments of earlier tool calls are no part of it: the model wrote them
    itself, to nobody.
    """
    found: dict[str, None] = {}
    for message in messages:
        for text in _texts(message):
            folded = fold(text)
            if folded:
                found.setdefault(folded)
    return tuple(found)


def is_quoted(quote: str, said: Sequence[str]) -> bool:
    """Returns whether an excerpt is long enough and stands in one message.

    Args:
        quote: As the checker wrote it. The checker reads the conversation as JSON, so escapes of
            JSON in its excerpt are read too.
        said: From `said_in`.
    """
    if not _long_enough(quote):
        return False
    for reading in _readings(quote):
        folded = fold(reading)
        if _long_enough(reading) and any(folded in text for text in said):
            return True
    return False


def fold(text: str) -> str:
    """Returns text in one case, with every run of white space as one space."""
    return " ".join(text.split()).casefold()


def _long_enough(text: str) -> bool:
    # Characters that nobody sees do not make an excerpt longer.
    visible = [c for c in " ".join(text.split()) if not unicodedata.category(c).startswith("C")]
    return len(visible) >= MIN_QUOTE_CHARS and any(c.isalnum() for c in visible)


def _readings(quote: str) -> Iterator[str]:
    yield quote
    if "\\" in quote:
        yield _ESCAPES.sub(lambda match: str(json.loads(f'"{match[0]}"')), quote)
    # A tool's result is often JSON with escapes of its own, which the checker may have read.
    escaped = json.dumps(quote)[1:-1]
    if escaped != quote:
        yield escaped


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    whole = text_of(message)
    yield whole
    content = message.get("content")
    parts = [text_of({"content": [part]}) for part in content] if isinstance(content, list) else []
    for text in (whole, *parts):
        yield from strings_within(text)


def strings_within(text: str) -> Iterator[str]:
    """Yields the keys and strings inside a text that is a JSON object or array."""
    pending = [(text, 0)]
    while pending:
        current, depth = pending.pop()
        if depth >= _MAX_NESTED or not current.lstrip().startswith(("{", "[")):
            continue
        try:
            value = json.loads(current)
        except (ValueError, RecursionError):
            continue
        for string in _strings(value):
            yield string
            pending.append((string, depth + 1))


def _strings(value: Any) -> Iterator[str]:
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, str):
            yield current
        elif isinstance(current, dict):
            yield from current
            pending.extend(current.values())
        elif isinstance(current, list):
            pending.extend(current)
