"""The judge's input, made from the record of a call.

Each section is one JSON value between its tags. In it <, > and & are escaped, so nothing that was
said in a call or came back from a tool can open or close a section.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tau2eval_scorer.catalog import ScenarioCard
from tau2eval_scorer.jsonio import parse_json
from tau2eval_scorer.record import Conversation, Role, TimedEvent, Turn

COMPACT_CHARS = 1500
"""Longest tool result in a compact context."""


def user_content(
    conversation: Conversation,
    card: ScenarioCard,
    actions: Sequence[Mapping[str, Any]] | None,
    *,
    include_conversation: bool = False,
    compact: bool = False,
) -> str:
    """Returns the sections in the order of the reference evaluator.

    Args:
        conversation: The record.
        card: Its scenario.
        actions: What the agent recorded; None when that is not known.
        include_conversation: Adds the section conversation.
        compact: Shortens tool results over 1,500 characters.
    """
    sections: list[tuple[str, Any]] = [
        ("reference", card.reference_answer),
        (
            "prediction",
            {
                "actions": None if actions is None else list(actions),
                "ended_by": str(conversation.stop_reason),
            },
        ),
    ]
    if include_conversation:
        sections.append(("conversation", spoken(conversation)))
    sections += [
        (
            "nl_assertions",
            [
                {"index": at, "assertion": text}
                for at, text in enumerate(card.nl_assertions, start=1)
            ],
        ),
        ("agent_context_history", context_history(conversation, Role.AGENT, compact)),
        ("user_context_history", context_history(conversation, Role.USER, compact)),
    ]
    return "".join(f"<{name}>\n{_json(value)}\n</{name}>\n" for name, value in sections)


def spoken(conversation: Conversation) -> list[dict[str, str]]:
    """Returns the words that were played, in order, with those that were cut off marked."""
    return [
        {"speaker": str(turn.role), "words": turn.text, **_unspoken(turn)}
        for turn in conversation.turns
        if turn.text.strip() or turn.unspoken.strip()
    ]


def context_history(
    conversation: Conversation, side: Role, compact: bool = False
) -> list[dict[str, Any]]:
    """Returns the call as one side lived it, from the bridge's record.

    Not from the bot's own report of its context: that one may hold words that an interruption kept
    from being played.

    Args:
        conversation: The record.
        side: Whose view.
        compact: Shortens long tool results.
    """
    entries: list[tuple[float, int, dict[str, Any]]] = []
    voice = conversation.header.modality == "voice"
    for turn in conversation.turns:
        if turn.role is side:
            if turn.text.strip() or turn.unspoken.strip():
                said = {"role": "assistant", "content": turn.text, **_unspoken(turn)}
                entries.append((turn.start_seconds, 1, said))
        elif words := (turn.heard if voice else turn.heard or turn.text):
            # What was heard can be acted upon only once it was said.
            entries.append((turn.end_seconds, 0, {"role": "user", "content": words}))
    tools = [event for event in conversation.events if event.role is side]
    entries += [
        (event.time_seconds, 2, entry)
        for event in tools
        if (entry := _tool_entry(event, compact)) is not None
    ]
    return [entry for _, _, entry in sorted(entries, key=lambda item: (item[0], item[1]))]


def _unspoken(turn: Turn) -> dict[str, str]:
    return {"unspoken": turn.unspoken} if turn.unspoken.strip() else {}


def _tool_entry(event: TimedEvent, compact: bool) -> dict[str, Any] | None:
    data = event.data
    if event.kind == "tool_call":
        return {
            "role": "assistant",
            "tool_call": {
                "id": data["call_id"],
                "name": data["name"],
                "arguments": _loose(data["arguments_json"]),
            },
        }
    if event.kind == "tool_result":
        result = _loose(data["result_json"])
        text = _json(result)
        if compact and len(text) > COMPACT_CHARS:
            result = f"{text[:COMPACT_CHARS]}… ({len(text)} characters)"
        entry = {"role": "tool", "id": data["call_id"], "name": data["name"], "result": result}
        return {**entry, "is_error": True} if data["is_error"] else entry
    return None


def _loose(text: str) -> Any:
    """A model's arguments may be anything; what is no JSON stays text."""
    try:
        return parse_json(text)
    except ValueError:
        return text


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    # A lone surrogate cannot travel as UTF-8.
    return text.encode("utf-8", "replace").decode()
