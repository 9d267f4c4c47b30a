"""Reading chat messages: text, tool calls, tool results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SYSTEM_ROLES = frozenset({"system", "developer"})


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


def parse_json_object(text: str) -> dict[str, Any] | None:
    """Returns the first JSON object in a model's answer; None when there is none.

    Models wrap what they are asked for in code fences and in sentences.
    """
    decoder = json.JSONDecoder()
    at = text.find("{")
    while at >= 0:
        try:
            value, _ = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at = text.find("{", at + 1)
            continue
        return value if isinstance(value, dict) else None
    return None


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
