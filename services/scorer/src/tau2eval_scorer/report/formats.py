"""How numbers and times are written on the pages."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

NOTHING = "\u2013"
"""Stands where there is no value."""


def clock(seconds: float | None) -> str:
    """Returns a time within a call: "1:02.5"."""
    if seconds is None:
        return NOTHING
    tenths = round(seconds * 10)
    minutes, rest = divmod(tenths, 600)
    return f"{minutes}:{rest // 10:02d}.{rest % 10}"


def duration(seconds: float | None) -> str:
    """Returns a length: "40.6 s" or "12 min 05 s"."""
    if seconds is None:
        return NOTHING
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def milliseconds(value: float | None) -> str:
    """Returns a latency given in milliseconds: "850 ms" or "1.25 s"."""
    if value is None:
        return NOTHING
    return f"{value:.0f} ms" if value < 999.5 else f"{value / 1000:.2f} s"


def percent(share: float | None) -> str:
    """Returns a share of 0 to 1 in percent."""
    return NOTHING if share is None else f"{100 * share:.1f} %"


def dollars(amount: float | None) -> str:
    """Returns an amount in US dollars with the digits that small prices need."""
    if amount is None:
        return "price unknown"
    if amount == 0:
        return "$0"
    digits = 2 if amount >= 1 else min(8, 1 - math.floor(math.log10(amount)) + 1)
    return f"${amount:,.{digits}f}"


def count(value: float | None) -> str:
    """Returns a number with separators between thousands."""
    return NOTHING if value is None else f"{value:,}"


def interval(bounds: Any) -> str:
    """Returns a 95 % interval of a share: "69.2 to 90.1 %"; empty when there is none."""
    if not bounds:
        return ""
    return f"{100 * bounds[0]:.1f} to {100 * bounds[1]:.1f} %"


def words(name: str) -> str:
    """Returns a name such as "agent_exit" as words."""
    return name.replace("_", " ")


def sentence(text: str) -> str:
    """Returns a text with a capital first letter and a full stop, on one line."""
    text = " ".join(text.split())
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?…" else ".")


def pretty(value: Any) -> str:
    """Returns a JSON value for a person: text as it is, everything else indented."""
    if isinstance(value, str):
        return value
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def inline(value: Any) -> str:
    """Returns a JSON value on one line; text is quoted, so that "1" and 1 differ."""
    return json.dumps(value, ensure_ascii=False, default=str)


def parsed(text: str) -> Any:
    """Returns the JSON value of a text, or the text itself when it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def share_of(part: float, whole: float) -> str:
    """Returns a place on a scale as an SVG percentage, always within it."""
    if whole <= 0:
        return "0%"
    return f"{min(max(100 * part / whole, 0.0), 100.0):.3f}%"


def counted(kinds: Mapping[str, int]) -> str:
    """Returns numbers of things by name: "agent lost 2, cancelled 1"."""
    return ", ".join(f"{words(kind)} {number}" for kind, number in kinds.items())
