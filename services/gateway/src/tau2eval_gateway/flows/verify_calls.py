"""The calls in a message as the write gate sees them: every one, and which of them write."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tau2eval_gateway.flows.messages import ToolCall, declared_tools, tool_calls
from tau2eval_gateway.flows.readwrite import InnerCall, inner_calls, is_write

LEGACY = -1
"""Place of a call that stands in `function_call`, the form before tool_calls."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A call in a message.

    Attributes:
        label: Names this call and no other of its message: the provider's id where it does.
        place: Its index in `tool_calls`, or `LEGACY`.
        call: Name and arguments; a call that cannot be read has an empty name.
        write: Whether it may change something.
        inner: The tools that a dispatcher passes it on to.
    """

    label: str
    place: int
    call: ToolCall
    write: bool
    inner: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """Names that mean this call beside its label."""
        names = {self.call.name, *(self.inner if len(self.inner) == 1 else ())}
        return frozenset(names - {""})


def calls_in(message: Mapping[str, Any], body: Mapping[str, Any]) -> list[Seen]:
    """Returns all calls of a message, in order; what cannot be read is taken for a write.

    Args:
        message: An assistant's message.
        body: The request's body, which declares the tools.
    """
    tools = declared_tools(body)
    calls = list(entries_in(message))
    taken = Counter(call.call_id for _, call in calls)
    inner = [tuple(one.tool for one in passed_on(call)) for _, call in calls]
    # An id that is also a tool's name could mean two calls.
    names = {call.name for _, call in calls}.union(*inner)
    found = []
    for number, (place, call) in enumerate(calls, 1):
        clear = taken[call.call_id] == 1 and call.call_id not in names
        label = call.call_id if call.call_id.strip() and clear else f"draft-call-{number}"
        write = not call.name or is_write(call.name, tools.get(call.name), call.arguments, tools)
        found.append(Seen(label, place, call, write, inner[number - 1]))
    return found


def writes_in(calls: Sequence[Seen]) -> list[Seen]:
    """Returns the calls that may change something."""
    return [seen for seen in calls if seen.write]


def passed_on(call: ToolCall) -> list[InnerCall]:
    """Returns the calls that a call surely passes on to other tools."""
    return [one for one in inner_calls(call.name, call.arguments) if one.sure]


def adopt(
    message: Mapping[str, Any],
    calls: Sequence[Seen],
    drafted: Mapping[str, Any],
    drafted_calls: Sequence[Seen],
    new_id: Callable[[], str],
) -> dict[str, Any]:
    """Returns a revised message whose repeated calls are the drafted ones again.

    A repeated call keeps the draft's id and arguments to the letter. Ids that are empty or occur
    twice are replaced (statement 20).

    Args:
        message: The revision.
        calls: Its calls.
        drafted: The draft.
        drafted_calls: Its calls.
        new_id: Makes an id.
    """
    entries = message.get("tool_calls")
    if not isinstance(entries, list):
        return dict(message)
    waiting = [seen for seen in drafted_calls if seen.place != LEGACY]
    mended: list[Any] = []
    by_place = {seen.place: seen for seen in calls}
    origins: list[Any] = []
    for place in range(len(entries)):
        seen = by_place.get(place)
        origin = next(
            (
                w
                for w in waiting
                if seen is not None and w.call.canonical() == seen.call.canonical()
            ),
            None,
        )
        if origin is not None:
            waiting.remove(origin)
        origins.append(origin)
    used = {origin.call.call_id for origin in origins if origin is not None}
    given: set[str] = set()
    for entry, origin in zip(entries, origins, strict=True):
        if not isinstance(entry, Mapping):
            mended.append(entry)
            continue
        copy = dict(entry)
        call_id = copy.get("id")
        if origin is not None:
            call_id = origin.call.call_id
            _copy_arguments(copy, drafted["tool_calls"][origin.place])
        elif call_id in used:
            call_id = ""
        if not isinstance(call_id, str) or not call_id.strip() or call_id in given:
            call_id = new_id()
        given.add(call_id)
        mended.append({**copy, "id": call_id})
    return {**message, "tool_calls": mended}


def _copy_arguments(entry: dict[str, Any], drafted: Any) -> None:
    function = entry.get("function")
    origin = drafted.get("function") if isinstance(drafted, Mapping) else None
    if isinstance(function, Mapping) and isinstance(origin, Mapping) and "arguments" in origin:
        entry["function"] = {**function, "arguments": origin["arguments"]}


def entries_in(message: Mapping[str, Any]) -> list[tuple[int, ToolCall]]:
    """Returns all calls of a message with their places, in whatever form they stand there."""
    found: list[tuple[int, ToolCall]] = []
    legacy = message.get("function_call")
    if legacy:
        read = tool_calls({"tool_calls": [{"id": "", "function": legacy}]})
        found.append((LEGACY, read[0] if read else _opaque(legacy)))
    entries = message.get("tool_calls")
    if entries and not isinstance(entries, list):
        found.append((0, _opaque(entries)))
    for place, entry in enumerate(entries if isinstance(entries, list) else ()):
        read = tool_calls({"tool_calls": [entry]}) if not _is_two(entry) else []
        found.append((place, read[0] if read else _opaque(entry)))
    return found


def _is_two(entry: Any) -> bool:
    """Returns whether an entry is a function's and a custom tool's call, as each client likes."""
    return isinstance(entry, Mapping) and bool(entry.get("function")) and bool(entry.get("custom"))


def _opaque(entry: Any) -> ToolCall:
    """Reads a call that is no function's: a custom tool's, or something unknown."""
    custom = entry.get("custom") if isinstance(entry, Mapping) and not _is_two(entry) else None
    call_id = entry.get("id") if isinstance(entry, Mapping) else None
    name = custom.get("name") if isinstance(custom, Mapping) else None
    given = custom.get("input") if isinstance(custom, Mapping) else entry
    if isinstance(entry, Mapping) and not isinstance(custom, Mapping):
        given = {key: value for key, value in entry.items() if key not in ("id", "index")}
    return ToolCall(
        call_id=call_id if isinstance(call_id, str) else "",
        name=name if isinstance(name, str) else "",
        text=given if isinstance(given, str) else json.dumps(given, sort_keys=True, default=str),
        arguments=None,
    )
