"""Finds ids that a revision made up (statement 15).

A changed value may bring in no id that the conversation does not hold as a whole token. What is
an id cannot be known for certain; where it is open, a value counts as one, because the price of a
mistake is that the draft stays. Options that the tool declares, dates, times, amounts and small
numbers are no ids.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date
from typing import Any

SMALL_NUMBER = 10
"""Whole numbers up to this size are counts."""
_MIN_CAPITALS = 4
"""Letters of a word in capitals that is taken for an id within a sentence."""

# Commas within numbers (1,250) part nothing.
_PARTING = re.compile(r"[\s;\"()\[\]{}<>]+|(?<!\d),|,(?!\d)")
_AMOUNT = re.compile(r"[-+]?[$€£¥]\s?\d[\d.,]*|\d[\d,]*\.\d{1,2}|\d[\d.,]*%")
_TIME = re.compile(r"\d{1,2}:\d{2}(:\d{2})?(\.\d+)?(z|[-+]\d{2}:?\d{2})?([ap]m)?")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_SLASHED_DAY = re.compile(r"\d{1,2}/\d{1,2}/(\d{2}|\d{4})")
_ORDINAL = re.compile(r"\d{1,2}(st|nd|rd|th)")
_NUMBER = re.compile(r"[-+]?\d[\d,]*(\.\d+)?")
_MIXED_CASE = re.compile(r"[a-z][A-Z]")
_WORD_OF_KEY = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_NO_IDS = frozenset({"true", "false", "yes", "no", "null", "none"})
_CONNECTORS = frozenset("-.@+#&")
"""Between word characters these make one token: 3.5, ORD-12, a@b."""
# fmt: off
_QUANTITIES = frozenset({
    "age", "amount", "amounts", "bag", "baggage", "baggages", "bags", "balance", "cost", "costs",
    "count", "counts", "day", "days", "discount", "fee", "fees", "height", "hours", "length",
    "limit", "minutes", "month", "nights", "offset", "page", "percent", "percentage", "price",
    "prices", "qty", "quantities", "quantity", "rate", "rating", "refund", "score", "seconds",
    "size", "subtotal", "sum", "tax", "total", "weight", "width", "year",
})
_IDENTIFIERS = frozenset({
    "account", "code", "codes", "id", "ids", "key", "no", "number", "ref", "reference", "uuid",
})
# fmt: on


def unknown_ids(
    value: Any,
    said: Sequence[str],
    *,
    key: str = "",
    before: Any = None,
    declared: Collection[str] = (),
) -> list[str]:
    """Returns the ids in a new value that the conversation does not hold.

    Args:
        value: A JSON value.
        said: The conversation, from `quotes.said_in`.
        key: The member's name under which the value stands.
        before: The value that it replaces; what stood there is not brought in.
        declared: Strings of the tool's own declaration, from `declared_strings`.
    """
    had = {piece.casefold() for leaf in _leaves(before, "") for piece in _pieces(str(leaf[1]))}
    found: list[str] = []
    for name, leaf, is_key in _leaves(value, key):
        for candidate in _candidates(name, leaf, is_key, declared):
            folded = candidate.casefold()
            if folded not in had and not any(stands_in(folded, text) for text in said):
                found.append(candidate)
    return found


def stands_in(token: str, text: str) -> bool:
    """Returns whether a token stands in a text as a whole; both are in one case."""
    at = text.find(token)
    while at >= 0:
        end = at + len(token)
        if _apart(text, at - 1, -1, token[0]) and _apart(text, end, 1, token[-1]):
            return True
        at = text.find(token, at + 1)
    return False


def declared_strings(tool: Mapping[str, Any] | None) -> frozenset[str]:
    """Returns what a tool's declaration names: its parameters and the options of its enums."""
    found: set[str] = set()
    pending: list[Any] = [tool] if tool is not None else []
    while pending:
        current = pending.pop()
        if isinstance(current, Mapping):
            properties = current.get("properties")
            if isinstance(properties, Mapping):
                found.update(str(name) for name in properties)
            options = current.get("enum")
            for option in (*(options if isinstance(options, list) else ()), current.get("const")):
                if isinstance(option, str):
                    found.add(option)
            pending.extend(current.values())
        elif isinstance(current, list):
            pending.extend(current)
    return frozenset(found)


def _apart(text: str, at: int, step: int, edge: str) -> bool:
    """Returns whether the character beside a token is no part of it."""
    if not 0 <= at < len(text):
        return True
    if _is_word(text[at]):
        # Scripts without spaces between words stand right beside an id.
        return unicodedata.category(text[at]) == "Lo" and edge.isascii()
    beyond = at + step
    if text[at] in _CONNECTORS and 0 <= beyond < len(text):
        return not _is_word(text[beyond])
    return True


def _is_word(character: str) -> bool:
    # Marks and invisible characters belong to the word in which they stand.
    return (
        character.isalnum()
        or character == "_"
        or unicodedata.category(character) in ("Mn", "Mc", "Me", "Cf")
    )


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any, bool]]:
    """Yields (member's name, scalar or key, is a key); JSON within strings is walked too."""
    pending = [(key, value)]
    while pending:
        name, current = pending.pop()
        if isinstance(current, dict):
            for member, inner in current.items():
                yield name, member, True
                pending.append((member, inner))
        elif isinstance(current, list):
            pending.extend((name, inner) for inner in current)
        elif isinstance(current, str) and current.lstrip().startswith(("{", "[")):
            try:
                pending.append((name, json.loads(current)))
            except (ValueError, RecursionError):
                yield name, current, False
        elif current is not None:
            yield name, current, False


def _candidates(key: str, leaf: Any, is_key: bool, declared: Collection[str]) -> Iterator[str]:
    """Yields the parts of a scalar that count as ids."""
    if isinstance(leaf, bool):
        return
    if isinstance(leaf, (int, float)):
        whole = math.isfinite(leaf) and leaf == int(leaf)
        if whole and abs(leaf) > SMALL_NUMBER and not _is_quantity(key):
            yield str(int(leaf))
        return
    text = str(leaf).strip()
    if text in declared or text.casefold() in _NO_IDS:
        return
    # A value of one word is meant as a name for something, whatever it looks like.
    alone = not is_key and not any(c.isspace() for c in text)
    if alone and _is_quantity(key) and _NUMBER.fullmatch(text):
        return
    for part in _PARTING.split(text):
        if part and not _is_measure(part):
            piece = _stripped(part)
            if piece and not _is_measure(piece) and (alone or _looks_like_id(piece, is_key)):
                yield piece


def _pieces(text: str) -> Iterator[str]:
    for part in _PARTING.split(text):
        if part and (piece := _stripped(part)):
            yield piece


def _stripped(part: str) -> str:
    start, end = 0, len(part)
    while start < end and not _is_word(part[start]):
        start += 1
    while end > start and not _is_word(part[end - 1]):
        end -= 1
    return part[start:end]


def _looks_like_id(piece: str, is_key: bool) -> bool:
    """Returns whether a word within a sentence, or a member's name, is taken for an id."""
    if any(c.isdigit() for c in piece):
        number = _NUMBER.fullmatch(piece)
        return not (number and len(piece) <= 2 and abs(int(piece)) <= SMALL_NUMBER)
    letters = sum(c.isalpha() for c in piece)
    if piece.isupper() and letters >= _MIN_CAPITALS:
        return True
    # Names of members are written like this anyway.
    return not is_key and ("_" in piece or "@" in piece or bool(_MIXED_CASE.search(piece)))


def _is_measure(text: str) -> bool:
    """Returns whether a word is a date, a time or an amount."""
    lowered = text.casefold()
    if _AMOUNT.fullmatch(lowered) or _TIME.fullmatch(lowered) or _ORDINAL.fullmatch(lowered):
        return True
    if _SLASHED_DAY.fullmatch(lowered):
        return True
    day, _, clock = lowered.partition("t")
    if not _DAY.fullmatch(day) or (clock and not _TIME.fullmatch(clock)):
        return False
    try:
        date.fromisoformat(day)
    except ValueError:
        return False
    return True


def _is_quantity(key: str) -> bool:
    words = {word.casefold() for word in _WORD_OF_KEY.findall(key)}
    return bool(words & _QUANTITIES) and not words & _IDENTIFIERS
