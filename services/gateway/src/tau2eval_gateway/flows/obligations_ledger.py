"""What the user asked to be done, and whether it was: pure functions of a conversation.

An obligation is read once, from one user message, and kept. Whether it is settled is worked out
from the history every time, so an edited history needs no repair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tau2eval_gateway.flows.messages import SYSTEM_ROLES, ToolCall, text_of, tool_calls
from tau2eval_gateway.flows.obligations_results import result_failed
from tau2eval_gateway.flows.obligations_values import Values, telling, tokens_of
from tau2eval_gateway.flows.readwrite import inner_calls, is_write

MAX_PER_MESSAGE = 8
"""Obligations taken from one user message."""
MAX_REQUEST_CHARS = 240
MAX_WORD_CHARS = 80
MAX_WORDS = 6
"""Tools, and identifiers, of one obligation."""
_MAX_NESTING = 4
_MAX_SAID_CHARS = 1_000_000
"""Newest part of a conversation in which identifiers are looked for."""
_RESULT_ROLES = frozenset({"tool", "function"})

Declared = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Obligation:
    """One thing that the user asked for and that a write call settles.

    Attributes:
        name: Which user message, and which of its requests: the same in every request.
        request: What was asked, in few words of the ledger model.
        tools: Write tools that would settle it.
        identifiers: Values that such a call carries.
        at: Index in `messages` of the user message.
    """

    name: str
    request: str
    tools: tuple[str, ...]
    identifiers: tuple[str, ...]
    at: int

    def kept(self) -> dict[str, Any]:
        """Returns what is kept of it, as JSON."""
        return {
            "request": self.request,
            "tools": list(self.tools),
            "identifiers": list(self.identifiers),
        }


@dataclass(frozen=True, slots=True)
class Action:
    """A tool call that the history shows as done.

    Attributes:
        at: Index in `messages` of the assistant's message.
        names: The tool's name; behind a dispatcher, the inner one's.
        said: What its arguments say.
    """

    at: int
    names: frozenset[str]
    said: Values


def write_tools(declared: Declared) -> tuple[set[str], bool]:
    """Returns the declared tools that write, and whether one passes calls on to other tools."""
    names = {name for name, tool in declared.items() if is_write(name, tool, None, declared)}
    return names, any(_dispatches(name, tool) for name, tool in declared.items())


def take_obligations(
    answer: Sequence[Any],
    declared: Declared,
    said: Iterable[str],
    open_ones: Iterable[Obligation],
    name: str,
    at: int,
) -> list[Obligation]:
    """Returns what is sound of a ledger model's answer for one user message.

    Without words, without a tool that writes, or said already: left out. An identifier that was
    never said is left out too, so a call is not asked for a value that the model made up.

    Args:
        answer: The items of "obligations"; anything.
        declared: The request's tools.
        said: All that user, assistant and tools said up to the message; see `said_until`.
        open_ones: Obligations of earlier messages that are open.
        name: Of the message.
        at: Its index.
    """
    writes, dispatcher = write_tools(declared)
    known = {_signature(one) for one in open_ones}
    spoken = Values(said)
    found: list[Obligation] = []
    for item in answer[: 4 * MAX_PER_MESSAGE]:
        if not isinstance(item, Mapping) or len(found) >= MAX_PER_MESSAGE:
            continue
        request = _line(item.get("request"), MAX_REQUEST_CHARS)
        tools = tuple(
            tool
            for tool in _words(item.get("tools"))
            if tool in writes
            or (dispatcher and tool not in declared and is_write(tool, None, None, declared))
        )
        given = _words(item.get("identifiers"))
        identifiers = tuple(word for word in given if spoken.carry(word))
        one = Obligation(f"{name}/{len(found)}", request, tools, identifiers, at)
        if not any(char.isalnum() for char in request) or not tools or _signature(one) in known:
            continue
        known.add(_signature(one))
        found.append(one)
    return found


def kept_obligations(value: Any, name: str, at: int) -> list[Obligation]:
    """Reads what `Obligation.kept` wrote; what is not of that form is left out."""
    found: list[Obligation] = []
    for number, item in enumerate(value if isinstance(value, list) else ()):
        if not isinstance(item, Mapping):
            continue
        request = _line(item.get("request"), MAX_REQUEST_CHARS)
        tools, identifiers = _words(item.get("tools")), _words(item.get("identifiers"))
        if request and tools:
            found.append(Obligation(f"{name}/{number}", request, tools, identifiers, at))
    return found


def done_actions(
    messages: Sequence[Mapping[str, Any]], declared: Declared, after: int = -1
) -> list[Action]:
    """Returns the write calls with a result that is no error, in order.

    Args:
        messages: The conversation.
        declared: The request's tools.
        after: Index of the message behind which they are looked for.
    """
    found: list[Action] = []
    for turn in _turns(messages, after + 1):
        for number, call in enumerate(turn.calls):
            results = turn.results(number)
            # What reads is the most, and told fastest.
            actions = list(_actions(call, turn.at, declared)) if results else []
            if actions and not any(result_failed(one) for one in results):
                found.extend(actions)
    return found


def settled_by(
    obligations: Sequence[Obligation],
    messages: Sequence[Mapping[str, Any]],
    declared: Declared,
) -> set[str]:
    """Returns the names of the obligations that a conversation settles."""
    if not obligations:
        return set()
    first = min(one.at for one in obligations)
    return settled_names(obligations, done_actions(messages, declared, first))


def settled_names(obligations: Sequence[Obligation], actions: Iterable[Action]) -> set[str]:
    """Returns the names of the obligations that later calls settle (statement 24).

    A call settles every obligation whose identifiers it carries (several messages may ask for the
    same thing); else the oldest one of its tool that has none. Beside an id or a number, words
    ("business class") need not be among the arguments.
    """
    settled: set[str] = set()
    for action in actions:
        fitting = [
            one
            for one in obligations
            if one.name not in settled and one.at < action.at and action.names & set(one.tools)
        ]
        exact = [
            one
            for one in fitting
            if one.identifiers and all(action.said.carry(word) for word in telling(one.identifiers))
        ]
        vague = [one for one in fitting if not one.identifiers]
        for one in exact or vague[:1]:
            settled.add(one.name)
    return settled


def said_until(messages: Sequence[Mapping[str, Any]], at: int) -> list[str]:
    """Returns what was said and called up to a message, it included, system text left out."""
    said: list[str] = []
    left = _MAX_SAID_CHARS
    for message in reversed(messages[: at + 1]):
        if message.get("role") in SYSTEM_ROLES:
            continue
        for text in (text_of(message), *(call.text for call in tool_calls(message))):
            said.append(text[:left])
            left -= len(said[-1])
    return said


@dataclass(slots=True)
class _Turn:
    """The calls of one assistant message, and the tool messages that may answer them."""

    at: int
    calls: list[ToolCall]
    by_id: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    block: list[Mapping[str, Any]] = field(default_factory=list)

    def results(self, number: int) -> list[Mapping[str, Any]]:
        """Returns the results of a call: by its id if it has one of its own, else by its place."""
        call_id = self.calls[number].call_id
        ids = [call.call_id for call in self.calls]
        if call_id and ids.count(call_id) == 1:
            return self.by_id.get(call_id, [])
        block = self.block
        if not call_id:
            block = [one for one in block if not one.get("tool_call_id")]
            number, ids = ids[:number].count(""), [one for one in ids if not one]
        return [block[number]] if len(block) == len(ids) else []


def _turns(messages: Sequence[Mapping[str, Any]], start: int) -> list[_Turn]:
    """Returns the assistant's turns with calls, and their results.

    An id stands for a call until another message uses it again: some models number their calls
    from 0 in every turn.
    """
    turns: list[_Turn] = []
    owners: dict[str, _Turn] = {}
    direct: _Turn | None = None
    for at, message in enumerate(messages[start:], start):
        role = message.get("role")
        if role in _RESULT_ROLES:
            if direct is not None:
                direct.block.append(message)
            call_id = message.get("tool_call_id")
            if isinstance(call_id, str) and call_id in owners:
                owners[call_id].by_id.setdefault(call_id, []).append(message)
        elif role not in SYSTEM_ROLES:
            direct = None
            if role == "assistant" and (calls := tool_calls(message)):
                direct = _Turn(at, calls)
                turns.append(direct)
                owners.update((call.call_id, direct) for call in calls if call.call_id)
    return turns


def _actions(call: ToolCall, at: int, declared: Declared) -> Iterator[Action]:
    leaves = list(_leaves(call.name, call.arguments, declared, _MAX_NESTING))
    for name, arguments in leaves:
        if is_write(name, declared.get(name), arguments, declared):
            names = frozenset({name, call.name})
            # Malformed arguments are one text: no client could have carried them out as more.
            values = _values(arguments) if arguments is not None else [call.text]
            yield Action(at, names, Values(values))


def _leaves(
    name: str, arguments: Mapping[str, Any] | None, declared: Declared, depth: int
) -> Iterator[tuple[str, Mapping[str, Any] | None]]:
    inner = inner_calls(name, arguments) if depth else []
    if not inner:
        yield name, arguments
    for call in inner:
        yield from _leaves(call.tool, call.arguments, declared, depth - 1)


def _values(value: Any, depth: int = 32) -> list[str]:
    if isinstance(value, bool) or value is None or depth == 0:
        return []
    if isinstance(value, (str, int, float)):
        return [str(value)]
    items: Iterable[Any] = ()
    if isinstance(value, Mapping):
        items = value.values()
    elif isinstance(value, list):
        items = value
    return [text for item in items for text in _values(item, depth - 1)]


def _dispatches(name: str, tool: Mapping[str, Any]) -> bool:
    function = tool.get("function")
    schema = function.get("parameters") if isinstance(function, Mapping) else None
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return False
    example = {
        key: [{"tool": "x", "arguments": {}}]
        if isinstance(kind, Mapping) and kind.get("type") == "array"
        else "x"
        for key, kind in properties.items()
    }
    return bool(inner_calls(name, example))


def _signature(one: Obligation) -> tuple[Any, ...]:
    words = frozenset(tokens_of(word) for word in one.identifiers)
    return (frozenset(one.tools), words, tokens_of(one.request))


def _words(value: Any) -> tuple[str, ...]:
    items = value if isinstance(value, list) else [value]
    words: list[str] = []
    for item in items:
        if isinstance(item, (int, float)) and not isinstance(item, bool):
            item = str(item)
        if isinstance(item, str) and len(item) <= MAX_WORD_CHARS and (word := _line(item, 10_000)):
            words.append(word)
    return tuple(dict.fromkeys(words))[:MAX_WORDS]


def _line(value: Any, limit: int) -> str:
    """Returns text as one printable line, so that it cannot pass for more than a quotation."""
    if not isinstance(value, str):
        return ""
    text = value[: 8 * limit].encode("utf-8", "replace").decode()
    text = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return text if len(text) <= limit else text[: limit - 3].rstrip() + "..."
