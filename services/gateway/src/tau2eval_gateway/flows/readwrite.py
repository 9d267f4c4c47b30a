"""Whether a tool call reads or writes (statements 1 to 4).

What is not known to be a lookup is a write: a write taken for a read would pass unchecked, while
a read taken for a write costs a check.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

from tau2eval_gateway.flows.readwrite_words import (
    CHANGES,
    DETERMINERS,
    LOOKUPS,
    MUTATORS,
    NAME_PREFACE,
    NOUN_LIKE_CHANGES,
    PARTICLES,
    PREFACE,
    SUFFIX_LOOKUPS,
    THINGS_KNOWN,
    as_words,
    base_of,
)

MAX_NESTING = 4
"""Dispatchers within dispatchers; a call nested deeper is a write."""
MAX_CALLS = 64
"""Inner calls of one dispatcher call; more of them are a write."""
_MAX_DESCRIPTION_CHARS = 4_000
_MAX_NAME_CHARS = 300

_TOOL_KEYS = (
    "tool", "tool_name", "toolName", "function", "function_name", "recipient_name",
    "name", "action", "method", "command", "operation",
)  # fmt: skip
_PLAIN_TOOL_KEYS = frozenset(_TOOL_KEYS[:6])
"""Name a tool and nothing else."""
_ARGUMENT_KEYS = (
    "arguments", "args", "params", "parameters", "tool_args", "tool_arguments", "tool_input",
    "toolArgs", "input", "inputs", "kwargs", "payload",
)  # fmt: skip
_LIST_KEYS = ("calls", "tool_calls", "tool_uses", "invocations", "operations", "actions", "steps")
_DISPATCH_WORDS = as_words(
    "action actions call command dispatch dispatcher execute forward function functions invoke "
    "mcp perform proxy route router rpc run tool tools use"
)
"""One of these in the name of a tool that passes calls on."""

_SEGMENTS = re.compile(r"__+|[./:]+")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+|\d+")
_VERSION = re.compile(r"v?\d+|v")
_SENTENCE_END = re.compile(r"[.!?](?:\s|$)|\n\s*\n")
_PROSE = re.compile(r"[a-z]+(?:'[a-z]+)?|[,;:.]")
_JOINED_CHANGE = re.compile(
    r"\b(?:and|then|or|also|before|after|while)\s+(?:then\s+|also\s+|\w+ly\s+)?([a-z]+)\s+([a-z]+)"
)


class Why(StrEnum):
    """What decided."""

    READ_ONLY_HINT = "readOnlyHint"
    DESTRUCTIVE_HINT = "destructiveHint"
    NAME = "name"
    DESCRIPTION = "description"
    UNKNOWN = "unknown"
    """Nothing says that it is a lookup."""
    NESTING = "nesting"
    """A dispatcher's calls are nested too deeply, or are too many, to be told."""


@dataclass(frozen=True, slots=True)
class Classification:
    """Whether a call writes, and why.

    Attributes:
        write: Whether it may change something.
        why: What decided.
        tool: Name of the tool that decided: the inner one of a dispatcher.
    """

    write: bool
    why: Why
    tool: str


@dataclass(frozen=True, slots=True)
class InnerCall:
    """A call that a dispatcher passes on.

    Attributes:
        tool: Name of the inner tool.
        arguments: None when they are no JSON object.
        sure: False: nothing but {name, params} and the like says that the outer tool is a
            dispatcher; the outer one must then be a lookup as well.
    """

    tool: str
    arguments: Mapping[str, Any] | None
    sure: bool = True


def is_write(
    name: str,
    declaration: Mapping[str, Any] | None,
    arguments: Mapping[str, Any] | None,
    tools: Mapping[str, Mapping[str, Any]] | None = None,
) -> bool:
    """Returns whether a call may change something; see `classify`."""
    return classify(name, declaration, arguments, tools).write


def classify(
    name: str,
    declaration: Mapping[str, Any] | None,
    arguments: Mapping[str, Any] | None,
    tools: Mapping[str, Mapping[str, Any]] | None = None,
) -> Classification:
    """Says whether a call reads or writes.

    Args:
        name: The tool's name as it is called.
        declaration: Its entry of `tools` (or an MCP tool); None when it is not declared.
        arguments: Of the call; None when they are no JSON object or there is no call.
        tools: All declarations by name, to find a dispatcher's inner tool in.
    """
    return _classify(name, declaration, arguments, tools or {}, MAX_NESTING)


def inner_calls(name: str, arguments: Mapping[str, Any] | None) -> list[InnerCall]:
    """Returns the calls that a dispatcher's call passes on; empty when it is no dispatcher.

    A tool whose name leads with a verb that changes something is none, whatever its arguments are
    called: update_record({"action": "get", "params": ...}) updates.
    """
    if not arguments:
        return []
    named = _is_dispatcher_name(name)
    if not named and _name_writes(name):
        return []
    for key in _LIST_KEYS:
        listed = arguments.get(key)
        if isinstance(listed, list) and listed:
            calls = [_inner(item, True) if isinstance(item, Mapping) else None for item in listed]
            found = [call for call in calls if call is not None]
            if len(found) == len(calls):
                return found
    one = _inner(arguments, named)
    if one is None or (one.arguments is None and _name_reads(name)):
        # get_tool_info({"tool": "delete_user"}) asks about a tool.
        return []
    return [one]


def _inner(arguments: Mapping[str, Any], named: bool) -> InnerCall | None:
    """Reads one inner call; `named`: the outer tool's name says that it passes calls on."""
    given = next((key for key in _ARGUMENT_KEYS if key in arguments), None)
    for key in _TOOL_KEYS:
        tool = arguments.get(key)
        if isinstance(tool, Mapping) and key == "function":
            # The shape of OpenAI's own tool calls.
            return _inner(tool, True)
        if not isinstance(tool, str):
            continue
        plain = key in _PLAIN_TOOL_KEYS or (key, given) == ("name", "arguments")
        if given is not None:
            return InnerCall(tool, _as_object(arguments[given]), sure=named or plain)
        if named and plain:
            return InnerCall(tool, None)
    return None


def _as_object(value: Any) -> Mapping[str, Any] | None:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, Mapping) else None


def _classify(
    name: str,
    declaration: Mapping[str, Any] | None,
    arguments: Mapping[str, Any] | None,
    tools: Mapping[str, Mapping[str, Any]],
    depth: int,
) -> Classification:
    read_only, destructive = _hints(declaration)
    if read_only:
        return Classification(False, Why.READ_ONLY_HINT, name)
    # readOnlyHint: false on a dispatcher says that it may write; the inner tool says if it does.
    calls = inner_calls(name, arguments)
    if calls:
        if depth <= 0 or len(calls) > MAX_CALLS:
            return Classification(True, Why.NESTING, name)
        results = [
            _classify(call.tool, _find(call.tool, tools), call.arguments, tools, depth - 1)
            for call in calls
        ]
        first = next((result for result in results if result.write), results[0])
        if not first.write and (hidden := _names_write(arguments or {}, tools)):
            return Classification(True, Why.NAME, hidden)
        if first.write or all(call.sure for call in calls):
            return first
    if read_only is False:
        return Classification(True, Why.READ_ONLY_HINT, name)
    if destructive:
        return Classification(True, Why.DESTRUCTIVE_HINT, name)
    return _by_words(name, _description(declaration))


def _names_write(arguments: Mapping[str, Any], tools: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns a tool that writes and stands where a dispatcher could read its tool from.

    {"tool": "get_user", "name": "delete_user", ...} and two lists of calls mean one thing to one
    dispatcher and another to the next.
    """
    places: list[Any] = [arguments]
    for key in _LIST_KEYS:
        listed = arguments.get(key)
        places.extend(listed if isinstance(listed, list) else ())
    places = [place for place in places if isinstance(place, Mapping)]
    places += [place["function"] for place in places if isinstance(place.get("function"), Mapping)]
    for place in places:
        for key in _TOOL_KEYS:
            tool = place.get(key)
            if isinstance(tool, str) and (
                _name_writes(tool)
                or (tool in tools and _classify(tool, tools[tool], None, tools, 0).write)
            ):
                return tool
    return ""


def _find(name: str, tools: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Finds a declaration, also when the call writes a namespace before the name."""
    last = [part for part in _SEGMENTS.split(name) if part][-1:]
    return tools.get(name) or (tools.get(last[0]) if last else None)


def _by_words(name: str, description: str) -> Classification:
    if _name_writes(name):
        return Classification(True, Why.NAME, name)
    lead = _Lead.of(description)
    if lead.change:
        return Classification(True, Why.DESCRIPTION, name)
    if _name_reads(name):
        return Classification(False, Why.NAME, name)
    if lead.lookup and not _names_change(description):
        return Classification(False, Why.DESCRIPTION, name)
    return Classification(True, Why.UNKNOWN, name)


# Names.


def _segments(name: str) -> list[list[str]]:
    """Splits a name into its namespaces and itself, each into lower-case words."""
    parts = [part for part in _SEGMENTS.split(name[:_MAX_NAME_CHARS]) if part]
    if len(parts) > 2 and parts[0].lower() == "mcp":
        # mcp__<server>__<tool>: the server's name says nothing about the tool.
        parts = parts[2:]
    found = []
    for part in parts:
        words = [word.lower() for word in _WORDS.findall(part)]
        while words and (_VERSION.fullmatch(words[0]) or words[0] in NAME_PREFACE):
            if len(words) == 1:
                break
            words = words[1:]
        if words:
            found.append(words)
    return found


def _is_dispatcher_name(name: str) -> bool:
    words = {word.lower() for word in _WORDS.findall(name[:_MAX_NAME_CHARS])}
    lead = next(iter(_segments(name)[-1:]), [""])[0]
    return bool(words & _DISPATCH_WORDS) and (
        lead in _DISPATCH_WORDS or not _leads_change([lead, ""])
    )


def _name_writes(name: str) -> bool:
    return any(_leads_change(words) for words in _segments(name))


def _leads_change(words: list[str]) -> bool:
    verb = base_of(words[0])
    if verb in CHANGES:
        return True
    if verb in NOUN_LIKE_CHANGES and len(words) > 1 and words[0] == verb:
        # order_status, order_search: the order is a thing.
        return words[-1] not in THINGS_KNOWN
    if len(words) > 1 and words[1] in PARTICLES.get(verb, ()):
        return True
    # get_or_create, search_and_replace, fetch_then_delete
    return any(
        word in ("and", "or", "then")
        and (base_of(following) in CHANGES or base_of(following) in NOUN_LIKE_CHANGES)
        for word, following in pairwise(words)
    )


def _name_reads(name: str) -> bool:
    segments = _segments(name)
    if not segments or not name.isascii():
        return False
    words = segments[-1]
    verb = base_of(words[0])
    if verb in LOOKUPS:
        return not _doubtful(verb, words)
    if words[-1] in SUFFIX_LOOKUPS:
        return not any(base_of(word) in CHANGES for word in words)
    # order.get.details
    return len(segments) > 1 and any(
        base_of(other[0]) in LOOKUPS and not _doubtful(base_of(other[0]), other)
        for other in segments[:-1]
    )


def _doubtful(verb: str, words: list[str]) -> bool:
    if len(words) > 1 and words[1] in MUTATORS:
        return True
    # A list of things ends in a plural; list_price_update is an update of the list price.
    return verb == "list" and len(words) > 2 and words[-1] in CHANGES


# Descriptions.


@dataclass(frozen=True, slots=True)
class _Lead:
    """What the first verb of a description says."""

    change: bool = False
    lookup: bool = False

    @classmethod
    def of(cls, description: str) -> _Lead:
        sentence = _first_sentence(description)
        words = list(_prose(sentence))
        at = 0
        while at < len(words) and (words[at] in PREFACE or words[at].endswith("ly")):
            at += 1
        if at == len(words) or not words[at].isalpha():
            return cls()
        word, verb = words[at], base_of(words[at])
        following = words[at + 1] if at + 1 < len(words) else ""
        if verb in CHANGES:
            return cls(change=True)
        if word in ("returns", "returning") and " to " not in f" {sentence} ":
            return cls(change=_joined_change(sentence), lookup=True)
        if verb in NOUN_LIKE_CHANGES and following in DETERMINERS:
            return cls(change=True)
        if verb not in LOOKUPS:
            return cls()
        if following in PARTICLES.get(verb, ()):
            return cls(change=True)
        if _joined_change(sentence):
            return cls(change=True)
        after_article = at > 0 and words[at - 1] in ("a", "an", "the") and verb != "list"
        return cls(lookup=not after_article)


def _first_sentence(description: str) -> str:
    text = description.strip().lower()[:_MAX_DESCRIPTION_CHARS]
    end = _SENTENCE_END.search(text)
    return text[: end.start()] if end else text


def _prose(text: str) -> Iterator[str]:
    for match in _PROSE.finditer(text):
        yield match.group()


def _joined_change(sentence: str) -> bool:
    """Returns whether a second verb changes something: "Looks up the order and cancels it"."""
    for match in _JOINED_CHANGE.finditer(sentence):
        verb = base_of(match.group(1))
        if (verb in CHANGES or verb in NOUN_LIKE_CHANGES) and match.group(2) in DETERMINERS:
            return True
    return False


def _names_change(description: str) -> bool:
    text = description.lower()[:_MAX_DESCRIPTION_CHARS]
    if any(base_of(word) in CHANGES for word in _prose(text)):
        return True
    words = list(_prose(text))
    return _joined_change(text) or any(
        word in ("to", "will", "can", "may") and following in NOUN_LIKE_CHANGES
        for word, following in pairwise(words)
    )


# Declarations.


def _places(declaration: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if not isinstance(declaration, Mapping):
        return []
    function = declaration.get("function")
    return [declaration, function] if isinstance(function, Mapping) else [declaration]


def _hints(declaration: Mapping[str, Any] | None) -> tuple[bool | None, bool]:
    """Returns readOnlyHint (None: not declared) and whether destructiveHint is true."""
    read_only: bool | None = None
    destructive = False
    for place in _places(declaration):
        annotations = place.get("annotations")
        if not isinstance(annotations, Mapping):
            continue
        hint = annotations.get("readOnlyHint")
        if isinstance(hint, bool):
            # Two that disagree: the careful one.
            read_only = hint if read_only is None else read_only and hint
        destructive = destructive or annotations.get("destructiveHint") is True
    return read_only, destructive


def _description(declaration: Mapping[str, Any] | None) -> str:
    for place in reversed(_places(declaration)):
        text = place.get("description")
        if isinstance(text, str) and text.strip():
            return text
    return ""
