"""What a sensible teacher and a judge of lessons answer (see helper_rules)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from .helper_rules import Material

_TOPICS = MappingProxyType(
    {
        "cancel": re.compile(r"\bcancel", re.IGNORECASE),
        "baggage": re.compile(r"\b(bag|baggage|luggage|suitcase)", re.IGNORECASE),
        "upgrade": re.compile(r"\b(upgrad|business class)", re.IGNORECASE),
        "passenger": re.compile(r"\bpassenger", re.IGNORECASE),
        "booking": re.compile(r"\bbook", re.IGNORECASE),
        "change": re.compile(r"\b(change|modif|move|switch)", re.IGNORECASE),
        "refund": re.compile(r"\b(refund|compensat)", re.IGNORECASE),
    }
)
_TEXTS = MappingProxyType(
    {
        "DB_STATE_MATCH": (
            "settle",
            "When a customer asks for a {topic}, look up every record that the rules depend on, "
            "and make exactly the writes that the rules allow before the conversation ends.",
        ),
        "NL_ASSERTION": (
            "tell",
            "When a customer asks about a {topic}, say each fact that was asked for in plain words "
            "after the lookup has shown it.",
        ),
    }
)
_OTHERWISE = (
    "finish",
    "When a customer asks for a {topic}, answer every turn, and end the conversation only when "
    "nothing is left open.",
)


def lesson_learn(material: Material, strict: bool) -> dict[str, Any]:
    """Draws a lesson from the first failed signal and from what the customer speaks of."""
    failed = _objects(_mapping(material.sections.get("failure")).get("failed_signals"))
    names = [str(signal.get("name")) for signal in failed]
    stem, text = next((_TEXTS[name] for name in names if name in _TEXTS), _OTHERWISE)
    said = " ".join(
        str(message.get("content") or "")
        for message in _objects(material.sections.get("conversation"))
        if message.get("role") == "user"
    )
    topic = next((word for word, pattern in _TOPICS.items() if pattern.search(said)), "request")
    return {
        "name": f"{stem}-{topic}",
        "text": text.format(topic=topic),
        "triggers": [topic],
        "kind": "tools",
    }


def lesson_judge(material: Material, strict: bool) -> dict[str, Any]:
    """Accepts lessons without digits."""
    text = str(_mapping(material.sections.get("lesson")).get("text") or "")
    if strict:
        return {"sound": False, "reason": "It could be said with more care."}
    if not text or re.search(r"\d", text):
        return {"sound": False, "reason": "The lesson is empty or holds a value."}
    return {"sound": True, "reason": "It is general and follows from the failure."}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


LESSON_RULES: Mapping[str, Callable[[Material, bool], dict[str, Any]]] = MappingProxyType(
    {"lesson-learn": lesson_learn, "lesson-judge": lesson_judge}
)
