"""Reads a judge's answer. Nothing is guessed: an answer is whole and in form, or it is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

MAX_TEXT_CHARS = 4000
_FENCE = re.compile(r"\A```[a-zA-Z]*\s*\n(.*?)\n?```\Z", re.DOTALL)


class BadAnswer(ValueError):
    """A judge's answer is not in form; the text says what is wrong with it."""


@dataclass(frozen=True)
class Decision:
    """One vote on one assertion."""

    passed: bool
    reason: str
    quote: str


@dataclass(frozen=True)
class Answer:
    """One whole judgement: a decision for each assertion in order, and the overall score."""

    score: float
    reason: str
    decisions: tuple[Decision, ...]


def parse_answer(text: str, count: int) -> Answer:
    """Reads an answer about `count` assertions.

    A fence around the JSON, further members, and missing reasons and quotes are put up with; a
    missing, doubled or unknown index, a member given twice, a verdict that is no boolean and a
    score that is missing or no number from 0 to 1 are not.

    Raises:
        BadAnswer: With what is wrong.
    """
    text = text.strip()
    if fenced := _FENCE.match(text):
        text = fenced.group(1)
    try:
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse)
    except BadAnswer:
        raise
    except (ValueError, RecursionError) as error:
        raise BadAnswer(f"it is not one JSON object ({error})") from None
    if not isinstance(value, dict):
        raise BadAnswer("it is not a JSON object")
    return Answer(
        score=_score(value.get("score")),
        reason=_text(value, "reason"),
        decisions=_decisions(value.get("nl_assertion_verdicts"), count),
    )


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Of a member that is given twice nobody knows which one is meant."""
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        doubled = next(name for name in names if names.count(name) > 1)
        raise BadAnswer(f"{doubled[:50]!r} is there twice in one object")
    return value


def _refuse(constant: str) -> NoReturn:
    raise BadAnswer(f"{constant} is not JSON")


def _score(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadAnswer("score is missing or not a number")
    if not 0 <= value <= 1:
        raise BadAnswer("score is not from 0 to 1")
    return float(value)


def _decisions(value: Any, count: int) -> tuple[Decision, ...]:
    if value is None and not count:
        return ()
    if not isinstance(value, list):
        raise BadAnswer("nl_assertion_verdicts is not a list")
    found: dict[int, Decision] = {}
    for item in value:
        if not isinstance(item, Mapping):
            raise BadAnswer("a verdict is not an object")
        index = item.get("index")
        if isinstance(index, bool) or not isinstance(index, int):
            raise BadAnswer("the index of a verdict is not an integer")
        if not 1 <= index <= count:
            raise BadAnswer(f"a verdict is on an assertion that is not there; there are {count}")
        if index in found:
            raise BadAnswer(f"there are two verdicts on assertion {index}")
        passed = item.get("passed")
        if not isinstance(passed, bool):
            raise BadAnswer(f"passed of assertion {index} is neither true nor false")
        found[index] = Decision(passed, _text(item, "reason"), _text(item, "quote"))
    missing = [index for index in range(1, count + 1) if index not in found]
    if missing:
        raise BadAnswer(f"there is no verdict on {', '.join(map(str, missing))}")
    return tuple(found[index] for index in range(1, count + 1))


def _text(value: Mapping[str, Any], name: str) -> str:
    text = value.get(name)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise BadAnswer(f"{name} is not a text")
    return text[:MAX_TEXT_CHARS]
