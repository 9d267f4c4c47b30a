"""Statement 11: what counts as a quote."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_gateway.flows.quotes import is_quoted, said_in

RULES = "Cancel only within 24 hours of booking.\n\n  Ask for   confirmation first."
MESSAGES = [
    {"role": "system", "content": RULES},
    {"role": "user", "content": [{"type": "text", "text": "I changed my mind"}]},
    {"role": "assistant", "content": "Your fare cannot be refunded, sadly."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c", "function": {"name": "get_x", "arguments": '{"q": "written by model"}'}}
        ],
    },
    {
        "role": "tool",
        "tool_call_id": "c",
        "content": json.dumps({"status": "flown already", "note": 'the "late" café\nopens'}),
    },
]


def quoted(quote, messages=MESSAGES):
    return is_quoted(quote, said_in(messages))


@pytest.mark.parametrize(
    "quote",
    [
        "within 24 hours of booking",
        "WITHIN 24 hours\n of  Booking",
        "Ask for confirmation",
        "of booking. Ask for",
        "i changed my mind",
        "cannot be refunded",
        '"status": "flown already"',
        'the "late" café',
        'the \\"late\\" caf\\u00e9',
        'late" CAFÉ opens',
        "\u2003within\u00a024\u2028hours ",
    ],
)
def test_statement_11_excerpts_of_one_message_count(quote):
    assert quoted(quote)


@pytest.mark.parametrize(
    "quote",
    [
        "",
        "           ",
        "of booking.",  # 11 characters
        "of  \n  \n   \n   booking.",  # No longer once its white space is folded.
        "of booking.\u200b\u200b\u200b",
        "------------",
        "within24hoursofbooking",  # White space is folded, not dropped.
        "with in 24 hours of booking",
        "within 24 hour s of booking",
        "\uff57\uff49\uff54\uff48\uff49\uff4e 24 hours of booking",
        "within 24 h\u043eurs of booking",  # A Cyrillic o.
        "within\u200b 24 hours of booking",
        "within 24 hours of the booking",
        "confirmation first. I changed my mind",
        "my mind Your fare cannot",
        "written by model",  # Arguments of an earlier call were said to nobody.
        "a sentence that nobody has said",
        "within 24 ... of booking",
    ],
)
def test_statement_11_other_excerpts_do_not(quote):
    assert not quoted(quote)


def test_statement_11_joining_messages_is_refused_for_any_cut():
    whole = "the traveller asked for a window seat"
    for at in range(1, len(whole)):
        halves = [
            {"role": "user", "content": whole[:at]},
            {"role": "user", "content": whole[at:]},
        ]
        assert not quoted(whole, halves)
        assert quoted(whole, [{"role": "user", "content": whole}])


def test_statement_11_a_dash_run_needs_a_letter_even_when_it_is_there():
    assert not quoted("-" * 20, [{"role": "system", "content": "-" * 40}])


def test_statement_11_twelve_characters_are_enough_and_eleven_are_not():
    messages = [{"role": "user", "content": "abcdefghijklmnop"}]
    assert quoted("abcdefghijkl", messages)
    assert not quoted("abcdefghijk", messages)


def test_statement_11_letters_that_fold_to_two_do_not_lengthen_a_quote():
    messages = [{"role": "user", "content": "ßßßßßßßß ssssssssssssssss"}]
    assert not quoted("ßßßßßßß", messages)


def test_statement_11_json_within_json_is_read():
    inner = json.dumps({"reason": "weather at the airport"})
    messages = [{"role": "tool", "content": json.dumps({"result": inner})}]
    assert quoted('"reason": "weather at the airport"', messages)


def test_statement_11_strange_messages_are_passed_over():
    deep = "[" * 100_000
    messages = [
        {"role": "user", "content": None},
        {"role": "user"},
        {"role": "user", "content": [None, 3, {"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "tool", "content": deep},
        {"role": "user", "content": {"text": "not a form of content"}},
    ]
    assert not quoted("not a form of content", messages)


@given(st.text(max_size=80), st.text(max_size=80), st.text(min_size=12, max_size=40))
def test_statement_11_what_holds_stands_in_a_message(before, after, quote):
    messages = [{"role": "user", "content": before + quote + after}]
    folded = " ".join(quote.split()).casefold()
    held = quoted(quote, messages)
    other = quoted(quote, [{"role": "user", "content": before}, {"role": "tool", "content": after}])
    if held:
        assert len(" ".join(quote.split())) >= 12
    if other:
        assert (
            folded in " ".join(before.split()).casefold()
            or folded in " ".join(after.split()).casefold()
        )


def test_statement_11_escapes_do_not_lengthen_a_quote():
    messages = [{"role": "tool", "content": json.dumps({"name": "éé"})}]
    assert not quoted("éé", messages)
    assert not quoted("\\u0061\\u0062", [{"role": "user", "content": "xaby"}])


def test_statement_11_unseen_characters_do_not_lengthen_a_quote():
    said = "of booking\u200b\u200b\u200b\u200b and so on"
    assert not quoted("of booking\u200b\u200b\u200b\u200b", [{"role": "user", "content": said}])
    assert quoted("of booking\u200b\u200b\u200b\u200b and", [{"role": "user", "content": said}])


def test_statement_11_json_in_one_part_of_a_message_is_read():
    inner = json.dumps({"rule": 'Say "please" before you cancel'})
    texts = ["Result:", json.dumps({"answer": inner})]
    content = [{"type": "text", "text": text} for text in texts]
    said = said_in([{"role": "tool", "tool_call_id": "c", "content": content}])
    assert is_quoted('Say "please" before you cancel', said)
