"""Facts that are read from the checked fixtures and compared with what the audit says of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from tau2eval_airline import (
    TAU2_AIRLINE_TOOL_NAME_TO_CLASS,
    Record,
    load_fixtures,
    load_seed,
    source_from_env,
)
from tau2eval_airline.tools.writes import NOW

Table = Mapping[str, Record]


@dataclass(frozen=True)
class Data:
    """The fixtures that the facts are read from.

    Attributes:
        policy: The text of policy.md.
        tasks: Task id to the task of tasks.json.
        reservations: Reservation id to record.
        users: User id to record.
        flights: Flight number to record.
    """

    policy: str
    tasks: Mapping[str, Mapping[str, Any]]
    reservations: Table
    users: Table
    flights: Table

    @classmethod
    def load(cls) -> Data:
        """Loads the fixtures of the environment.

        Raises:
            FixtureError: If a file is missing or is not the pinned one.
        """
        source = source_from_env()
        fixtures, db = load_fixtures(source), load_seed(source)
        return cls(
            fixtures.policy,
            fixtures.tasks,
            db.records("reservations"),
            db.records("users"),
            db.records("flights"),
        )

    def legs(self, reservation_id: str) -> list[tuple[str, str, str]]:
        """Returns flight number, date and status of a reservation's flights."""
        return [
            (leg["flight_number"], leg["date"], self.status(leg["flight_number"], leg["date"]))
            for leg in self.reservations[reservation_id]["flights"]
        ]

    def status(self, number: str, date: str) -> str:
        """Returns the status of a flight on a date."""
        return str(self.flights[number]["dates"][date]["status"])


@dataclass(frozen=True)
class Fact:
    """Values of one subject.

    Attributes:
        about: The subject as the table shows it; ids in an assertion must occur in one.
        expected: Name to the value that the audit claims.
        read: Reads the same names from the fixtures.
    """

    about: str
    expected: Mapping[str, Any]
    read: Callable[[Data], Mapping[str, Any]]

    def problems(self, data: Data) -> list[str]:
        """Returns what differs from the fixtures; nothing when the fact holds."""
        try:
            actual = self.read(data)
        except (KeyError, ValueError) as error:
            return [f"{self.about}: {type(error).__name__} {error}"]
        return [
            f"{self.about}: {name} is {actual.get(name)!r}, not {value!r}"
            for name, value in self.expected.items()
            if actual.get(name) != value or type(actual.get(name)) is not type(value)
        ]

    def shown(self) -> str:
        """Returns the fact as the table shows it."""
        values = ", ".join(f"{name} {_shown(value)}" for name, value in self.expected.items())
        return f"{self.about}: {values}"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(value)
    return str(value)


def _reservation_values(data: Data, reservation_id: str) -> dict[str, Any]:
    record = data.reservations[reservation_id]
    legs = data.legs(reservation_id)
    statuses = [status for _, _, status in legs]
    return {
        "user": record["user_id"],
        "cabin": record["cabin"],
        "insurance": record["insurance"],
        "trip": f"{record['origin']}-{record['destination']}",
        "passengers": len(record["passengers"]),
        "created": record["created_at"],
        "hours old": _hours_old(record),
        "flown": sum(status in ("landed", "flying") for status in statuses),
        "to come": sum(status in ("available", "on time", "delayed") for status in statuses),
        "cancelled": sum(status == "cancelled" for status in statuses),
        "delayed": ", ".join(f"{n} on {d}" for n, d, status in legs if status == "delayed"),
        "flights": ", ".join(f"{n} on {d}" for n, d, _ in legs),
        "paid": sum(leg["price"] for leg in record["flights"]) * len(record["passengers"]),
    }


def _hours_old(record: Record) -> int:
    age = datetime.fromisoformat(NOW) - datetime.fromisoformat(record["created_at"])
    return int(age // timedelta(hours=1))


def reservation(reservation_id: str, **expected: Any) -> Fact:
    """A reservation's values; an underscore in a name stands for a space."""
    return Fact(
        reservation_id,
        {name.replace("_", " "): value for name, value in expected.items()},
        lambda data: _reservation_values(data, reservation_id),
    )


def all_reservations(user_id: str, **expected: Any) -> Fact:
    """Counts over a user's reservations: how many there are, and how many of some kind."""

    def read(data: Data) -> dict[str, Any]:
        ids = data.users[user_id]["reservations"]
        values = {rid: _reservation_values(data, rid) for rid in ids}
        single = sorted(rid for rid, value in values.items() if value["passengers"] == 1)
        return {
            "reservations": len(ids),
            "in business": sum(value["cabin"] == "business" for value in values.values()),
            "with a cancelled flight": sum(value["cancelled"] > 0 for value in values.values()),
            "with one passenger": ", ".join(single),
            "last": max(ids, key=lambda rid: str(values[rid]["created"])),
            "with a delayed flight": ", ".join(rid for rid in ids if values[rid]["delayed"]),
            "on May 17": ", ".join(rid for rid in ids if "2024-05-17" in values[rid]["flights"]),
            "from JFK": ", ".join(rid for rid in ids if values[rid]["trip"].startswith("JFK")),
        }

    return Fact(
        f"reservations of {user_id}",
        {name.replace("_", " "): value for name, value in expected.items()},
        read,
    )


def user(user_id: str, membership: str) -> Fact:
    """A user's membership level."""
    return Fact(
        user_id,
        {"membership": membership},
        lambda data: {"membership": data.users[user_id]["membership"]},
    )


def flight(number: str, date: str, status: str) -> Fact:
    """A flight's status on a date."""
    return Fact(
        f"{number} on {date}",
        {"status": status},
        lambda data: {"status": data.status(number, date)},
    )


def no_cause(number: str, date: str) -> Fact:
    """A flight's record of a date holds its times and status, and no cause of anything."""
    return Fact(
        f"{number} on {date}",
        {"cause": False},
        lambda data: {
            "cause": any(
                re.search("reason|cause|why", name) for name in data.flights[number]["dates"][date]
            )
        },
    )


def direct(origin: str, destination: str, flights: int) -> Fact:
    """How many flights go nonstop between two airports, whatever the date."""
    return Fact(
        f"nonstop {origin}-{destination}",
        {"flights": flights},
        lambda data: {
            "flights": sum(
                (record["origin"], record["destination"]) == (origin, destination)
                for record in data.flights.values()
            )
        },
    )


def gold(task: str, action: str, **arguments: str) -> Fact:
    """The gold list holds an action with at least these arguments."""

    def read(data: Data) -> dict[str, Any]:
        actions = data.tasks[task]["evaluation_criteria"]["actions"] or []
        for found in actions:
            if found["name"] == action and arguments.items() <= found["arguments"].items():
                return {"has": action, **{name: found["arguments"][name] for name in arguments}}
        return {}

    return Fact("gold", {"has": action, **arguments}, read)


def script(task: str, *phrases: str) -> Fact:
    """The caller's script holds these few words."""

    def read(data: Data) -> dict[str, Any]:
        parts = data.tasks[task]["user_scenario"]["instructions"].values()
        text = " ".join(" ".join(str(part) for part in parts).lower().split())
        return {"says": tuple(phrase for phrase in phrases if phrase in text)}

    return Fact("script", {"says": phrases}, read)


def parameter(name: str, *tools: str) -> Fact:
    """Only these tools take the parameter: no other can act on it."""

    def read(_: Data) -> dict[str, Any]:
        made = {cls: tool({}) for cls, tool in TAU2_AIRLINE_TOOL_NAME_TO_CLASS.items()}
        return {"taken by": tuple(sorted(c for c, t in made.items() if name in t.properties))}

    return Fact(f"parameter {name}", {"taken by": tools}, read)


def free_bags(reservation_id: str, total: int) -> Fact:
    """The free checked bags of a reservation, by the allowances in policy.md."""

    def read(data: Data) -> dict[str, Any]:
        record = data.reservations[reservation_id]
        level = data.users[record["user_id"]]["membership"]
        block = data.policy.split(f"booking user is a {level} member:")[1]
        cabin = str(record["cabin"]).replace("_", " ")
        found = re.search(rf"(\d) free checked bags? for each {cabin} passenger", block)
        if found is None:
            raise ValueError(f"policy.md has no allowance for {level}, {cabin}")
        return {"free checked bags": int(found[1]) * len(record["passengers"])}

    return Fact(reservation_id, {"free checked bags": total}, read)


def business_extra(reservation_id: str, legs: tuple[tuple[str, str], ...], dollars: int) -> Fact:
    """What a reservation costs more, in dollars, with these flights and all of it in business."""

    def read(data: Data) -> dict[str, Any]:
        record = data.reservations[reservation_id]
        new = sum(data.flights[n]["dates"][d]["prices"]["business"] for n, d in legs)
        old = sum(leg["price"] for leg in record["flights"])
        return {"extra dollars": (new - old) * len(record["passengers"])}

    shown = " ".join(f"{number}/{date[5:]}" for number, date in legs)
    return Fact(f"{reservation_id} in business, {shown}", {"extra dollars": dollars}, read)


def cheapest_business(reservation_id: str, dates: Mapping[str, int], dollars: int) -> Fact:
    """The least that a round trip costs more in business, with any flights of some dates.

    Args:
        reservation_id: The round trip, with one stop or none each way.
        dates: The first dates of May 2024 (out, back) to how many days from it on are tried.
        dollars: The claim.
    """

    def read(data: Data) -> dict[str, Any]:
        record = data.reservations[reservation_id]
        ends = (record["origin"], record["destination"])
        seats = len(record["passengers"])
        total = 0
        for (start, days), (origin, end) in zip(dates.items(), (ends, ends[::-1]), strict=True):
            first = datetime.fromisoformat(start)
            total += min(
                price
                for day in range(days)
                for price in _business_fares(data, origin, end, first + timedelta(days=day), seats)
            )
        old = sum(leg["price"] for leg in record["flights"])
        return {"extra dollars": (total - old) * seats}

    shown = ", ".join(f"{start} + {days - 1} days" for start, days in dates.items())
    return Fact(
        f"{reservation_id} in business, cheapest of {shown}", {"extra dollars": dollars}, read
    )


def _business_fares(
    data: Data, origin: str, destination: str, day: datetime, seats: int
) -> Iterator[int]:
    """Yields the fares with one stop at most; a second flight goes the same day or the next."""

    def fares(number: str, date: datetime) -> Iterator[int]:
        found = data.flights[number]["dates"].get(f"{date:%Y-%m-%d}", {})
        if found.get("status") == "available" and found["available_seats"]["business"] >= seats:
            yield int(found["prices"]["business"])

    for number, first in data.flights.items():
        if first["origin"] != origin:
            continue
        for fare in fares(number, day):
            if first["destination"] == destination:
                yield fare
            for other, second in data.flights.items():
                if (second["origin"], second["destination"]) == (
                    first["destination"],
                    destination,
                ):
                    for date in (day, day + timedelta(days=1)):
                        yield from (fare + more for more in fares(other, date))


__all__ = [
    "Data",
    "Fact",
    "all_reservations",
    "business_extra",
    "cheapest_business",
    "direct",
    "flight",
    "free_bags",
    "gold",
    "no_cause",
    "parameter",
    "reservation",
    "script",
    "user",
]
