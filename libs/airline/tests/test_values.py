from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_airline.tools.base import objects, text, whole
from tau2eval_airline.tools.values import ToolError, canonical_arguments, parse_arguments

PROPERTIES = {
    "user_id": text("u"),
    "payment_id": text("p"),
    "reservation_id": text("r"),
    "flight_number": text("f"),
    "origin": text("o"),
    "cabin": text("c", ("business", "basic_economy")),
    "flight_type": text("t", ("one_way", "round_trip")),
    "insurance": text("i", ("yes", "no")),
    "date": text("d"),
    "first_name": text("n"),
    "amount": whole("a", 0),
    "flights": objects("l", {"flight_number": text("f"), "date": text("d")}),
}


def one(name: str, value: Any) -> Any:
    return canonical_arguments(PROPERTIES, [], {name: value})[name]


@pytest.mark.parametrize(
    ("name", "value", "canonical"),
    [
        ("user_id", " Mia_Li_3668 ", "mia_li_3668"),
        ("payment_id", "Gift_Card_ 1642017", "gift_card_1642017"),
        ("reservation_id", "m s j 4 o a", "MSJ4OA"),
        ("flight_number", "hat 003", "HAT003"),
        ("origin", "jfk", "JFK"),
        ("cabin", "Basic Economy", "basic_economy"),
        ("cabin", "BUSINESS", "business"),
        ("flight_type", "one-way", "one_way"),
        ("flight_type", "Round Trip", "round_trip"),
        ("insurance", "Yes", "yes"),
        ("insurance", False, "no"),
        ("date", "2024-5-1", "2024-05-01"),
        ("date", " 2024/05/01", "2024-05-01"),
        ("first_name", "  Mary   Ann ", "Mary Ann"),
        ("first_name", "McDonald", "McDonald"),
        ("amount", 2, 2),
        ("amount", 2.0, 2),
        ("amount", "2", 2),
        ("amount", " 2.0 ", 2),
        ("amount", "$50", 50),
        (
            "flights",
            [{"date": "2024-5-1", "flight_number": "hat001"}],
            [{"flight_number": "HAT001", "date": "2024-05-01"}],
        ),
    ],
)
def test_canonical_forms(name: str, value: Any, canonical: Any) -> None:
    found = one(name, value)
    assert found == canonical
    assert type(found) is type(canonical)
    assert one(name, found) == found


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("user_id", 5),
        ("user_id", None),
        ("user_id", "  "),
        ("user_id", "x" * 20_000),
        ("user_id", "a\ud800"),
        ("cabin", "first"),
        ("cabin", ["business"]),
        ("insurance", "maybe"),
        ("date", "2024-02-30"),
        ("date", "May 5"),
        ("date", "0000-01-01"),
        ("amount", 2.5),
        ("amount", "two"),
        ("amount", True),
        ("amount", None),
        ("amount", float("nan")),
        ("amount", float("inf")),
        ("amount", 10**10),
        pytest.param("amount", 10**5000, id="huge"),
        ("amount", -1),
        ("flights", []),
        ("flights", "HAT001"),
        ("flights", [{"flight_number": "HAT001"}]),
        ("flights", [{"flight_number": "HAT001", "date": "2024-05-01", "seat": 1}]),
        ("flights", ["HAT001"]),
        ("flights", [{"flight_number": "HAT001", "date": "2024-05-01"}] * 101),
    ],
)
def test_refused_values_are_validation_errors(name: str, value: Any) -> None:
    with pytest.raises(ToolError) as caught:
        one(name, value)
    data = caught.value.as_data()
    assert data["error_type"] == "validation_error"
    assert data["details"][0]["parameter"].startswith(name)
    assert len(data["message"]) < 500


def test_all_problems_are_named_at_once() -> None:
    with pytest.raises(ToolError) as caught:
        canonical_arguments(PROPERTIES, ["user_id", "date"], {"date": "x", "colour": "red"})
    problems = {item["parameter"] for item in caught.value.details}
    assert problems == {"user_id", "date", "colour"}


@pytest.mark.parametrize(
    "arguments",
    ["{", "[]", "3", "null", '"x"', "[" * 50_000, '{"a": ' + "9" * 5000 + "}", "x" * 200_000, 7],
)
def test_arguments_that_are_no_object_are_refused(arguments: Any) -> None:
    with pytest.raises(ToolError) as caught:
        parse_arguments(arguments)
    assert caught.value.error_type == "validation_error"


@pytest.mark.parametrize("arguments", [None, "", " ", "{}", {}])
def test_no_arguments(arguments: Any) -> None:
    assert parse_arguments(arguments) == {}


@given(
    st.dictionaries(
        st.sampled_from([*PROPERTIES, "other"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
            lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner),
            max_leaves=4,
        ),
    )
)
def test_canonical_is_a_fixed_point(arguments: dict[str, Any]) -> None:
    try:
        found = canonical_arguments(PROPERTIES, [], arguments)
    except ToolError:
        return
    assert canonical_arguments(PROPERTIES, [], found) == found
