"""Perturbations: what an agent, a speech recogniser or a sloppy model makes of good calls.

Each takes a source of chance, the calls and the world, and returns other calls, or None where it
has nothing to work on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from .sequences import Call
from .world import World

Calls = list[Call]
Perturbation = Callable[[random.Random, Calls, World], Calls | None]

WRITES = frozenset(
    {
        "book_reservation",
        "cancel_reservation",
        "send_certificate",
        "update_reservation_baggages",
        "update_reservation_flights",
        "update_reservation_passengers",
    }
)
_IDS = ("user_id", "payment_id", "reservation_id", "flight_number", "origin", "destination")
_COUNTS = ("amount", "total_baggages", "nonfree_baggages")


def copies(calls: Calls) -> Calls:
    """Returns independent copies."""
    return [call.copy() for call in calls]


def _spots(calls: Calls, names: tuple[str, ...]) -> list[tuple[dict[str, Any], str]]:
    """Returns (object, key) of every value that goes by one of the names, also within lists."""

    def walk(value: Any) -> Iterator[tuple[dict[str, Any], str]]:
        if isinstance(value, dict):
            for key, below in value.items():
                if key in names and not isinstance(below, dict | list):
                    yield value, key
                yield from walk(below)
        elif isinstance(value, list):
            for item in value:
                yield from walk(item)

    return [spot for call in calls for spot in walk(call.arguments)]


def _writes(calls: Calls) -> list[int]:
    return [at for at, call in enumerate(calls) if call.tool in WRITES]


def unchanged(rng: random.Random, calls: Calls, world: World) -> Calls | None:
    """The calls as they are."""
    return copies(calls)


def drop_action(rng: random.Random, calls: Calls, world: World) -> Calls | None:
    """One write is left out."""
    if not (writes := _writes(calls)):
        return None
    at = rng.choice(writes)
    return copies(calls[:at] + calls[at + 1 :])


def repeat_action(rng: random.Random, calls: Calls, world: World) -> Calls | None:
    """One write is done twice."""
    if not (writes := _writes(calls)):
        return None
    at = rng.choice(writes)
    later = rng.randrange(at + 1, len(calls) + 1)
    return copies([*calls[:later], calls[at], *calls[later:]])


def reorder(rng: random.Random, calls: Calls, world: World) -> Calls | None:
    """The writes in another order, the reads in their places."""
    writes = _writes(calls)
    if len(writes) < 2:
        return None
    order = list(writes)
    while order == writes:
        rng.shuffle(order)
    result = copies(calls)
    for at, source in zip(writes, order, strict=True):
        result[at] = calls[source].copy()
    return result


def letter_case(rng: random.Random, calls: Calls, world: World) -> Calls | None:
    """An id or a code in the other case, as speech recognition writes it."""
    result = copies(calls)
    if not (spots := _spots(result, (*_IDS, "cabin"))):
        return None
    for holder, key in rng.sample(spots, min(len(spots), rng.randrange(1, 3))):
        holder[key] = holder[key].swapcase()
    return result


def number_type(rng: random.Random, calls: Calls, world: World) -> Calls | None:
    """A count as 2.0 or "2"."""
    result = copies(calls)
    if not (spots := _spots(result, _COUNTS)):
        return None
    holder, key = rng.choice(spots)
    holder[key] = rng.choice((float, str))(holder[key])
    return result


def payment_order(rng: random.Random, calls: Calls, world: World) -> Calls | None:
    """The payments of a booking in another order."""
    result = copies(calls)
    several = [
        call.arguments["payment_methods"]
        for call in result
        if call.tool == "book_reservation" and len(call.arguments["payment_methods"]) > 1
    ]
    if not several:
        return None
    rng.choice(several).reverse()
    return result


def other_payment(rng: random.Random, calls: Calls, world: World) -> Calls | None:
    """Another payment method of some user."""
    result = copies(calls)
    if not (spots := _spots(result, ("payment_id",))):
        return None
    holder, key = rng.choice(spots)
    holder[key] = world.payment_id(rng)
    return result


def other_amount(rng: random.Random, calls: Calls, world: World) -> Calls | None:
    """A count or an amount that is off by a little."""
    result = copies(calls)
    if not (spots := _spots(result, _COUNTS)):
        return None
    holder, key = rng.choice(spots)
    holder[key] += rng.choice((1, 2, 50))
    return result


def other_reservation(rng: random.Random, calls: Calls, world: World) -> Calls | None:
    """Another reservation of the database."""
    result = copies(calls)
    if not (spots := _spots(result, ("reservation_id",))):
        return None
    holder, key = rng.choice(spots)
    holder[key] = world.reservation_id(rng)
    return result


def other_user(rng: random.Random, calls: Calls, world: World) -> Calls | None:
    """Another user of the database."""
    result = copies(calls)
    if not (spots := _spots(result, ("user_id",))):
        return None
    holder, key = rng.choice(spots)
    holder[key] = world.user_id(rng)
    return result


def unknown_id(rng: random.Random, calls: Calls, world: World) -> Calls | None:
    """An id that does not exist."""
    result = copies(calls)
    names = ("user_id", "payment_id", "reservation_id", "flight_number")
    if not (spots := _spots(result, names)):
        return None
    holder, key = rng.choice(spots)
    holder[key] = {
        "user_id": "nobody_here_0000",
        "payment_id": "credit_card_0000000",
        "reservation_id": "ZZZZZZ",
        "flight_number": "HAT999",
    }[key]
    return result


def other_cabin(rng: random.Random, calls: Calls, world: World) -> Calls | None:
    """Another cabin, or one that there is not."""
    result = copies(calls)
    if not (spots := _spots(result, ("cabin",))):
        return None
    holder, key = rng.choice(spots)
    holder[key] = rng.choice(("business", "economy", "basic_economy", "first"))
    return result


def other_date(rng: random.Random, calls: Calls, world: World) -> Calls | None:
    """A flight a day earlier or later."""
    result = copies(calls)
    if not (spots := _spots(result, ("date",))):
        return None
    holder, key = rng.choice(spots)
    holder[key] = world.neighbour_date(rng, holder[key])
    return result


def bad_argument(rng: random.Random, calls: Calls, world: World) -> Calls | None:
    """An argument that a checked interface has to refuse."""
    result = copies(calls)
    call = rng.choice([call for call in result if call.arguments] or [None])
    if call is None:
        return None
    name = rng.choice(sorted(call.arguments))
    value = call.arguments[name]
    kinds = ["missing", "unknown", "null"]
    if isinstance(value, list) and value:
        kinds += ["empty", "same twice"]
        kinds += ["element unknown field", "element missing field", "element is text"] * (
            isinstance(value[0], dict)
        )
    elif isinstance(value, int):
        kinds += ["negative", "half", "word"]
    elif isinstance(value, str):
        kinds += ["blank"]
    kind = rng.choice(kinds)
    if kind == "missing":
        del call.arguments[name]
    elif kind == "unknown":
        call.arguments["reason"] = "because"
    elif kind == "null":
        call.arguments[name] = None
    elif kind == "empty":
        call.arguments[name] = []
    elif kind == "same twice":
        value.append(dict(value[0]))
    elif kind == "element unknown field":
        value[0]["seat"] = "12A"
    elif kind == "element missing field":
        value[0].pop(sorted(value[0])[0])
    elif kind == "element is text":
        value[0] = "the first"
    elif kind == "negative":
        call.arguments[name] = -1
    elif kind == "half":
        call.arguments[name] = 1.5
    elif kind == "word":
        call.arguments[name] = "two"
    else:
        call.arguments[name] = "  "
    return result


def loose_text(rng: random.Random, calls: Calls, world: World) -> Calls | None:
    """A name, date or choice written as people write it."""
    result = copies(calls)
    names = ("first_name", "last_name", "dob", "date", "cabin", "flight_type", "insurance")
    if not (spots := _spots(result, names)):
        return None
    holder, key = rng.choice(spots)
    value = holder[key]
    if key in ("dob", "date"):
        holder[key] = rng.choice((value.replace("-", "/"), value.replace("-0", "-"), "2024-02-30"))
    elif key in ("cabin", "flight_type"):
        holder[key] = value.replace("_", " ").title()
    elif key == "insurance":
        holder[key] = rng.choice((value.title(), value == "yes"))
    else:
        holder[key] = f" {value} "
    return result


def extra_reads(rng: random.Random, calls: Calls, world: World) -> Calls | None:
    """Look-ups between the calls, which must change nothing."""
    result = copies(calls)
    for _ in range(rng.randrange(1, 4)):
        result.insert(rng.randrange(len(result) + 1), world.read(rng))
    return result


def extra_write(rng: random.Random, calls: Calls, world: World) -> Calls | None:
    """A write that nobody asked for, preferably on the calls' own reservations."""
    result = copies(calls)
    about = [holder["reservation_id"] for holder, _ in _spots(calls, ("reservation_id",))]
    result.append(world.write(rng, about))
    return result


PERTURBATIONS: dict[str, Perturbation] = {
    function.__name__: function
    for function in (
        unchanged,
        drop_action,
        repeat_action,
        reorder,
        letter_case,
        number_type,
        payment_order,
        other_payment,
        other_amount,
        other_reservation,
        other_user,
        unknown_id,
        other_cabin,
        other_date,
        bad_argument,
        loose_text,
        extra_reads,
        extra_write,
    )
}
"""By name, the kind of the sequences that they make."""
