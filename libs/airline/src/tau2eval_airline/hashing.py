"""The database hash, byte for byte that of the voice evaluator.

The rule (shared/reference/voice-evaluator.md, "Scoring there"): drop the top-level key
"session"; integral floats become ints; the strings "none" and "null", in any case and with any
white space around them, become null; compact JSON with sorted keys; SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

import orjson

EXCLUDED_KEYS = frozenset({"session"})
"""Top-level keys that take no part in the hash."""

_NULL_WORDS = frozenset({"none", "null"})


def normalize(value: Any) -> Any:
    """Returns a copy of `value` in which equal meanings have one form.

    Args:
        value: Anything that JSON can hold.

    Returns:
        The same structure; integral finite floats as ints, "none" and "null" as None.
    """
    if isinstance(value, dict):
        return {key: normalize(item) for key, item in value.items()}
    if isinstance(value, list):
        return [normalize(item) for item in value]
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value.is_integer() else value
    if isinstance(value, str) and value.strip().lower() in _NULL_WORDS:
        return None
    return value


def plain_hash(database: Mapping[str, Any]) -> str:
    """Hashes a whole database the slow and obvious way; the reference for all fast paths.

    Args:
        database: Table name to table.

    Returns:
        SHA-256 in lower-case hexadecimal.
    """
    kept = {key: value for key, value in database.items() if key not in EXCLUDED_KEYS}
    return hashlib.sha256(_dump(normalize(kept))).hexdigest()


def canonical_bytes(value: Any) -> bytes:
    """Returns the bytes that `value` contributes to the hash.

    Args:
        value: One record, or any part of one.

    Returns:
        Compact ASCII JSON with sorted keys of the normalized value.
    """
    if _is_plain(value):
        try:
            fast = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except TypeError:  # Integers beyond 64 bits: the standard library writes them.
            return _dump(normalize(value))
        # The standard library escapes what is not printable ASCII; orjson does not.
        if fast.isascii() and b"\x7f" not in fast:
            return fast
    return _dump(normalize(value))


def _dump(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode()


def _is_plain(value: Any) -> bool:
    """Tells whether both serialisers agree on `value` and there is nothing to normalize."""
    kind = type(value)
    if kind is str:
        return not ("n" in value or "N" in value) or not _is_null_word(value)
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                return False
            if type(item) is int:
                continue
            if not _is_plain(item):
                return False
        return True
    if kind is list:
        return all(_is_plain(item) for item in value)
    return kind is int or kind is bool or value is None


def _is_null_word(value: str) -> bool:
    return value.strip().lower() in _NULL_WORDS
