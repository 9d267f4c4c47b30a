"""The six airline tools that change the database.

Amounts are whole US dollars. A refused call changes nothing. Where a rule is stricter than
upstream's, README.md lists it under "Differences from upstream".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tau2eval_airline.database import Record, clone

from .base import Properties, _Tau2WriteTool, objects, text, whole
from .reads import DESTINATION, ORIGIN, RESERVATION_ID, USER_ID, check_airports
from .values import ToolError

NOW = "2024-05-15T15:00:00"
"""The frozen clock of the domain (Eastern time, as in the policy)."""

NEW_RESERVATION_IDS = ("HATHAT", "HATHAU", "HATHAV")
"""Ids of new reservations, given out in this order; a fourth booking is refused."""

NEW_CERTIFICATE_IDS = ("certificate_3221322", "certificate_3221323", "certificate_3221324")
"""Ids of new certificates, by user; a fourth one held by the same user is refused."""

BAG_PRICE = 50
"""Dollars for one bag beyond the free ones."""

INSURANCE_PRICE = 30
"""Dollars of travel insurance for one passenger."""

CABINS = ("business", "economy", "basic_economy")
FLIGHT_TYPES = ("round_trip", "one_way")

CABIN = text("The cabin, the same for all flights and passengers.", CABINS)
PAYMENT_ID = text("Id of a payment method of the profile, such as 'credit_card_4421486'.")
TOTAL_BAGS = whole("How many bags in all.", 0)
NONFREE_BAGS = whole("How many of these bags have to be paid for.", 0)
FLIGHTS = objects(
    "Every flight of the trip, in order, also those that stay as they are.",
    {
        "flight_number": text("The flight number, such as 'HAT001'."),
        "date": text("The departure date, YYYY-MM-DD."),
    },
)
PASSENGERS = objects(
    "Every passenger.",
    {
        "first_name": text("First name."),
        "last_name": text("Last name."),
        "dob": text("Date of birth, YYYY-MM-DD."),
    },
)
PAYMENTS = objects(
    "How the total price is split over payment methods of the profile, each named once.",
    {"payment_id": PAYMENT_ID, "amount": whole("Dollars taken from this method.", 1)},
)


class BookReservationTool(_Tau2WriteTool):
    """Books a trip and takes the payment."""

    DESCRIPTION = (
        "Book a trip. The payments must add up to the total price: the fares of all flights for "
        "all passengers, 30 dollars a passenger with insurance, 50 dollars a bag to be paid for."
    )

    @property
    def properties(self) -> Properties:
        """See Tool."""
        return {
            "user_id": USER_ID,
            "origin": ORIGIN,
            "destination": DESTINATION,
            "flight_type": text("Whether the trip comes back.", FLIGHT_TYPES),
            "cabin": CABIN,
            "flights": FLIGHTS,
            "passengers": PASSENGERS,
            "payment_methods": PAYMENTS,
            "total_baggages": TOTAL_BAGS,
            "nonfree_baggages": NONFREE_BAGS,
            "insurance": text("Whether to add travel insurance.", ("yes", "no")),
        }

    @property
    def required_properties(self) -> list[str]:
        """See Tool."""
        return list(self.properties)

    def _do_work(self, p: dict[str, Any]) -> dict[str, Any]:
        check_airports(p["origin"], p["destination"])
        user: Record = clone(self.get_user(p["user_id"]))
        reservation_id = self._new_reservation_id()
        count = len(p["passengers"])
        legs = _legs(self, p["flights"], p["cabin"], count, kept=())
        price = _fares(legs, count) + BAG_PRICE * p["nonfree_baggages"]
        if p["insurance"] == "yes":
            price += INSURANCE_PRICE * count
        _take_payments(user, p["payment_methods"], price)
        flights: dict[str, Record] = {}
        for leg in legs:
            number = leg.number
            flight = flights.setdefault(number, clone(self.get_flight(number)))
            flight["dates"][leg.date]["available_seats"][p["cabin"]] -= count
        user["reservations"].append(reservation_id)
        reservation = {
            "reservation_id": reservation_id,
            "user_id": p["user_id"],
            "origin": p["origin"],
            "destination": p["destination"],
            "flight_type": p["flight_type"],
            "cabin": p["cabin"],
            "flights": [leg.record() for leg in legs],
            "passengers": p["passengers"],
            "payment_history": p["payment_methods"],
            "created_at": NOW,
            "total_baggages": p["total_baggages"],
            "nonfree_baggages": p["nonfree_baggages"],
            "insurance": p["insurance"],
        }
        for number, flight in flights.items():
            self.db.put("flights", number, flight)
        self.db.put("users", p["user_id"], user)
        self.db.put(
            "reservations", reservation_id, reservation, payment_operation=len(p["payment_methods"])
        )
        result = self._record_action(p, {"reservation_id": reservation_id})
        return {**result, "reservation": clone(reservation)}

    def _new_reservation_id(self) -> str:
        for reservation_id in NEW_RESERVATION_IDS:
            if self.db.view("reservations", reservation_id) is None:
                return reservation_id
        raise ToolError("value_error", "no more than three trips can be booked in one call")


class CancelReservationTool(_Tau2WriteTool):
    """Cancels a reservation and books the refunds. Seats are not given back, as upstream."""

    DESCRIPTION = (
        "Cancel a whole reservation and refund every payment to where it came from. Checks no "
        "policy: make sure first that the reservation may be cancelled."
    )

    @property
    def properties(self) -> Properties:
        """See Tool."""
        return {"reservation_id": RESERVATION_ID}

    @property
    def required_properties(self) -> list[str]:
        """See Tool."""
        return ["reservation_id"]

    def _do_work(self, p: dict[str, Any]) -> dict[str, Any]:
        reservation = _active(self, p["reservation_id"])
        refunds = [
            {"payment_id": payment["payment_id"], "amount": -payment["amount"]}
            for payment in reservation["payment_history"]
        ]
        reservation["payment_history"].extend(refunds)
        reservation["status"] = "cancelled"
        self.db.put(
            "reservations", p["reservation_id"], reservation, payment_operation=len(refunds)
        )
        result = self._record_action(
            p, {"reservation_id": p["reservation_id"], "status": "cancelled"}
        )
        return {**result, "reservation": reservation}


class SendCertificateTool(_Tau2WriteTool):
    """Gives a user a travel certificate."""

    DESCRIPTION = (
        "Give a caller a travel certificate as compensation. It cannot be taken back: make sure "
        "first that the policy grants this amount."
    )

    @property
    def properties(self) -> Properties:
        """See Tool."""
        return {"user_id": USER_ID, "amount": whole("The certificate's value in dollars.", 1)}

    @property
    def required_properties(self) -> list[str]:
        """See Tool."""
        return ["user_id", "amount"]

    def _do_work(self, p: dict[str, Any]) -> dict[str, Any]:
        user: Record = clone(self.get_user(p["user_id"]))
        methods: Record = user["payment_methods"]
        payment_id = next((new for new in NEW_CERTIFICATE_IDS if new not in methods), None)
        if payment_id is None:
            raise ToolError("value_error", "a user cannot get more than three certificates")
        methods[payment_id] = {"source": "certificate", "id": payment_id, "amount": p["amount"]}
        self.db.put("users", p["user_id"], user)
        return self._record_action(p, {"payment_id": payment_id, "amount": p["amount"]})


class UpdateReservationBaggagesTool(_Tau2WriteTool):
    """Changes the bags of a reservation and charges for further ones."""

    DESCRIPTION = (
        "Set how many bags a reservation has. Each bag to be paid for beyond those already paid "
        "costs 50 dollars; bags taken off give no refund."
    )

    @property
    def properties(self) -> Properties:
        """See Tool."""
        return {
            "reservation_id": RESERVATION_ID,
            "total_baggages": TOTAL_BAGS,
            "nonfree_baggages": NONFREE_BAGS,
            "payment_id": PAYMENT_ID,
        }

    @property
    def required_properties(self) -> list[str]:
        """See Tool."""
        return list(self.properties)

    def _do_work(self, p: dict[str, Any]) -> dict[str, Any]:
        reservation = _active(self, p["reservation_id"])
        charged = BAG_PRICE * max(0, p["nonfree_baggages"] - reservation["nonfree_baggages"])
        reservation["total_baggages"] = p["total_baggages"]
        reservation["nonfree_baggages"] = p["nonfree_baggages"]
        return _charge_and_store(self, p, reservation, charged)


class UpdateReservationFlightsTool(_Tau2WriteTool):
    """Changes the flights or the cabin of a reservation. Seats are not counted, as upstream."""

    DESCRIPTION = (
        "Change the flights or the cabin of a reservation. Give every flight of the changed "
        "trip. The difference to the fares paid so far is charged, or refunded if negative."
    )

    @property
    def properties(self) -> Properties:
        """See Tool."""
        return {
            "reservation_id": RESERVATION_ID,
            "cabin": CABIN,
            "flights": FLIGHTS,
            "payment_id": PAYMENT_ID,
        }

    @property
    def required_properties(self) -> list[str]:
        """See Tool."""
        return list(self.properties)

    def _do_work(self, p: dict[str, Any]) -> dict[str, Any]:
        reservation = _active(self, p["reservation_id"])
        count = len(reservation["passengers"])
        # A flight that stays keeps the price paid for it, unless the cabin changes.
        kept = reservation["flights"] if p["cabin"] == reservation["cabin"] else ()
        legs = _legs(self, p["flights"], p["cabin"], count, kept)
        paid = sum(flight["price"] for flight in reservation["flights"]) * count
        reservation["flights"] = [leg.record() for leg in legs]
        reservation["cabin"] = p["cabin"]
        return _charge_and_store(self, p, reservation, _fares(legs, count) - paid)


class UpdateReservationPassengersTool(_Tau2WriteTool):
    """Changes who travels; the number of passengers stays."""

    DESCRIPTION = (
        "Replace the passengers of a reservation. Give every passenger; their number must stay "
        "the same."
    )

    @property
    def properties(self) -> Properties:
        """See Tool."""
        return {"reservation_id": RESERVATION_ID, "passengers": PASSENGERS}

    @property
    def required_properties(self) -> list[str]:
        """See Tool."""
        return ["reservation_id", "passengers"]

    def _do_work(self, p: dict[str, Any]) -> dict[str, Any]:
        reservation = _active(self, p["reservation_id"])
        held, given = len(reservation["passengers"]), len(p["passengers"])
        if held != given:
            raise ToolError(
                "value_error", f"the reservation has {held} passengers, the call names {given}"
            )
        reservation["passengers"] = p["passengers"]
        self.db.put("reservations", p["reservation_id"], reservation)
        result = self._record_action(p, {"reservation_id": p["reservation_id"]})
        return {**result, "reservation": clone(reservation)}


class _Leg(NamedTuple):
    number: str
    date: str
    origin: str
    destination: str
    price: int

    def record(self) -> Record:
        """Returns the flight as a reservation holds it."""
        return {
            "origin": self.origin,
            "destination": self.destination,
            "flight_number": self.number,
            "date": self.date,
            "price": self.price,
        }


def _legs(
    tool: _Tau2WriteTool,
    flights: Sequence[Mapping[str, str]],
    cabin: str,
    count: int,
    kept: Sequence[Mapping[str, Any]],
) -> list[_Leg]:
    """Returns the priced flights of a trip.

    Args:
        tool: Whose database is read.
        flights: flight_number and date of each.
        cabin: The cabin for all of them.
        count: Seats needed on each.
        kept: Flights of the reservation that keep their price and need no further seats.

    Raises:
        ToolError: not_found for an unknown flight or date; value_error if a flight cannot be
            booked, lacks seats, or is named twice.
    """
    already = {(flight["flight_number"], flight["date"]): flight for flight in kept}
    legs: list[_Leg] = []
    named: set[tuple[str, str]] = set()
    for info in flights:
        number, date = info["flight_number"], info["date"]
        if (number, date) in named:
            raise ToolError("value_error", f"flight {number} on {date} is named twice")
        named.add((number, date))
        if old := already.get((number, date)):
            legs.append(_Leg(number, date, old["origin"], old["destination"], old["price"]))
            continue
        flight, on_date = tool.get_flight(number), tool.get_flight_date(number, date)
        if on_date["status"] != "available":
            raise ToolError(
                "value_error",
                f"flight {number} cannot be booked for {date}: it is {on_date['status']}",
            )
        free = on_date["available_seats"][cabin]
        if free < count:
            raise ToolError(
                "value_error",
                f"flight {number} on {date} has {free} {cabin} seats left, {count} are needed",
            )
        price: int = on_date["prices"][cabin]
        legs.append(_Leg(number, date, flight["origin"], flight["destination"], price))
    return legs


def _fares(legs: Sequence[_Leg], count: int) -> int:
    return sum(leg.price for leg in legs) * count


def _active(tool: _Tau2WriteTool, reservation_id: str) -> Record:
    """Returns a copy of a reservation that was not cancelled yet."""
    reservation: Record = clone(tool.get_reservation(reservation_id))
    if reservation.get("status") == "cancelled":
        raise ToolError("value_error", f"reservation {reservation_id} is already cancelled")
    return reservation


def _payment_method(user: Mapping[str, Any], payment_id: str) -> Record:
    methods: Mapping[str, Record] = user["payment_methods"]
    if payment_id not in methods:
        raise ToolError(
            "not_found",
            f"there is no payment method {payment_id} in the profile",
            {"payment_methods": list(methods)},
        )
    return methods[payment_id]


def _take_payments(user: Record, payments: Sequence[Mapping[str, Any]], price: int) -> None:
    """Takes the payments of a booking out of the user's copy; a certificate is used up whole."""
    seen: set[str] = set()
    for payment in payments:
        payment_id, amount = payment["payment_id"], payment["amount"]
        if payment_id in seen:
            raise ToolError("value_error", f"payment method {payment_id} is named twice")
        seen.add(payment_id)
        method = _payment_method(user, payment_id)
        if method["source"] != "credit_card" and method["amount"] < amount:
            raise ToolError(
                "value_error",
                f"{payment_id} holds {method['amount']} dollars, less than {amount}",
            )
    paid = sum(payment["amount"] for payment in payments)
    if paid != price:
        raise ToolError(
            "value_error",
            f"the payments add up to {paid} dollars, the total price is {price}",
            {"total_price": price, "paid": paid},
        )
    for payment in payments:
        method = user["payment_methods"][payment["payment_id"]]
        if method["source"] == "gift_card":
            method["amount"] -= payment["amount"]
        elif method["source"] == "certificate":
            del user["payment_methods"][payment["payment_id"]]


def _charge_and_store(
    tool: _Tau2WriteTool, p: Mapping[str, Any], reservation: Record, charged: int
) -> dict[str, Any]:
    """Charges (or refunds) one payment method for a change, and stores the reservation.

    A gift card must cover the price; certificates are for bookings only. Nothing goes into the
    payment history where nothing is due, but the payment method must exist all the same.
    """
    user: Record = clone(tool.get_user(reservation["user_id"]))
    method = _payment_method(user, p["payment_id"])
    if method["source"] == "certificate":
        raise ToolError("value_error", "a certificate cannot pay for a change; it pays bookings")
    if method["source"] == "gift_card":
        if method["amount"] < charged:
            raise ToolError(
                "value_error",
                f"{p['payment_id']} holds {method['amount']} dollars, the change costs {charged}",
            )
        method["amount"] -= charged
        tool.db.put("users", user["user_id"], user)
    if charged:
        reservation["payment_history"].append({"payment_id": p["payment_id"], "amount": charged})
    tool.db.put(
        "reservations",
        p["reservation_id"],
        reservation,
        payment_operation=1 if charged else 0,
    )
    result = tool._record_action(p, {"reservation_id": p["reservation_id"], "charged": charged})
    return {**result, "reservation": reservation}
