"""A request's messages as a script sees them: who said what, which calls were made, what came back.

Everything a script knows comes from here, so that replays and retries of a request get the same
answer. The messages of a voice call are imperfect: an assistant message holds only the words that
were played before an interruption, or is missing when none was; user messages hold what was heard,
and those that follow each other may have been merged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Speaker = Literal["user", "assistant"]
CallStatus = Literal["done", "running", "cancelled"]
SYSTEM_ROLES = ("system", "developer")


class MalformedMessages(ValueError):
    """The request's messages are not a list of OpenAI chat messages."""


@dataclass(frozen=True)
class Said:
    """Words of one side; never empty."""

    by: Speaker
    text: str


@dataclass(frozen=True)
class Called:
    """A tool call of the assistant.

    Attributes:
        name: The tool's name.
        arguments: The parsed arguments; empty when they are no JSON object.
        status: "running" without a final result, "cancelled" when an interruption undid it.
        result: The parsed result, or its text when that is no JSON.
    """

    name: str
    arguments: Mapping[str, Any]
    status: CallStatus
    result: Any


Entry = Said | Called


@dataclass(frozen=True)
class Conversation:
    """The entries of a conversation in order, and its system text."""

    system: str
    entries: tuple[Entry, ...]

    @property
    def calls(self) -> list[tuple[int, Called]]:
        """The tool calls with their positions in `entries`."""
        return [(at, e) for at, e in enumerate(self.entries) if isinstance(e, Called)]

    def texts(self, by: Speaker, after: int = -1) -> list[tuple[int, str]]:
        """The texts of one side behind a position, with their positions."""
        return [
            (at, e.text)
            for at, e in enumerate(self.entries)
            if at > after and isinstance(e, Said) and e.by == by
        ]


def words(text: str) -> list[str]:
    """Returns the words of a text in lower case, without punctuation."""
    return re.findall(r"[a-z0-9']+", text.lower().replace("\u2019", "'"))


def parse(messages: object) -> Conversation:
    """Reads the "messages" of a chat completion request.

    Raises:
        MalformedMessages: When they are not a list of messages with a role and a usable content.
    """
    if not isinstance(messages, list) or not messages:
        raise MalformedMessages("messages must be a list that is not empty")
    results: dict[str, str] = {}
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise MalformedMessages(f"messages[{index}] must be an object with a role")
        if message["role"] == "tool":
            results[str(message.get("tool_call_id"))] = _text(message.get("content"), index)
    system: list[str] = []
    entries: list[Entry] = []
    for index, message in enumerate(messages):
        role = message["role"]
        text = _text(message.get("content"), index).strip()
        if role in SYSTEM_ROLES:
            system.append(text)
        elif role in ("user", "assistant"):
            if text:
                entries.append(Said(role, text))
            for call in message.get("tool_calls") or ():
                entries.append(_called(call, results, index))
        elif role != "tool":
            raise MalformedMessages(f"messages[{index}] has the unknown role {role!r}")
    return Conversation("\n".join(system), tuple(entries))


def without_note(messages: list[Any]) -> list[Any]:
    """Drops what a control flow appended to have the last reply written again.

    That is system messages at the end, and the quoted draft before them. A script's reply follows
    from the conversation, so it repeats what it drafted.
    """
    end = len(messages)
    while end and _role(messages[end - 1]) in SYSTEM_ROLES:
        end -= 1
    if not any(_role(message) not in SYSTEM_ROLES for message in messages[:end]):
        return messages
    if end < len(messages) and _role(messages[end - 1]) == "assistant":
        end -= 1
    return messages[:end]


def without_stimulus(conversation: Conversation) -> Conversation:
    """Drops the "Hello" by which an agent is connected; it is not a turn of the caller."""
    for at, entry in enumerate(conversation.entries):
        if not isinstance(entry, Said) or entry.by != "user":
            break
        if set(words(entry.text)) <= {"hello", "hi"}:
            rest = conversation.entries[:at] + conversation.entries[at + 1 :]
            return Conversation(conversation.system, rest)
    return conversation


def matched(
    conversation: Conversation, steps: Sequence[tuple[str, Mapping[str, Any]]]
) -> list[int]:
    """Returns the positions at which the first steps of a plan were executed, in order.

    A call that was cancelled, that runs still or whose result is missing is not executed.
    """
    positions: list[int] = []
    for at, call in conversation.calls:
        if len(positions) == len(steps):
            break
        if call.status == "done" and (call.name, call.arguments) == tuple(steps[len(positions)]):
            positions.append(at)
    return positions


def _role(message: object) -> object:
    return message.get("role") if isinstance(message, dict) else None


def _text(content: object, index: int) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = []
        for part in content:
            if isinstance(part, str):
                parts.append(part)
            elif isinstance(part, dict):
                parts.append(str(part.get("text") or part.get("refusal") or ""))
            else:
                raise MalformedMessages(f"messages[{index}].content has a part of no known form")
        return "\n".join(part for part in parts if part)
    raise MalformedMessages(f"messages[{index}].content must be a string or a list of parts")


def _called(call: object, results: Mapping[str, str], index: int) -> Called:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict):
        raise MalformedMessages(f"messages[{index}].tool_calls has an entry without a function")
    arguments = _json(function.get("arguments") or "{}")
    raw = results.get(str(call.get("id")))
    # Pipecat's words for a call without a result yet, and for one that an interruption stopped.
    status: CallStatus = "done"
    if raw is None or raw.startswith("CANCELLED"):
        status = "cancelled"
    elif raw == "IN_PROGRESS":
        status = "running"
    return Called(
        name=str(function.get("name")),
        arguments=arguments if isinstance(arguments, dict) else {},
        status=status,
        result=_json(raw) if raw else None,
    )


def _json(text: object) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) else text
    except json.JSONDecodeError:
        return text
