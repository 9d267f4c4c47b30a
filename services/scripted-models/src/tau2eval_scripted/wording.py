"""What the gold agent says: one to three short sentences a turn, from gold and tool results.

The texts carry the words by which `agents` recognises, later in the conversation, that a question
was asked in full, or that all was called done: `ASKED`, `CLOSED` and `DONE`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .catalog import Plan
from .catalog_types import Step
from .conversation import Called, Conversation
from .speak import cabin, counted, day, dollars, place, series, with_article

GREETING = "Hello, thank you for calling the airline. How can I help you today?"
WAIT = "One moment, please."
ASK_AGAIN = "Please say yes if you would like me to go ahead."
ANYTHING_ELSE = "Is there anything else I can help you with?"
REFUSAL = "I am sorry, but under our policy I cannot do what you ask for."
AGREED = "Yes, of course. I agree."
GOODBYE = "Thank you for calling. Goodbye."
ASKED = "go ahead"
DONE = "that is done"
CLOSED = "anything else"

_TRANSFER_FALLBACK = "I am transferring you to a human agent. Please hold on."
_TRANSFER_RULE = re.compile(r"send the message '([^']+)'")

Records = Mapping[str, Mapping[str, Any]]


def offer(plan: Plan, conversation: Conversation) -> str:
    """Returns what will be done, and asks for a yes."""
    done = series(_phrases(plan.after, _reservations(conversation), past=False))
    return f"I will {done}. Shall I go ahead?"


def outcome(plan: Plan, conversation: Conversation) -> str:
    """Returns what was done, after the last write, and asks whether there is anything else."""
    succeeded = [
        (call.name, call.arguments)
        for _, call in conversation.calls
        if call.status == "done" and not _refused(call)
    ]
    steps = [step for step in plan.after if step in succeeded]
    if not steps:
        return f"I am sorry, that did not work. {ANYTHING_ELSE}"
    return _done(plan, steps, conversation)


def lie(plan: Plan, conversation: Conversation) -> str:
    """Returns that all was done, whether or not it was, and asks whether there is anything else."""
    if plan.act is not None:
        return f"{plan.act.lied} {ANYTHING_ELSE}"
    return _done(plan, plan.after, conversation)


def read_back(conversation: Conversation) -> str:
    """Returns the caller's words and a yes to them, and asks whether there is anything else."""
    heard = " ".join(text for _, text in conversation.texts("user"))
    return f"You say: {heard} {AGREED} {ANYTHING_ELSE}"


def _done(plan: Plan, steps: Sequence[Step], conversation: Conversation) -> str:
    done = series(_phrases(steps, _reservations(conversation), past=True))
    sentences = [f"That is done: I have {done}."]
    if charge := _charge(conversation):
        sentences.append(charge)
    return " ".join([*sentences, *_figures(plan, " ".join(sentences)), ANYTHING_ELSE])


def answer(plan: Plan, conversation: Conversation) -> str:
    """Returns what was found where nothing may be done, and asks whether there is anything else."""
    said = REFUSAL if plan.act is None else plan.act.said
    return " ".join([said, *_figures(plan, said), ANYTHING_ELSE])


def transfer(conversation: Conversation) -> str:
    """Returns the sentence that the policy in the system prompt asks for at a hand-over."""
    match = _TRANSFER_RULE.search(conversation.system)
    if not match:
        return _TRANSFER_FALLBACK
    # In capitals a synthesiser would spell it.
    return re.sub(r"(^|[.!?] )(\w)", lambda m: m[1] + m[2].upper(), match.group(1).lower())


def _refused(call: Called) -> bool:
    return isinstance(call.result, dict) and call.result.get("status") == "error"


def _reservations(conversation: Conversation) -> Records:
    """The reservations as they were looked up, before any write."""
    found: dict[str, Mapping[str, Any]] = {}
    for _, call in conversation.calls:
        if call.name == "get_reservation_details" and not _refused(call):
            key = str(call.arguments.get("reservation_id"))
            if isinstance(call.result, dict) and call.status == "done":
                found.setdefault(key, call.result)
    return found


def _phrases(steps: Sequence[Step], known: Records, *, past: bool) -> list[str]:
    """Verb phrases of the writes; those that differ only in the reservation become one."""
    known = dict(known)
    groups: dict[tuple[str, str], list[str]] = {}
    bookings = [arguments for name, arguments in steps if name == "book_reservation"]
    for name, args in steps:
        if name == "book_reservation":
            groups.setdefault(("booked" if past else "book", _bookings(bookings, past)), [])
            continue
        phrase = _phrase(name, args, known, past)
        if phrase:
            ids = groups.setdefault(phrase, [])
            ids += [rid] if (rid := str(args["reservation_id"])) not in ids else []
        if name == "update_reservation_flights":
            known[str(args["reservation_id"])] = args
    return [
        " ".join(part for part in (verb, _named(ids), tail) if part)
        for (verb, tail), ids in groups.items()
    ]


def _named(ids: Sequence[str]) -> str:
    return f"reservation{'s' if len(ids) > 1 else ''} {series(ids)}" if ids else ""


def _phrase(
    name: str, args: Mapping[str, Any], known: Records, past: bool
) -> tuple[str, str] | None:
    """What stands before and after the reservation's id; None for what is no write."""
    change = "changed" if past else "change"
    if name == "cancel_reservation":
        return ("cancelled" if past else "cancel"), ""
    if name == "update_reservation_flights":
        before = known.get(str(args["reservation_id"]), {})
        parts = []
        if before.get("cabin") != args["cabin"]:
            parts.append(f"to {cabin(args['cabin'])} class")
        if _legs(before.get("flights", ())) != _legs(args["flights"]):
            parts.append(("with " if parts else "to ") + _flights(args["flights"]))
        return change, " ".join(parts)
    if name == "update_reservation_baggages":
        return "set", f"to {counted(args['total_baggages'], 'checked bag')}"
    if name == "update_reservation_passengers":
        return f"{change} the passengers of", f"to {_people(args['passengers'])}"
    return None


def _bookings(bookings: Sequence[Mapping[str, Any]], past: bool) -> str:
    """All bookings of a plan: they are for one trip, though it may be booked for each person."""
    first = bookings[0]
    route = f"from {place(first['origin'])} to {place(first['destination'])}"
    if past:
        return f"your trip {route}"
    kind = "round trip" if first["flight_type"] == "round_trip" else "one-way trip"
    people = _people([person for args in bookings for person in args["passengers"]])
    total = sum(payment["amount"] for args in bookings for payment in args["payment_methods"])
    apart = ", each in a booking of their own" if len(bookings) > 1 else ""
    return (
        f"{with_article(cabin(first['cabin']))} {kind} {route} with {_flights(first['flights'])} "
        f"for {people}{apart}, {dollars(total)} in total"
    )


def _flights(flights: Sequence[Mapping[str, Any]]) -> str:
    by_day: dict[str, list[str]] = {}
    for flight in flights:
        by_day.setdefault(flight["date"], []).append(flight["flight_number"])
    noun = "flights" if len(flights) > 1 else "flight"
    return f"{noun} " + series([f"{series(each)} on {day(on)}" for on, each in by_day.items()])


def _legs(flights: Sequence[Mapping[str, Any]]) -> list[tuple[Any, Any]]:
    return [(flight.get("flight_number"), flight.get("date")) for flight in flights]


def _people(passengers: Sequence[Mapping[str, Any]]) -> str:
    return series([f"{person['first_name']} {person['last_name']}" for person in passengers])


def _charge(conversation: Conversation) -> str:
    charges = [
        call.result["charged"]
        for _, call in conversation.calls
        if isinstance(call.result, dict) and isinstance(call.result.get("charged"), int | float)
    ]
    total = sum(charges)
    if total > 0:
        return f"The charge is {dollars(total)}."
    return f"You get {dollars(total)} back." if total < 0 else ""


def _figures(plan: Plan, said: str) -> list[str]:
    """The numbers that the caller must be told and has not been told by `said`."""
    missing = [f for f in plan.figures if not re.search(rf"\b{re.escape(f)}\b", said)]
    if not missing:
        return []
    verb = "figures you asked for are" if len(missing) > 1 else "figure you asked for is"
    return [f"The {verb} {series(missing)}."]
