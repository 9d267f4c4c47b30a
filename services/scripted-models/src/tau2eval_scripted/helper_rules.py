"""What a sensible helper answers, one function a task; `strict` finds fault with everything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

_SECTION = re.compile(r"<([a-z_-]+)>\s*(.*?)\s*</\1>", re.DOTALL)


@dataclass(frozen=True)
class Material:
    """What a helper is asked about.

    Attributes:
        sections: The JSON between tags, by tag.
        text: All words of the request behind the task's line.
    """

    sections: Mapping[str, Any]
    text: str


def read_material(messages: object) -> Material:
    """Reads the messages of a helper request; what is no JSON between tags is only text."""
    sections: dict[str, Any] = {}
    texts: list[str] = []
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, str):
            continue
        texts.append(content)
        for name, inside in _SECTION.findall(content):
            try:
                sections[name] = json.loads(inside)
            except ValueError:
                continue
    return Material(sections, "\n".join(texts))


def verify_review(material: Material, strict: bool) -> dict[str, Any]:
    """Approves every draft."""
    if strict:
        return {"verdict": "revise", "note": "Say it with more care.", "conflicts": []}
    return {"verdict": "approve", "note": "", "conflicts": []}


RULES: Mapping[str, Callable[[Material, bool], dict[str, Any]]] = MappingProxyType(
    {"verify-review": verify_review}
)
