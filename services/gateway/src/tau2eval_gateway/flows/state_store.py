"""Where facts about conversations are kept: the contract, and a store in this process."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

MAX_FACTS = 512
"""Facts kept under one key; more are not taken."""


class StateStore(Protocol):
    """Keeps small text fields under keys, bounded in number and age."""

    async def load(self, keys: Sequence[str]) -> list[dict[str, str]]:
        """Returns the fields under each key; an unknown key has none."""

    async def add(self, key: str, fields: Mapping[str, str]) -> Mapping[str, str]:
        """Adds fields under a key; of two values for one field the first stays.

        Returns:
            The values that now stand for these fields; one that was not taken is left out.
        """

    async def aclose(self) -> None:
        """Closes connections."""


@dataclass(slots=True)
class _Entry:
    written: float = 0.0
    fields: dict[str, str] = field(default_factory=dict)
    chars: int = 0


class MemoryStateStore:
    """Keeps fields in this process.

    Args:
        max_keys: The keys written least recently are forgotten beyond this.
        max_age_seconds: Keys that were not written for so long are forgotten.
        clock: Seconds; for tests.
        max_chars: Names and values together; as with `max_keys`.
    """

    def __init__(
        self,
        max_keys: int = 10_000,
        max_age_seconds: float = 86_400.0,
        clock: Callable[[], float] = time.monotonic,
        max_chars: int = 64_000_000,
    ) -> None:
        self._max_keys = max_keys
        self._max_age = max_age_seconds
        self._max_chars = max_chars
        self._clock = clock
        self._kept: OrderedDict[str, _Entry] = OrderedDict()
        self._chars = 0

    def __len__(self) -> int:
        """Returns the number of keys."""
        return len(self._kept)

    async def load(self, keys: Sequence[str]) -> list[dict[str, str]]:
        """Returns copies of the fields under each key."""
        self._forget()
        return [dict(self._kept[key].fields) if key in self._kept else {} for key in keys]

    async def add(self, key: str, fields: Mapping[str, str]) -> Mapping[str, str]:
        """Adds fields and makes the key the newest."""
        self._forget()
        entry = self._kept.pop(key, None) or _Entry()
        for name, value in fields.items():
            if name not in entry.fields and len(entry.fields) < MAX_FACTS:
                entry.fields[name] = value
                entry.chars += len(name) + len(value)
                self._chars += len(name) + len(value)
        entry.written = self._clock()
        self._kept[key] = entry
        standing = {name: entry.fields[name] for name in fields if name in entry.fields}
        self._forget()
        return standing

    async def aclose(self) -> None:
        """Does nothing."""

    def _forget(self) -> None:
        oldest = self._clock() - self._max_age
        while self._kept:
            key, entry = next(iter(self._kept.items()))
            fits = len(self._kept) <= self._max_keys and self._chars <= self._max_chars
            if entry.written >= oldest and fits:
                return
            del self._kept[key]
            self._chars -= entry.chars
