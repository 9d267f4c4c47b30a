"""Paths to one argument of a call: new_item_ids[0], a.b[2].c, $["odd name"]."""

from __future__ import annotations

import json
import re
from enum import Enum
from typing import Any, Final

Path = tuple[str | int, ...]
"""Member names and array indexes from the arguments inwards."""
MAX_STEPS = 32


class Absence(Enum):
    """That there is no value; null is one."""

    ABSENT = 0


ABSENT: Final = Absence.ABSENT

_STEP = re.compile(
    r"""\.?(?P<name>[^.\[\]"'\s]+)|\[(?P<index>\d{1,6})\]|\[(?P<quoted>"(?:[^"\\]|\\.)*")\]"""
    r"""|\['(?P<single>[^'\\]*)'\]"""
)


def read_path(text: str) -> Path | None:
    """Reads a path; None when it is none or leads nowhere."""
    text = text.strip()
    if text.startswith("$"):
        text = text[1:]
    found: list[str | int] = []
    at = 0
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None or len(found) == MAX_STEPS:
            return None
        if (name := match["name"]) is not None:
            if found and text[at] != ".":
                return None
            found.append(name)
        elif (index := match["index"]) is not None:
            found.append(int(index))
        elif (quoted := match["quoted"]) is not None:
            try:
                found.append(str(json.loads(quoted)))
            except ValueError:
                return None
        else:
            found.append(match["single"])
        at = match.end()
    return tuple(found) or None


def value_at(value: Any, path: Path) -> Any:
    """Returns the value at a path, or ABSENT."""
    found: Any = value
    for step in path:
        kind = dict if isinstance(step, str) else list
        if not isinstance(found, kind):
            return ABSENT
        inside: Any = found
        try:
            found = inside[step]
        except (KeyError, IndexError):
            return ABSENT
    return found


def put_at(value: Any, path: Path, new: Any) -> Any:
    """Returns a copy with another value at a path; ABSENT takes a member out.

    A path that leads nowhere changes nothing, and arrays keep their length.
    """
    if not path:
        return new
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        if not isinstance(value, list) or step >= len(value) or (not rest and new is ABSENT):
            return value
        return [*value[:step], put_at(value[step], rest, new), *value[step + 1 :]]
    if not isinstance(value, dict) or (rest and step not in value):
        return value
    if not rest and new is ABSENT:
        return {key: inner for key, inner in value.items() if key != step}
    return {**value, step: put_at(value.get(step), rest, new)}
