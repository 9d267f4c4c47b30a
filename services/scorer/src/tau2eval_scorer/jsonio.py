"""JSON that is always valid: no NaN in, no NaN out, and no secrets."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

import orjson

_SECRET = re.compile(
    r"(^|[_-])((api|access|private|secret|auth|account|master|subscription|client|signing)"
    r"[_-]?keys?|apikeys?|secret|password|passwd|passphrase|authorization|bearer|credentials?"
    r"|cookie|token)$",
    re.IGNORECASE,
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SECRET_VALUE = re.compile(
    r"^(bearer|basic)\s+[\w.~+/=-]{12,}$|^\w[\w+.-]*://[^/@\s]*:[^/@\s]+@", re.IGNORECASE
)
REDACTED = "[redacted]"
_MAX_DEPTH = 100


def parse_json(text: str) -> Any:
    """Parses JSON strictly.

    Raises:
        ValueError: For what is not JSON, NaN and Infinity included, or nests too deeply.
    """
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it nests too deeply") from None
    _check_depth(value)
    return value


def parse_object(text: str) -> dict[str, Any]:
    """Parses a JSON object; the empty text is an empty object.

    Raises:
        ValueError: For anything else.
    """
    value = parse_json(text) if text else {}
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


def dump_json(value: Any) -> bytes:
    """Returns indented UTF-8 JSON; numbers that are not finite become null.

    Integers beyond 64 bits are kept, which the fast writer cannot do.
    """
    safe = _finite(value)
    try:
        return orjson.dumps(safe, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        text = json.dumps(safe, indent=2, ensure_ascii=True, allow_nan=False, default=str)
        return text.encode() + b"\n"


def dump_line(value: Any) -> bytes:
    """Returns compact JSON on one line, line end included."""
    safe = _finite(value)
    try:
        return orjson.dumps(safe, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return json.dumps(safe, ensure_ascii=True, allow_nan=False, default=str).encode() + b"\n"


def redact(value: Any) -> Any:
    """Returns a copy of a JSON value without secrets.

    Members named like secrets are blanked, also within a text that is JSON, and texts that are an
    Authorization header's value or a URL with a password.
    """
    if isinstance(value, Mapping):
        return {
            str(key): REDACTED if item and _is_secret(str(key)) else redact(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact(item) for item in value]
    if isinstance(value, str):
        return _redact_text(value)
    return value


def _redact_text(text: str) -> str:
    if _SECRET_VALUE.search(text):
        return REDACTED
    if text.lstrip().startswith(("{", "[")):
        # Parameters of models travel as JSON within JSON.
        try:
            value = parse_json(text)
        except ValueError:
            return text
        if (safe := redact(value)) != value:
            return dump_line(safe).decode().strip()
    return text


def _is_secret(name: str) -> bool:
    return bool(_SECRET.search(name) or _SECRET.search(_HUMP.sub("_", name)))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        # A lone surrogate cannot be written as UTF-8.
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_finite(str(key)): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_MAX_DEPTH):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return
    raise ValueError(f"it nests deeper than {_MAX_DEPTH} levels")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
