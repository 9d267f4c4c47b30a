"""Reads model answers: chunks of a stream put together, and whole answers. No transport."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class UnreadableAnswer(Exception):
    """An answer, or a part of one, is not what OpenAI's API gives."""


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A tool call as the model wrote it; `arguments_json` may be anything."""

    call_id: str
    name: str
    arguments_json: str


@dataclass(slots=True)
class _Part:
    """A call of which not all may have come yet."""

    index: int
    call_id: str = ""
    name: str = ""
    arguments: str = ""


class Answer:
    """A model's answer as far as it has come.

    Attributes:
        text: The words.
        usage: The `usage` member; empty until it comes.
        chunks: How many chunks came.
    """

    def __init__(self) -> None:
        self.text = ""
        self.usage: Mapping[str, Any] = {}
        self.chunks = 0
        self._calls: list[_Part] = []

    def add_chunk(self, chunk_json: bytes) -> str:
        """Takes a chat.completion.chunk and returns the words in it.

        Raises:
            UnreadableAnswer: It is none.
        """
        try:
            chunk = json.loads(chunk_json)
            self.chunks += 1
            if isinstance(usage := chunk.get("usage"), dict):
                self.usage = usage
            choices = chunk.get("choices") or ()
            delta = (choices[0].get("delta") or {}) if choices else {}
            return self._take(delta, whole=False)
        except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
            raise UnreadableAnswer(f"a chunk cannot be read ({error})") from error

    def add_completion(self, body_json: bytes) -> str:
        """Takes a chat.completion and returns its words.

        Raises:
            UnreadableAnswer: It is none.
        """
        try:
            body = json.loads(body_json)
            self.chunks += 1
            if isinstance(usage := body.get("usage"), dict):
                self.usage = usage
            return self._take(body["choices"][0]["message"], whole=True)
        except (
            ValueError,
            AttributeError,
            TypeError,
            LookupError,
            RecursionError,
        ) as error:
            raise UnreadableAnswer(f"the answer cannot be read ({error!r})") from error

    def calls(self) -> list[RequestedCall]:
        """Returns the requested calls in order, each with an id of its own."""
        found: list[RequestedCall] = []
        taken: set[str] = set()
        for position, part in enumerate(sorted(self._calls, key=lambda part: part.index)):
            call_id = part.call_id or f"call_{position}"
            while call_id in taken:
                call_id += f"_{position}"
            taken.add(call_id)
            found.append(
                RequestedCall(
                    call_id=call_id,
                    name=part.name,
                    arguments_json=part.arguments.strip() or "{}",
                )
            )
        return found

    def _take(self, message: Mapping[str, Any], *, whole: bool) -> str:
        for position, part in enumerate(message.get("tool_calls") or ()):
            self._add_call({**part, "index": position} if whole else part)
        words = message.get("content") or message.get("refusal") or ""
        if isinstance(words, list):
            words = "".join(str(part.get("text") or part.get("refusal") or "") for part in words)
        if not isinstance(words, str):
            raise TypeError("content is no text")
        self.text += words
        return words

    def _add_call(self, delta: Mapping[str, Any]) -> None:
        function = delta.get("function") or {}
        name = function.get("name") or ""
        arguments = function.get("arguments") or ""
        call_id = delta.get("id") or ""
        if isinstance(arguments, dict):
            # Some servers give the arguments as an object.
            arguments = json.dumps(arguments)
        if not all(isinstance(text, str) for text in (name, arguments, call_id)):
            raise TypeError("a tool call has a member that is no text")
        given = delta.get("index")
        index = given if isinstance(given, int) and not isinstance(given, bool) else None
        part = self._find(index, call_id)
        if part is None or _begins_another(part, name, arguments):
            if index is None:
                index = self._calls[-1].index + 1 if self._calls else 0
            part = _Part(index=index)
            self._calls.append(part)
        part.call_id = part.call_id or call_id
        if name != part.name:
            part.name += name
        part.arguments += arguments

    def _find(self, index: int | None, call_id: str) -> _Part | None:
        """Finds the call that a delta goes on with.

        By OpenAI's API the index tells. Some servers leave it out, or give every parallel call the
        same: then a new id begins another call.
        """
        there = [each for each in reversed(self._calls) if index is None or each.index == index]
        if call_id:
            same = next((each for each in there if each.call_id == call_id), None)
            if same is not None:
                return same
            return there[0] if there and not there[0].call_id else None
        return there[0] if there else None


def _begins_another(part: _Part, name: str, arguments: str) -> bool:
    """Whether a named delta behind finished arguments is another call, sent without telling so."""
    if not name or not part.name or not _finished(part.arguments):
        return False
    return name != part.name or bool(arguments.strip())


def _finished(arguments: str) -> bool:
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    return True
