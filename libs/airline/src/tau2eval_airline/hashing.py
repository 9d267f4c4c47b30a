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
from json.encoder import encode_basestring_ascii
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
    if isinstance(value, str):
        # Four characters are the least; most strings are settled by their length.
        return None if len(value) >= 4 and value.strip().lower() in _NULL_WORDS else value
    if isinstance(value, dict):
        return {key: normalize(item) for key, item in value.items()}
    if isinstance(value, list):
        return [normalize(item) for item in value]
    if isinstance(value, float):
        return int(value) if math.isfinite(value) and value.is_integer() else value
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
    if (fast := _fast(value)) is not None:
        return fast
    value = normalize(value)
    if (fast := _fast(value)) is not None:
        return fast
    return _dump(value)


def key_bytes(key: str) -> bytes:
    """Returns a key as it stands in the hashed JSON, with its quotes."""
    return encode_basestring_ascii(key).encode()


def _fast(value: Any) -> bytes | None:
    """Returns orjson's bytes where they are canonical for sure, else None.

    orjson and the standard library agree, and there is nothing to normalize, unless there is a
    float, a null, a null word or something else than printable ASCII. Each leaves a mark.
    """
    try:
        data = orjson.dumps(value, option=_STRICT_JSON)
    except TypeError:  # Integers beyond 64 bits, lone surrogates, what is not JSON.
        return None
    folded = data.translate(_FOLD)
    if (
        b"0." in folded
        or b"0e" in folded
        or b"none" in folded
        or b"null" in folded
        or b"\x7f" in folded
    ):
        return None
    return data


_STRICT_JSON = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)

# Lower case, every digit a 0, and everything but printable ASCII one byte.
_FOLD = bytes(
    ord("0") if chr(code).isdigit() else ord(chr(code).lower()) if 32 <= code < 127 else 127
    for code in range(256)
)


def _dump(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str).encode()
