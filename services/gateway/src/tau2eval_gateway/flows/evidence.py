"""What a conversation says, and whether it backs a value (statements 32 and 33).

Only what the user has said and what tools have returned backs a value. What the assistant and the
system text say is weak: it is found, and named to the judge, but backs nothing. The arguments of
earlier calls are not read at all: a model that has made a value up once would back it with that.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tau2eval_gateway.flows import evidence_forms as forms
from tau2eval_gateway.flows.evidence_walk import Leaf, leaves_of
from tau2eval_gateway.flows.messages import SYSTEM_ROLES, ToolCall, text_of, tool_calls
from tau2eval_gateway.flows.obligations_results import result_failed

RESULT_ROLES = frozenset({"tool", "function"})
MAX_CHARS = 500_000
"""Of one side's words; what is older is not read."""
_MAX_DEPTH = 32
_MAX_ECHOES = 500
"""Words of a failed call that are taken out of its result."""
_ECHOING = frozenset({"calculate", "calculator", "compute", "think"})
"""Tools that give back what they were told; that proves nothing."""
_CURRENCIES = {
    "usd": ("$", "dollar", "bucks"),
    "eur": ("\u20ac", "euro"),
    "gbp": ("\u00a3", "pound"),
    "jpy": ("\u00a5", "yen"),
    "inr": ("\u20b9", "rupee"),
}
_DIGIT = re.compile(r"\d")
_WORD_TOKEN = re.compile(r"[^\s\"'()\[\]{}<>,;:=*/+]+")
_RUN = re.compile(r"[\w.@-]+")
_LETTER = re.compile(r"[^\W\d_]")
_MIN_PHONE_DIGITS = 7
_PHONE_TAIL = 10


@dataclass(slots=True)
class Corpus:
    """What one side has said, by kind of value."""

    tokens: set[str] = field(default_factory=set)
    compacts: set[str] = field(default_factory=set)
    numbers: set[Decimal] = field(default_factory=set)
    dates: set[datetime.date] = field(default_factory=set)
    month_days: set[tuple[int, int]] = field(default_factory=set)
    ordinals: set[int] = field(default_factory=set)
    years: set[int] = field(default_factory=set)
    times: set[int] = field(default_factory=set)
    phones: set[str] = field(default_factory=set)
    folded: list[str] = field(default_factory=list)
    """Its texts in one case."""
    words: list[str] = field(default_factory=list)
    """The words of its texts without endings, between spaces."""

    def add_text(self, text: str, *, spoken: bool = False) -> None:
        """Reads a text; `spoken`: ids in it may be spelled out."""
        folded = forms.fold(text)
        self._add_tokens(folded)
        if _DIGIT.search(folded):
            self.numbers.update(forms.numbers_in(text))
            self.month_days.update(forms.month_days_in(folded))
            self.ordinals.update(forms.ordinals_in(folded))
            self.times.update(forms.times_in(folded))
            self.phones.update(forms.phones_in(folded))
        if spoken:
            for spelled in forms.spelled_in(folded):
                self.tokens.add(spelled)
                self.compacts.add(forms.compact(spelled))
        self.folded.append(folded)
        self.words.append(f" {' '.join(forms.words_of(_RUN.sub(_unless_id, text)))} ")

    def add_json(self, value: Any, depth: int = 0) -> None:
        """Reads a JSON value. The keys of an object name options for no one, but may be ids."""
        if depth > _MAX_DEPTH or value is None or isinstance(value, bool):
            return
        if isinstance(value, Mapping):
            for key, member in value.items():
                if _DIGIT.search(key) or key.isupper():
                    self._add_tokens(forms.fold(key))
                self.add_json(member, depth + 1)
        elif isinstance(value, list):
            for item in value:
                self.add_json(item, depth + 1)
        elif isinstance(value, (int, float)):
            self.tokens.add(str(value))
            number = forms.decimal_of(value)
            if number is not None:
                self.numbers.add(number)
        else:
            parsed = _container(value)
            if parsed is None:
                self.add_text(value)
            else:
                self.add_json(parsed, depth + 1)

    def _add_tokens(self, folded: str) -> None:
        new = set(forms.tokens_in(folded)) - self.tokens
        self.tokens |= new
        self.compacts.update(map(forms.compact, new))
        if _DIGIT.search(folded):
            dates = set(forms.dates_in(folded))
            self.dates |= dates
            self.years.update(day.year for day in dates)
            self.years.update(forms.years_in(folded))


@dataclass(frozen=True, slots=True)
class Evidence:
    """What stands where in a conversation.

    Attributes:
        strong: User messages and tool results.
        weak: "assistant" and "system", each for itself.
    """

    strong: Corpus
    weak: Mapping[str, Corpus]

    def finds(self, leaf: Leaf) -> bool:
        """Returns whether the user or a tool result backs a value."""
        return _stands_in(leaf, self.strong, self._years)

    def seen(self, leaf: Leaf) -> tuple[str, ...]:
        """Returns which weak evidence holds a value."""
        return tuple(
            name for name, corpus in self.weak.items() if _stands_in(leaf, corpus, self._years)
        )

    @property
    def _years(self) -> frozenset[int]:
        return frozenset(self.strong.years).union(*(each.years for each in self.weak.values()))


@dataclass(frozen=True, slots=True)
class Finding:
    """A value that nothing backs.

    Attributes:
        leaf: The value and where it stands.
        seen: "assistant" or "system", where one of them says it.
    """

    leaf: Leaf
    seen: tuple[str, ...] = ()


def gather(messages: Sequence[Mapping[str, Any]]) -> Evidence:
    """Reads a conversation; of a very long one the newest part of each side."""
    sides = {"strong": Corpus(), "assistant": Corpus(), "system": Corpus()}
    left = dict.fromkeys(sides, MAX_CHARS)
    calls = {call.call_id: call for message in messages for call in tool_calls(message)}
    for message in reversed(messages):
        role = str(message.get("role"))
        is_result = role in RESULT_ROLES
        side = "strong" if role == "user" or is_result else role
        side = "system" if role in SYSTEM_ROLES else side
        if side not in sides or left[side] <= 0:
            continue
        text = _result_text(message, calls) if is_result else text_of(message)
        text = text[: left[side]]
        left[side] -= len(text)
        parsed = _container(text) if is_result else None
        if parsed is None:
            sides[side].add_text(text, spoken=role == "user")
        else:
            sides[side].add_json(parsed)
    return Evidence(sides["strong"], {"assistant": sides["assistant"], "system": sides["system"]})


def check(
    call: ToolCall, evidence: Evidence, tools: Mapping[str, Mapping[str, Any]]
) -> list[Finding]:
    """Returns the values of a call that neither the user nor a tool has stated, in order."""
    leaves = leaves_of(call.name, call.arguments, call.text, tools)
    return [Finding(leaf, evidence.seen(leaf)) for leaf in leaves if not evidence.finds(leaf)]


def _result_text(message: Mapping[str, Any], calls: Mapping[str, ToolCall]) -> str:
    content = message.get("content")
    text = json.dumps(content) if isinstance(content, Mapping) else text_of(message)
    call = calls.get(str(message.get("tool_call_id") or ""))
    if call is not None and (call.name in _ECHOING or result_failed(message)):
        # "No reservation ABC123" does not make ABC123 a reservation.
        return _without_echo(text[:MAX_CHARS], call)
    return text


def _without_echo(text: str, call: ToolCall) -> str:
    """Returns a result without the words that the call's own arguments hold."""
    told: set[str] = set()
    for value in _scalars(call.text if call.arguments is None else call.arguments):
        told.add(value)
        told.update(_WORD_TOKEN.findall(value))
    folded = text.casefold()
    for value in sorted(told, key=len, reverse=True)[:_MAX_ECHOES]:
        if value.casefold() not in folded:
            continue
        text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w|\.\d)", " ", text, flags=re.IGNORECASE)
    return text


def _scalars(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, Mapping):
        for member in value.values():
            yield from _scalars(member, depth + 1) if depth < _MAX_DEPTH else ()
    elif isinstance(value, list):
        for item in value:
            yield from _scalars(item, depth + 1) if depth < _MAX_DEPTH else ()
    elif value is not None and not isinstance(value, bool) and str(value).strip():
        yield str(value).strip()


def _unless_id(run: re.Match[str]) -> str:
    """Blanks an id: its parts name no option (mia_li_3668)."""
    word = run.group()
    is_id = "@" in word or (_DIGIT.search(word) and _LETTER.search(word))
    return " " if is_id else word


def _container(text: str) -> Any:
    """Returns the object or list that a text is; None when it is another text."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, (dict, list)) else None


def _stands_in(leaf: Leaf, corpus: Corpus, years: frozenset[int]) -> bool:
    value = leaf.value
    if not isinstance(value, str):
        number = forms.decimal_of(value)
        return number is not None and number in corpus.numbers
    if leaf.options:
        return _option_stands_in(value, leaf.options, corpus)
    if forms.is_date(value) and _date_stands_in(value, corpus, years):
        return True
    if forms.is_time(value):
        return set(forms.times_in(value)) <= corpus.times
    return _word_stands_in(value, corpus)


def _date_stands_in(value: str, corpus: Corpus, years: frozenset[int]) -> bool:
    times = set(forms.times_in(value)) - {0}
    if times and not times <= corpus.times:
        return False
    dates = set(forms.dates_in(value))
    if dates & corpus.dates:
        return True
    for day in dates:
        said = (day.month, day.day) in corpus.month_days
        # "the 20th", where the month is one that is spoken of.
        said = said or (
            day.day in corpus.ordinals
            and any((day.year, day.month) == (d.year, d.month) for d in corpus.dates)
        )
        if said and (not years or day.year in years):
            return True
    partial = set(forms.month_days_in(value))
    known = corpus.month_days | {(day.month, day.day) for day in corpus.dates}
    return bool(partial & known)


def _word_stands_in(value: str, corpus: Corpus) -> bool:
    folded = forms.fold(value).strip()
    bare = folded.lstrip("#").strip("\"'`.,:;!?")
    if folded in corpus.tokens or bare in corpus.tokens:
        return True
    numbers = frozenset() if re.match(r"[-+]?0\d", bare) else forms.number_of(value)
    if numbers & corpus.numbers:
        return True
    joined = forms.compact(folded)
    if not joined:
        return True
    lettered = any(char.isalpha() for char in joined)
    if lettered and joined in corpus.compacts:
        return True
    if not _DIGIT.search(folded):
        if "@" not in folded and _phrase_stands_in(forms.words_of(value), corpus):
            return True
        return _currency_stands_in(folded, corpus)
    if _phone_stands_in(folded, corpus):
        return True
    parts = folded.split()
    if len(parts) > 1:
        # An address or a name with a number in it: the numbers are what can be wrong.
        telling = [part for part in forms.tokens_in(folded) if _DIGIT.search(part)]
        return all(part in corpus.tokens for part in telling)
    return lettered and _spaced_stands_in(joined, corpus)


def _phone_stands_in(folded: str, corpus: Corpus) -> bool:
    if re.search(r"[^\d\s().+-]", folded):
        return False
    digits = re.sub(r"\D", "", folded)
    if len(digits) < _MIN_PHONE_DIGITS:
        return False
    return any(
        digits == said
        or (min(len(digits), len(said)) >= _PHONE_TAIL and digits[-10:] == said[-10:])
        for said in corpus.phones
    )


def _spaced_stands_in(joined: str, corpus: Corpus) -> bool:
    """Returns whether an id stands there with its letters and digits set apart: HAT 001."""
    groups = re.findall(r"[^\W\d_]+|\d+", joined)
    if not 2 <= len(groups) <= 12:
        return False
    pattern = r"[\s_.-]{1,2}".join(map(re.escape, groups))
    search = re.compile(rf"(?<!\w)(?<!\w[-.]){pattern}(?!\w|[-.]\w)").search
    return any(all(group in text for group in groups) and search(text) for text in corpus.folded)


def _currency_stands_in(folded: str, corpus: Corpus) -> bool:
    signs = _CURRENCIES.get(folded, ())
    return any(sign in text for sign in signs for text in corpus.folded)


def _phrase_stands_in(words: list[str], corpus: Corpus) -> bool:
    phrase = f" {' '.join(words)} "
    return any(phrase in text for text in corpus.words)


def _option_stands_in(option: str, options: tuple[str, ...], corpus: Corpus) -> bool:
    """Returns whether an option is named: its words in order, run together, or all in one message.

    Where another option holds all its words (economy and basic_economy), that one's words do not
    name it.
    """
    words = forms.words_of(option)
    if not words:
        return True
    phrase, joined = f" {' '.join(words)} ", f" {''.join(words)} "
    longer = [
        f" {' '.join(others)} "
        for others in map(forms.words_of, options)
        if len(others) > len(words) and phrase in f" {' '.join(others)} "
    ]
    for text in corpus.words:
        for other in longer:
            text = text.replace(other, "  ")
        if phrase in text or joined in text:
            return True
        if len(words) > 1 and set(words) <= set(text.split()):
            return True
    return False
