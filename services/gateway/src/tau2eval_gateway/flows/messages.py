"""Reading chat messages: text, tool calls, tool results."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SYSTEM_ROLES = frozenset({"system", "developer"})
MAX_ANSWER_CHARS = 200_000
"""Of a helper model; a longer answer is unreadable."""
_MAX_TRIES = 1_000
"""Braces at which an object may turn out not to begin."""
_THINKING_BEGINS = re.compile(r"<think(?:ing)?>", re.IGNORECASE)
_THINKING_ENDS = re.compile(r"</think(?:ing)?>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a model asks for.

    Attributes:
        call_id: The provider's id; may be empty.
        name: The function's name.
        text: Its arguments as the model wrote them.
        arguments: `text`, parsed; None when it is no JSON object.
    """

    call_id: str
    name: str
    text: str
    arguments: dict[str, Any] | None

    def canonical(self) -> str:
        """Returns name and arguments as canonical JSON; malformed arguments stay text."""
        value = self.text if self.arguments is None else self.arguments
        return json.dumps([self.name, value], sort_keys=True, separators=(",", ":"))


def tool_calls(message: Mapping[str, Any]) -> list[ToolCall]:
    """Returns the calls in an assistant's message, in order."""
    found: list[ToolCall] = []
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            continue
        given = function.get("arguments")
        text = given if isinstance(given, str) else json.dumps(given if given is not None else {})
        call_id = call.get("id")
        name = function.get("name")
        found.append(
            ToolCall(
                call_id=call_id if isinstance(call_id, str) else "",
                name=name if isinstance(name, str) else "",
                text=text,
                arguments=_object(text),
            )
        )
    return found


def text_of(message: Mapping[str, Any]) -> str:
    """Returns the words of a message; the texts of parts are joined by line breaks."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for part in content if isinstance(content, list) else ():
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            texts.append(part["text"])
    return "\n".join(texts)


def system_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """Returns the words of all system messages."""
    return "\n\n".join(text_of(m) for m in messages if m.get("role") in SYSTEM_ROLES)


def last_user_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """Returns the words of the last user message; empty without one."""
    for message in reversed(messages):
        if message.get("role") == "user":
            return text_of(message)
    return ""


def message_digest(message: Mapping[str, Any]) -> str:
    """Returns a hash of what a message says.

    Role, text, tool calls and the id of the call that it answers count. Members that clients add or
    drop between two requests (reasoning, cache marks, nulls) do not.
    """
    calls = [[call.call_id, call.canonical()] for call in tool_calls(message)]
    said = [
        message.get("role"),
        text_of(message),
        calls,
        message.get("tool_call_id") or "",
        message.get("name") or "",
    ]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def declared_tools(body: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Returns the declarations in `tools` by function name.

    A value is the entry of `tools` as the caller sent it, with its annotations.
    """
    found: dict[str, Mapping[str, Any]] = {}
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        function = tool.get("function") if isinstance(tool, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if isinstance(name, str):
            found[name] = tool
    return found


def parse_json_object(text: str, *members: str) -> dict[str, Any] | None:
    """Returns the JSON object in a helper model's answer; None when there is none.

    Models wrap what they are asked for in code fences and in sentences, think aloud before it, and
    quote the conversation. So the last object with one of the members that were asked for counts.
    """
    found = [value for value in json_objects(text) if any(name in value for name in members)]
    return found[-1] if found else None


def json_objects(text: str) -> list[dict[str, Any]]:
    """Returns the JSON objects in a model's answer that are not inside another, in order.

    What it thought aloud is passed over. Takes time in proportion to the text, whatever it is.
    """
    if len(text) > MAX_ANSWER_CHARS:
        return []
    text = _without_thinking(text)
    decoder = json.JSONDecoder()
    found: list[dict[str, Any]] = []
    at, tries = text.find("{"), 0
    while at >= 0 and tries < _MAX_TRIES:
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            tries += 1
            at += 1
        else:
            if isinstance(value, dict):
                found.append(value)
        at = text.find("{", at)
    return found


def _without_thinking(text: str) -> str:
    kept: list[str] = []
    at = 0
    while begin := _THINKING_BEGINS.search(text, at):
        end = _THINKING_ENDS.search(text, begin.end())
        if end is None:
            break
        kept.append(text[at : begin.start()])
        at = end.end()
    return " ".join([*kept, text[at:]])


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text, object_pairs_hook=_members)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    # Parsers differ in which one they take, so nobody knows what such a call will do. repr, because
    # Python holds true, 1 and 1.0 for equal.
    if len(found) < len(pairs) and any(repr(found[name]) != repr(value) for name, value in pairs):
        raise ValueError("a member occurs twice")
    return found
