from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tau2eval_airline import (
    TAU2_AIRLINE_ACTION_TO_TOOL_NAME,
    TAU2_AIRLINE_TOOL_NAME_TO_CLASS,
    OverlayDatabase,
    SeedDatabase,
    Tool,
)
from tau2eval_airline.tools.base import _Tau2InvokeMixin, _Tau2ReadTool, _Tau2WriteTool
from tau2eval_airline.tools.reads import AIRPORTS, SearchOnestopFlightTool

Call = Callable[..., dict[str, Any]]

WRITES = {
    "book_reservation",
    "cancel_reservation",
    "send_certificate",
    "update_reservation_baggages",
    "update_reservation_flights",
    "update_reservation_passengers",
}


def test_the_tools_are_tau2s(tools: dict[str, Tool]) -> None:
    assert len(TAU2_AIRLINE_TOOL_NAME_TO_CLASS) == 14
    assert len(tools) == 15
    assert set(tools) == {*TAU2_AIRLINE_ACTION_TO_TOOL_NAME, "end_conversation"}
    assert {name for name, tool in tools.items() if tool.mutates} == WRITES
    for name, tool in tools.items():
        assert (tool.name, tool.class_name) == (name, type(tool).__name__)
        assert issubclass(type(tool), _Tau2InvokeMixin)
        assert issubclass(type(tool), _Tau2WriteTool) == (name in WRITES)
        schema = tool.openai_schema()
        function = schema["function"]
        assert function["name"] == name
        assert function["description"] == tool.description == tool.DESCRIPTION
        assert function["parameters"]["required"] == tool.required_properties
        assert list(function["parameters"]["properties"]) == tool.required_properties
        assert not function["parameters"]["additionalProperties"]
        ends = name in ("transfer_to_human_agents", "end_conversation")
        assert schema["annotations"]["readOnlyHint"] == (name not in WRITES and not ends)


def test_parameters_are_tau2s(tools: dict[str, Tool]) -> None:
    assert {name: tool.required_properties for name, tool in tools.items()} == {
        "get_user_details": ["user_id"],
        "get_reservation_details": ["reservation_id"],
        "list_all_airports": [],
        "search_direct_flight": ["origin", "destination", "date"],
        "search_onestop_flight": ["origin", "destination", "date"],
        "get_flight_status": ["flight_number", "date"],
        "calculate": ["expression"],
        "book_reservation": [
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
        ],
        "cancel_reservation": ["reservation_id"],
        "send_certificate": ["user_id", "amount"],
        "update_reservation_baggages": [
            "reservation_id",
            "total_baggages",
            "nonfree_baggages",
            "payment_id",
        ],
        "update_reservation_flights": ["reservation_id", "cabin", "flights", "payment_id"],
        "update_reservation_passengers": ["reservation_id", "passengers"],
        "transfer_to_human_agents": ["summary"],
        "end_conversation": [],
    }


def test_a_new_tool_needs_only_four_things() -> None:
    class CountSeatsTool(_Tau2ReadTool):
        DESCRIPTION = "Count."

        @property
        def properties(self) -> dict[str, dict[str, Any]]:
            return {"date": {"type": "string"}}

        @property
        def required_properties(self) -> list[str]:
            return ["date"]

        def _do_work(self, p: dict[str, Any]) -> dict[str, Any]:
            return {"seats": p["date"]}

    tool = CountSeatsTool({})
    assert tool.name == "count_seats"
    assert tool.invoke(date="2024-5-1") == {"seats": "2024-05-01"}
    assert tool.invoke()["error_type"] == "validation_error"


@pytest.mark.parametrize("user_id", ["mia_li_3668", "Mia_Li_3668", " MIA_LI_3668 "])
def test_users_are_found_in_any_case(call: Call, db: OverlayDatabase, user_id: str) -> None:
    found = call("get_user_details", user_id=user_id)
    assert found == db.view("users", "mia_li_3668")
    found["reservations"].clear()
    found["payment_methods"].clear()
    assert call("get_user_details", user_id=user_id) != found


@pytest.mark.parametrize("reservation_id", ["4WQ150", "4wq150", "4 w q 1 5 0"])
def test_reservations_are_found_in_any_case(
    call: Call, db: OverlayDatabase, reservation_id: str
) -> None:
    found = call("get_reservation_details", reservation_id=reservation_id)
    assert found == db.view("reservations", "4WQ150")
    found["passengers"].clear()
    assert call("get_reservation_details", reservation_id="4WQ150") != found


def test_unknown_ids_are_not_found(call: Call) -> None:
    for result in (
        call("get_user_details", user_id="nobody_1"),
        call("get_reservation_details", reservation_id="XXXXXX"),
        call("get_flight_status", flight_number="HAT999", date="2024-05-16"),
        call("get_flight_status", flight_number="HAT001", date="2025-05-16"),
        call("search_direct_flight", origin="XXX", destination="JFK", date="2024-05-16"),
        call("search_onestop_flight", origin="JFK", destination="ZZZ", date="2024-05-16"),
    ):
        assert (result["status"], result["error_type"]) == ("error", "not_found")
        assert result["message"]


def test_airports(call: Call, db: OverlayDatabase) -> None:
    codes = {airport["iata"] for airport in call("list_all_airports")["airports"]}
    assert codes == set(AIRPORTS) == {flight["origin"] for _, flight in db.views("flights")}


@pytest.mark.parametrize(
    ("number", "date", "status"),
    [
        ("HAT001", "2024-05-16", "available"),
        ("hat001", "2024-5-1", "landed"),
        ("HAT001", "2024-05-03", "cancelled"),
    ],
)
def test_flight_status(call: Call, number: str, date: str, status: str) -> None:
    assert call("get_flight_status", flight_number=number, date=date)["status"] == status


def test_direct_flights_are_the_bookable_ones(call: Call, db: OverlayDatabase) -> None:
    found = call("search_direct_flight", origin="jfk", destination="Sea", date="2024-05-20")
    expected = {
        number
        for number, flight in db.views("flights")
        if (flight["origin"], flight["destination"]) == ("JFK", "SEA")
        and flight["dates"]["2024-05-20"]["status"] == "available"
    }
    assert expected
    assert {flight["flight_number"] for flight in found["flights"]} == expected
    assert set(found["flights"][0]["prices"]) == {"business", "economy", "basic_economy"}
    past = call("search_direct_flight", origin="JFK", destination="SEA", date="2024-05-01")
    assert past == {"flights": []}


def test_the_second_leg_leaves_after_the_first_arrives(call: Call) -> None:
    found = call("search_onestop_flight", origin="JFK", destination="SEA", date="2024-05-20")
    assert found["connections"]
    for first, second in found["connections"]:
        assert (first["origin"], second["destination"]) == ("JFK", "SEA")
        assert first["destination"] == second["origin"]
        arrival = first["scheduled_arrival_time_est"]
        departs = second["scheduled_departure_time_est"]
        if arrival.endswith("+1"):
            assert second["date"] == "2024-05-21"
        else:
            assert second["date"] == "2024-05-20"
            assert departs >= arrival


def test_a_connection_over_midnight_rolls_the_month() -> None:
    def flight(origin: str, destination: str, leave: str, arrive: str, date: str) -> Any:
        seats = {"business": 1, "economy": 1, "basic_economy": 1}
        on_date = {"status": "available", "available_seats": seats, "prices": seats}
        return {
            "origin": origin,
            "destination": destination,
            "scheduled_departure_time_est": leave,
            "scheduled_arrival_time_est": arrive,
            "dates": {date: on_date},
        }

    seed = SeedDatabase(
        {
            "flights": {
                "A": flight("JFK", "ORD", "23:00:00", "01:00:00+1", "2024-05-31"),
                "B": flight("ORD", "SEA", "06:00:00", "09:00:00", "2024-06-01"),
                "C": flight("ORD", "SEA", "00:30:00", "03:00:00", "2024-06-01"),
            }
        }
    )
    tool = SearchOnestopFlightTool({"db": OverlayDatabase(seed)})
    found = tool.invoke(origin="JFK", destination="SEA", date="2024-05-31")
    pairs = [[leg["flight_number"] for leg in pair] for pair in found["connections"]]
    assert pairs == [["A", "B"]]


def test_calculate(call: Call) -> None:
    assert call("calculate", expression="2 * 3") == {"result": "6.0"}
    assert call("calculate", expression="9**9**9")["error_type"] == "value_error"


def test_reads_record_nothing(call: Call, state: dict[str, Any], seed: SeedDatabase) -> None:
    call("get_user_details", user_id="mia_li_3668")
    call("search_direct_flight", origin="JFK", destination="SEA", date="2024-05-20")
    call("calculate", expression="1")
    call("list_all_airports")
    assert state["actions"] == []
    assert state["db"].hash() == seed.hash()


def test_without_a_database_the_tools_say_so() -> None:
    for tool in TAU2_AIRLINE_TOOL_NAME_TO_CLASS.values():
        arguments: dict[str, Any] = {
            "date": "2024-05-20",
            "user_id": "u",
            "reservation_id": "R",
            "flight_number": "F",
            "origin": "JFK",
            "destination": "SEA",
            "flight_type": "one_way",
            "cabin": "economy",
            "flights": [{"flight_number": "F", "date": "2024-05-20"}],
            "passengers": [{"first_name": "A", "last_name": "B", "dob": "2000-01-01"}],
            "payment_methods": [{"payment_id": "p", "amount": 1}],
            "payment_id": "p",
            "total_baggages": 0,
            "nonfree_baggages": 0,
            "insurance": "no",
            "amount": 1,
            "expression": "1",
            "summary": "s",
        }
        made = tool({})
        result = made.invoke(**{key: arguments[key] for key in made.required_properties})
        needs_none = made.name in ("calculate", "list_all_airports", "transfer_to_human_agents")
        assert (result.get("error_type") == "db_not_initialized") != needs_none
