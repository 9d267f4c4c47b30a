from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tau2eval_airline import OverlayDatabase, SeedDatabase, compare_databases, gold_walk, plain_hash
from tau2eval_airline.tools.registry import resolve_tools

Call = Callable[..., dict[str, Any]]


def gold(task: str, name: str) -> dict[str, Any]:
    """Returns the arguments of a task's last gold action of that name."""
    return [
        arguments for called, arguments in gold_walk(f"tau2_airline__{task}") if called == name
    ][-1]


# One passenger, two legs at 375 dollars, a gift card that is used up and a credit card.
BOOKING = gold("25", "book_reservation")
# A change of cabin whose refund goes to a gift card.
TRIP = gold("11", "update_reservation_flights")


def refused(result: dict[str, Any], error_type: str, db: OverlayDatabase) -> str:
    assert (result["status"], result["error_type"]) == ("error", error_type)
    assert db.changed_keys() == []
    return str(result["message"])


def booking(**changes: Any) -> dict[str, Any]:
    return {**BOOKING, **changes}


def test_a_booking_is_paid_seated_and_recorded(
    call: Call, db: OverlayDatabase, state: dict[str, Any], seed: SeedDatabase
) -> None:
    result = call("book_reservation", **BOOKING)
    assert result["reservation_id"] == "HATHAT"
    stored = db.read("reservations", "HATHAT")
    assert stored == result["reservation"]
    assert stored is not None
    prices = [flight["price"] for flight in stored["flights"]]
    assert sum(prices) == 375
    assert stored["created_at"] == "2024-05-15T15:00:00"
    assert stored["payment_history"] == BOOKING["payment_methods"]
    assert "status" not in stored
    user = db.read("users", "ivan_muller_7015")
    before = seed.records("users")["ivan_muller_7015"]
    assert user is not None
    assert user["reservations"] == [*before["reservations"], "HATHAT"]
    gift = "gift_card_8516878"
    assert (
        user["payment_methods"][gift]["amount"] == before["payment_methods"][gift]["amount"] - 128
    )
    for leg in BOOKING["flights"]:
        number, date = leg["flight_number"], leg["date"]
        flight = db.view("flights", number)
        assert flight is not None
        free = flight["dates"][date]["available_seats"]
        was = seed.records("flights")[number]["dates"][date]["available_seats"]
        assert free == {**was, "economy": was["economy"] - 1}
    assert state["actions"] == [
        {
            "action_type": "book_reservation",
            "name": "book_reservation",
            "arguments": BOOKING,
            "result": {"reservation_id": "HATHAT"},
            "side": "agent",
        }
    ]
    assert db.hash() == plain_hash(db.materialise())
    sizes = {change.key: change.payment_operation_sizes for change in db.changed_records()}
    assert sizes["HATHAT"] == (2,)
    assert sizes["ivan_muller_7015"] == ()


def test_a_sloppy_booking_stores_the_same(call: Call, db: OverlayDatabase) -> None:
    """Upstream hashes 2, 2.0 and "2", and every case of an id, as different bookings."""
    sloppy = booking(
        user_id="Ivan_Muller_7015",
        origin="dtw",
        destination=" Sea",
        flight_type="One Way",
        cabin="Economy",
        flights=[
            {"flight_number": "hat097", "date": "2024-5-17"},
            {"flight_number": "HAT 251", "date": "2024-05-17"},
        ],
        passengers=[{"first_name": " Ivan", "last_name": "Smith ", "dob": "1986-3-14"}],
        payment_methods=[
            {"payment_id": "GIFT_CARD_8516878", "amount": 128.0},
            {"payment_id": "Credit_Card_3563913", "amount": "247"},
        ],
        total_baggages="0",
        nonfree_baggages=0.0,
        insurance="No",
    )
    other = OverlayDatabase(db.seed)
    exact = resolve_tools("tau2_airline", ["BookReservationTool"], {"db": other, "actions": []})
    exact["book_reservation"].invoke(**BOOKING)  # type: ignore[attr-defined]
    assert call("book_reservation", **sloppy)["reservation_id"] == "HATHAT"
    assert db.hash() == other.hash()


def test_the_order_of_payments_has_no_meaning(call: Call, db: OverlayDatabase) -> None:
    other = OverlayDatabase(db.seed)
    state = {"db": other, "actions": []}
    names = ["BookReservationTool", "CancelReservationTool"]
    tools = resolve_tools("tau2_airline", names, state)
    turned = booking(payment_methods=BOOKING["payment_methods"][::-1])
    tools["book_reservation"].invoke(**turned)  # type: ignore[attr-defined]
    tools["cancel_reservation"].invoke(reservation_id="HATHAT")  # type: ignore[attr-defined]
    call("book_reservation", **BOOKING)
    call("cancel_reservation", reservation_id="HATHAT")
    assert db.hash() != other.hash()
    result = compare_databases(db, other)
    assert (result.match, result.how) == (True, "payment_order")


@pytest.mark.parametrize(
    ("changes", "extra"),
    [
        ({"insurance": "yes"}, 30),
        ({"total_baggages": 3, "nonfree_baggages": 2}, 100),
        ({"total_baggages": 3}, 0),
    ],
)
def test_extras_cost(call: Call, changes: dict[str, Any], extra: int) -> None:
    payments = [{"payment_id": "credit_card_3563913", "amount": 375 + extra}]
    result = call("book_reservation", **booking(payment_methods=payments, **changes))
    assert result["reservation_id"] == "HATHAT"


def test_passengers_multiply_fares_and_insurance(call: Call, seed: SeedDatabase) -> None:
    two = [*BOOKING["passengers"], {"first_name": "A", "last_name": "B", "dob": "2000-01-01"}]
    payments = [{"payment_id": "credit_card_3563913", "amount": 2 * 375 + 2 * 30}]
    changed = booking(passengers=two, payment_methods=payments, insurance="yes")
    assert call("book_reservation", **changed)["reservation_id"] == "HATHAT"


@pytest.mark.parametrize(
    ("changes", "error_type", "says"),
    [
        ({"user_id": "nobody_1"}, "not_found", "user nobody_1"),
        ({"origin": "XXX"}, "not_found", "airport XXX"),
        ({"cabin": "first"}, "validation_error", "cabin"),
        ({"flights": []}, "validation_error", "flights"),
        ({"passengers": []}, "validation_error", "passengers"),
        ({"payment_methods": []}, "validation_error", "payment_methods"),
        ({"flights": [{"flight_number": "HAT999", "date": "2024-05-17"}]}, "not_found", "HAT999"),
        ({"flights": [{"flight_number": "HAT097", "date": "2024-07-17"}]}, "not_found", "not fly"),
        (
            {"flights": [{"flight_number": "HAT001", "date": "2024-05-03"}]},
            "value_error",
            "cancelled",
        ),
        ({"flights": [BOOKING["flights"][0]] * 2}, "value_error", "twice"),
        ({"passengers": BOOKING["passengers"] * 60}, "value_error", "60 are needed"),
        (
            {"payment_methods": [{"payment_id": "gift_card_1", "amount": 375}]},
            "not_found",
            "gift_card_1",
        ),
        (
            {"payment_methods": [{"payment_id": "gift_card_8516878", "amount": 375}]},
            "value_error",
            "holds 128",
        ),
        (
            {"payment_methods": [{"payment_id": "credit_card_3563913", "amount": 374}]},
            "value_error",
            "total price is 375",
        ),
        (
            {"payment_methods": [{"payment_id": "credit_card_3563913", "amount": 187}] * 2},
            "value_error",
            "named twice",
        ),
        (
            {
                "payment_methods": [
                    {"payment_id": "credit_card_3563913", "amount": 400},
                    {"payment_id": "gift_card_8516878", "amount": -25},
                ]
            },
            "validation_error",
            "at least 1",
        ),
        ({"nonfree_baggages": -1}, "validation_error", "at least 0"),
    ],
)
def test_refused_bookings_change_nothing(
    call: Call,
    db: OverlayDatabase,
    state: dict[str, Any],
    changes: dict[str, Any],
    error_type: str,
    says: str,
) -> None:
    assert says in refused(call("book_reservation", **booking(**changes)), error_type, db)
    assert state["actions"] == []


def test_reservation_ids_come_in_order_and_run_out(call: Call, db: OverlayDatabase) -> None:
    changed = booking(payment_methods=[{"payment_id": "credit_card_3563913", "amount": 375}])
    ids = [call("book_reservation", **changed).get("reservation_id") for _ in range(3)]
    assert ids == ["HATHAT", "HATHAU", "HATHAV"]
    before = db.hash()
    assert call("book_reservation", **changed)["error_type"] == "value_error"
    assert db.hash() == before


def test_a_certificate_is_used_up_whole(call: Call, db: OverlayDatabase) -> None:
    # The certificate of 500 dollars pays 348.
    call("book_reservation", **gold("8", "book_reservation"))
    user = db.view("users", "sophia_silva_7557")
    assert user is not None
    assert "certificate_8045380" not in user["payment_methods"]


def test_cancelling_refunds_every_payment_once(
    call: Call, db: OverlayDatabase, state: dict[str, Any], seed: SeedDatabase
) -> None:
    result = call("cancel_reservation", reservation_id="4wq150")
    assert (result["reservation_id"], result["status"]) == ("4WQ150", "cancelled")
    stored = db.read("reservations", "4WQ150")
    assert stored is not None
    paid = {"payment_id": "gift_card_3576581", "amount": 4986}
    assert stored["payment_history"] == [paid, {**paid, "amount": -4986}]
    assert stored["status"] == "cancelled"
    # Upstream leaves seats and balances as they are.
    assert db.changed_keys() == [("reservations", "4WQ150")]
    assert state["actions"][0]["result"] == {"reservation_id": "4WQ150", "status": "cancelled"}
    assert state["actions"][0]["arguments"] == {"reservation_id": "4WQ150"}
    before = db.hash()
    again = call("cancel_reservation", reservation_id="4WQ150")
    assert again["error_type"] == "value_error"
    assert "already cancelled" in again["message"]
    assert db.hash() == before
    assert len(state["actions"]) == 1


def test_a_cancelled_reservation_is_not_changed(call: Call, db: OverlayDatabase) -> None:
    call("cancel_reservation", reservation_id="GV1N64")
    before = db.hash()
    bags = {"total_baggages": 1, "nonfree_baggages": 0, "payment_id": TRIP["payment_id"]}
    person = [{"first_name": "A", "last_name": "B", "dob": "2000-01-01"}]
    for result in (
        call("update_reservation_flights", **TRIP),
        call("update_reservation_baggages", reservation_id="GV1N64", **bags),
        call("update_reservation_passengers", reservation_id="GV1N64", passengers=person),
    ):
        assert "already cancelled" in result["message"]
    assert db.hash() == before


def test_certificates_have_three_ids(
    call: Call, db: OverlayDatabase, state: dict[str, Any]
) -> None:
    for number in (3221322, 3221323, 3221324):
        result = call("send_certificate", user_id="Mia_Li_3668", amount="100")
        assert result == {"payment_id": f"certificate_{number}", "amount": 100}
    user = db.view("users", "mia_li_3668")
    assert user is not None
    assert user["payment_methods"]["certificate_3221322"] == {
        "source": "certificate",
        "id": "certificate_3221322",
        "amount": 100,
    }
    before = db.hash()
    assert (
        call("send_certificate", user_id="mia_li_3668", amount=100)["error_type"] == "value_error"
    )
    assert db.hash() == before
    other = call("send_certificate", user_id="ivan_muller_7015", amount=50.0)
    assert other == {"payment_id": "certificate_3221322", "amount": 50}
    assert [action["arguments"]["amount"] for action in state["actions"]] == [100, 100, 100, 50]


@pytest.mark.parametrize("amount", [0, -100, 99.5, "a lot", None, True])
def test_certificates_are_worth_whole_dollars(call: Call, db: OverlayDatabase, amount: Any) -> None:
    refused(call("send_certificate", user_id="mia_li_3668", amount=amount), "validation_error", db)


def test_changed_flights_are_refunded_to_the_gift_card(
    call: Call, db: OverlayDatabase, state: dict[str, Any], seed: SeedDatabase
) -> None:
    result = call("update_reservation_flights", **TRIP)
    assert result["charged"] == -5244
    stored = db.read("reservations", "GV1N64")
    before = seed.records("reservations")["GV1N64"]
    assert stored is not None
    assert stored["cabin"] == "basic_economy"
    refund = {"payment_id": "gift_card_1642017", "amount": -5244}
    assert stored["payment_history"] == [*before["payment_history"], refund]
    user = db.view("users", stored["user_id"])
    assert user is not None
    held = seed.records("users")[stored["user_id"]]["payment_methods"]["gift_card_1642017"]
    assert user["payment_methods"]["gift_card_1642017"]["amount"] == held["amount"] + 5244
    # Upstream counts no seats on a change.
    assert {table for table, _ in db.changed_keys()} == {"reservations", "users"}
    assert state["actions"][0]["result"] == {"reservation_id": "GV1N64", "charged": -5244}
    assert state["actions"][0]["arguments"] == TRIP


def test_unchanged_flights_keep_the_price_paid(
    call: Call, db: OverlayDatabase, state: dict[str, Any], seed: SeedDatabase
) -> None:
    before = seed.records("reservations")["GV1N64"]
    same = {**TRIP, "cabin": before["cabin"]}
    result = call("update_reservation_flights", **same)
    assert result["charged"] == 0
    assert db.hash() == seed.hash()
    assert len(state["actions"]) == 1
    assert db.changed_records() == []


@pytest.mark.parametrize(
    ("changes", "error_type", "says"),
    [
        ({"cabin": "FIRST"}, "validation_error", "cabin"),
        ({"flights": []}, "validation_error", "empty"),
        ({"cabin": "BUSINESSCLASS", "flights": []}, "validation_error", "cabin"),
        ({"reservation_id": "XXXXXX"}, "not_found", "XXXXXX"),
        ({"payment_id": "gift_card_1"}, "not_found", "gift_card_1"),
        ({"flights": [{"flight_number": "HAT999", "date": "2024-05-19"}]}, "not_found", "HAT999"),
        ({"flights": [TRIP["flights"][0]] * 2}, "value_error", "twice"),
        (
            {"flights": [{"flight_number": "HAT001", "date": "2024-05-01"}]},
            "value_error",
            "landed",
        ),
    ],
)
def test_refused_flight_changes_change_nothing(
    call: Call, db: OverlayDatabase, changes: dict[str, Any], error_type: str, says: str
) -> None:
    result = call("update_reservation_flights", **{**TRIP, **changes})
    assert says in refused(result, error_type, db)


def test_a_cabin_in_capitals_is_the_cabin(call: Call, db: OverlayDatabase) -> None:
    """Upstream stores "BUSINESS" as it comes, where it needs no price for it."""
    call("update_reservation_flights", **{**TRIP, "cabin": "BASIC ECONOMY"})
    stored = db.view("reservations", "GV1N64")
    assert stored is not None
    assert stored["cabin"] == "basic_economy"


def test_certificates_pay_no_changes(call: Call, db: OverlayDatabase, seed: SeedDatabase) -> None:
    user_id, certificate = next(
        (key, method)
        for key, user in seed.records("users").items()
        for method in user["payment_methods"]
        if method.startswith("certificate") and user["reservations"]
    )
    reservation_id = seed.records("users")[user_id]["reservations"][0]
    for nonfree in (0, 9):
        result = call(
            "update_reservation_baggages",
            reservation_id=reservation_id,
            total_baggages=9,
            nonfree_baggages=nonfree,
            payment_id=certificate,
        )
        assert "certificate" in refused(result, "value_error", db)


def test_only_further_bags_cost(call: Call, db: OverlayDatabase, state: dict[str, Any]) -> None:
    bags = {"reservation_id": "YAX4DR", "payment_id": "credit_card_4938634"}
    stored = db.view("reservations", "YAX4DR")
    assert stored is not None
    had = stored["nonfree_baggages"]
    payments = len(stored["payment_history"])
    for nonfree, charged in ((had + 2, 100), (had, 0), (had + 1, 50)):
        total = str(nonfree + 3)
        result = call(
            "update_reservation_baggages", total_baggages=total, nonfree_baggages=nonfree, **bags
        )
        assert result["charged"] == charged
    stored = db.view("reservations", "YAX4DR")
    assert stored is not None
    assert stored["total_baggages"] == had + 4
    amounts = [payment["amount"] for payment in stored["payment_history"][payments:]]
    assert amounts == [100, 50]
    assert db.payment_operation_sizes("reservations", "YAX4DR") == (1, 1)
    assert state["actions"][0]["result"] == {"reservation_id": "YAX4DR", "charged": 100}


def test_a_gift_card_must_cover_the_bags(call: Call, db: OverlayDatabase) -> None:
    result = call(
        "update_reservation_baggages",
        reservation_id="GV1N64",
        total_baggages=100_000,
        nonfree_baggages=100_000,
        payment_id=TRIP["payment_id"],
    )
    assert "holds" in refused(result, "value_error", db)


def test_passengers_can_be_replaced_but_not_added(
    call: Call, db: OverlayDatabase, state: dict[str, Any]
) -> None:
    person = {"first_name": " Omar ", "last_name": "Rossi", "dob": "1970-6-6"}
    both = call("update_reservation_passengers", reservation_id="FQ8APE", passengers=[person] * 2)
    assert "1 passengers" in refused(both, "value_error", db)
    result = call("update_reservation_passengers", reservation_id="fq8ape", passengers=[person])
    assert result["reservation_id"] == "FQ8APE"
    stored = db.view("reservations", "FQ8APE")
    assert stored is not None
    clean = [{"first_name": "Omar", "last_name": "Rossi", "dob": "1970-06-06"}]
    assert stored["passengers"] == clean
    assert state["actions"][0]["arguments"]["passengers"] == clean
    assert state["actions"][0]["result"] == {"reservation_id": "FQ8APE"}


def test_a_transfer_is_recorded_and_changes_nothing(
    call: Call, db: OverlayDatabase, state: dict[str, Any]
) -> None:
    assert call("transfer_to_human_agents", summary="Help") == {"message": "Transfer successful"}
    assert db.changed_keys() == []
    assert state["actions"][0]["name"] == "transfer_to_human_agents"
    assert state["actions"][0]["result"] == {"message": "Transfer successful"}
