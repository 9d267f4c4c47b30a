"""What gold says where nothing may be done rests on what it looked up in the same call."""

import json
import re

import pytest

from tau2eval_airline import ADOPTED_NL_ASSERTIONS
from tau2eval_scripted.acts import ACTS

TASKS = list(ADOPTED_NL_ASSERTIONS)
NOW = "2024-05-15T15:00:00"
RESERVATION = re.compile(r"\b(?!HAT\d{3}\b)(?=\w*\d)[A-Z0-9]{6}\b")
FLIGHT = re.compile(r"\bHAT\d{3}\b")


def results(call):
    """Name, arguments and result of each tool call before the act, in order."""
    said = next(
        at
        for at, m in enumerate(call.messages)
        if m["role"] == "assistant" and "anything else" in (m["content"] or "")
    )
    made = {
        c["id"]: (c["function"]["name"], json.loads(c["function"]["arguments"]))
        for m in call.messages[:said]
        for c in m.get("tool_calls") or ()
    }
    return [
        (*made[m["tool_call_id"]], json.loads(m["content"]))
        for m in call.messages[:said]
        if m["role"] == "tool"
    ]


def reservation(call, reservation_id):
    return next(
        result
        for name, arguments, result in results(call)
        if name == "get_reservation_details" and arguments["reservation_id"] == reservation_id
    )


def fare(call, number, date, cabin):
    for name, _, result in results(call):
        if name.startswith("search_"):
            flights = [f for trip in result.get("connections", ()) for f in trip]
            for flight in [*flights, *result.get("flights", ())]:
                if (flight["flight_number"], flight["date"]) == (number, date):
                    assert flight["available_seats"][cabin] > 0
                    return flight["prices"][cabin]
    raise AssertionError(f"{number} on {date} was not looked up")


@pytest.mark.parametrize("task", [task for task in TASKS if task != "13"])
async def test_what_an_act_names_was_looked_up_before(gold, task):
    call, _, _ = await gold(task)
    said = ACTS[task].said
    for reservation_id in RESERVATION.findall(said):
        assert reservation(call, reservation_id)["reservation_id"] == reservation_id
    statuses = {
        arguments["flight_number"]: result["status"]
        for name, arguments, result in results(call)
        if name == "get_flight_status"
    }
    for number in FLIGHT.findall(said):
        assert statuses[number] == "delayed"
    if "delay" in said:
        assert set(statuses.values()) == {"delayed"}


async def test_the_reservation_that_cannot_be_changed_was_looked_up(gold):
    call, _, _ = await gold("13")
    at = next(i for i, turn in enumerate(call.messages) if turn.get("content") == ACTS["13"].said)
    before = [c["function"]["name"] for m in call.messages[:at] for c in m.get("tool_calls") or ()]
    assert "get_reservation_details" in before
    assert "transfer_to_human_agents" not in before


@pytest.mark.parametrize("task", TASKS)
def test_an_act_is_spoken_prose(task):
    act = ACTS[task]
    for text in (act.said, act.lied, act.asked):
        sentences = [s for s in re.split(r"(?<=[.!?]) ", text) if s]
        assert len(sentences) <= 3
        assert all(len(s.split()) <= 25 for s in sentences), "a breath"
        assert not re.search(r"[_$%&<>()\d]-|[_$%&<>()]", text), "a synthesizer says it as it is"
    assert act.said != act.lied


@pytest.mark.parametrize("task", [t for t in TASKS if "no travel insurance" in ACTS[t].said])
async def test_insurance_that_is_not_there(gold, task):
    call, _, _ = await gold(task)
    (reservation_id,) = RESERVATION.findall(ACTS[task].said)
    assert reservation(call, reservation_id)["insurance"] == "no"


async def test_flown_already(gold):
    for task, flown in (("9", "NQNU5R"), ("41", "4XGCCM")):
        call, _, _ = await gold(task)
        assert all(leg["date"] < NOW[:10] for leg in reservation(call, flown)["flights"])
    assert len(reservation(call, "4XGCCM")["passengers"]) == 1


async def test_no_nonstop_flight(gold):
    call, _, _ = await gold("9")
    (found,) = [result for name, _, result in results(call) if name == "search_direct_flight"]
    assert found["flights"] == []


async def test_free_bags(gold):
    call, _, _ = await gold("3")
    (profile,) = [result for name, _, result in results(call) if name == "get_user_details"]
    trip = reservation(call, "JMO1MG")
    assert (profile["membership"], trip["cabin"], len(trip["passengers"])) == (
        "silver",
        "economy",
        2,
    )


async def test_no_business_flight_that_was_cancelled(gold):
    call, _, _ = await gold("4")
    (profile,) = [result for name, _, result in results(call) if name == "get_user_details"]
    cabins = [reservation(call, each)["cabin"] for each in profile["reservations"]]
    assert "business" not in cabins


async def test_the_price_of_business_class_for_all_flights(gold):
    call, _, _ = await gold("10")
    trip = reservation(call, "4NQLHD")
    out = [("HAT190", "2024-05-24"), ("HAT047", "2024-05-24")]
    back = [(leg["flight_number"], leg["date"]) for leg in trip["flights"][2:]]
    new = sum(fare(call, *leg, "business") for leg in out + back)
    old = sum(leg["price"] for leg in trip["flights"])
    more = (new - old) * len(trip["passengers"])
    assert f"would cost {more} dollars more" in ACTS["10"].said


async def test_the_price_of_the_changes(gold):
    call, _, _ = await gold("34")
    trip = reservation(call, "HXDUBJ")
    new = fare(call, "HAT072", "2024-05-19", "business")
    new += fare(call, "HAT278", "2024-05-23", "business")
    old = sum(leg["price"] for leg in trip["flights"])
    more = (new - old) * len(trip["passengers"])
    assert f"would cost {more} dollars" in ACTS["34"].said
    (profile,) = [result for name, _, result in results(call) if name == "get_user_details"]
    assert profile["membership"] == "gold", "two bags are free"


async def test_the_day_of_a_booking(gold):
    call, _, _ = await gold("48")
    assert reservation(call, "3RK2T9")["created_at"].startswith("2024-05-02")
    assert "booked on May 2" in ACTS["48"].said
