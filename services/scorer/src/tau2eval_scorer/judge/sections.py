"""The judge's input, made from the record of a call.

Each section is one JSON value on one line between its tags. In it <, > and & are escaped, so
nothing that was said in a call or came back from a tool can open or close a section, or pass for a
mark of a model's chat format.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tau2eval_scorer.catalog import ScenarioCard
from tau2eval_scorer.judge.history import context_history, spoken
from tau2eval_scorer.judge.quotes import QuoteIndex
from tau2eval_scorer.judge.settings import JudgeSettings
from tau2eval_scorer.record import Conversation, Role

_ESCAPED = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u0085\u2028\u2029"}


@dataclass(frozen=True)
class JudgeInput:
    """What the judge is given, and where its quotes are looked for."""

    user_content: str
    quotes: QuoteIndex


def judge_input(
    conversation: Conversation,
    card: ScenarioCard,
    actions: Sequence[Mapping[str, Any]] | None,
    settings: JudgeSettings,
) -> JudgeInput:
    """Returns the sections in the order of the reference evaluator.

    Args:
        conversation: The record.
        card: Its scenario.
        actions: What the agent recorded; None when that is not known.
        settings: Whether the section conversation is in it, and whether long tool results are
            shortened.
    """
    prediction = {
        "actions": None if actions is None else list(actions),
        "ended_by": str(conversation.stop_reason),
    }
    numbered = [
        {"index": at, "assertion": text} for at, text in enumerate(card.nl_assertions, start=1)
    ]
    agent = context_history(conversation, Role.AGENT, settings.compact_context)
    user = context_history(conversation, Role.USER, settings.compact_context)
    sections: list[tuple[str, Any]] = [
        ("reference", card.reference_answer),
        ("prediction", prediction),
        *([("conversation", spoken(conversation))] if settings.include_conversation else []),
        ("nl_assertions", numbered),
        ("agent_context_history", agent),
        ("user_context_history", user),
    ]
    return JudgeInput(render(sections), QuoteIndex(agent, user, [prediction]))


def render(sections: Sequence[tuple[str, Any]]) -> str:
    """Returns sections as text: `<name>`, one line of JSON, `</name>`, a line each."""
    return "".join(f"<{name}>\n{escape(value)}\n</{name}>\n" for name, value in sections)


def escape(value: Any) -> str:
    """Returns a JSON value on one line, without <, > or & in it."""
    text = json.dumps(_plain_numbers(value), ensure_ascii=False, allow_nan=False)
    # A lone surrogate cannot travel as UTF-8.
    return text.translate(_ESCAPED).encode("utf-8", "replace").decode()


def _plain_numbers(value: Any) -> Any:
    """JSON text such as 1e999 is read as infinity, which JSON cannot say."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_numbers(item) for item in value]
    return value
