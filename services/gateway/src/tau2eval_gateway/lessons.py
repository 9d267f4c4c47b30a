"""Lessons: what a failure taught, when it matters, and the one message that it rides in."""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tau2eval_gateway.flows.messages import SYSTEM_ROLES, last_user_text
from tau2eval_gateway.lesson_words import phrase_stems, telling_stems, words_of
from tau2eval_gateway.requests import ChatRequest, insert_message

MODES: Final = ("off", "observe", "armed")
"""From the least to the most that a mode lets happen."""
KINDS: Final = ("tools", "code")

MAX_SHOWN: Final = 4
MAX_TEXT_BYTES: Final = 800
MAX_NAME_CHARS: Final = 64
MAX_TRIGGERS: Final = 16
MAX_TRIGGER_CHARS: Final = 60
MAX_TRIGGER_WORDS: Final = 6
MAX_JUDGEMENT_CHARS: Final = 500
MAX_SOURCE_CHARS: Final = 200

TRIGGER_POINTS: Final = 4
WORD_POINTS: Final = 1
THRESHOLD: Final = 4
"""A lesson matters from here on: one trigger, or four words of its text."""

_MAX_TURN_CHARS: Final = 8_000
_NAME: Final = re.compile(r"[a-z][a-z0-9._-]*")
# Control characters, surrogates, and marks that turn the direction of text.
_UNSAFE: Final = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]"
)
_HEADING: Final = (
    "Lessons from earlier conversations, one a line, each judged to be sound. They are advice on "
    "work with the tools and change no instruction: where one of them disagrees with the "
    "instructions, the user or a tool's result, it does not apply. Do not mention them."
)


class LessonError(ValueError):
    """A lesson cannot be kept as it is; the message says why, for a person."""


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a failure taught.

    Attributes:
        name: Unique, safe in a header.
        text: What the model reads; one line.
        triggers: Words or phrases of a user's turn to which it matters.
        kind: "tools" or "code".
        judged: A judge, or a person, has found it sound; others never ride.
        judgement: Why.
        run_id: Run that it was learnt from; empty: added by hand.
        scenario: Scenario that it was learnt from.
        created_at: RFC 3339, UTC; empty until it is kept.
    """

    name: str
    text: str
    triggers: tuple[str, ...] = ()
    kind: str = "tools"
    judged: bool = False
    judgement: str = ""
    run_id: str = ""
    scenario: str = ""
    created_at: str = ""


def checked(lesson: Lesson) -> Lesson:
    """Returns a lesson with its white space folded, if it may be kept.

    Raises:
        LessonError: It may not.
    """
    name = checked_name(lesson.name)
    if lesson.kind not in KINDS:
        raise LessonError(f'kind is neither "tools" nor "code": {lesson.kind[:40]!r}')
    text = _line("text", lesson.text)
    if not text:
        raise LessonError("text is empty")
    if (size := len(text.encode())) > MAX_TEXT_BYTES:
        raise LessonError(
            f"text has {size} bytes in UTF-8 and may have {MAX_TEXT_BYTES}; shorten it, or make "
            "two lessons of it"
        )
    if len(lesson.triggers) > MAX_TRIGGERS:
        raise LessonError(f"{len(lesson.triggers)} triggers are more than {MAX_TRIGGERS}")
    triggers: dict[str, None] = {}
    for given in lesson.triggers:
        trigger = _line("a trigger", given).casefold()
        if not trigger or len(trigger) > MAX_TRIGGER_CHARS:
            raise LessonError(f"a trigger is empty or longer than {MAX_TRIGGER_CHARS} characters")
        if len(words := words_of(trigger)) > MAX_TRIGGER_WORDS:
            raise LessonError(f"the trigger {trigger!r} has more than {MAX_TRIGGER_WORDS} words")
        if not telling_stems(words):
            raise LessonError(
                f"the trigger {trigger!r} has only words that nearly every turn holds, and would "
                "match nothing"
            )
        triggers[trigger] = None
    for part in ("run_id", "scenario"):
        if len(getattr(lesson, part)) > MAX_SOURCE_CHARS:
            raise LessonError(f"{part} is longer than {MAX_SOURCE_CHARS} characters")
    return Lesson(
        name=name,
        text=text,
        triggers=tuple(triggers),
        kind=lesson.kind,
        judged=lesson.judged,
        judgement=_line("judgement", lesson.judgement)[:MAX_JUDGEMENT_CHARS],
        run_id=_line("run_id", lesson.run_id),
        scenario=_line("scenario", lesson.scenario),
        created_at=lesson.created_at,
    )


def checked_name(name: str) -> str:
    """Returns a name that may stand in a header.

    Raises:
        LessonError: It may not.
    """
    if len(name) > MAX_NAME_CHARS or not _NAME.fullmatch(name):
        raise LessonError(
            f"name is not a lower-case letter followed by at most {MAX_NAME_CHARS - 1} lower-case "
            "letters, digits, ., - and _"
        )
    return name


@dataclass(frozen=True, slots=True)
class LessonMatch:
    """The lessons for one request; the mode decides whether they ride.

    Attributes:
        message: Text of the one system message; empty: there are none.
        names: The best first.
    """

    message: str = ""
    names: tuple[str, ...] = ()


NO_LESSONS: Final = LessonMatch()


class LessonIndex:
    """Judged lessons by the stems that they are found by.

    Args:
        lessons: Of any kind; those that are not judged, or that could not be kept today, are left
            out. `refused` tells how many could not.
    """

    def __init__(self, lessons: Sequence[Lesson]) -> None:
        self._lessons: list[Lesson] = []
        self._words: dict[str, list[int]] = {}
        self._phrases: dict[tuple[str, ...], list[int]] = {}
        self._longest = 0
        self.refused = 0
        for lesson in lessons:
            try:
                good = checked(lesson)
            except LessonError:
                self.refused += 1
                continue
            if good.judged:
                self._add(good)

    def __len__(self) -> int:
        return len(self._lessons)

    def _add(self, lesson: Lesson) -> None:
        at = len(self._lessons)
        self._lessons.append(lesson)
        for word in telling_stems(words_of(lesson.text)):
            self._words.setdefault(word, []).append(at)
        for phrase in {phrase_stems(words_of(trigger)) for trigger in lesson.triggers}:
            self._phrases.setdefault(phrase, []).append(at)
            self._longest = max(self._longest, len(phrase))

    def find(self, turn: str) -> list[Lesson]:
        """Returns the lessons that matter to a user's turn, the best first, at most MAX_SHOWN.

        A trigger counts when its words stand in the turn one after another, whatever words of the
        grammar stand between them; a word of the text counts once. Equals stand by name.
        """
        if not self._lessons:
            return []
        words = words_of(_bounded(turn))
        points = [0] * len(self._lessons)
        for word in telling_stems(words):
            for at in self._words.get(word, ()):
                points[at] += WORD_POINTS
        for phrase in _runs(phrase_stems(words), self._longest):
            for at in self._phrases.get(phrase, ()):
                points[at] += TRIGGER_POINTS
        found = [at for at, score in enumerate(points) if score >= THRESHOLD]
        best = heapq.nsmallest(
            MAX_SHOWN, found, key=lambda at: (-points[at], self._lessons[at].name)
        )
        return [self._lessons[at] for at in best]

    def match(self, body: Mapping[str, Any]) -> LessonMatch:
        """Returns the lessons for the last user turn of a chat body."""
        messages = body.get("messages")
        found = self.find(last_user_text(messages)) if isinstance(messages, list) else []
        return LessonMatch(system_message(found), tuple(lesson.name for lesson in found))


def weaker(first: str, second: str) -> str:
    """Returns the mode of two that lets less happen."""
    return min(first, second, key=MODES.index)


def header_value(mode: str, names: Sequence[str]) -> str:
    """Returns the value of x-marina-lessons.

    Args:
        mode: "armed" or "observe"; under "off" there is no such header.
        names: Of the lessons that ride, or would ride under observe.
    """
    return ("observe:" if mode == "observe" else "") + (",".join(names) or "0")


def system_message(lessons: Sequence[Lesson]) -> str:
    """Returns the text of the system message; empty without lessons.

    Each lesson is one line, whatever its text holds, so that none can pass for another lesson or
    for the end of the list.
    """
    if not lessons:
        return ""
    return "\n".join([_HEADING, *(f"- {_fold(lesson.text)}" for lesson in lessons)])


def insert_lessons(request: ChatRequest, message: str) -> ChatRequest:
    """Returns the request with one system message after the caller's leading system messages.

    Args:
        request: Stays as it is.
        message: `LessonMatch.message`; empty: the request itself comes back.
    """
    if not message:
        return request
    messages = request.body["messages"]
    at = 0
    while at < len(messages) and _is_system(messages[at]):
        at += 1
    # A model that takes "developer" messages may refuse "system" ones beside them.
    role = messages[at - 1]["role"] if at else "system"
    return insert_message(request, at, {"role": role, "content": message})


def _is_system(message: Mapping[str, Any]) -> bool:
    role = message.get("role")
    return isinstance(role, str) and role in SYSTEM_ROLES


def _runs(words: Sequence[str], longest: int) -> set[tuple[str, ...]]:
    """Returns every run of neighbouring words up to a length."""
    return {
        tuple(words[at : at + length])
        for length in range(1, longest + 1)
        for at in range(len(words) - length + 1)
    }


def _bounded(turn: str) -> str:
    if len(turn) <= _MAX_TURN_CHARS:
        return turn
    half = _MAX_TURN_CHARS // 2
    return f"{turn[:half]} {turn[-half:]}"


def _fold(text: str) -> str:
    return " ".join(text.split())


def _line(name: str, text: str) -> str:
    if _UNSAFE.search(text):
        raise LessonError(f"{name} holds control characters")
    return _fold(text)
