"""Quotes: found only where they were said, heard, called or returned."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_scorer.judge.quotes import QuoteIndex, plain

HISTORY = [
    {"role": "user", "content": "cancel A B C 123 please"},
    {"role": "assistant", "tool_call": {"id": "c1", "name": "get_reservation_details",
                                        "arguments": {"reservation_id": "ABC123", "n": 2}}},
    {"role": "tool", "id": "c1", "name": "get_reservation_details",
     "result": {"note": "say \"no\" <now>", "cabin": "basic_economy"}},
    {"role": "assistant", "content": "I\u2019m sorry, it cannot be cancelled.",
     "unspoken": "But I could refund you."},
    {"role": "user", "content": "That is a pity."},
]  # fmt: skip
INDEX = QuoteIndex(HISTORY)


@pytest.mark.parametrize(
    "quote",
    [
        "it cannot be cancelled",
        "IT CANNOT BE CANCELLED!",
        '"I\u2019m sorry, it cannot be cancelled."',
        "I'm sorry,\nit cannot be cancelled.",
        "I'm sorry ... cannot be cancelled",
        "I'm sorry … cancelled. [...] a pity",
        "it cannot be cancelled. That is a pity.",
        'get_reservation_details {"reservation_id": "ABC123", "n": 2}',
        "get_reservation_details(ABC123, 2)",
        "ABC123, 2",
        '"cabin": "basic_economy"',
        'say \\"no\\" \\u003cnow\\u003e',
    ],
)
def test_found(quote):
    assert INDEX.has(quote)


@pytest.mark.parametrize(
    "quote",
    [
        "",
        "...",
        "?!",
        "it can be cancelled",
        "not be cancel",  # Whole words.
        "a pity ... I'm sorry",  # In this order.
        "But I could refund you",  # Nobody heard it.
        "a quote that nobody said",
    ],
)
def test_not_found(quote):
    assert not INDEX.has(quote)


words = st.lists(st.sampled_from(["alpha", "beta", "x1"]), min_size=1, max_size=12)


@given(said=words, data=st.data())
def test_a_run_of_words_is_found_and_others_are_not(said, data):
    index = QuoteIndex([{"role": "assistant", "content": " ".join(said)}])
    first = data.draw(st.integers(0, len(said) - 1))
    last = data.draw(st.integers(first + 1, len(said)))
    assert index.has(", ".join(said[first:last]).upper())
    other = data.draw(words)
    runs = [said[at : at + len(other)] for at in range(len(said))]
    assert index.has(" ".join(other)) is (other in runs)


@given(st.text(max_size=30))
def test_plain_is_plain_already(text):
    assert plain(plain(text)) == plain(text)
