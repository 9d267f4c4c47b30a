from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau2eval_airline import OverlayDatabase, SeedDatabase, compare_databases

SEED = SeedDatabase(
    {
        "reservations": {"R1": {"cabin": "economy", "payment_history": [{"amount": 9}]}},
        "users": {"u": {"reservations": ["R1"]}},
    }
)

payments = st.fixed_dictionaries(
    {"payment_id": st.sampled_from(["card", "gift"]), "amount": st.integers(1, 3)}
)
operations = st.lists(st.lists(payments, min_size=1, max_size=3), min_size=1, max_size=3)


def apply(history: list[list[dict[str, Any]]], **fields: Any) -> OverlayDatabase:
    db = OverlayDatabase(SEED)
    for operation in history:
        record = db.read("reservations", "R1")
        assert record is not None
        record["payment_history"].extend(operation)
        db.put("reservations", "R1", {**record, **fields}, payment_operation=len(operation))
    return db


@given(operations, st.data())
def test_the_order_within_an_operation_has_no_meaning(history: Any, data: st.DataObject) -> None:
    shuffled = [data.draw(st.permutations(operation)) for operation in history]
    for pair in ((history, shuffled), (shuffled, history)):
        result = compare_databases(apply(pair[0]), apply(pair[1]))
        assert result.match
        assert result.how == ("exact" if history == shuffled else "payment_order")
        assert bool(result.differences) == (history != shuffled)


@settings(max_examples=200)
@given(operations, operations)
def test_it_matches_only_the_same_operations(left: Any, right: Any) -> None:
    def grouped(history: Any) -> list[list[tuple[Any, ...]]]:
        return [sorted(tuple(sorted(payment.items())) for payment in part) for part in history]

    result = compare_databases(apply(left), apply(right))
    flat = list(chain(*left)) == list(chain(*right))
    assert result.match == (flat or grouped(left) == grouped(right))
    assert result.match == (result.how != "different")
    assert compare_databases(apply(right), apply(left)).match == result.match


def test_the_order_of_operations_keeps_its_meaning() -> None:
    one, two = {"payment_id": "card", "amount": 1}, {"payment_id": "gift", "amount": 2}
    result = compare_databases(apply([[one], [two]]), apply([[two], [one]]))
    assert (result.match, result.how) == (False, "different")


def test_a_further_difference_is_not_excused() -> None:
    one, two = {"payment_id": "card", "amount": 1}, {"payment_id": "gift", "amount": 2}
    result = compare_databases(apply([[one, two]]), apply([[two, one]], cabin="business"))
    assert not result.match
    assert {
        "table": "reservations",
        "key": "R1",
        "path": "cabin",
        "expected": "economy",
        "actual": "business",
    } in result.differences


def test_payments_of_the_seed_are_not_reordered() -> None:
    seed = SeedDatabase({"reservations": {"R": {"payment_history": [{"a": 1}, {"a": 2}]}}})
    left, right = OverlayDatabase(seed), OverlayDatabase(seed)
    left.put("reservations", "R", {"payment_history": [{"a": 1}, {"a": 2}, {"a": 3}]}, 1)
    right.put("reservations", "R", {"payment_history": [{"a": 2}, {"a": 1}, {"a": 3}]}, 1)
    assert not compare_databases(left, right).match


def test_missing_records_fields_and_elements_are_shown() -> None:
    expected, actual = OverlayDatabase(SEED), OverlayDatabase(SEED)
    expected.put("reservations", "R2", {"cabin": "economy"})
    actual.put("users", "u", {"reservations": ["R1", "R9"], "note": None})
    result = compare_databases(expected, actual)
    found = {(d["key"], d["path"]): (d["expected"], d["actual"]) for d in result.differences}
    assert found == {
        ("R2", ""): ({"cabin": "economy"}, None),
        ("u", "reservations[1]"): (None, "R9"),
        ("u", "note"): (None, None),
    }


def test_other_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match="same seed"):
        compare_databases(OverlayDatabase(SEED), OverlayDatabase(SeedDatabase({"users": {}})))
