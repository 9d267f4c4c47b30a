"""The airline tools that look things up."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from tau2eval_airline.database import clone

from .base import Properties, Tool, _Tau2ReadTool, text
from .values import ToolError

AIRPORTS = {
    "SFO": "San Francisco",
    "JFK": "New York",
    "LAX": "Los Angeles",
    "ORD": "Chicago",
    "DFW": "Dallas",
    "DEN": "Denver",
    "SEA": "Seattle",
    "ATL": "Atlanta",
    "MIA": "Miami",
    "BOS": "Boston",
    "PHX": "Phoenix",
    "IAH": "Houston",
    "LAS": "Las Vegas",
    "MCO": "Orlando",
    "EWR": "Newark",
    "CLT": "Charlotte",
    "MSP": "Minneapolis",
    "DTW": "Detroit",
    "PHL": "Philadelphia",
    "LGA": "LaGuardia",
}
"""IATA code to city, for every airport of the database."""

USER_ID = text("The caller's user id, such as 'mia_li_3668'.")
RESERVATION_ID = text("The reservation's six-character code, such as '4WQ150'.")
FLIGHT_NUMBER = text("The flight number, such as 'HAT001'.")
DATE = text("The flight's departure date, YYYY-MM-DD.")
ORIGIN = text("Three-letter code of the airport to leave from.")
DESTINATION = text("Three-letter code of the airport to arrive at.")


def check_airports(*codes: str) -> None:
    """Refuses airport codes that do not exist.

    Args:
        *codes: IATA codes in upper case.

    Raises:
        ToolError: not_found, naming the code.
    """
    for code in codes:
        if code not in AIRPORTS:
            raise ToolError(
                "not_found", f"there is no airport {code}; list_all_airports gives the codes"
            )


class GetUserDetailsTool(_Tau2ReadTool):
    """Looks up a user's profile."""

    DESCRIPTION = (
        "Look up a caller's profile: name, address, date of birth, membership level, payment "
        "methods with their balances, saved passengers and reservation codes."
    )

    @property
    def properties(self) -> Properties:
        """See Tool."""
        return {"user_id": USER_ID}

    @property
    def required_properties(self) -> list[str]:
        """See Tool."""
        return ["user_id"]

    def _do_work(self, p: dict[str, Any]) -> dict[str, Any]:
        return dict(clone(self.get_user(p["user_id"])))


class GetReservationDetailsTool(_Tau2ReadTool):
    """Looks up a reservation."""

    DESCRIPTION = (
        "Look up a reservation: route, cabin, flights with the prices paid, passengers, "
        "payments, time of booking, bags, insurance, and whether it was cancelled."
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
        return dict(clone(self.get_reservation(p["reservation_id"])))


class ListAllAirportsTool(_Tau2ReadTool):
    """Lists the airports."""

    DESCRIPTION = "List the code and city of every airport that the airline serves."

    @property
    def properties(self) -> Properties:
        """See Tool."""
        return {}

    @property
    def required_properties(self) -> list[str]:
        """See Tool."""
        return []

    def _do_work(self, p: dict[str, Any]) -> dict[str, Any]:
        return {"airports": [{"iata": iata, "city": city} for iata, city in AIRPORTS.items()]}


class SearchDirectFlightTool(_Tau2ReadTool):
    """Finds bookable flights without a stop."""

    DESCRIPTION = (
        "Find the flights without a stop between two airports on a date that can still be "
        "booked, with free seats and price per passenger in each cabin."
    )

    @property
    def properties(self) -> Properties:
        """See Tool."""
        return {"origin": ORIGIN, "destination": DESTINATION, "date": DATE}

    @property
    def required_properties(self) -> list[str]:
        """See Tool."""
        return ["origin", "destination", "date"]

    def _do_work(self, p: dict[str, Any]) -> dict[str, Any]:
        check_airports(p["origin"], p["destination"])
        return {"flights": _direct(self, p["date"], p["origin"], p["destination"])}


class SearchOnestopFlightTool(_Tau2ReadTool):
    """Finds bookable pairs of flights with one stop."""

    DESCRIPTION = (
        "Find the connections with one stop between two airports, leaving on a date, that can "
        "still be booked. Each connection is a pair of flights with free seats and prices."
    )

    @property
    def properties(self) -> Properties:
        """See Tool."""
        return {"origin": ORIGIN, "destination": DESTINATION, "date": DATE}

    @property
    def required_properties(self) -> list[str]:
        """See Tool."""
        return ["origin", "destination", "date"]

    def _do_work(self, p: dict[str, Any]) -> dict[str, Any]:
        check_airports(p["origin"], p["destination"])
        pairs = []
        for first in _direct(self, p["date"], p["origin"], None):
            # An arrival after midnight is written 01:30:00+1: the second leg flies a day later.
            arrival: str = first["scheduled_arrival_time_est"]
            clock, _, days = arrival.partition("+")
            date = _later(p["date"], int(days)) if days else p["date"]
            for second in _direct(self, date, first["destination"], p["destination"]):
                if second["scheduled_departure_time_est"] >= clock:
                    pairs.append([clone(first), second])
        return {"connections": pairs}


class GetFlightStatusTool(_Tau2ReadTool):
    """Looks up what happened to a flight on a date."""

    DESCRIPTION = (
        "Look up the status of one flight on one date: available, on time, delayed, flying, "
        "landed or cancelled."
    )

    @property
    def properties(self) -> Properties:
        """See Tool."""
        return {"flight_number": FLIGHT_NUMBER, "date": DATE}

    @property
    def required_properties(self) -> list[str]:
        """See Tool."""
        return ["flight_number", "date"]

    def _do_work(self, p: dict[str, Any]) -> dict[str, Any]:
        status = self.get_flight_date(p["flight_number"], p["date"])["status"]
        return {"flight_number": p["flight_number"], "date": p["date"], "status": status}


def _direct(tool: Tool, date: str, origin: str, destination: str | None) -> list[dict[str, Any]]:
    """Returns copies of the bookable flights from `origin` on `date`, in the database's order."""
    found = []
    for number, flight in tool.db.views("flights"):
        if flight["origin"] != origin or destination not in (None, flight["destination"]):
            continue
        on_date: Mapping[str, Any] | None = flight["dates"].get(date)
        if on_date is None or on_date["status"] != "available":
            continue
        found.append(
            {
                "flight_number": number,
                "origin": flight["origin"],
                "destination": flight["destination"],
                "date": date,
                "status": "available",
                "scheduled_departure_time_est": flight["scheduled_departure_time_est"],
                "scheduled_arrival_time_est": flight["scheduled_arrival_time_est"],
                "available_seats": clone(on_date["available_seats"]),
                "prices": clone(on_date["prices"]),
            }
        )
    return found


def _later(date: str, days: int) -> str:
    start = datetime.date.fromisoformat(date)
    return (start + datetime.timedelta(days=days)).isoformat() if start.year < 9999 else date
