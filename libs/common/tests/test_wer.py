import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_common.wer import normalize, score

# Said as a spoken form, and the same as recognisers write it.
SAME = [
    ("five bags", "5 bags"),
    ("fifty dollars", "$50"),
    ("one thousand two hundred thirty-four dollars and fifty cents", "$1,234.50"),
    ("one thousand two hundred thirty-four", "1234"),
    ("two million dollars", "$2 million"),
    ("twenty percent", "20%"),
    ("May nineteenth, twenty twenty-four", "May 19th, 2024"),
    ("May nineteenth, twenty twenty-four", "May 19, 2024."),
    ("May nineteenth, two thousand twenty-four", "May 19, 2024"),
    ("nineteen ninety", "1990"),
    ("three p.m.", "3pm"),
    ("three p.m. is fine", "3 PM is fine"),
    ("three p.m.", "3:00 p.m."),
    ("three o'clock", "3:00"),
    ("nine fifteen a.m.", "9.15 am"),
    ("two oh five p.m.", "2:05 P.M."),
    ("I can't, it's late", "I cannot, it is late"),
    ("I'm sure we'll", "I am sure we will"),
    ("a one-way trip", "a one way trip"),
    ("OK, Mr. Smith", "okay mister Smith"),
    ("bags and seats", "bags & seats"),
    ("three point five", "3.5"),
    ("the twenty-first", "the 21st"),
]
IDENTIFIERS = [
    ("D, A, I, K, I, underscore, L, I, underscore, one, one, one, six", "DAIKI_LI_1116"),
    ("D, A, I, K, I, underscore, L, I, underscore, one, one, one, six", "D-A-I-K-I underscore "
     "L-I underscore 1116"),
    ("D, A, I, K, I, underscore, L, I, underscore, one, one, one, six", "daiki_li_1116"),
    ("one, six, four, two, zero, one, seven", "1-64-2-01-7"),
    ("four, W, Q, one, five, zero", "4WQ150"),
    ("H, A, T, zero, zero, three", "H, A, T, 0, 0, 3"),
    ("J, F, K", "JFK"),
    ("J, F, K", "J.F.K."),
    ("seven, four, four, seven", "7447"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "heard"), SAME)
def test_notations_of_the_same_words_are_no_errors(said, heard):
    result = score([said], [heard])
    assert result["ordinary_errors"] == 0
    assert result["words"] > 1
    assert result["identifiers"] == 0


@pytest.mark.parametrize(("said", "heard"), IDENTIFIERS)
def test_spelled_identifiers_are_kept_apart(said, heard):
    result = score([f"It is: {said}."], [f"It is {heard}."])
    assert result["words"] == 2
    assert result["identifiers"] == result["exact_identifiers"] == 1
    assert result["ordinary_errors"] == result["identifier_errors"] == 0


@pytest.mark.parametrize(
    ("said", "heard", "errors", "words"),
    [
        ("I want to fly home", "I want fly home", 1, 5),
        ("I want to fly home", "I want to fly to home", 1, 5),
        ("I want to fly home", "I want too fly home", 1, 5),
        ("five bags", "9 bags", 1, 2),
        ("fifty dollars", "$15", 1, 2),
        ("um, yes", "yes", 1, 2),
        ("yes", "", 1, 1),
        ("I cannot", "I can", 1, 3),
        ("for two", "42", 1, 2),
        ("yes", "thank you for watching yes", 4, 1),
    ],
)
def test_what_is_wrong_counts(said, heard, errors, words):
    result = score([said], [heard])
    assert (result["ordinary_errors"], result["words"]) == (errors, words)
    assert result["ordinary_wer"] == errors / words


def test_errors_inside_identifiers_do_not_count_as_ordinary_words():
    said = ["Code: four, W, Q, one, five, zero, please."]
    result = score(said, ["Code for WQ150 please."])
    assert result["ordinary_wer"] == 0
    assert result["identifier_errors"] == 1
    assert result["identifier_wer"] == pytest.approx(1 / 6)
    assert result["exact_identifiers"] == 0


def test_utterances_may_be_cut_otherwise_when_heard():
    said = ["Hello, this is Sam.", "How may I help?"]
    assert score(said, ["Hello this", "is Sam how may I", "help?"])["ordinary_errors"] == 0


def test_inaudible_is_not_a_word():
    assert score(["yes"], ["(inaudible)", "yes"])["ordinary_errors"] == 0


def test_nothing_said_or_heard():
    assert score([], [])["ordinary_wer"] is None
    assert score([], ["hello there"])["ordinary_errors"] == 2
    assert score(["hello there"], [])["ordinary_wer"] == 1
    assert score(["", "..."], ["👍"])["words"] == 0


def test_an_hour_of_speech():
    said = ["Your total is one thousand two hundred dollars, and it is: H, A, T, zero, one."] * 800
    result = score(said, ["Your total is $1,200 and it is HAT01."] * 799)
    assert result["words"] == 11 * 800
    assert result["exact_identifiers"] == 799
    assert result["ordinary_errors"] == 11


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_text_is_scored(said, heard):
    result = score([said], [heard])
    assert result["words"] + result["identifier_tokens"] >= 0
    assert 0 <= result["exact_identifiers"] <= result["identifiers"]


@given(st.lists(st.text(max_size=60), max_size=5))
def test_hearing_what_was_said_is_no_error(texts):
    said = [" ".join(normalize(text)) for text in texts]
    result = score(said, said)
    assert result["ordinary_errors"] == result["identifier_errors"] == 0
