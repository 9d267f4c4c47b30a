"""The write gate: what a revision may do to the drafted state-changing calls (statements 9 to 16).

The drafted writes are laid beside the revised ones in order. A write is kept when its canonical
JSON is equal; every other difference, one of order too, is a change of a call, a dropped call or
an added one, and each of these takes a citation of its own. A revision passes when there is one
way to explain it like that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tau2eval_gateway.flows.hold_changes import Evidence, Rule, added, modified
from tau2eval_gateway.flows.quotes import fold, is_quoted
from tau2eval_gateway.flows.verify_calls import LEGACY, Seen
from tau2eval_gateway.flows.verify_paths import Path, read_path

MAX_CONFLICTS = 32
"""Of one checker that are read."""
MAX_WRITES = 64
"""In one message; the gate does not judge more."""
_MAX_STEPS = 2_000
_Change = tuple[Rule | None, tuple[Path, ...]]


class Action(StrEnum):
    """What a conflict wants done to a call."""

    MODIFY = "modify"
    DROP = "drop"
    ADD = "add"


_UNCITED = {
    Action.MODIFY: Rule.UNCITED_CHANGE,
    Action.DROP: Rule.UNCITED_DROP,
    Action.ADD: Rule.UNCITED_ADD,
}
_GRAVITY = {
    rule: -len(Rule) if rule in _UNCITED.values() else -number for number, rule in enumerate(Rule)
}


@dataclass(frozen=True, slots=True)
class Conflict:
    """What a checker says about one call.

    Attributes:
        call: The drafted call's label, or a name; for an added call its name.
        argument: Path of one argument; only for modify.
        quote: Excerpt that proves it.
    """

    call: str
    argument: str
    action: Action
    quote: str


@dataclass(frozen=True, slots=True)
class Ruling:
    """Whether a revision passes.

    Attributes:
        broken: The rule that stands against it; None: it passes.
        call: Label or name of the call at fault.
    """

    broken: Rule | None = None
    call: str = ""

    @property
    def passes(self) -> bool:
        """Whether the revision may go out."""
        return self.broken is None


def citations(
    reviews: Sequence[Sequence[Conflict]], said: Sequence[str]
) -> tuple[list[Conflict], list[Conflict]]:
    """Sorts the conflicts of one or more checkers into those that license a change and others.

    Two checkers that say the same of a call are one citation; one checker that says the same
    twice needs two excerpts, or names the calls by their labels.
    """
    good: dict[tuple[str, str, str, int], Conflict] = {}
    bad: list[Conflict] = []
    for conflicts in reviews:
        counts: dict[tuple[str, str, str], int] = {}
        once = {(c.call, c.action, c.argument, fold(c.quote)): c for c in conflicts[:MAX_CONFLICTS]}
        for conflict in once.values():
            if not conflict.call or not is_quoted(conflict.quote, said):
                bad.append(conflict)
                continue
            key = (conflict.call, str(conflict.action), conflict.argument)
            counts[key] = counts.get(key, 0) + 1
            good.setdefault((*key, counts[key]), conflict)
    return list(good.values()), bad


def judge(
    draft: Sequence[Seen],
    revision: Sequence[Seen],
    cited: Sequence[Conflict],
    evidence: Evidence,
    uncited: Sequence[Conflict] = (),
) -> Ruling:
    """Says whether a revision may replace a draft.

    Args:
        draft: The calls of the draft; those that only read are passed over.
        revision: The calls of the revision.
        cited: Conflicts with a good quote, from `citations`.
        evidence: What was said, and the tools.
        uncited: Conflicts without one, to name the rule that is broken.
    """
    before = [seen for seen in draft if seen.write]
    after = [seen for seen in revision if seen.write]
    if max(len(before), len(after)) > MAX_WRITES:
        same = [*map(_as_made, before)] == [*map(_as_made, after)]
        return Ruling() if same else Ruling(Rule.TOO_MANY)
    search = _Search(before, after, cited, evidence, uncited)
    if search.explains(0, 0, frozenset()):
        return Ruling()
    return search.fault()


@dataclass
class _Search:
    """Looks for an explanation of every difference, each by a citation of its own."""

    before: Sequence[Seen]
    after: Sequence[Seen]
    cited: Sequence[Conflict]
    evidence: Evidence
    uncited: Sequence[Conflict]
    _dead: set[tuple[int, int, frozenset[int]]] = field(default_factory=set)
    _faults: list[tuple[int, Rule, str]] = field(default_factory=list)
    _steps: int = 0

    def __post_init__(self) -> None:
        """Computes once what many steps need."""
        self._paths = [read_path(conflict.argument) for conflict in self.cited]
        self._old = [_as_made(seen) for seen in self.before]
        self._new = [_as_made(seen) for seen in self.after]
        self._modified_by: dict[tuple[int, int, frozenset[Path]], _Change] = {}

    def explains(self, i: int, j: int, used: frozenset[int]) -> bool:
        """Returns whether the writes from i and j on can be explained with unused citations."""
        if i == len(self.before) and j == len(self.after):
            return True
        state = (i, j, used)
        self._steps += 1
        if state in self._dead or self._steps > _MAX_STEPS:
            return False
        if (
            i < len(self.before)
            and j < len(self.after)
            and self._old[i] == self._new[j]
            and self.explains(i + 1, j + 1, used)
        ):
            return True
        if self._modified(i, j, used) or self._dropped(i, j, used) or self._added(i, j, used):
            return True
        self._dead.add(state)
        return False

    def fault(self) -> Ruling:
        """Returns the gravest reason at the furthest place that was reached."""
        if self._steps > _MAX_STEPS:
            return Ruling(Rule.TOO_MANY)
        if sorted(self._old) == sorted(self._new):
            return Ruling(Rule.ORDER, self.before[0].label)
        more = len(self.after) - len(self.before)
        plain = (
            Rule.UNCITED_CHANGE if not more else _UNCITED[Action.ADD if more > 0 else Action.DROP]
        )
        _, rule, call = max(
            self._faults,
            key=lambda fault: (_GRAVITY[fault[1]], fault[1] == plain, fault[0]),
        )
        return Ruling(rule, call)

    def _modified(self, i: int, j: int, used: frozenset[int]) -> bool:
        if i == len(self.before) or j == len(self.after):
            return False
        old, new = self.before[i], self.after[j]
        if old.call.name != new.call.name:
            return False
        naming = self._naming(Action.MODIFY, old)
        if not naming:
            self._blame_missing(i + j, Action.MODIFY, old, False)
            return False
        by_path: dict[Path, int] = {}
        for number in naming:
            path = self._paths[number]
            if path is not None and number not in used:
                by_path.setdefault(path, number)
        rule, needed = self._modify(i, j, by_path)
        if rule is None:
            return self.explains(i + 1, j + 1, used | {by_path[path] for path in needed})
        every = [path for n in naming if (path := self._paths[n]) is not None]
        if self._modify(i, j, every)[0] is None:
            rule = Rule.CITED_ONCE
        self._blame(i + j, rule, old.label)
        return False

    def _dropped(self, i: int, j: int, used: frozenset[int]) -> bool:
        if i == len(self.before):
            return False
        old, spent = self.before[i], False
        for number in self._naming(Action.DROP, old):
            if number in used:
                spent = True
            elif self.explains(i + 1, j, used | {number}):
                return True
        self._blame_missing(i + j, Action.DROP, old, spent)
        return False

    def _added(self, i: int, j: int, used: frozenset[int]) -> bool:
        if j == len(self.after):
            return False
        new, spent = self.after[j], False
        for number, conflict in enumerate(self.cited):
            if conflict.action != Action.ADD or not _names_new(conflict, new):
                continue
            rule = added(new, self.evidence)
            if rule is not None:
                self._blame(i + j, rule, new.call.name)
            elif number in used:
                spent = True
            elif self.explains(i, j + 1, used | {number}):
                return True
        self._blame_missing(i + j, Action.ADD, new, spent)
        return False

    def _naming(self, action: Action, seen: Seen) -> list[int]:
        """Returns the citations that mean a drafted call, those by label first."""
        by_label, by_name = [], []
        for number, conflict in enumerate(self.cited):
            if conflict.action != action:
                continue
            if conflict.call == seen.label:
                by_label.append(number)
            elif conflict.call in seen.names:
                by_name.append(number)
        return by_label + by_name

    def _modify(self, i: int, j: int, paths: Iterable[Path]) -> _Change:
        key = (i, j, frozenset(paths))
        if key not in self._modified_by:
            old, new = self.before[i], self.after[j]
            self._modified_by[key] = modified(old, new, list(key[2]), self.evidence)
        return self._modified_by[key]

    def _blame(self, place: int, rule: Rule, call: str) -> None:
        self._faults.append((place, rule, call))

    def _blame_missing(self, place: int, action: Action, seen: Seen, spent: bool) -> None:
        if spent:
            self._blame(place, Rule.CITED_ONCE, seen.label)
        elif any(
            c.action == action and (c.call == seen.label or c.call in seen.names)
            for c in self.uncited
        ):
            self._blame(place, Rule.BAD_QUOTE, seen.label)
        else:
            self._blame(place, _UNCITED[action], seen.label)


def _as_made(seen: Seen) -> tuple[bool, str]:
    # A client that knows one form of calls makes none of the other.
    return seen.place == LEGACY, seen.call.canonical()


def _names_new(conflict: Conflict, new: Seen) -> bool:
    # Of a dispatcher only the inner name says what is done.
    return conflict.call in (new.inner or new.names)
