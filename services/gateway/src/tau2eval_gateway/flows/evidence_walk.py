"""Walks a call's arguments to the values that evidence is needed for (statement 33)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tau2eval_gateway.flows.readwrite import inner_calls
from tau2eval_gateway.flows.readwrite_words import as_words

MAX_LEAVES = 2_000
"""Values of one call that are looked at."""
MAX_DEPTH = 32
SMALL = 10
"""Integers of at most this size are counts, not facts."""
_MAX_NESTED_JSON = 3
_MAX_SCHEMAS = 16
_MAX_CHARS = 300
"""A longer string is free text."""
_WORDS_OF_TEXT = 5
"""A string with so many words is free text."""

_READ_FROM_SCHEMAS = ("enum", "const", "default", "properties", "items", "additionalProperties")
_FREE_KEYS = as_words(
    "body caption comment comments content description details explanation expression feedback "
    "html instruction instructions justification memo message note notes prompt query question "
    "rationale reason reasoning remark remarks sql subject summary text thought title"
)
"""Last words of the names of parameters that hold free text."""
_FLAGS = as_words("yes no true false on off y n none null nil n/a na unknown")
_KEY_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_DIGIT = re.compile(r"\d")
# A string that does not end goes on to the end, or every quote in it would be tried as a beginning.
_RAW_VALUE = re.compile(
    r'"((?:[^"\\]|\\.)*+)(?:"(\s*:)?|\\?\Z)|(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])', re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A value in a call's arguments.

    Attributes:
        path: Where it stands, such as flights[0].date.
        value: A string or a number.
        options: The options of the tool's schema that it is one of; empty: not an option.
    """

    path: str
    value: str | int | float
    options: tuple[str, ...] = ()


def leaves_of(
    name: str,
    arguments: Mapping[str, Any] | None,
    text: str,
    tools: Mapping[str, Mapping[str, Any]],
) -> list[Leaf]:
    """Returns the values of a call that evidence is needed for.

    Free text, booleans, integers of at most 10 in size and declared defaults are left out.

    Args:
        name: Of the tool.
        arguments: Parsed; None when they are no JSON object.
        text: The arguments as the model wrote them, read as far as it goes when they do not parse.
        tools: Declarations by name.
    """
    if arguments is None:
        return list(_raw_leaves(text))
    inner = inner_calls(name, arguments)
    schemas = {call.tool: schema_of(tools.get(call.tool)) for call in inner}
    walk = _Walk(frozenset(schemas), schemas[inner[0].tool] if len(inner) == 1 else {})
    walk.visit("", "", arguments, schema_of(tools.get(name)), 0, 0)
    return walk.found


def schema_of(declaration: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Returns the JSON schema of a tool's parameters; empty when it has none."""
    function = declaration.get("function") if isinstance(declaration, Mapping) else None
    schema = function.get("parameters") if isinstance(function, Mapping) else None
    return schema if isinstance(schema, Mapping) else {}


class _Walk:
    def __init__(self, tool_names: frozenset[str], inner_schema: Mapping[str, Any]) -> None:
        self.found: list[Leaf] = []
        self._tool_names = tool_names
        self._inner = inner_schema
        self._root: Mapping[str, Any] = {}

    def visit(
        self, path: str, key: str, value: Any, schema: Mapping[str, Any], depth: int, nested: int
    ) -> None:
        if len(self.found) >= MAX_LEAVES or depth > MAX_DEPTH:
            return
        if not depth:
            self._root = schema
        schema = self._resolved(schema)
        if isinstance(value, Mapping):
            self._visit_object(path, value, schema, depth, nested)
        elif isinstance(value, list):
            items = schema.get("items")
            inner = items if isinstance(items, Mapping) else {}
            for at, item in enumerate(value):
                self.visit(f"{path}[{at}]", key, item, inner, depth + 1, nested)
        elif isinstance(value, str) and nested < _MAX_NESTED_JSON and value.lstrip()[:1] in "{[":
            parsed = _parsed(value)
            if parsed is None:
                self._leaf(path, key, value, schema)
            else:
                self.visit(path, key, parsed, {}, depth + 1, nested + 1)
        else:
            self._leaf(path, key, value, schema)

    def _visit_object(
        self,
        path: str,
        value: Mapping[str, Any],
        schema: Mapping[str, Any],
        depth: int,
        nested: int,
    ) -> None:
        properties = schema.get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        more = schema.get("additionalProperties")
        for name, member in value.items():
            inner_path = f"{path}.{name}" if path else name
            inner = known.get(name)
            if not isinstance(inner, Mapping):
                inner = more if isinstance(more, Mapping) else {}
                if isinstance(more, Mapping) and _DIGIT.search(name):
                    # A map from ids to something: the ids are values too.
                    self.found.append(Leaf(inner_path, name))
            if not known and self._inner and isinstance(member, (Mapping, str)):
                inner = self._inner if not isinstance(member, str) else inner
            self.visit(inner_path, name, member, inner, depth + 1, nested)

    def _leaf(self, path: str, key: str, value: Any, schema: Mapping[str, Any]) -> None:
        if value is None or isinstance(value, bool) or value == schema.get("default", ...):
            return
        if isinstance(value, (int, float)):
            if not (value == value and abs(value) <= SMALL and value == int(value)):
                self.found.append(Leaf(path, value))
            return
        if not isinstance(value, str):
            return
        text = value.strip()
        options = self._options(schema)
        if text in self._tool_names or text.casefold() in _FLAGS or not text:
            return
        if text in options:
            self.found.append(Leaf(path, text, options))
        elif not _is_free_text(key, text) and not _is_small(text):
            self.found.append(Leaf(path, text))

    def _options(self, schema: Mapping[str, Any]) -> tuple[str, ...]:
        options = schema.get("enum")
        given = options if isinstance(options, list) else [schema.get("const")]
        return tuple(option for option in given if isinstance(option, str))

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Follows references, and reads alternatives as one."""
        merged: dict[str, Any] = {}
        pending = [schema]
        for _ in range(_MAX_SCHEMAS):
            if not pending:
                break
            current = pending.pop(0)
            for name in _READ_FROM_SCHEMAS:
                if name in current:
                    merged.setdefault(name, current[name])
            reference = current.get("$ref")
            if isinstance(reference, str) and reference.startswith("#/"):
                target: Any = self._root
                for part in reference[2:].split("/"):
                    target = target.get(part) if isinstance(target, Mapping) else None
                if isinstance(target, Mapping):
                    pending.append(target)
            for word in ("anyOf", "oneOf", "allOf"):
                listed = current.get(word)
                if isinstance(listed, list):
                    pending.extend(choice for choice in listed if isinstance(choice, Mapping))
        return merged


def _is_free_text(key: str, text: str) -> bool:
    words = [word.lower() for word in _KEY_WORDS.findall(key)]
    if words and words[-1] in _FREE_KEYS:
        return True
    parts = text.split()
    if len(text) > _MAX_CHARS or len(parts) >= _WORDS_OF_TEXT:
        return True
    # A few words without a digit: a phrase, unless the parameter is a name.
    return len(parts) > 1 and not _DIGIT.search(text) and "name" not in words[-1:]


def _is_small(text: str) -> bool:
    digits = text.lstrip("+-")
    return len(digits) <= 2 and digits.isdecimal() and int(digits) <= SMALL


def _parsed(text: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, (dict, list)) else None


def _raw_leaves(text: str) -> Iterator[Leaf]:
    """Reads the values of arguments that are no JSON; a lenient client may read them too."""
    for at, match in enumerate(_RAW_VALUE.finditer(text)):
        if at >= MAX_LEAVES:
            return
        if match.group(2):
            continue
        value = match.group(1) if match.group(1) is not None else match.group()
        skipped = not value.strip() or value.casefold() in _FLAGS or _is_small(value)
        if not skipped and not _is_free_text("", value):
            yield Leaf("", value.strip())
