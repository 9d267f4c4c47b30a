"""Where our tools depart from the official toolkit on purpose, each departure as a predicate.

A rule looks at one call and the database before it, never at what came out. It says what the
departure means in the toolkit's own terms: the same call in canonical form, or no call at all. So a
difference is explained only if the toolkit, given the rewritten sequence, ends in exactly our
database with exactly our successes; a rule that merely applies excuses nothing. Each rule is a row
of "Differences from upstream" in libs/airline/README.md. The code here is independent of the
tools': it is the statement of the rule, not a use of it.
"""

from __future__ import annotations

import copy
import datetime
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tau2eval_airline import OverlayDatabase

from .sequences import Call

_LOWER = frozenset({"user_id", "payment_id"})
_UPPER = frozenset({"reservation_id", "flight_number", "origin", "destination"})
_CHOICE = frozenset({"cabin", "flight_type", "insurance"})
_DATE = frozenset({"date", "dob"})
_NAME = frozenset({"first_name", "last_name"})
_TEXT = _LOWER | _UPPER | _CHOICE | _DATE | _NAME | {"summary", "expression"}
_WHOLE = frozenset({"amount", "total_baggages", "nonfree_baggages"})
_CABINS = frozenset({"business", "economy", "basic_economy"})

_LISTS = {
    "flights": frozenset({"flight_number", "date"}),
    "passengers": frozenset({"first_name", "last_name", "dob"}),
    "payment_methods": frozenset({"payment_id", "amount"}),
}
_PARAMETERS = {
    "get_user_details": {"user_id"},
    "get_reservation_details": {"reservation_id"},
    "list_all_airports": set(),
    "search_direct_flight": {"origin", "destination", "date"},
    "search_onestop_flight": {"origin", "destination", "date"},
    "get_flight_status": {"flight_number", "date"},
    "calculate": {"expression"},
    "transfer_to_human_agents": {"summary"},
    "cancel_reservation": {"reservation_id"},
    "send_certificate": {"user_id", "amount"},
    "update_reservation_baggages": {
        "reservation_id",
        "total_baggages",
        "nonfree_baggages",
        "payment_id",
    },
    "update_reservation_flights": {"reservation_id", "cabin", "flights", "payment_id"},
    "update_reservation_passengers": {"reservation_id", "passengers"},
    "book_reservation": {
        "user_id",
        "origin",
        "destination",
        "flight_type",
        "cabin",
        "flights",
        "passengers",
        "payment_methods",
        "total_baggages",
        "nonfree_baggages",
        "insurance",
    },
}
TOOLS = tuple(_PARAMETERS)
"""The 14 tools."""

_WRITES_TO_RESERVATION = frozenset(
    {
        "cancel_reservation",
        "update_reservation_baggages",
        "update_reservation_flights",
        "update_reservation_passengers",
    }
)


class Rewrite(NamedTuple):
    """What a call means to the toolkit.

    Attributes:
        call: The call in canonical form, or None where ours refuses it.
        rules: The names of the rules that changed it; empty if none did.
    """

    call: Call | None
    rules: tuple[str, ...]


def rewrite(call: Call, before: OverlayDatabase) -> Rewrite:
    """Applies the rules to one call.

    Args:
        call: The call as it was sent.
        before: The database as it is before the call; only read.

    Returns:
        What the toolkit has to be given for the same effect.
    """
    names: list[str] = []
    for name, change in _CANONICAL:
        changed = change(call)
        if changed != call or _types(changed) != _types(call):
            names.append(name)
            call = changed
    refused = [name for name, refuses in _REFUSALS if refuses(call, before)]
    return Rewrite(None if refused else call, (*names, *refused))


def _types(call: Call) -> str:
    return repr(call.arguments)  # 2 == 2.0 == True, but they are not stored alike.


# Canonical forms ----------------------------------------------------------------------------


def _map(call: Call, change: Callable[[str, Any], Any]) -> Call:
    """Returns the call with every value replaced by change(name, value), also within lists."""
    arguments = copy.deepcopy(call.arguments)
    for name, value in arguments.items():
        if name in _LISTS and isinstance(value, list):
            for item in value:
                if isinstance(item, dict):
                    item.update({key: change(key, below) for key, below in item.items()})
        elif name not in _LISTS:
            arguments[name] = change(name, value)
    return Call(call.tool, arguments)


def _canonical_text(call: Call) -> Call:
    def change(name: str, value: Any) -> Any:
        if name == "insurance" and isinstance(value, bool):
            return "yes" if value else "no"
        if not isinstance(value, str):
            return value
        if name in _LOWER:
            return re.sub(r"\s", "", value).lower()
        if name in _UPPER:
            return re.sub(r"\s", "", value).upper()
        if name in _CHOICE:
            return re.sub(r"[\s_-]+", "_", value.strip().lower())
        if name in _DATE and (
            parts := re.fullmatch(r"(\d{4})[-/](\d\d?)[-/](\d\d?)", value.strip())
        ):
            year, month, day = map(int, parts.groups())
            return f"{year:04}-{month:02}-{day:02}"
        if name in _NAME:
            return re.sub(r"\s+", " ", value.strip())
        return value.strip() if name in ("summary", "expression") else value

    return _map(call, change)


def _whole_numbers(call: Call) -> Call:
    def change(name: str, value: Any) -> Any:
        if name not in _WHOLE:
            return value
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, str) and re.fullmatch(r"\$?\s*[+-]?\d+(\.0*)?", value.strip()):
            return int(value.strip().lstrip("$").strip().partition(".")[0])
        return value

    return _map(call, change)


_CANONICAL: tuple[tuple[str, Callable[[Call], Call]], ...] = (
    ("canonical ids, codes, choices, dates, names", _canonical_text),
    ("whole numbers are integers", _whole_numbers),
)


# Refusals; the call is in canonical form -------------------------------------------------------


def _values(call: Call) -> Iterator[tuple[str, Any]]:
    for name, value in call.arguments.items():
        if name in _LISTS:
            for item in value if isinstance(value, list) else ():
                if isinstance(item, dict):
                    yield from item.items()
        else:
            yield name, value


def _items(call: Call, name: str) -> list[dict[str, Any]]:
    value = call.arguments.get(name)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _parameters(call: Call, before: OverlayDatabase) -> bool:
    """Unknown or missing parameters, lists that are none, elements of another shape."""
    if set(call.arguments) != _PARAMETERS[call.tool]:
        return True
    for name, fields in _LISTS.items():
        if name in call.arguments:
            value = call.arguments[name]
            if not isinstance(value, list):
                return True
            if any(not isinstance(item, dict) or set(item) != fields for item in value):
                return True
    return False


def _text(call: Call, before: OverlayDatabase) -> bool:
    """Something else than text, or nothing, where text belongs."""
    return any(
        name in _TEXT and (not isinstance(value, str) or not value) for name, value in _values(call)
    )


def _other_numbers(call: Call, before: OverlayDatabase) -> bool:
    return any(name in _WHOLE and not _is_whole(value) for name, value in _values(call))


def _unreal_date(call: Call, before: OverlayDatabase) -> bool:
    for name, value in _values(call):
        if name in _DATE and isinstance(value, str):
            try:
                datetime.datetime.strptime(value, "%Y-%m-%d")
            except ValueError:
                return True
    return False


def _too_little(call: Call, before: OverlayDatabase) -> bool:
    least = {"amount": 1, "total_baggages": 0, "nonfree_baggages": 0}
    return any(
        name in least and _is_whole(value) and value < least[name] for name, value in _values(call)
    )


def _update_without_cabin_or_flights(call: Call, before: OverlayDatabase) -> bool:
    if call.tool != "update_reservation_flights":
        return False
    return call.arguments.get("cabin") not in _CABINS or call.arguments.get("flights") == []


def _empty_booking(call: Call, before: OverlayDatabase) -> bool:
    return call.tool == "book_reservation" and any(
        call.arguments.get(name) == [] for name in _LISTS
    )


def _flight_twice(call: Call, before: OverlayDatabase) -> bool:
    named = [(item.get("flight_number"), item.get("date")) for item in _items(call, "flights")]
    return len(named) != len(set(named))


def _payment_twice(call: Call, before: OverlayDatabase) -> bool:
    named = [item.get("payment_id") for item in _items(call, "payment_methods")]
    return len(named) != len(set(named))


def _unknown_airport(call: Call, before: OverlayDatabase) -> bool:
    codes = [call.arguments[name] for name in ("origin", "destination") if name in call.arguments]
    known = {flight["origin"] for flight in before.seed.records("flights").values()}
    known |= {flight["destination"] for flight in before.seed.records("flights").values()}
    return any(code not in known for code in codes)


def _cancelled(call: Call, before: OverlayDatabase) -> bool:
    if call.tool not in _WRITES_TO_RESERVATION:
        return False
    key = call.arguments.get("reservation_id")
    record = before.view("reservations", key) if isinstance(key, str) else None
    return record is not None and record.get("status") == "cancelled"


def _power(call: Call, before: OverlayDatabase) -> bool:
    """A power whose exponent is no plain small number."""
    expression = call.arguments.get("expression")
    if call.tool != "calculate" or not isinstance(expression, str):
        return False
    return bool(re.search(r"\*\*\s*(\d{3,}|\d+\s*\*\*)", expression))


_REFUSALS: tuple[tuple[str, Callable[[Call, OverlayDatabase], bool]], ...] = (
    ("parameters are checked", _parameters),
    ("text is text and not empty", _text),
    ("whole numbers are integers", _other_numbers),
    ("dates are real", _unreal_date),
    ("no negative bags, payments, certificates", _too_little),
    ("a change has a cabin and flights", _update_without_cabin_or_flights),
    ("no empty bookings", _empty_booking),
    ("no flight twice in a trip", _flight_twice),
    ("no payment method twice", _payment_twice),
    ("airports exist", _unknown_airport),
    ("cancelled is final", _cancelled),
    ("arithmetic is bounded", _power),
)


# Rules of the verdict --------------------------------------------------------------------------

PAYMENT_ORDER = "payment order within one booking has no meaning"
GOLD_CORRECTION = "gold of task 39 without the cancellation that the policy forbids"


def in_gold_payment_order(call: Call, gold: list[Call]) -> Call:
    """Returns a booking with its payments in the order of a gold booking that has the same ones."""
    payments = call.arguments.get("payment_methods")
    if call.tool != "book_reservation" or not isinstance(payments, list):
        return call
    for wanted in gold:
        order = wanted.arguments.get("payment_methods")
        if not isinstance(order, list) or payments == order:
            continue
        if _multiset(payments) == _multiset(order):
            return Call(call.tool, {**call.arguments, "payment_methods": copy.deepcopy(order)})
    return call


def _multiset(payments: list[Any]) -> list[str]:
    return sorted(json.dumps(payment, sort_keys=True) for payment in payments)


RULES: tuple[str, ...] = tuple(
    dict.fromkeys(
        [
            *(name for name, _ in _CANONICAL),
            *(name for name, _ in _REFUSALS),
            PAYMENT_ORDER,
            GOLD_CORRECTION,
        ]
    )
)
"""Every rule's name, in the order of the tables."""
