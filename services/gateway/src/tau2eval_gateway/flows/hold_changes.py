"""What one citation permits to change in one state-changing call (statements 11 to 15)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tau2eval_gateway.flows.verify_calls import Seen, passed_on
from tau2eval_gateway.flows.verify_ids import declared_strings, unknown_ids
from tau2eval_gateway.flows.verify_paths import ABSENT, Path, put_at, value_at


class Rule(StrEnum):
    """What a revision broke, the gravest reason first."""

    UNKNOWN_ID = "a new value brings in an id that the conversation does not hold"
    ARRAY_LENGTH = "an array has another length"
    SIBLING = "something else changed than what is cited"
    MALFORMED = "arguments that are no JSON object changed"
    DISPATCHED = "a call that is passed on is another one, or changed beyond what is cited"
    CITED_ONCE = "one citation stands for two changes"
    BAD_QUOTE = "the citation is no excerpt of the conversation"
    ORDER = "the calls come in another order"
    UNCITED_DROP = "a call was dropped without a citation that names it"
    UNCITED_ADD = "a call was added without a citation that names it"
    UNCITED_CHANGE = "a call changed without a citation that names it and the argument"
    TOO_MANY = "there are too many calls to judge"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What changes are judged by.

    Attributes:
        said: The conversation, from `quotes.said_in`.
        tools: Declarations by name, from `messages.declared_tools`.
    """

    said: Sequence[str]
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def modified(
    old: Seen, new: Seen, paths: Sequence[Path], evidence: Evidence
) -> tuple[Rule | None, tuple[Path, ...]]:
    """Says whether a call may change in the arguments at some paths and nowhere else.

    Returns:
        The rule that is broken (None: the change may be made), and the paths it needs.
    """
    before, after = old.call.arguments, new.call.arguments
    if before is None or after is None:
        return Rule.MALFORMED, ()
    needed: list[Path] = []
    changing: Any = before
    # Inner paths first, so that a citation of the whole is not used up by a part.
    for path in sorted(paths, key=lambda path: (-len(path), str(path))):
        inside = _from_arguments(path, before, after)
        had, has = value_at(changing, inside), value_at(after, inside)
        if had is ABSENT and has is ABSENT:
            continue
        if had is not ABSENT and has is not ABSENT:
            if _canonical(had) == _canonical(has):
                continue
            if _lengths_differ(had, has):
                return Rule.ARRAY_LENGTH, ()
        changing = put_at(changing, inside, has)
        needed.append(path)
        if _brings_in_ids(new, inside, had, has, evidence):
            return Rule.UNKNOWN_ID, ()
    if _canonical(changing) != _canonical(after):
        return (Rule.ARRAY_LENGTH if _lengths_differ(changing, after) else Rule.SIBLING), ()
    if rule := _dispatched(old, new, len(needed)):
        return rule, ()
    return None, tuple(needed)


def added(new: Seen, evidence: Evidence) -> Rule | None:
    """Returns the rule that an added call breaks; None when it may be made."""
    if new.call.arguments is None:
        return Rule.MALFORMED
    if len(new.inner) > 1:
        return Rule.DISPATCHED
    names = (new.call.name, *new.inner)
    declared = frozenset(names).union(
        *(declared_strings(evidence.tools.get(name)) for name in names)
    )
    if unknown_ids(new.call.arguments, evidence.said, declared=declared):
        return Rule.UNKNOWN_ID
    return None


def _brings_in_ids(new: Seen, path: Path, had: Any, has: Any, evidence: Evidence) -> bool:
    if has is ABSENT:
        return False
    key = next((step for step in reversed(path) if isinstance(step, str)), "")
    declared = declared_strings(evidence.tools.get(new.call.name))
    before = None if had is ABSENT else had
    return bool(unknown_ids(has, evidence.said, key=key, before=before, declared=declared))


def _from_arguments(path: Path, before: Mapping[str, Any], after: Mapping[str, Any]) -> Path:
    """Returns a path without a first step that only says that it leads into the arguments."""
    if len(path) > 1 and path[0] == "arguments" and "arguments" not in {**before, **after}:
        return path[1:]
    return path


def _lengths_differ(old: Any, new: Any) -> bool:
    """Returns whether an array became longer or shorter, or something became one or ceased to."""
    if isinstance(old, list) and isinstance(new, list):
        return len(old) != len(new) or any(map(_lengths_differ, old, new))
    if isinstance(old, dict) and isinstance(new, dict):
        return any(_lengths_differ(old[key], new[key]) for key in old.keys() & new.keys())
    return isinstance(old, list) or isinstance(new, list)


def _dispatched(old: Seen, new: Seen, cited: int) -> Rule | None:
    """Holds calls that a dispatcher passes on to the rule for calls: one argument a citation."""
    before, after = passed_on(old.call), passed_on(new.call)
    if not before and not after:
        return None
    if [one.tool for one in before] != [one.tool for one in after]:
        return Rule.DISPATCHED
    changes = 0
    for one, other in zip(before, after, strict=True):
        if _canonical(one.arguments) == _canonical(other.arguments):
            continue
        if one.arguments is None or other.arguments is None:
            return Rule.MALFORMED
        changes += sum(
            _canonical(one.arguments.get(key)) != _canonical(other.arguments.get(key))
            or (key in one.arguments) != (key in other.arguments)
            for key in {**one.arguments, **other.arguments}
        )
    return Rule.DISPATCHED if changes > cited else None


def _canonical(value: Any) -> str:
    # Python holds true and 1 for equal; JSON does not.
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
