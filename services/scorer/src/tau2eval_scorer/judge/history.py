"""The call as each side lived it, rebuilt from the bridge's record.

Not from the bots' own reports of their contexts: those may hold words that an interruption kept
from being played. All times are seconds on the bridge's clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tau2eval_scorer.jsonio import parse_json
from tau2eval_scorer.record import Conversation, Role, TimedEvent, Turn

COMPACT_CHARS = 1500
"""Longest tool result in a compact context."""

_HEARD_TURN, _EVENT, _SAID = range(3)
"""Order of what has the same time. Hearing comes before acting upon it; words that begin when a
tool returns come after it, because in the virtual time of a text call a reply goes on just then."""

_Entry = tuple[float, int, dict[str, Any]]


def context_history(
    conversation: Conversation, side: Role, compact: bool = False
) -> list[dict[str, Any]]:
    """Returns one side's view: what it heard, what it said aloud, its tool calls and results.

    Args:
        conversation: The record.
        side: Whose view.
        compact: Shortens tool results over 1,500 characters.
    """
    events = [event for event in conversation.events if event.role is side]
    entries = [
        *_events(events, compact),
        *_said_turns(conversation, side),
    ]
    if not any(event.kind == "transcript_heard" for event in events):
        entries += _heard_turns(conversation, side)
    # The sort is stable: events of one time keep the order in which the bridge received them.
    history = [entry for _, _, entry in sorted(entries, key=lambda item: (item[0], item[1]))]
    if not any(event.kind in ("tool_call", "tool_result") for event in events):
        history += _reported_tools(conversation, side, compact)
    return history


def spoken(conversation: Conversation) -> list[dict[str, str]]:
    """Returns the words that were played, in order, with those that were cut off marked."""
    return [
        {"speaker": str(turn.role), "words": played, **_unspoken(unspoken)}
        for turn in conversation.turns
        for played, unspoken in [_words(conversation, turn)]
        if played or unspoken
    ]


def _words(conversation: Conversation, turn: Turn) -> tuple[str, str]:
    """Returns the words of a turn that were played, and those that were not.

    Words without a sound on the line were not played, whatever the bot says of them; nor was the
    text that the limit of a text call kept from the other side.
    """
    text, unspoken = turn.text.strip(), turn.unspoken.strip()
    if conversation.header.modality == "voice":
        played = turn.end_seconds > turn.start_seconds
    else:
        played = bool(turn.heard.strip()) or not turn.interrupted
    return (text, unspoken) if played else ("", " ".join(filter(None, (text, unspoken))))


def _unspoken(words: str) -> dict[str, str]:
    return {"unspoken": words} if words else {}


def _said_turns(conversation: Conversation, side: Role) -> Iterator[_Entry]:
    for turn in conversation.turns:
        if turn.role is side:
            played, unspoken = _words(conversation, turn)
            if played or unspoken:
                entry = {"role": "assistant", "content": played, **_unspoken(unspoken)}
                yield turn.start_seconds, _SAID, entry


def _heard_turns(conversation: Conversation, side: Role) -> Iterator[_Entry]:
    """What a side heard by the turns, for a bot that does not report it when it hears."""
    turns = [turn for turn in conversation.turns if turn.role is not side]
    known = any(turn.heard.strip() for turn in turns)
    for turn in turns:
        heard = turn.heard.strip()
        if known and heard:
            yield turn.end_seconds, _HEARD_TURN, {"role": "user", "content": heard}
        elif not known and (said := _words(conversation, turn)[0]):
            entry = {"role": "user", "content": said, "source": "said"}
            yield turn.end_seconds, _HEARD_TURN, entry


def _events(events: list[TimedEvent], compact: bool) -> Iterator[_Entry]:
    ids = _Ids()
    for event in events:
        data = event.data
        entry: dict[str, Any] | None = None
        if event.kind == "transcript_heard":
            words = str(data["text"]).strip()
            entry = {"role": "user", "content": words} if words else None
        elif event.kind == "tool_call":
            call_id = ids.call(str(data["call_id"]))
            entry = _call(call_id, data["name"], data["arguments_json"])
        elif event.kind == "tool_result":
            call_id = ids.result(str(data["call_id"]))
            entry = _result(call_id, data["name"], _loose(data["result_json"]), compact)
            if data["is_error"]:
                entry["is_error"] = True
        if entry is not None:
            yield event.time_seconds, _EVENT, entry


class _Ids:
    """Tells calls apart of which a model gave several the same id."""

    def __init__(self) -> None:
        self._calls: dict[str, int] = {}
        self._results: dict[str, int] = {}

    def call(self, call_id: str) -> str:
        return self._next(self._calls, call_id)

    def result(self, call_id: str) -> str:
        return self._next(self._results, call_id)

    def _next(self, seen: dict[str, int], call_id: str) -> str:
        seen[call_id] = seen.get(call_id, 0) + 1
        return call_id if seen[call_id] == 1 else f"{call_id}#{seen[call_id]}"


def _call(call_id: str, name: Any, arguments: Any) -> dict[str, Any]:
    return {
        "role": "assistant",
        "tool_call": {"id": call_id, "name": name, "arguments": _loose(arguments)},
    }


def _result(call_id: str, name: Any, result: Any, compact: bool) -> dict[str, Any]:
    if compact:
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        if len(text) > COMPACT_CHARS:
            result = f"{text[:COMPACT_CHARS]}… ({len(text)} characters)"
    return {"role": "tool", "id": call_id, "name": name, "result": result}


def _reported_tools(conversation: Conversation, side: Role, compact: bool) -> list[dict[str, Any]]:
    """The calls of a bot that sends no events of them, from its own report of its context.

    They are marked, and stand at the end because nobody knows when they were made.
    """
    summary = conversation.summary(side)
    messages = summary.context if summary is not None else None
    found: list[dict[str, Any]] = []
    names: dict[str, Any] = {}
    ids = _Ids()
    for message in messages if isinstance(messages, list) else ():
        if not isinstance(message, Mapping):
            continue
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, Mapping) else None
            if isinstance(function, Mapping):
                call_id = ids.call(str(call.get("id")))
                names[call_id] = function.get("name")
                found.append(_call(call_id, names[call_id], function.get("arguments")))
        if message.get("role") == "tool":
            call_id = ids.result(str(message.get("tool_call_id")))
            content = _loose(message.get("content"))
            entry = _result(call_id, names.get(call_id), content, compact)
            if isinstance(content, Mapping) and content.get("status") == "error":
                # Errors of tools come back as data; see libs/airline.
                entry["is_error"] = True
            found.append(entry)
    return [{**entry, "reported": True} for entry in found]


def _loose(value: Any) -> Any:
    """A model's arguments and a tool's result may be anything; what is no JSON stays text."""
    if not isinstance(value, str):
        return value
    try:
        return parse_json(value)
    except ValueError:
        return value
