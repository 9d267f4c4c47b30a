"""The airline database: one shared seed, and an overlay of changed records per session.

The seed is loaded once per process and never copied. A session reads through its overlay and
writes whole records into it, so a further session costs only what it changed. The hash is the
plain one of `hashing.plain_hash`, built from the seed's cached bytes and SHA-256 midstates.
"""

from __future__ import annotations

import hashlib
import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from .hashing import EXCLUDED_KEYS, canonical_bytes, key_bytes

Record = dict[str, Any]
"""One row: a flight with all its dates, a user, or a reservation."""

_MIDSTATE_STEP = 1 << 16  # Bytes between two kept SHA-256 states: 48 of them for 3 MB.


class ChangedRecord(NamedTuple):
    """One record that differs from the seed.

    Attributes:
        table: "flights", "users" or "reservations".
        key: Flight number, user id or reservation id.
        record: The whole record as it is now.
        payment_operation_sizes: For a reservation, how many payments each operation of the
            session appended to payment_history, oldest first; () otherwise.
    """

    table: str
    key: str
    record: Record
    payment_operation_sizes: tuple[int, ...] = ()


class _Table(NamedTuple):
    """Where a table's entries lie in the canonical bytes; entry i is [starts[i], ends[i])."""

    records: dict[str, Record]
    keys: list[str]
    starts: list[int]
    ends: list[int]
    body: int


class SeedDatabase:
    """The database as every scenario finds it; never modified after construction.

    Args:
        tables: Table name to key to record. The object is taken over, not copied.

    Raises:
        TypeError: If a table is not a mapping of records.
    """

    def __init__(self, tables: Mapping[str, Mapping[str, Record]]) -> None:
        self._lock = threading.Lock()
        self._midstates: list[Any] = []
        self._hash: str | None = None
        self._tables: dict[str, _Table] = {}
        buffer = bytearray(b"{")
        for name in sorted(tables):
            if name in EXCLUDED_KEYS:
                continue
            records = tables[name]
            if not isinstance(records, dict):
                raise TypeError(f"table {name!r} is not an object of records")
            if len(buffer) > 1:
                buffer += b","
            buffer += key_bytes(name) + b":{"
            body = len(buffer)
            keys = sorted(records)
            starts: list[int] = []
            ends: list[int] = []
            for key in keys:
                if starts:
                    buffer += b","
                starts.append(len(buffer))
                buffer += _entry(key, records[key])
                ends.append(len(buffer))
            buffer += b"}"
            self._tables[name] = _Table(records, keys, starts, ends, body)
        self._canonical = bytes(buffer + b"}")

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables, sorted."""
        return tuple(self._tables)

    def records(self, table: str) -> Mapping[str, Record]:
        """Returns a table's records, shared with every session: read, never modify.

        Args:
            table: The table's name.

        Raises:
            KeyError: If there is no such table.
        """
        return self._tables[table].records

    def hash(self) -> str:
        """Returns the SHA-256 of the seeded database in hexadecimal."""
        self._prepare()
        assert self._hash is not None
        return self._hash

    def fragment(self, table: str, key: str) -> bytes | None:
        """Returns the canonical `"key":record` bytes of a record, or None where there is none."""
        layout = self._tables[table]
        at = bisect_left(layout.keys, key)
        if at == len(layout.keys) or layout.keys[at] != key:
            return None
        return self._canonical[layout.starts[at] : layout.ends[at]]

    def hash_with(self, changes: Mapping[tuple[str, str], bytes]) -> str:
        """Hashes the seed with some records replaced or added.

        Args:
            changes: (table, key) to the record's canonical `"key":record` bytes.

        Returns:
            SHA-256 in hexadecimal, equal to plain_hash of the whole database.
        """
        self._prepare()
        pieces = list(self._pieces(changes))
        if not pieces:
            return self.hash()
        step = pieces[0][0] // _MIDSTATE_STEP
        digest = self._midstates[step].copy()
        view = memoryview(self._canonical)
        cursor = step * _MIDSTATE_STEP
        for start, end, data in pieces:
            digest.update(view[cursor:start])
            digest.update(data)
            cursor = end
        digest.update(view[cursor:])
        return str(digest.hexdigest())

    def _pieces(self, changes: Mapping[tuple[str, str], bytes]) -> Iterator[tuple[int, int, bytes]]:
        """Yields (start, end, data): what replaces the canonical bytes [start, end), in order."""
        for name, layout in self._tables.items():
            empty = not layout.keys
            for key in sorted(key for table, key in changes if table == name):
                data = changes[name, key]
                at = bisect_left(layout.keys, key)
                if at < len(layout.keys) and layout.keys[at] == key:
                    yield layout.starts[at], layout.ends[at], data
                elif at < len(layout.keys):
                    yield layout.starts[at], layout.starts[at], data + b","
                else:
                    end = layout.ends[-1] if layout.ends else layout.body
                    yield end, end, data if empty else b"," + data
                    empty = False

    def _prepare(self) -> None:
        """Computes the digest and keeps the hash's state at every step, once."""
        if self._hash is not None:
            return
        with self._lock:
            if self._hash is not None:
                return
            digest = hashlib.sha256()
            view = memoryview(self._canonical)
            for at in range(0, len(view), _MIDSTATE_STEP):
                self._midstates.append(digest.copy())
                digest.update(view[at : at + _MIDSTATE_STEP])
            self._hash = digest.hexdigest()


class OverlayDatabase:
    """A session's database: the seed plus the records that the session changed.

    Args:
        seed: The shared seed. It is never written to.
    """

    def __init__(self, seed: SeedDatabase) -> None:
        self.seed = seed
        self._changed: dict[tuple[str, str], Record] = {}
        self._fragments: dict[tuple[str, str], bytes] = {}
        self._operations: dict[tuple[str, str], tuple[int, ...]] = {}
        self._hash: str | None = None

    def view(self, table: str, key: str) -> Mapping[str, Any] | None:
        """Returns a record without copying it, or None. It is shared: read, never modify."""
        record = self._changed.get((table, key))
        return record if record is not None else self.seed.records(table).get(key)

    def views(self, table: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yields (key, shared record) of a table: the seed's in its order, then the added ones."""
        records = self.seed.records(table)
        for key, record in records.items():
            yield key, self._changed.get((table, key), record)
        for (name, key), record in self._changed.items():
            if name == table and key not in records:
                yield key, record

    def read(self, table: str, key: str) -> Record | None:
        """Returns a copy of a record that the caller may modify, or None."""
        record = self.view(table, key)
        return None if record is None else clone(record)

    def put(
        self, table: str, key: str, record: Mapping[str, Any], payment_operation: int = 0
    ) -> None:
        """Stores a copy of a whole record.

        Args:
            table: The table's name.
            key: The record's key, existing or new.
            record: The record as it shall be.
            payment_operation: How many payments this operation appended to the record's
                payment_history; their order among themselves has no meaning.

        Raises:
            KeyError: If there is no such table.
        """
        at = (table, key)
        original = self.seed.fragment(table, key)
        own: Record = clone(record)
        fragment = _entry(key, own)
        self._hash = None
        if fragment == original:
            for part in (self._changed, self._fragments, self._operations):
                part.pop(at, None)
            return
        self._changed[at] = own
        self._fragments[at] = fragment
        if payment_operation:
            self._operations[at] = (*self._operations.get(at, ()), payment_operation)

    def hash(self) -> str:
        """Returns the plain hash of this database, in hexadecimal."""
        if self._hash is None:
            self._hash = self.seed.hash_with(self._fragments)
        return self._hash

    def changed_keys(self) -> list[tuple[str, str]]:
        """Returns (table, key) of every record that differs from the seed, sorted."""
        return sorted(self._changed)

    def payment_operation_sizes(self, table: str, key: str) -> tuple[int, ...]:
        """Returns how many payments each operation of the session appended to a record."""
        return self._operations.get((table, key), ())

    def changed_records(self) -> list[ChangedRecord]:
        """Returns copies of all records that differ from the seed, sorted by table and key."""
        return [
            ChangedRecord(*at, clone(self._changed[at]), self._operations.get(at, ()))
            for at in self.changed_keys()
        ]

    def canonical(self, table: str, key: str) -> bytes | None:
        """Returns the bytes that a record contributes to the hash, or None without a record."""
        return self._fragments.get((table, key)) or self.seed.fragment(table, key)

    def materialise(self) -> dict[str, dict[str, Record]]:
        """Returns the whole database as one independent object; slow, for tests and debugging."""
        return {
            table: {key: clone(record) for key, record in self.views(table)}
            for table in self.seed.tables
        }


def apply_changes(
    seed: SeedDatabase,
    changes: Iterable[ChangedRecord | tuple[str, str, Mapping[str, Any], Iterable[int]]],
) -> OverlayDatabase:
    """Rebuilds a session's database from the records it reported as changed.

    Args:
        seed: The seed that the session started from.
        changes: (table, key, record, payment_operation_sizes) each.

    Returns:
        A database whose hash() can be held against the reported one.

    Raises:
        ValueError: If a table is unknown, a record is no object, or the operation sizes do not
            fit the record's payment_history.
    """
    overlay = OverlayDatabase(seed)
    for table, key, record, sizes in changes:
        if table not in seed.tables:
            raise ValueError(f"changed record {key!r}: there is no table {table!r}")
        if not isinstance(record, Mapping):
            raise ValueError(f"changed record {table}/{key}: not an object")
        counts = [int(size) for size in sizes]
        history = record.get("payment_history")
        held = len(history) if isinstance(history, list) else 0
        if any(count < 1 for count in counts) or sum(counts) > held:
            raise ValueError(
                f"changed record {table}/{key}: operation sizes {counts} do not fit its payments"
            )
        overlay.put(table, key, record)
        for count in counts:
            overlay.put(table, key, record, payment_operation=count)
    return overlay


def clone(value: Any) -> Any:
    """Returns a deep copy of a JSON value; mappings become dicts, tuples become lists."""
    if isinstance(value, str | int | float | None):
        return value
    if isinstance(value, dict | Mapping):
        return {key: clone(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clone(item) for item in value]
    return value


def _entry(key: str, record: Record) -> bytes:
    return key_bytes(key) + b":" + canonical_bytes(record)
