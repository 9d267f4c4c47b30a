"""Takes keys and prompt text out of messages that providers write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_KEY_SHAPES = (
    re.compile(r"\bBearer\s+[^\s\"',]+", re.IGNORECASE),
    re.compile(r"\b(?:sk|pk|rk|gsk|xai|hf|AIza)[-_][A-Za-z0-9_\-*.]{3,}"),
    re.compile(r"\bAIza[A-Za-z0-9_\-]{10,}"),
    re.compile(r"(?<=\bkey provided: )[^\s\"',]+", re.IGNORECASE),
    re.compile(r"(?<=\bapi[ _-]key[:=])\s*[^\s\"',]+", re.IGNORECASE),
)
_SECRET_NAME = re.compile(r"(KEY|KEYS|TOKEN|SECRET|PASSWORD|CREDENTIALS)$")
_HIDDEN = "[redacted]"
_WINDOW = 24
"""Characters of prompt text in a row that count as an echo of the prompt."""


class Redactor:
    """Knows this process's secrets and removes them from text.

    Args:
        environ: The environment; the values of variables that are named like secrets are hidden.
        secrets: Further values to hide.
    """

    def __init__(self, environ: Mapping[str, str], secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        for name, value in environ.items():
            if _SECRET_NAME.search(name.upper()):
                for part in value.split(","):
                    self.add(part)
        for secret in secrets:
            self.add(secret)

    def add(self, secret: str) -> None:
        """Hides one more value; very short ones would hide ordinary words and are left."""
        secret = secret.strip()
        if len(secret) >= 6:
            self._secrets.add(secret)

    def clean(self, text: str, body: Mapping[str, Any] | None = None) -> str:
        """Returns the text without keys and, when a request body is given, without its words."""
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
        for shape in _KEY_SHAPES:
            text = shape.sub(_HIDDEN, text)
        if body is not None:
            text = _hide_echoes(text, list(_strings(body.get("messages"))))
        return text


def _strings(value: object) -> Iterator[str]:
    """Yields the strings in a JSON value that are long enough to be an echo."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            if len(item) >= _WINDOW:
                yield item
        elif isinstance(item, Mapping):
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)


def _hide_echoes(text: str, sources: list[str]) -> str:
    joined = "\x00".join(sources)
    parts: list[str] = []
    start = 0
    while start < len(text):
        if text[start : start + _WINDOW] in joined and start + _WINDOW <= len(text):
            end = start + _WINDOW
            while end < len(text) and text[start : end + 1] in joined:
                end += 1
            parts.append("[text of the request]")
            start = end
        else:
            parts.append(text[start])
            start += 1
    return "".join(parts)
