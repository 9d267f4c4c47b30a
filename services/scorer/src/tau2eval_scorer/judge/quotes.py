"""Looks for a judge's quotes in what was said, heard, called and returned in the call.

A quote that is not found changes no verdict; it is shown, for a person to look at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
_GAP = re.compile(r"\.\.\.|…|\[\.\.\.\]")


class QuoteIndex:
    """The words of a call, without punctuation and case.

    The claims and the reference are not in it, nor words that were cut off before they were played:
    repeating those proves nothing about the call.

    Args:
        histories: Entries of the call, in order.
    """

    def __init__(self, *histories: Sequence[Mapping[str, Any]]) -> None:
        self._texts = []
        for history in histories:
            played = [
                {name: item for name, item in entry.items() if name != "unspoken"}
                for entry in history
            ]
            # As JSON, as a person would write it down, and as the bare values.
            self._texts.append(_padded(_json(played)))
            self._texts.append(_padded(" ".join(map(_written, played))))
            self._texts.append(_padded(" ".join(map(_values, played))))

    def has(self, quote: str) -> bool:
        """Whether the words of a quote are in the call, in this order; "..." may leave some out."""
        parts = [words for part in _GAP.split(quote) if (words := plain(part))]
        return bool(parts) and any(_in_order(parts, text) for text in self._texts)


def plain(text: str) -> str:
    """Returns the letters and digits of a text as words in lower case; escapes are resolved."""
    text = _ESCAPE.sub(lambda match: chr(int(match.group(1), 16)), text)
    text = re.sub(r"\\[nrt]", " ", text)
    return re.sub(r"[\W_]+", " ", text.casefold()).strip()


def _padded(text: str) -> str:
    return f" {plain(text)} "


def _in_order(parts: Sequence[str], text: str) -> bool:
    at = 0
    for part in parts:
        at = text.find(f" {part} ", at)
        if at < 0:
            return False
        at += len(part) + 1
    return True


def _written(entry: Mapping[str, Any]) -> str:
    call = entry.get("tool_call")
    if isinstance(call, Mapping):
        return f"{call.get('name')} {_json(call.get('arguments'))}"
    return str(entry.get("content", "")) or _json(entry.get("result", ""))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _values(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(_values(item) for key, item in value.items() if key != "role")
    if isinstance(value, list | tuple):
        return " ".join(map(_values, value))
    return str(value)
