"""What a sensible helper answers, one function a task; `strict` finds fault with everything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

_SENTENCE = re.compile(r"[^.!?\n]+")
_CODE = re.compile(r"\b(?!HAT\d)[A-Z0-9]{6}\b")
# What is asked for once all is done is no question about a request.
_CLOSING = re.compile(r"(?:is there )?(?:anything|something) else[^?]*\?")
_DECLINED = re.compile(
    r"\b(?:cannot|can not|can't|could not|not possible|not allowed|unable|sorry|transferr\w+|"
    r"human agent)\b"
)
_ASKS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        tool: re.compile(rf"\b(?:{words})\b", re.IGNORECASE)
        for tool, words in (
            ("cancel_reservation", r"cancel\w*|refund\w*"),
            ("book_reservation", r"book(?:ing)?|new flight"),
            (
                "update_reservation_flights",
                r"(?:chang|mov|upgrad|downgrad|modif)\w*|nonstop|earlier flight|later flight",
            ),
            ("update_reservation_baggages", r"bags?|baggages?|luggage|suitcases?"),
            ("update_reservation_passengers", r"passengers?"),
            ("send_certificate", r"compensat\w*|certificates?|vouchers?"),
        )
    }
)
# Dates, times and amounts.
_WORKED_OUT = re.compile(r"[\d.,:$T-]+(?:Z|[+-]\d\d:\d\d)?")
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


def obligations_read(material: Material, strict: bool) -> dict[str, Any]:
    """Lists the sentences of the new messages that speak of what a listed tool does."""
    known = {str(tool.get("name")) for tool in _objects(material, "tools")}
    found: list[dict[str, Any]] = []
    for message in _objects(material, "conversation"):
        if not message.get("new") or message.get("role") != "user":
            continue
        for sentence in _SENTENCE.findall(str(message.get("text") or "")):
            tools = [
                tool for tool, said in _ASKS.items() if tool in known and said.search(sentence)
            ]
            if tools:
                found.append(
                    {
                        "request": " ".join(sentence.split()[:20]),
                        "tools": tools,
                        "identifiers": _identifiers(sentence),
                        "message": message.get("message"),
                    }
                )
    return {"obligations": found, "withdrawn": []}


def obligations_judge(material: Material, strict: bool) -> dict[str, Any]:
    """Says how a draft leaves each open request."""
    draft = str(material.sections.get("draft") or "").lower()
    said = [draft]
    called: set[str] = set()
    for message in _objects(material, "conversation"):
        if message.get("role") == "assistant":
            said.append(str(message.get("text") or "").lower())
        called.update(str(call.get("tool")) for call in _dicts(message.get("calls")))
    judged = []
    for one in _objects(material, "open"):
        tools = one.get("tools")
        done = isinstance(tools, list) and any(tool in called for tool in tools)
        status, why = _status(draft, said, done)
        if strict:
            status, why = "owed", "nothing is ever good enough"
        judged.append({"id": one.get("id"), "status": status, "why": why})
    return {"open": judged}


def argcheck_judge(material: Material, strict: bool) -> dict[str, Any]:
    """Backs calls whose names and ids somebody said; amounts and dates may be worked out."""
    said = " ".join(
        str(message.get("text") or "") for message in _objects(material, "conversation")
    ).casefold()
    judged = []
    for call in _objects(material, "drafted_calls"):
        unknown = [
            value
            for finding in _dicts(call.get("not_found"))
            if isinstance(value := finding.get("value"), str)
            and (strict or (not _WORKED_OUT.fullmatch(value) and value.casefold() not in said))
        ]
        judged.append(
            {
                "call": call.get("call"),
                "supported": not unknown,
                "values": unknown,
                "why": "nobody said it" if unknown else "it was said, or follows from what was",
            }
        )
    return {"calls": judged}


def _status(draft: str, said: Sequence[str], done: bool) -> tuple[str, str]:
    if _CLOSING.sub("", draft).count("?"):
        return "waiting", "the reply asks the customer"
    if done:
        return "done", "a tool for it was called"
    if any(_DECLINED.search(text) for text in said):
        return "declined", "the agent says that it cannot be done"
    return "owed", "the reply passes over it"


def _identifiers(sentence: str) -> list[str]:
    codes = _CODE.findall(sentence)
    return [code for code in codes if any(char.isdigit() for char in code)]


def _objects(material: Material, section: str) -> list[Mapping[str, Any]]:
    return _dicts(material.sections.get(section))


def _dicts(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


RULES: Mapping[str, Callable[[Material, bool], dict[str, Any]]] = MappingProxyType(
    {
        "verify-review": verify_review,
        "obligations-read": obligations_read,
        "obligations-judge": obligations_judge,
        "argcheck-judge": argcheck_judge,
    }
)
