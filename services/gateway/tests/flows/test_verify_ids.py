"""Statement 15: no new value brings in an id that nobody has said."""

import json
import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tau2eval_gateway.flows.quotes import fold, said_in
from tau2eval_gateway.flows.verify_ids import declared_strings, stands_in, unknown_ids


def said(*texts):
    return said_in([{"role": "user", "content": text} for text in texts])


def unknown(value, *texts, **more):
    return unknown_ids(value, said(*texts), **more)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("123", "It is 91234."),
        ("123", "Orders 1234, 0123 and ORD-123."),
        ("123", "mail me at 123@example.org or pay 123.50"),
        (123, "the number 91234"),
        ("ABC123", "ABC1234 and XABC123"),
        ("W2378156", "#W23781567"),
        ("credit_card_44", "credit_card_4421"),
        ("card_4421", "credit_card_4421"),
        ("HATHAT", "nothing of the kind"),
        ("gift_card", "gift card"),
        ("qwertz", "keyboards"),
        ("mia_li", "mia_lin"),
        ("JFK", "I fly from New York"),
        ("ABC/123", "ABC and 123"),
        ("ABC\u200b123", "ABC 123"),
        ("\u200bABC123", "ABC123"),
        ("\u0410BC123", "ABC123"),  # The first letter is Cyrillic.
        ("\uff11\uff12\uff13", "123"),
        ("see order 55512 please", "see order 5551 please"),
        ("for member KLMNOP", "for a member"),
        ("for user_x", "for the user"),
        ("a token aBcDeF", "a token"),
        (["known", "W999"], "known"),
        ({"inner": {"id": "W999"}}, "inner id"),
        ({"W999": 1}, "nothing"),
        ('{"id": "W999"}', "nothing"),
        ("2024-13-45", "no day"),
    ],
)
def test_statement_15_ids_that_nobody_said(value, text):
    assert unknown(value, text, key="order_id")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("123", "order 123."),
        ("123", "(123), #123 and https://x/orders/123"),
        ("123", '{"id":123,"n":1}'),
        (123, "number 123"),
        ("abc123", "ABC123's case"),
        ("ABC123", "the code is abc123"),
        ("#W2378156", "W2378156"),
        ("W2378156", "#W2378156"),
        ("credit_card_4421", '["credit_card_4421"]'),
        ("HATHAT", "my code, HATHAT, is old"),
        ("ABC123", "订单ABC123请取消"),
        ("mia@example.org", "write to mia@example.org."),
        ("business", "Business class, please"),
        (["A1", "B2"], "B2 then A1"),
        ({"order": "A1"}, "order A1"),
        (True, "nothing"),
        (None, "nothing"),
        (3, "nothing"),
        (10, "nothing"),
        (2.75, "nothing"),
        (float("nan"), "nothing"),
        (float("inf"), "nothing"),
        ("yes", "nothing"),
        ("", "nothing"),
        ("2024-05-20", "on May 20th"),
        ("2024-05-20T10:30:00Z", "on May 20th"),
        ("10:30", "half past ten"),
        ("5/20/2024", "on May 20th"),
        ("$1,250.00", "nothing"),
        ("The guest has changed plans since then", "nothing"),
        ("A refund of $150.25 on 2024-05-20 for 2 bags (50%)", "nothing"),
        ("He stays 2 nights on the 3rd floor", "nothing"),
    ],
)
def test_statement_15_what_was_said_and_what_is_no_id(value, text):
    assert not unknown(value, text, key="order")


def test_statement_15_amounts_are_computed_and_ids_are_not():
    assert not unknown(450, "nothing", key="amount")
    assert not unknown("450", "nothing", key="totalPrice")
    assert unknown(450, "nothing", key="order_id")
    assert unknown(450, "nothing", key="account_balance_id")
    assert unknown("450", "nothing", key="room")
    assert not unknown({"payments": [{"payment_id": "P1", "amount": 207}]}, "P1")


def test_statement_15_declared_options_are_no_ids():
    tool = {
        "function": {
            "name": "book",
            "parameters": {
                "properties": {
                    "cabin": {"enum": ["economy", "basic_economy"]},
                    "kind": {"anyOf": [{"const": "one_way"}]},
                }
            },
        }
    }
    declared = declared_strings(tool)
    assert not unknown({"cabin": "basic_economy", "kind": "one_way"}, "nothing", declared=declared)
    assert unknown({"cabin": "basic_luxury"}, "nothing", declared=declared)
    assert unknown({"cabin": "basic_economy"}, "nothing")


def test_statement_15_what_stood_there_before_is_not_brought_in():
    before = "refund for X12 to card_9"
    assert not unknown("refund for X12, approved, to card_9", "nothing", before=before)
    assert unknown("refund for X13", "nothing", before=before)


def test_statement_15_results_with_escapes_hold_their_ids():
    result = json.dumps({"text": "first\nABC123\té", "list": ["H\u00e9-77"]})
    messages = [{"role": "tool", "content": result}]
    assert not unknown_ids(["ABC123", "Hé-77"], said_in(messages))


def test_statement_15_arguments_of_earlier_calls_say_nothing():
    call = {"id": "c", "function": {"name": "get_user", "arguments": '{"id": "made_up_1"}'}}
    assert unknown_ids("made_up_1", said_in([{"role": "assistant", "tool_calls": [call]}]))


IDS = st.from_regex(r"[A-Za-z0-9_]{3,12}", fullmatch=True).filter(
    lambda text: (
        not text.isdigit()
        and text.casefold() not in ("true", "false", "yes", "none")
        # 3rd is no id.
        and not re.fullmatch(r"\d{1,2}(st|nd|rd|th)", text.casefold())
    )
)


@given(IDS, IDS, IDS)
def test_statement_15_a_part_of_an_id_is_not_that_id(before, token, after):
    text = f"the code {before}{token}{after} is mine"
    assume(fold(token) not in fold(text).split())
    assert unknown(token, text)


@given(IDS, st.sampled_from(" ,;:()[]{}'\"!?/=|\n\t"), st.sampled_from(" ,;:()[]{}'\"!?/=|\n"))
def test_statement_15_a_whole_token_is_found_beside_any_separator(token, left, right):
    assert not unknown(token, f"x{left}{token}{right}y")
    assert stands_in(token.casefold(), f"{token.casefold()}")


@given(st.recursive(IDS, lambda inner: st.lists(inner) | st.dictionaries(st.just("k"), inner)))
def test_statement_15_every_leaf_of_a_value_is_looked_at(value):
    leaves = []

    def walk(current):
        if isinstance(current, str):
            leaves.append(current)
        elif isinstance(current, dict):
            for inner in current.values():
                walk(inner)
        else:
            for inner in current:
                walk(inner)

    walk(value)
    assert sorted(unknown(value, "nothing here")) == sorted(leaves)
    assert not unknown(value, " ".join(leaves))
