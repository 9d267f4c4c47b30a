"""Decides whether a session's database is the expected one, and shows where it is not.

Two databases match when their plain hashes are equal, or when they differ only in an order
without meaning: that of the payments which one operation appended to a reservation (the payment
methods of a booking, the refunds of a cancellation). The order of operations keeps its meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from .database import OverlayDatabase
from .hashing import canonical_bytes, normalize

_ABSENT: Any = object()

How = Literal["exact", "payment_order", "different"]


class Difference(TypedDict):
    """One place where two databases differ.

    `path` is "" for a whole record that one side lacks; the lacking side's value is None.
    """

    table: str
    key: str
    path: str
    expected: Any
    actual: Any


@dataclass(frozen=True)
class DbComparison:
    """The outcome of comparing a session's database with the expected one.

    Attributes:
        match: Whether DB_STATE_MATCH holds.
        how: "exact" for equal hashes, "payment_order" for a difference without meaning only,
            "different" otherwise.
        differences: Every differing place; for "payment_order" those of the reordered payments.
    """

    match: bool
    how: How
    differences: list[Difference] = field(default_factory=list)


def compare_databases(expected: OverlayDatabase, actual: OverlayDatabase) -> DbComparison:
    """Compares two databases over the same seed.

    Args:
        expected: The database after the gold replay.
        actual: The database at the end of the session.

    Returns:
        Whether they match, how, and where they differ.

    Raises:
        ValueError: If they do not start from the same seed.
    """
    if expected.seed is not actual.seed and expected.seed.hash() != actual.seed.hash():
        raise ValueError("the databases do not start from the same seed")
    if expected.hash() == actual.hash():
        return DbComparison(True, "exact")
    differences: list[Difference] = []
    order_only = True
    for table, key in sorted({*expected.changed_keys(), *actual.changed_keys()}):
        if expected.canonical(table, key) == actual.canonical(table, key):
            continue
        order_only = order_only and _only_payment_order(expected, actual, table, key)
        wanted, found = expected.view(table, key), actual.view(table, key)
        _walk(table, key, "", normalize(wanted), normalize(found), differences)
    if order_only:
        return DbComparison(True, "payment_order", differences)
    return DbComparison(False, "different", differences)


def _only_payment_order(
    expected: OverlayDatabase, actual: OverlayDatabase, table: str, key: str
) -> bool:
    wanted, found = expected.read(table, key), actual.read(table, key)
    sizes = expected.payment_operation_sizes(table, key)
    if wanted is None or found is None or not sizes:
        return False
    if sizes != actual.payment_operation_sizes(table, key):
        return False
    left, right = wanted.pop("payment_history", None), found.pop("payment_history", None)
    if canonical_bytes(wanted) != canonical_bytes(found):
        return False
    if not isinstance(left, list) or not isinstance(right, list):
        return False
    return _grouped(left, sizes) == _grouped(right, sizes)


def _grouped(history: list[Any], sizes: tuple[int, ...]) -> list[list[bytes]]:
    """Returns the payments by operation, sorted within each; the seed's own keep their order."""
    at = len(history) - sum(sizes)
    groups = [[canonical_bytes(payment)] for payment in history[:at]]
    for size in sizes:
        groups.append(sorted(canonical_bytes(payment) for payment in history[at : at + size]))
        at += size
    return groups


def _walk(
    table: str, key: str, path: str, expected: Any, actual: Any, into: list[Difference]
) -> None:
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in sorted({*expected, *actual}):
            below = f"{path}.{name}" if path else str(name)
            _walk(table, key, below, expected.get(name, _ABSENT), actual.get(name, _ABSENT), into)
    elif isinstance(expected, list) and isinstance(actual, list):
        for index in range(max(len(expected), len(actual))):
            wanted = expected[index] if index < len(expected) else _ABSENT
            found = actual[index] if index < len(actual) else _ABSENT
            _walk(table, key, f"{path}[{index}]", wanted, found, into)
    elif type(expected) is not type(actual) or expected != actual:
        wanted, found = (None if side is _ABSENT else side for side in (expected, actual))
        into.append(Difference(table=table, key=key, path=path, expected=wanted, actual=found))
