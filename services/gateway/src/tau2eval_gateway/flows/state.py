"""What is kept about a conversation between its requests (statements 28 and 29).

Facts are tagged with the history at which they were found. A request sees a fact only when its
own history goes through that point, so two conversations with one opening part where they differ,
and the same request sent again finds what it found before.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from tau2eval_gateway.flows.messages import message_digest, system_text
from tau2eval_gateway.requests import ChatRequest

CHECKPOINTS = (*range(1, 9), *range(12, 129, 4))
"""Lengths of the history (messages that are not system) at which keys are made."""
MAX_FACTS = 512
"""Facts kept under one key; more are not taken."""


class StateStore(Protocol):
    """Keeps small text fields under keys, bounded in number and age."""

    async def load(self, keys: Sequence[str]) -> list[dict[str, str]]:
        """Returns the fields under each key; an unknown key has none."""

    async def add(self, key: str, fields: Mapping[str, str]) -> None:
        """Adds fields under a key; of two values for one field the first stays."""

    async def aclose(self) -> None:
        """Closes connections."""


class MemoryStateStore:
    """Keeps fields in this process.

    Args:
        max_keys: The keys used least recently are forgotten beyond this.
        max_age_seconds: Keys that were not written for so long are forgotten.
        clock: Seconds; for tests.
    """

    def __init__(
        self,
        max_keys: int = 10_000,
        max_age_seconds: float = 86_400.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_keys = max_keys
        self._max_age = max_age_seconds
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, dict[str, str]]] = OrderedDict()

    async def load(self, keys: Sequence[str]) -> list[dict[str, str]]:
        """Returns copies of the fields under each key."""
        self._forget()
        found: list[dict[str, str]] = []
        for key in keys:
            _, fields = self._kept.get(key, (0.0, {}))
            found.append(dict(fields))
        return found

    async def add(self, key: str, fields: Mapping[str, str]) -> None:
        """Adds fields and makes the key the newest."""
        _, kept = self._kept.pop(key, (0.0, {}))
        for name, value in fields.items():
            if len(kept) < MAX_FACTS:
                kept.setdefault(name, value)
        self._kept[key] = (self._clock(), kept)
        self._forget()

    async def aclose(self) -> None:
        """Does nothing."""

    def _forget(self) -> None:
        oldest = self._clock() - self._max_age
        while self._kept:
            key, (written, _) = next(iter(self._kept.items()))
            if written >= oldest and len(self._kept) <= self._max_keys:
                return
            del self._kept[key]


@dataclass(frozen=True, slots=True)
class Fact:
    """Something found at a point of the conversation.

    Attributes:
        kind: What it is, in the flow's own words.
        name: Tells facts of one kind and point apart.
        value: JSON.
        length: Messages of history (system ones left out) up to that point.
        current: Found at exactly this request's history: by this request, or by the same one sent
            before.
    """

    kind: str
    name: str
    value: Any
    length: int
    current: bool


class ConversationState:
    """One flow's facts about the conversation that a request continues.

    Make it with `open_state`. `add` writes through to the store and to `facts`.
    """

    def __init__(
        self, store: StateStore, key: str, tag: str, length: int, facts: list[Fact]
    ) -> None:
        self._store = store
        self._key = key
        self._tag = tag
        self._length = length
        self._facts = facts

    def facts(self, kind: str) -> list[Fact]:
        """Returns the facts of a kind in order of the history."""
        return sorted((f for f in self._facts if f.kind == kind), key=lambda f: (f.length, f.name))

    async def add(self, kind: str, name: str, value: Any) -> None:
        """Keeps a fact found at this request's history; the first one of a name stays."""
        if any(f.current and (f.kind, f.name) == (kind, name) for f in self._facts):
            return
        self._facts.append(Fact(kind, name, value, self._length, current=True))
        field = _field(self._length, self._tag, kind, name)
        await self._store.add(self._key, {field: orjson.dumps(value).decode()})


async def open_state(
    store: StateStore, flow: str, caller: str, session_id: str, request: ChatRequest
) -> ConversationState:
    """Opens what is kept about the conversation of a request.

    With a session the caller says which conversation it is, and every fact of it counts; without
    one, the history decides, and an edited history starts fresh.
    """
    messages = request.body["messages"]
    tags = _tags(caller, messages, request.body.get("tools"))
    length = len(tags) - 1
    if session_id:
        key = _digest(flow, "session", caller, session_id)
        (fields,) = await store.load([key])
        facts = [
            Fact(kind, name, value, at, current=(at, tag) == (length, tags[length]))
            for at, tag, kind, name, value in _parsed(fields)
        ]
        return ConversationState(store, key, tags[length], length, facts)
    points = [point for point in CHECKPOINTS if point <= length] or [0]
    keys = [_digest(flow, "history", tags[point]) for point in points]
    loaded = await store.load(keys)
    seen: dict[str, Fact] = {}
    for fields in loaded:
        for field in fields:
            for at, tag, kind, name, value in _parsed({field: fields[field]}):
                if at <= length and tags[at] == tag:
                    seen[field] = Fact(kind, name, value, at, current=at == length)
    # Everything that is known goes on under the newest key, so that it outlives older ones.
    missing = {
        field: next(fields[field] for fields in loaded if field in fields)
        for field in seen
        if field not in loaded[-1]
    }
    if missing:
        await store.add(keys[-1], missing)
    return ConversationState(store, keys[-1], tags[length], length, list(seen.values()))


def _tags(caller: str, messages: Sequence[Mapping[str, Any]], tools: Any) -> list[str]:
    """Returns a hash for each length of the history; the first is that of the empty one."""
    schemas = json.dumps(tools, sort_keys=True) if tools else ""
    tags = [_digest(caller, system_text(messages), schemas)]
    for message in messages:
        if message.get("role") not in ("system", "developer"):
            tags.append(_digest(tags[-1], message_digest(message)))
    return tags


def _field(length: int, tag: str, kind: str, name: str) -> str:
    return json.dumps([length, tag, kind, name])


def _parsed(fields: Mapping[str, str]) -> list[tuple[int, str, str, str, Any]]:
    found = []
    for field, value in fields.items():
        try:
            length, tag, kind, name = json.loads(field)
            found.append((int(length), str(tag), str(kind), str(name), orjson.loads(value)))
        except (ValueError, TypeError):
            continue
    return found


def _digest(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    return digest.hexdigest()
