"""What the gold agent says: one to three short sentences a turn, from gold and tool results.

The texts carry the words by which `agents` recognises, later in the conversation, that a question
was asked in full: `ASKED` and `CLOSED`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .catalog import Plan, Step
from .conversation import Called, Conversation
from .speak import cabin, counted, day, dollars, place, series

GREETING = "Hello, thank you for calling the airline. How can I help you today?"
WAIT = "One moment, please."
ASK_AGAIN = "Please say yes if you would like me to go ahead."
ANYTHING_ELSE = "Is there anything else I can help you with?"
GOODBYE = "Thank you for calling. Goodbye."
ASKED = "go ahead"
CLOSED = "anything else"

_TRANSFER_FALLBACK = "I am transferring you to a human agent. Please hold on."
_TRANSFER_RULE = re.compile(r"send the message '([^']+)'")

Records = Mapping[str, Mapping[str, Any]]


def offer(plan: Plan, conversation: Conversation) -> str:
    """Returns what will be done, and asks for a yes."""
    done = series(_phrases(plan.after, _reservations(conversation), past=False))
    return f"Here is what I will do: I will {done}. Shall I go ahead?"


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
    done = series(_phrases(steps, _reservations(conversation), past=True))
    sentences = [f"That is done: I have {done}."]
    if charge := _charge(conversation):
        sentences.append(charge)
    return " ".join([*sentences, *_figures(plan, " ".join(sentences)), ANYTHING_ELSE])


def answer(plan: Plan, conversation: Conversation) -> str:
    """Returns what was found where nothing may be done, and asks whether there is anything else."""
    sentences = [_found(conversation)]
    sentences += _figures(plan, "") or [
        "I am sorry, but under our policy I cannot do what you ask for."
    ]
    return " ".join([*sentences, ANYTHING_ELSE])


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
    groups: dict[tuple[str, str, str], list[str]] = {}
    for name, arguments in steps:
        verb, tail = _phrase(name, arguments, known, past)
        if not verb:
            continue
        reservation = str(arguments.get("reservation_id", ""))
        ids = groups.setdefault((verb, tail, "reservation" if reservation else ""), [])
        if reservation and reservation not in ids:
            ids.append(reservation)
    return [
        " ".join(part for part in (verb, _named(noun, ids), tail) if part)
        for (verb, tail, noun), ids in groups.items()
    ]


def _named(noun: str, ids: Sequence[str]) -> str:
    return f"{noun}{'s' if len(ids) > 1 else ''} {series(ids)}" if noun else ""


def _phrase(name: str, args: Mapping[str, Any], known: Records, past: bool) -> tuple[str, str]:
    """What stands before and after the reservation's id."""
    if name == "cancel_reservation":
        return ("cancelled" if past else "cancel"), ""
    if name == "update_reservation_flights":
        before = known.get(str(args["reservation_id"]), {})
        same = _legs(before.get("flights", ())) == _legs(args["flights"])
        change = ["to " + cabin(args["cabin"])] if before.get("cabin") != args["cabin"] else []
        if not same:
            change.append(_on_flights(args["flights"]))
        return ("changed" if past else "change"), " ".join(change)
    if name == "update_reservation_baggages":
        bags = counted(args["total_baggages"], "checked bag")
        return "set", f"to {bags}"
    if name == "update_reservation_passengers":
        people = series([_person(person) for person in args["passengers"]])
        return ("changed" if past else "change") + " the passengers of", f"to {people}"
    if name == "book_reservation":
        return ("booked" if past else "book"), _booking(args)
    if name == "send_certificate":
        return ("sent" if past else "send"), f"you a certificate of {dollars(args['amount'])}"
    return "", ""


def _booking(args: Mapping[str, Any]) -> str:
    kind = "round trip" if args["flight_type"] == "round_trip" else "one-way trip"
    people = series([_person(person) for person in args["passengers"]])
    total = sum(payment["amount"] for payment in args["payment_methods"])
    return (
        f"a {cabin(args['cabin'])} {kind} from {place(args['origin'])} to "
        f"{place(args['destination'])} {_on_flights(args['flights'])} for {people}, "
        f"{dollars(total)} in total"
    )


def _on_flights(flights: Sequence[Mapping[str, Any]]) -> str:
    by_day: dict[str, list[str]] = {}
    for flight in flights:
        by_day.setdefault(flight["date"], []).append(flight["flight_number"])
    return series([f"on {day(date)} with {series(numbers)}" for date, numbers in by_day.items()])


def _legs(flights: Sequence[Mapping[str, Any]]) -> list[tuple[Any, Any]]:
    return [(flight.get("flight_number"), flight.get("date")) for flight in flights]


def _person(person: Mapping[str, Any]) -> str:
    return f"{person['first_name']} {person['last_name']}"


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


def _found(conversation: Conversation) -> str:
    reservations = list(_reservations(conversation).values())
    if len(reservations) == 1:
        trip = reservations[0]
        insured = "with" if trip.get("insurance") == "yes" else "without"
        return (
            f"I see your {cabin(str(trip.get('cabin')))} reservation from "
            f"{place(str(trip.get('origin')))} to {place(str(trip.get('destination')))}, booked on "
            f"{day(str(trip.get('created_at')))} {insured} travel insurance."
        )
    if reservations:
        return f"I have looked at your {len(reservations)} reservations."
    for _, call in conversation.calls:
        if isinstance(call.result, dict) and call.result.get("membership"):
            return f"I see in your profile that you are a {call.result['membership']} member."
    return "I have looked into this."
