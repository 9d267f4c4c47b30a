"""Calls that are built from real records, so that most of them succeed.

A `World` follows a database: it looks at the overlay as it is and proposes the next call. Only ids,
dates and numbers of the installed fixture are used, and none is written to a file.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Mapping, Sequence
from typing import Any

from tau2eval_airline import OverlayDatabase, load_seed

from .sequences import Call

_NAMES = ("Ada", "Ben", "Chloe", "Dan", "Eve", "Finn")
_SURNAMES = ("Archer", "Brook", "Carver", "Dale", "Ewing")
_CABINS = ("business", "economy", "basic_economy")


class World:
    """Proposes calls over one database.

    Args:
        db: The database, which other code changes between proposals; a fresh one by default.
    """

    def __init__(self, db: OverlayDatabase | None = None) -> None:
        self.db = db or OverlayDatabase(load_seed())
        seed = self.db.seed
        self._users = sorted(seed.records("users"))
        self._reservations = sorted(seed.records("reservations"))
        self._flights = sorted(seed.records("flights"))
        self._airports = sorted({flight["origin"] for flight in seed.records("flights").values()})

    # Parts ---------------------------------------------------------------------------------

    def user_id(self, rng: random.Random) -> str:
        """Returns some user's id."""
        return rng.choice(self._users)

    def reservation_id(self, rng: random.Random) -> str:
        """Returns some reservation's id."""
        return rng.choice(self._reservations)

    def payment_id(self, rng: random.Random) -> str:
        """Returns the id of some user's payment method."""
        while True:
            methods = self._user(self.user_id(rng))["payment_methods"]
            if methods:
                return rng.choice(sorted(methods))

    def neighbour_date(self, rng: random.Random, date: str) -> str:
        """Returns the day before or after; a text that is no date as it is."""
        try:
            day = datetime.date.fromisoformat(date)
        except ValueError:
            return date
        return (day + datetime.timedelta(days=rng.choice((-1, 1)))).isoformat()

    def free_flights(
        self, rng: random.Random, cabin: str, seats: int, count: int
    ) -> list[tuple[str, str, int]]:
        """Returns (flight number, date, price) of bookable flights, each another one."""
        found: dict[str, tuple[str, str, int]] = {}
        for _ in range(200):
            if len(found) == count:
                break
            number = rng.choice(self._flights)
            dates = self._record("flights", number)["dates"]
            free = [
                date
                for date, state in sorted(dates.items())
                if state["status"] == "available" and state["available_seats"][cabin] >= seats
            ]
            if free:
                date = rng.choice(free)
                found[number] = (number, date, dates[date]["prices"][cabin])
        return list(found.values())

    def passengers(self, rng: random.Random, count: int) -> list[dict[str, str]]:
        """Returns made-up passengers."""
        return [
            {
                "first_name": rng.choice(_NAMES),
                "last_name": rng.choice(_SURNAMES),
                "dob": self._day(rng),
            }
            for _ in range(count)
        ]

    def _day(self, rng: random.Random) -> str:
        year, month, day = rng.randrange(1940, 2020), rng.randrange(1, 13), rng.randrange(1, 29)
        return f"{year}-{month:02}-{day:02}"

    # Calls ---------------------------------------------------------------------------------

    def read(self, rng: random.Random) -> Call:
        """Proposes a call that changes nothing; each of the eight such tools gets its turn."""
        kind = rng.randrange(8)
        number = rng.choice(self._flights)
        flight = self._record("flights", number)
        date = rng.choice(sorted(flight["dates"]))
        if kind == 0:
            return Call("get_user_details", {"user_id": self.user_id(rng)})
        if kind == 1:
            return Call("get_reservation_details", {"reservation_id": self.reservation_id(rng)})
        if kind == 2:
            return Call("list_all_airports", {})
        if kind == 3:
            return Call("get_flight_status", {"flight_number": number, "date": date})
        if kind == 4:
            return Call("calculate", {"expression": self._expression(rng)})
        if kind == 5:
            return Call("transfer_to_human_agents", {"summary": "The caller asks for a person."})
        tool = "search_direct_flight" if kind == 6 else "search_onestop_flight"
        destination = flight["destination"] if kind == 6 else rng.choice(self._airports)
        where = {"origin": flight["origin"], "destination": destination}
        return Call(tool, {**where, "date": date})

    def write(self, rng: random.Random, about: Sequence[str] = ()) -> Call:
        """Proposes a write that is likely to succeed.

        Args:
            rng: The source of chance.
            about: Reservations to prefer.
        """
        makers = (self.book, self.book, self.cancel, self.bags, self.flights, self.cabin)
        makers += (self.rename, self.certificate)
        known = [key for key in about if self.db.view("reservations", key) is not None]
        for _ in range(50):
            key = rng.choice(known) if known and rng.random() < 0.7 else self.reservation_id(rng)
            make = rng.choice(makers)
            call = make(rng, key)
            if call is not None:
                return call
        return Call("send_certificate", {"user_id": self.user_id(rng), "amount": 100})

    def book(self, rng: random.Random, key: str) -> Call | None:
        """Proposes a booking by the owner of a reservation, paid to the dollar."""
        user_id = self._record("reservations", key)["user_id"]
        cabin, count = rng.choice(_CABINS), rng.randrange(1, 4)
        flights = self.free_flights(rng, cabin, count, rng.randrange(1, 4))
        insurance, nonfree = rng.choice(("yes", "no")), rng.choice((0, 0, 1, 2))
        price = sum(price for _, _, price in flights) * count + 50 * nonfree
        price += 30 * count if insurance == "yes" else 0
        payments = self._payments(rng, user_id, price)
        if not flights or payments is None:
            return None
        first, last = (self._record("flights", flights[at][0]) for at in (0, -1))
        return Call(
            "book_reservation",
            {
                "user_id": user_id,
                "origin": first["origin"],
                "destination": last["destination"],
                "flight_type": rng.choice(("one_way", "round_trip")),
                "cabin": cabin,
                "flights": [{"flight_number": number, "date": date} for number, date, _ in flights],
                "passengers": self.passengers(rng, count),
                "payment_methods": payments,
                "total_baggages": nonfree + rng.randrange(3),
                "nonfree_baggages": nonfree,
                "insurance": insurance,
            },
        )

    def cancel(self, rng: random.Random, key: str) -> Call | None:
        """Proposes to cancel; seldom what is cancelled already."""
        if self._record("reservations", key).get("status") == "cancelled" and rng.random() < 0.9:
            return None
        return Call("cancel_reservation", {"reservation_id": key})

    def bags(self, rng: random.Random, key: str) -> Call | None:
        """Proposes other bags, more or fewer."""
        record = self._open(rng, key)
        payment_id = self._change_payment(rng, key)
        if record is None or payment_id is None:
            return None
        return Call(
            "update_reservation_baggages",
            {
                "reservation_id": key,
                "total_baggages": max(0, record["total_baggages"] + rng.randrange(-1, 4)),
                "nonfree_baggages": max(0, record["nonfree_baggages"] + rng.randrange(-1, 3)),
                "payment_id": payment_id,
            },
        )

    def flights(self, rng: random.Random, key: str) -> Call | None:
        """Proposes other flights, some of the old ones among them."""
        record = self._open(rng, key)
        payment_id = self._change_payment(rng, key)
        if record is None or payment_id is None:
            return None
        kept = [
            {"flight_number": flight["flight_number"], "date": flight["date"]}
            for flight in record["flights"]
            if rng.random() < 0.5
        ]
        new = self.free_flights(rng, record["cabin"], len(record["passengers"]), 2)
        fresh = [{"flight_number": number, "date": date} for number, date, _ in new]
        chosen = kept + fresh[: rng.randrange(0 if kept else 1, 3)]
        return Call(
            "update_reservation_flights",
            {
                "reservation_id": key,
                "cabin": record["cabin"],
                "flights": chosen,
                "payment_id": payment_id,
            },
        )

    def cabin(self, rng: random.Random, key: str) -> Call | None:
        """Proposes another cabin on the same flights, or on bookable ones."""
        record = self._open(rng, key)
        payment_id = self._change_payment(rng, key)
        if record is None or payment_id is None:
            return None
        cabin = rng.choice([name for name in _CABINS if name != record["cabin"]])
        same = [
            {"flight_number": flight["flight_number"], "date": flight["date"]}
            for flight in record["flights"]
        ]
        if rng.random() < 0.5:
            new = self.free_flights(rng, cabin, len(record["passengers"]), len(same))
            same = [{"flight_number": number, "date": date} for number, date, _ in new] or same
        return Call(
            "update_reservation_flights",
            {"reservation_id": key, "cabin": cabin, "flights": same, "payment_id": payment_id},
        )

    def rename(self, rng: random.Random, key: str) -> Call | None:
        """Proposes other passengers; seldom one too many."""
        record = self._open(rng, key)
        if record is None:
            return None
        count = len(record["passengers"]) + (rng.random() < 0.1)
        return Call(
            "update_reservation_passengers",
            {"reservation_id": key, "passengers": self.passengers(rng, count)},
        )

    def certificate(self, rng: random.Random, key: str) -> Call | None:
        """Proposes a certificate for the owner of a reservation."""
        owner = self._record("reservations", key)["user_id"]
        return Call("send_certificate", {"user_id": owner, "amount": rng.randrange(10, 500)})

    def quirk(self, rng: random.Random, about: Sequence[str]) -> Call | None:
        """Proposes what the toolkit takes and ours refuses or stores otherwise."""
        key = rng.choice(list(about))
        booking, change = self.book(rng, key), self.cabin(rng, key)
        bags, owner = self.bags(rng, key), self._record("reservations", key)["user_id"]
        if booking is None or change is None or bags is None:
            return None
        book, flights = booking.arguments, change.arguments
        payment, leg = book["payment_methods"][0], book["flights"][0]
        paid = payment["amount"]
        halves = [{**payment, "amount": paid - paid // 2}, {**payment, "amount": paid // 2}]
        fare = self._record("flights", leg["flight_number"])["dates"][leg["date"]]["prices"]
        people, legs = len(book["passengers"]), book["flights"]
        nothing: dict[str, Any] = {name: [] for name in ("flights", "passengers")}
        nothing |= {"payment_methods": [], "nonfree_baggages": 0}
        texts = ["Ada Archer"] * len(self._record("reservations", key)["passengers"])
        back = {**payment, "amount": paid + fare[book["cabin"]] * people}
        return rng.choice(
            (
                Call(change.tool, {**flights, "flights": []}),
                Call(change.tool, {**flights, "flights": [], "cabin": "BUSINESS"}),
                Call(bags.tool, {**bags.arguments, "total_baggages": -1}),
                Call(bags.tool, {**bags.arguments, "total_baggages": "3"}),
                Call(bags.tool, {**bags.arguments, "total_baggages": None}),
                Call("send_certificate", {"user_id": owner, "amount": rng.choice((0, -50, "80"))}),
                Call(booking.tool, {**book, "destination": "XYZ"}),
                Call(booking.tool, {**book, "origin": book["origin"].lower()}),
                Call(
                    booking.tool,
                    {**book, "payment_methods": [*halves, *book["payment_methods"][1:]]},
                ),
                Call(
                    booking.tool,
                    {
                        **book,
                        "flights": [*book["flights"], leg],
                        "payment_methods": [back, *book["payment_methods"][1:]],
                    },
                ),
                Call(booking.tool, {**book, **nothing}),
                Call(booking.tool, {**book, "flights": [{**leg, "seat": "1A"} for leg in legs]}),
                Call("update_reservation_passengers", {"reservation_id": key, "passengers": texts}),
            )
        )

    # Helpers -------------------------------------------------------------------------------

    def _record(self, table: str, key: str) -> Mapping[str, Any]:
        record = self.db.view(table, key)
        assert record is not None, (table, key)
        return record

    def _user(self, user_id: str) -> Mapping[str, Any]:
        return self._record("users", user_id)

    def _open(self, rng: random.Random, key: str) -> Mapping[str, Any] | None:
        record = self._record("reservations", key)
        return None if record.get("status") == "cancelled" and rng.random() < 0.9 else record

    def _change_payment(self, rng: random.Random, key: str) -> str | None:
        """Returns a method that can pay for a change; seldom a certificate, which cannot."""
        methods = self._user(self._record("reservations", key)["user_id"])["payment_methods"]
        able = sorted(
            method_id
            for method_id, method in methods.items()
            if method["source"] != "certificate" or rng.random() < 0.1
        )
        return rng.choice(able) if able else None

    def _payments(
        self, rng: random.Random, user_id: str, price: int
    ) -> list[dict[str, Any]] | None:
        """Splits a price over what a user has: some balances first, the rest by card."""
        methods = self._user(user_id)["payment_methods"]
        payments: list[dict[str, Any]] = []
        rest = price
        for method_id, method in sorted(methods.items()):
            balance = int(method.get("amount") or 0)
            if method["source"] != "credit_card" and balance > 0 and rng.random() < 0.5:
                part = min(balance, rest)
                if part > 0:
                    payments.append({"payment_id": method_id, "amount": part})
                    rest -= part
        cards = sorted(key for key, method in methods.items() if method["source"] == "credit_card")
        if rest and cards:
            payments.append({"payment_id": rng.choice(cards), "amount": rest})
            rest = 0
        rng.shuffle(payments)
        return payments if payments and not rest else None

    def _expression(self, rng: random.Random) -> str:
        left, right, more = (rng.randrange(1, 500) for _ in range(3))
        return rng.choice(
            (
                f"{left} + {right} * {more}",
                f"({left} - {right}) / {more}",
                f"{left} * ({right} + 30) - {more}",
                f"{left}.5 * 2",
                f"{left} / 0",
                f"{left} +",
                f"{left} dollars",
                f"{left} // {more} + {right % 9}**2",
            )
        )
