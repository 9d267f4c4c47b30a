"""Compares recorded actions with the reference answer: ACTION_MATCH, a diagnostic.

The verdict rests on the database, where any way to the right end counts. So this comparison
asks whether the same things were done, not in which order: both sides are taken as multisets of
(name, arguments), where the order of a booking's payments, passengers apart, has no meaning and
the wording of a transfer's summary none either (upstream's gold compares no argument of it).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from .hashing import canonical_bytes

Actions = Sequence[Mapping[str, Any]]

_FREE_TEXT = frozenset({"transfer_to_human_agents"})


def compare_actions(
    reference: Mapping[str, Any] | Actions,
    actual: Mapping[str, Any] | Actions,
    strict: bool = False,
) -> bool:
    """Tells whether a session recorded the actions of the reference.

    Args:
        reference: A reference_answer, or its list of actions.
        actual: What the session recorded, in either form.
        strict: Whether the order of the actions counts too.

    Returns:
        True if both hold the same actions. An empty reference is matched by an empty record
        only: writes that nobody asked for are a mismatch.
    """
    wanted = [_key(action) for action in _list(reference)]
    found = [_key(action) for action in _list(actual)]
    return wanted == found if strict else Counter(wanted) == Counter(found)


def _list(actions: Mapping[str, Any] | Actions) -> Actions:
    if isinstance(actions, Mapping):
        inner: Actions = actions.get("actions") or []
        return inner
    return actions


def _key(action: Mapping[str, Any]) -> tuple[str, bytes]:
    name = str(action.get("name"))
    if name in _FREE_TEXT:
        return name, b""
    arguments = dict(action.get("arguments") or {})
    payments = arguments.get("payment_methods")
    if isinstance(payments, list):
        arguments["payment_methods"] = sorted(payments, key=canonical_bytes)
    return name, canonical_bytes(arguments)
