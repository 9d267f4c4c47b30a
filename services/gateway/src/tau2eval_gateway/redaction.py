"""Takes keys and prompt text out of messages that providers write."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
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
_STEP = _WINDOW // 2
_SEARCHED = 300_000
"""Characters at both ends of a prompt that are searched."""


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

    def clean_all(
        self, value: Mapping[str, Any], body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Returns a JSON object with all its strings cleaned; see `clean`."""
        cleaned = _mapped(value, lambda text: self.clean(text, body))
        assert isinstance(cleaned, dict)
        return cleaned


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(str(name)): _mapped(item, change) for name, item in value.items()}
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    return value


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
    """Replaces what stands in the sources too, where it is at least `_WINDOW` characters long."""
    joined = "\x00".join(sources)
    if len(joined) > 2 * _SEARCHED:
        joined = joined[:_SEARCHED] + "\x00" + joined[-_SEARCHED:]
    if not joined:
        return text
    parts: list[str] = []
    shown = at = 0
    while at + _STEP <= len(text):
        # Every echo covers one of these steps as a whole, so that few searches find all.
        if text[at : at + _STEP] not in joined:
            at += _STEP
            continue
        start, end = _grown(text, joined, at, shown)
        if end - start < _WINDOW:
            at += _STEP
            continue
        parts += [text[shown:start], "[text of the request]"]
        shown = at = end
    return "".join(parts) + text[shown:]


def _grown(text: str, joined: str, at: int, shown: int) -> tuple[int, int]:
    """Returns the longest echo around a step, of those that begin furthest to the left."""
    for start in range(max(shown, at + _STEP - _WINDOW), at + 1):
        end = start + _WINDOW
        if end <= len(text) and text[start:end] in joined:
            step = len(text)
            while step:
                while end + step <= len(text) and text[start : end + step] in joined:
                    end += step
                step //= 2
            return start, end
    return at, at + _STEP
