"""What is kept about a conversation between its requests (statements 28 and 29).

Facts are tagged with the history at which they were found. A request sees a fact only when its
own history goes through that point, so two conversations with one opening part where they differ,
and the same request sent again finds what it found before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from tau2eval_gateway.flows.messages import SYSTEM_ROLES, message_digest, text_of
from tau2eval_gateway.flows.state_store import MAX_FACTS, MemoryStateStore, StateStore
from tau2eval_gateway.requests import ChatRequest

__all__ = [
    "CHECKPOINTS",
    "MAX_FACTS",
    "ConversationState",
    "Fact",
    "MemoryStateStore",
    "StateStore",
    "open_state",
    "read_history",
]

CHECKPOINTS = (*range(1, 9), *range(12, 129, 4))
"""Lengths of the history (messages that are not system) at which keys are made."""
MAX_VALUE_CHARS = 16_384
"""A fact with a longer value is not kept."""
_WINDOW = 4
"""Keys, the newest ones, that are looked at first."""
_COMPLETE = "complete"
"""Field of a key under which everything that was known has been put."""
_OPENED = "opened"
"""Kind of the marker that says when a request of a session was first seen."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something found at a point of the conversation.

    Attributes:
        kind: What it is, in the flow's own words.
        name: Tells facts of one kind and point apart.
        value: JSON.
        length: Messages of history (system ones left out) up to that point.
        current: Found at exactly this request's history: by this request, or by the same one sent
            before. A replay must behave as the first time did (statement 29), so what must happen
            once is spent by facts that are not current, or that are `own`.
        own: Added by this very request.
    """

    kind: str
    name: str
    value: Any
    length: int
    current: bool
    own: bool = False


@dataclass(frozen=True, slots=True)
class _Kept:
    """A fact as a store has it."""

    field: str
    length: int
    tag: str
    kind: str
    name: str
    order: int
    value: Any


class ConversationState:
    """One flow's facts about the conversation that a request continues.

    Make it with `open_state`. `add` writes through to the store and to `facts`.
    """

    def __init__(
        self,
        store: StateStore,
        key_at: Callable[[int], str],
        tags: Sequence[str],
        order: int,
        facts: list[Fact],
    ) -> None:
        self._store = store
        self._key_at = key_at
        self._tags = tags
        self._order = order
        self._facts = facts

    @property
    def length(self) -> int:
        """Messages in the history (system ones left out)."""
        return len(self._tags) - 1

    def key(self, at: int) -> str:
        """Returns a hash that stands for this flow, caller and history up to a point."""
        return _digest(self._key_at(at), self._tags[at])

    def facts(self, kind: str) -> list[Fact]:
        """Returns the facts of a kind in order of the history."""
        return sorted((f for f in self._facts if f.kind == kind), key=lambda f: (f.length, f.name))

    async def add(self, kind: str, name: str, value: Any, at: int | None = None) -> Any:
        """Keeps a fact; the first one of a kind, name and point stays.

        Args:
            kind: What it is.
            name: Tells it apart from others of the kind.
            value: JSON.
            at: Length of the history through which it holds; the whole history by default.

        Returns:
            The value that stands: the one that was there first, or `value`.
        """
        length = self.length if at is None else at
        if not 0 <= length <= self.length:
            raise ValueError(f"a fact at {length} of {self.length} messages")
        for fact in self._facts:
            if (fact.kind, fact.name, fact.length) == (kind, name, length) and (
                fact.current or length < self.length
            ):
                return fact.value
        field = _field(length, self._tags[length], kind, name)
        written = orjson.dumps([self._order, value]).decode()
        if len(written) <= MAX_VALUE_CHARS:
            standing = await self._store.add(self._key_at(length), {field: written})
            written = standing.get(field, written)
            if (newest := self._key_at(self.length)) != self._key_at(length):
                await self._store.add(newest, {field: written})
            for kept in _parsed({field: written}):
                value = kept.value
        current = length == self.length
        self._facts.append(Fact(kind, name, value, length, current=current, own=True))
        return value


async def open_state(
    store: StateStore, flow: str, caller: str, session_id: str, request: ChatRequest
) -> ConversationState:
    """Opens what is kept about the conversation of a request.

    With a session the caller says which conversation it is, and what was found in it before this
    request was first seen counts; without one, the history decides, and an edited history starts
    fresh.
    """
    tags = read_history(caller, request.body)
    if session_id:
        return await _open_session(store, _digest(flow, "session", caller, session_id), tags)
    return await _open_history(store, flow, tags)


async def _open_session(store: StateStore, key: str, tags: list[str]) -> ConversationState:
    length = len(tags) - 1
    kept = list(_parsed((await store.load([key]))[0]))
    opened = _field(length, tags[length], _OPENED, "")
    order = next((item.order for item in kept if item.field == opened), None)
    if order is None:
        # First seen now: all that is known was found before. A replay will not look further.
        order = max((item.order for item in kept), default=0) + 1
        standing = await store.add(key, {opened: orjson.dumps([order, None]).decode()})
        order = next((item.order for item in _parsed(standing)), order)
    facts: list[Fact] = []
    for item in kept:
        current = (item.length, item.tag) == (length, tags[length])
        if item.kind != _OPENED and (current or item.order <= order):
            facts.append(Fact(item.kind, item.name, item.value, item.length, current))
    return ConversationState(store, lambda _: key, tags, order, facts)


async def _open_history(store: StateStore, flow: str, tags: list[str]) -> ConversationState:
    length = len(tags) - 1

    def key_at(at: int) -> str:
        point = max((point for point in CHECKPOINTS if point <= at), default=0)
        return _digest(flow, "history", tags[point])

    keys = [key_at(point) for point in CHECKPOINTS if point <= length] or [key_at(0)]
    # The newest keys hold all that older ones do, once they are marked; most requests need no more.
    loaded = await store.load(keys[-_WINDOW:])
    if len(keys) > _WINDOW and not any(_COMPLETE in fields for fields in loaded):
        loaded = [*await store.load(keys[:-_WINDOW]), *loaded]
    newest = loaded[-1]
    facts: list[Fact] = []
    looked_at: set[str] = set()
    missing: dict[str, str] = {}
    for fields in reversed(loaded):
        for item in _parsed(fields, looked_at):
            if item.length > length or tags[item.length] != item.tag:
                continue
            current = item.length == length
            facts.append(Fact(item.kind, item.name, item.value, item.length, current))
            if item.field not in newest:
                missing[item.field] = fields[item.field]
        looked_at.update(fields)
    # Everything that is known goes on under the newest key, so that it outlives older ones.
    if missing:
        await store.add(keys[-1], {**missing, _COMPLETE: ""})
    return ConversationState(store, key_at, tags, 0, facts)


def read_history(caller: str, body: Mapping[str, Any]) -> list[str]:
    """Returns a hash for each length of a history; the first is that of the empty one.

    System text before the first other message is what the conversation starts from. Later system
    messages count as part of the message that follows them; trailing ones, which clients and flows
    put in for one request only, do not count.
    """
    messages: Sequence[Mapping[str, Any]] = body["messages"]
    start = next(
        (at for at, message in enumerate(messages) if message.get("role") not in SYSTEM_ROLES),
        len(messages),
    )
    system = "\n\n".join(text_of(message) for message in messages[:start])
    tags = [_digest(caller, system, _canonical(body.get("tools")))]
    notes: list[str] = []
    for message in messages[start:]:
        if message.get("role") in SYSTEM_ROLES:
            notes.append(text_of(message))
        else:
            tags.append(_digest(tags[-1], *notes, _message_digest(message)))
            notes = []
    return tags


def _message_digest(message: Mapping[str, Any]) -> str:
    try:
        return message_digest(message)
    except RecursionError:
        return _digest(str(message.get("role")), text_of(message), "nested too deeply")


def _canonical(value: Any) -> str:
    if not value:
        return ""
    try:
        return json.dumps(value, sort_keys=True)
    except RecursionError:
        return "nested too deeply"


def _field(length: int, tag: str, kind: str, name: str) -> str:
    return json.dumps([length, tag, kind, name])


def _parsed(fields: Mapping[str, str], but: Container[str] = ()) -> Iterator[_Kept]:
    """Yields what can be read; a shared store may hold what another version wrote."""
    for field, text in fields.items():
        if field in but or field == _COMPLETE:
            continue
        try:
            length, tag, kind, name = json.loads(field)
            order, value = orjson.loads(text)
        except (ValueError, TypeError, RecursionError):
            continue
        words = all(isinstance(word, str) for word in (tag, kind, name))
        if words and type(length) is int and type(order) is int and length >= 0:
            yield _Kept(field, length, tag, kind, name, order, value)


def _digest(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    return digest.hexdigest()
