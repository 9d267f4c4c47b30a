import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_voice.speech import spell, to_spoken

TABLE = {
    # Identifiers.
    "My user id is daiki_muller_1116.": "My user id is: D, A, I, K, I, underscore, M, U, L, L, E, "
    "R, underscore, one, one, one, six.",
    "Code 4WQ150.": "Code: four, W, Q, one, five, zero.",
    "Flight HAT003.": "Flight: H, A, T, zero, zero, three.",
    "gift_card_1642017": "G, I, F, T, underscore, C, A, R, D, underscore, one, six, four, two, "
    "zero, one, seven",
    "From New York (JFK).": "From New York, J, F, K.",
    "JFK to SFO": "J, F, K to S, F, O",
    "My code is XEHMPM.": "My code is: X, E, H, M, P, M.",
    "HAT001, HAT002": "H, A, T, zero, zero, one; H, A, T, zero, zero, two",
    "seat 7B": "seat seven, B",
    # Spelled already.
    "D-A-I-K-I": "D, A, I, K, I",
    "D, A, I, K, I": "D, A, I, K, I",
    "D-A-I underscore 1-1-1-6": "D, A, I, underscore, one, one, one, six",
    "4 W Q 1 5 0": "four, W, Q, one, five, zero",
    # Values and emphasis are words.
    "basic_economy": "basic economy",
    "I do NOT want that": "I do not want that",
    # Money.
    "$1,234.50": "one thousand two hundred thirty-four dollars and fifty cents",
    "$1": "one dollar",
    "$0.99": "ninety-nine cents",
    "-$50": "minus fifty dollars",
    "$1.2 million": "one point two million dollars",
    "It is 50 USD.": "It is fifty dollars.",
    # Dates and times.
    "2024-05-19": "May nineteenth, twenty twenty-four",
    "May 20, 2024": "May twentieth, twenty twenty-four",
    "May 1st": "May first",
    "05/20/2024": "May twentieth, twenty twenty-four",
    "2024-05-15T15:00:00": "May fifteenth, twenty twenty-four at three p.m.",
    "at 3:00 p.m.": "at three p.m.",
    "at 3pm. Then": "at three p.m. Then",
    "14:05": "two oh five p.m.",
    "06:00": "six a.m.",
    "9:30": "nine thirty",
    "It's 2 a.m. Now": "It's two a.m. Now",
    "in 1990": "in nineteen ninety",
    # Other numbers.
    "20%": "twenty percent",
    "the 3rd bag": "the third bag",
    "the 21st": "the twenty-first",
    "1,500 miles": "one thousand five hundred miles",
    "3.5": "three point five",
    "2-3 days": "two to three days",
    "1/2": "one half",
    "10kg": "ten kilograms",
    "555-123-4567": "five, five, five, one, two, three, four, five, six, seven",
    "zip code 77036": "zip code seven, seven, zero, three, six",
    "card ending in 7447": "card ending in seven, four, four, seven",
    "A & B": "A and B",
    # Markup.
    "**Bold** and _soft_ `code`": "Bold and soft code",
    "# Options\n\n1. First\n2. Second": "Options. one: First. two: Second",
    "- bags\n- seats": "bags. seats",
    "| a | b |\n|---|---|": "a, b",
    "See [the policy](https://example.com/x).": "See the policy.",
    "Yes — of course…": "Yes, of course.",
    # Nothing to say.
    "": "",
    "...": "",
    "👍": "",
}


@pytest.mark.parametrize(("text", "spoken"), TABLE.items())
def test_table(text, spoken):
    assert to_spoken(text) == spoken


@pytest.mark.parametrize("text", [t for t in TABLE if t])
def test_saying_a_spoken_form_again_changes_nothing(text):
    once = to_spoken(text)
    assert to_spoken(once) == once


PIECES = st.sampled_from(
    [
        "daiki_muller_1116",
        "4WQ150",
        "HAT003",
        "$",
        "1,234.50",
        "2024-05-19",
        "3:00",
        "p.m.",
        "%",
        "&",
        "(",
        ")",
        "**",
        "_",
        "`",
        "#",
        "-",
        ".",
        ",",
        ":",
        "/",
        "JFK",
        "12",
        "0",
        "D-A-I",
        "underscore",
        "USD",
        "@",
        "\n",
        "|",
        "[a](b)",
        "<b>",
        "½",
        "²",
        "٣",
        "Ⅷ",
        "'",
        '"',
        "—",
        "A",
        "I",
        "um",
    ]
)
TEXTS = st.one_of(
    st.text(max_size=200),
    st.lists(PIECES, max_size=20).map("".join),
    st.lists(PIECES, max_size=20).map(" ".join),
    st.text(alphabet="0123456789-/:,.$%APM amp_stndrh", max_size=60),
)


@given(TEXTS)
def test_no_digit_no_markup_bounded(text):
    spoken = to_spoken(text)
    assert not any(map(str.isdigit, spoken))
    assert not set(spoken) & set('*_`#|<>[](){}$%&@\n\t\x1f"/\\')
    assert len(spoken) <= 20 * len(text)
    assert spoken == "" or any(map(str.isalpha, spoken))


@pytest.mark.parametrize(
    "unit", ["[", "*", "a_", "1", "1,", "1-", "A ", "$", "1:", " ", "-'", "(AAA)", "\n- ", "x@"]
)
def test_time_grows_with_length_not_faster(unit):
    to_spoken(unit)
    started = time.perf_counter()
    to_spoken(unit * (50_000 // len(unit)))
    # Quadratic behaviour took minutes at this length.
    assert time.perf_counter() - started < 20


def test_spell():
    assert spell("GV1_x-") == "G, V, one, underscore, X, dash"
