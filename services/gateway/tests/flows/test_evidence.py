"""Statements 32 and 33: what backs a value, and which values need backing."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pytest
from argcheck_fakes import TOOLS, call, calls, result, says, tool, user
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_gateway.flows import evidence_forms as forms
from tau2eval_gateway.flows.evidence import check, gather
from tau2eval_gateway.flows.evidence_walk import MAX_LEAVES, Leaf, leaves_of
from tau2eval_gateway.flows.messages import ToolCall, declared_tools, tool_calls

DECLARED = declared_tools({"tools": TOOLS})


def made(name: str, arguments: Any) -> ToolCall:
    return tool_calls({"tool_calls": [call(name, arguments)]})[0]


def unbacked(arguments: Any, *messages: Any, tools: Any = None, name: str = "zap") -> list[Any]:
    found = check(made(name, arguments), gather(messages), tools or {})
    return [each.leaf.value for each in found]


def backed(value: Any, *messages: Any) -> bool:
    return unbacked({"x": value}, *messages) == []


# Statement 32: which evidence counts.


def test_statement_32_user_and_tools_back_a_value() -> None:
    assert backed("ORD-77", user("Cancel ORD-77 please"))
    assert backed("ORD-77", result({"orders": ["ORD-77"]}))
    assert backed("ORD-77", {"role": "function", "name": "f", "content": "ORD-77"})
    assert backed(
        "ORD-77", user([{"type": "text", "text": "Cancel"}, {"type": "text", "text": "ORD-77"}])
    )
    assert not backed("ORD-77", user("Cancel my order"))


@pytest.mark.parametrize("role", ["system", "developer", "assistant"])
def test_statement_32_assistant_and_system_text_is_weak(role: str) -> None:
    messages = [{"role": role, "content": "For instance ORD-77."}, user("Cancel it")]
    (found,) = check(made("zap", {"x": "ORD-77"}), gather(messages), {})
    assert found.seen == (("assistant",) if role == "assistant" else ("system",))


def test_statement_32_earlier_arguments_never_count() -> None:
    before = calls(("cancel_order", {"order_id": "ORD-77"}))
    (found,) = check(made("zap", {"x": "ORD-77"}), gather([user("Cancel it"), before]), {})
    assert found.seen == ()


@pytest.mark.parametrize(
    "failed",
    [
        "Error: no order ORD-77",
        {"error": "no order ORD-77"},
        {"status": "error", "message": "ORD-77 not found", "order_id": "ORD-77"},
    ],
)
def test_statement_32_a_refusal_that_repeats_the_value_backs_nothing(failed: Any) -> None:
    before = calls(("cancel_order", {"order_id": "ORD-77"}))
    assert not backed("ORD-77", before, result(failed))
    # What else a refusal says does: the price that it wants.
    paid = calls(("refund", {"order_id": "ORD-77", "amount": 300}))
    refusal = result("Error: the price is 327, not 300")
    assert backed(327, paid, refusal)
    assert not backed(300, paid, refusal)


def test_statement_32_a_calculator_backs_its_result_and_not_its_input() -> None:
    before = calls(("calculate", {"expression": "777"}))
    assert not backed(777, before, result("777"))
    before = calls(("calculate", {"expression": "2 * (350 - 122)"}))
    assert backed(456, before, result("456.0"))
    assert not backed(350, before, result("2 * (350 - 122) = 456"))


# Statement 33: amounts.


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("It was $1,234.50.", 1234.5),
        ("It was 1234.5", 1234.5),
        ("It was 1234.50 USD", "1,234.50"),
        ("1.234,50 EUR", 1234.5),
        ("1'234.50 CHF", 1234.5),
        ("1\u00a0234,50 \u20ac", 1234.5),
        ("EUR 99", 99),
        ("99\u20ac", "$99"),
        ("a refund of $50?", -50),
        ("12,50", 12.5),
        ("20%", 20),
        ("$2k", 2000),
        ("1,234,567", 1234567),
        ("amount=250;", 250.0),
        ("(250)", "250"),
        ("$99.99,", 99.99),
    ],
)
def test_statement_33_amounts(said: str, value: Any) -> None:
    assert backed(value, user(said))


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("$1,234.50", 1234),
        ("$1,234.50", 234.5),
        ("12,345", 345),
        ("$123.45", 12345),
        ("12.5", 125),
        ("HAT050", 50),
        ("ABC-500", 500),
        ("2024-05-15", 15),
        ("5:45", 45),
        ("91234", 123),
        ("1234", "12 34"),
        ("0.1.200", 200),
    ],
)
def test_statement_33_other_amounts(said: str, value: Any) -> None:
    assert not backed(value, user(said))


def test_statement_33_an_ambiguous_amount_backs_both_readings() -> None:
    assert backed(1234, user("1.234"))
    assert backed(1.234, user("1.234"))
    assert backed(1234, user("1,234"))
    assert not backed(1.234, user("1,234"))


def test_statement_33_numbers_in_results() -> None:
    said = result({"price": 244.0, "parts": [12.5, {"fee": 19}]})
    assert backed(244, said)
    assert backed("12.50", said)
    assert backed(19, said)
    assert not backed(31.5, said)


@given(
    st.decimals(min_value=11, max_value=10**9, places=2), st.sampled_from(["$", "€", "USD ", ""])
)
def test_statement_33_every_amount_is_found_in_its_usual_forms(amount: Decimal, sign: str) -> None:
    value = float(amount)
    for said in (f"{sign}{amount:,.2f}", f"{sign}{amount:.2f}", f"pay {sign}{amount:,.2f}, please"):
        assert backed(value, user(said))
    assert backed(value, result({"amount": value}))
    assert not backed(value + 1, user(f"{sign}{amount:,.2f}"))


# Dates.


@pytest.mark.parametrize(
    "said",
    [
        "2024-05-15",
        "2024-05-15T10:00:00Z",
        "2024/05/15",
        "May 15, 2024",
        "May 15th 2024",
        "the 15th of May 2024",
        "15 May 2024",
        "15-May-2024",
        "15/05/2024",
        "05/15/2024",
        "5/15/24",
        "15.05.2024",
        "20240515",
        "May 15",
        "Sept. 1 and may 15th",
        "5/15",
    ],
)
def test_statement_33_dates(said: str) -> None:
    for value in ("2024-05-15", "May 15, 2024", "15/05/2024", "05/15/2024", "2024-05-15T00:00:00"):
        assert backed(value, user(f"On {said}, please.")), value
    assert not backed("2024-05-16", user(f"On {said}, please."))
    assert not backed("2024-06-15", user(f"On {said}, please."))


def test_statement_33_a_day_that_can_be_read_in_two_ways_backs_both() -> None:
    assert backed("2024-06-05", user("05/06/2024"))
    assert backed("2024-05-06", user("05/06/2024"))
    assert not backed("2024-05-07", user("05/06/2024"))


def test_statement_33_a_date_without_a_year_takes_the_year_that_is_spoken_of() -> None:
    today = {"role": "system", "content": "Today is 2024-05-10."}
    assert backed("2024-05-15", today, user("May 15"))
    assert not backed("2025-05-15", today, user("May 15"))
    assert backed("2025-05-15", user("May 15")), "no year is known"
    assert backed("May 15", result({"date": "2024-05-15"}))


def test_statement_33_a_day_without_a_month() -> None:
    booked = result({"date": "2024-05-17"})
    assert backed("2024-05-20", booked, user("Move it to the 20th."))
    assert not backed("2024-06-20", booked, user("Move it to the 20th."))
    assert not backed("2024-05-20", user("Move it to the 20th."))


def test_statement_33_times() -> None:
    assert backed("15:30", user("at 3:30 pm"))
    assert backed("15:00:00", user("at 3pm"))
    assert backed("2024-05-15T15:30:00", user("May 15 at 3:30 p.m."))
    assert not backed("2024-05-15T16:30:00", user("May 15 at 3:30 pm"))
    assert not backed("15:30", user("at 3:30 am"))


@given(st.dates(datetime.date(1950, 1, 1), datetime.date(2090, 12, 31)))
def test_statement_33_every_date_is_found_in_its_usual_forms(day: datetime.date) -> None:
    iso = day.isoformat()
    months = [
        "January", "February", "March", "April", "May", "June", "July",
        "August", "September", "October", "November", "December",
    ]  # fmt: skip
    month = months[day.month - 1]
    for said in (
        iso,
        f"{month} {day.day}, {day.year}",
        f"{day.day} {month[:3]} {day.year}",
        f"{day.day:02}/{day.month:02}/{day.year}",
        f"{day.month}/{day.day}/{day.year}",
    ):
        assert day in set(forms.dates_in(said))
        assert backed(iso, user(said))
        assert backed(said, result({"on": iso}))
    after = (day + datetime.timedelta(days=40)).isoformat()
    assert not backed(after, user(f"{month} {day.day}, {day.year}"))


# Ids.


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("my id is mia_li_3668.", "mia_li_3668"),
        ("MIA_LI_3668", "mia_li_3668"),
        ("order #W1234567!", "#W1234567"),
        ("order W1234567", "#W1234567"),
        ("(XEHM4B)", "XEHM4B"),
        ("'XEHM4B'", "XEHM4B"),
        ("id:XEHM4B", "XEHM4B"),
        ("SFO/JFK", "JFK"),
        ("SFO-JFK", "SFO"),
        ("SFO\u2192JFK", "JFK"),
        ("flight HAT 001", "HAT001"),
        ("flight hat-001", "HAT001"),
        ("h a t zero zero one", "HAT001"),
        ("mia underscore li underscore 3668", "mia_li_3668"),
        ("m i a underscore l i underscore three six six eight", "mia_li_3668"),
        ("X. E. H. M. four B", "XEHM4B"),
        ("mail a.b@c.org, thanks", "A.B@c.org"),
        ("+1 (555) 123-4567", "15551234567"),
        ("555-123-4567", "+1 555 123 4567"),
        ("4111 1111 1111 1111", "4111111111111111"),
        ("item 1008292230", "1008292230"),
        ("item 1008292230", 1008292230),
        ("call me James", "james"),
    ],
)
def test_statement_33_ids(said: str, value: Any) -> None:
    assert backed(value, user(said))


@pytest.mark.parametrize(
    ("said", "value"),
    [
        ("91234", "123"),
        ("W1234567", "1234567"),
        ("W1234567", "W123456"),
        ("12-123", "123"),
        ("ORD-77-B", "ORD-77"),
        ("ORD-77", "ORD-771"),
        ("mia_li_3668", "mia_li"),
        ("mia_li_3668", "li_3668"),
        ("a.b@c.org", "b@c.org"),
        ("XEHM4B", "XEHM4"),
        ("rooms 12 345", "12345"),
        ("7", "007"),
        ("Jameson", "James"),
        ("555-123-4567", "555-123-4568"),
        ("HAT 001", "HAT 002"),
    ],
)
def test_statement_33_ids_are_whole_tokens(said: str, value: str) -> None:
    assert not backed(value, user(said))
    assert not backed(value, result({"value": said}))


# CAD000 is an amount, and the same one as CAD00.
ids = st.from_regex(r"[A-Z]{2,4}[0-9]{3,7}", fullmatch=True).filter(
    lambda value: not forms.number_of(value)
)


@given(ids, st.sampled_from(["{}", "id {}.", "({})", "#{}", '"{}"', "x: {}, y", "{};", "<{}>"]))
def test_statement_33_every_id_is_found_whole_and_never_in_part(value: str, form: str) -> None:
    said = form.format(value)
    assert backed(value, user(said))
    assert backed(value.lower(), result({"note": said}))
    assert not backed(value[:-1], user(said))
    assert not backed(value[1:], user(said))
    assert not backed(f"{value}9", user(said))


def test_statement_33_keys_of_a_result_are_ids_and_no_words() -> None:
    profile = result({"payment_methods": {"credit_card_44": {"economy": 3}}})
    assert backed("credit_card_44", profile)
    assert not backed("economy", profile)


def test_statement_33_json_within_strings_is_read() -> None:
    assert backed("ORD-77", result(json.dumps({"content": json.dumps([{"id": "ORD-77"}])})))


# What is skipped.


@pytest.mark.parametrize(
    "value",
    [True, False, None, 0, 10, -10, 3.0, "7", "", " ", "yes", "N/A", "none", {}, [], [[]]],
)
def test_statement_33_nothing_to_back(value: Any) -> None:
    assert leaves_of("zap", {"x": value}, "", {}) == []


@pytest.mark.parametrize("value", [11, -11, 10.5, "11", "ABC", float("inf"), float("nan")])
def test_statement_33_something_to_back(value: Any) -> None:
    assert [leaf.path for leaf in leaves_of("zap", {"x": value}, "", {})] == ["x"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("summary", "ABC123"),
        ("cancellation_reason", "weather"),
        ("orderNotes", "ring twice"),
        ("x", "The customer wants to cancel reservation ABC123 today"),
        ("x", "change of plan"),
    ],
)
def test_statement_33_free_text_is_skipped(key: str, value: str) -> None:
    assert leaves_of("zap", {key: value}, "", {}) == []


def test_statement_33_names_and_addresses() -> None:
    said = user("I am Ann Lee of 12 Long Street, Ohio 43210")
    assert unbacked({"full_name": "Ann Lee"}, said) == []
    assert unbacked({"full_name": "Bob Lee"}, said) == ["Bob Lee"]
    assert unbacked({"address": "12 Long St"}, said) == []
    assert unbacked({"address": "14 Long St"}, said) == ["14 Long St"]
    assert unbacked({"zip": "43210"}, said) == []


def test_statement_33_walks_nested_arguments() -> None:
    arguments = {
        "a": [{"b": {"c": ["ID-1", "ID-2"]}}, "ID-3"],
        "d": json.dumps({"e": ["ID-4"]}),
    }
    found = leaves_of("zap", arguments, "", {})
    assert [(leaf.path, leaf.value) for leaf in found] == [
        ("a[0].b.c[0]", "ID-1"),
        ("a[0].b.c[1]", "ID-2"),
        ("a[1]", "ID-3"),
        ("d.e[0]", "ID-4"),
    ]
    assert unbacked(arguments, user("ID-1, ID-3 and ID-4")) == ["ID-2"]


def test_statement_33_a_dispatcher_is_walked_and_its_tool_is_no_value() -> None:
    call_tool = {"tool": "update_trip", "arguments": {"trip_id": "T-100", "cabin": "business"}}
    found = leaves_of("call_tool", call_tool, "", DECLARED)
    assert [leaf.path for leaf in found] == ["arguments.trip_id", "arguments.cabin"]
    assert found[1].options == ("economy", "basic_economy", "business")
    as_text = {"tool": "update_trip", "arguments": json.dumps(call_tool["arguments"])}
    assert [leaf.value for leaf in leaves_of("call_tool", as_text, "", DECLARED)] == [
        "T-100",
        "business",
    ]


def test_statement_33_maps_from_ids() -> None:
    schema = {"counts": {"type": "object", "additionalProperties": {"type": "integer"}}}
    declared = declared_tools({"tools": [tool("set_counts", schema)]})
    found = leaves_of("set_counts", {"counts": {"item_1234": 2}}, "", declared)
    assert found == [Leaf("counts.item_1234", "item_1234")]


def test_statement_33_arguments_that_are_no_json_are_read_as_far_as_it_goes() -> None:
    assert unbacked('{"order_id": "ORD-77", "amount": 250, "n": 2,', user("250")) == ["ORD-77"]
    assert unbacked("[1,2]", user("x")) == []


def test_statement_33_the_walk_has_bounds() -> None:
    assert len(leaves_of("zap", {"x": ["ID-1"] * (MAX_LEAVES * 2)}, "", {})) == MAX_LEAVES
    deep: Any = "ID-1"
    for _ in range(200):
        deep = [deep]
    assert leaves_of("zap", {"x": deep}, "", {}) == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=25,
)


@given(st.dictionaries(st.text(), json_values), json_values)
def test_statement_33_what_a_tool_has_returned_as_it_is_backs_a_call(
    arguments: dict[str, Any], other: Any
) -> None:
    # A result of the same values in another shape: nothing of it may be flagged by its type.
    numbers = [v for v in _scalars(arguments) if isinstance(v, (int, float))]
    said = result({"values": numbers, "other": other})
    found = check(made("zap", {"n": numbers}), gather([said]), {})
    assert [each.leaf.value for each in found if each.leaf.value == each.leaf.value] in (
        [],
        [v for v in numbers if v in (float("inf"), float("-inf"))],
    )


@given(
    json_values,
    st.lists(st.dictionaries(st.sampled_from(["role", "content", "tool_calls"]), json_values)),
)
def test_statement_33_nothing_raises(arguments: Any, messages: list[dict[str, Any]]) -> None:
    said = gather(messages)
    schema = {"parameters": arguments, "name": "zap"}
    check(made("zap", arguments), said, {"zap": {"function": schema}})
    check(made("zap", {"x": arguments}), said, {"zap": {"function": arguments}})


def _scalars(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for member in value.values() for leaf in _scalars(member)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in _scalars(item)]
    return [] if isinstance(value, bool) else [value]


# Options.

TRIP = {
    "cabin": {"type": "string", "enum": ["economy", "basic_economy", "business"]},
    "kind": {"enum": ["one_way", "round_trip"], "type": "string"},
    "seat": {"anyOf": [{"type": "null"}, {"enum": ["window", "aisle"]}]},
    "speed": {"enum": ["standard", "express"], "default": "standard"},
    "meal": {"$ref": "#/$defs/Meal"},
}
OPTIONS = tool("book_trip", TRIP)
OPTIONS["function"]["parameters"]["$defs"] = {"Meal": {"enum": ["veganMeal", "none_at_all"]}}


def option(key: str, value: str, *messages: Any) -> bool:
    declared = declared_tools({"tools": [OPTIONS]})
    return unbacked({key: value}, *messages, tools=declared, name="book_trip") == []


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("cabin", "economy", "Economy please"),
        ("cabin", "basic_economy", "basic economy"),
        ("cabin", "basic_economy", "a Basic-Economy seat"),
        ("cabin", "economy", "economy, not basic economy"),
        ("kind", "round_trip", "a round trip"),
        ("kind", "round_trip", "two roundtrips"),
        ("kind", "one_way", "one-way"),
        ("seat", "window", "at the windows"),
        ("meal", "veganMeal", "a vegan meal"),
        ("meal", "none_at_all", "none of it at all"),
        ("speed", "standard", "ship it"),
    ],
)
def test_statement_33_an_option_that_is_named(key: str, value: str, said: str) -> None:
    assert option(key, value, user(said))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("cabin", "economy", "basic economy"),
        ("cabin", "business", "I travel for fun"),
        ("cabin", "business", "economy"),
        ("kind", "one_way", "to Boston"),
        ("seat", "aisle", "window"),
        ("speed", "express", "ship it"),
        ("meal", "veganMeal", "a meal"),
    ],
)
def test_statement_33_an_option_that_is_not_named(key: str, value: str, said: str) -> None:
    assert not option(key, value, user(said))
    assert not option(key, value, says(f"{said}: {value}"))


def test_statement_33_a_currency_by_its_sign() -> None:
    assert backed("USD", user("$50"))
    assert backed("EUR", user("50 euros"))
    assert not backed("GBP", user("$50"))
