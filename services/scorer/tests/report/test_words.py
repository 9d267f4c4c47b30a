"""Words said against words heard, for the eye."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau2eval_scorer.report.words import MAX_PAIRS, compare


def marked(parts):
    return [part.text for part in parts if part.differs]


@pytest.mark.parametrize(
    ("said", "heard"),
    [
        ("Hello, World!", "hello world"),
        ("It costs $50.", "it costs fifty dollars"),
        ("on May 26 at 3 p.m.", "On May 26th at 3 PM"),
        ("My code is GV1N64.", "my code is G V 1 N 6 4"),
        ("from JFK", "from J F K"),
        ("user amelia_davis_8890", "user amelia_davis_8890."),
        ("I can't", "I cannot"),
        ("", ""),
    ],
)
def test_notation_is_no_difference(said, heard):
    result = compare(said, heard)
    assert result.compared
    assert not marked(result.said), result
    assert not marked(result.heard), result
    assert result.differences == 0


def test_differences_are_marked_on_both_sides_as_whole_written_words():
    result = compare("My code is GV1N64, thanks.", "My code is G V 1 and 6 4 thank")
    assert marked(result.said) == ["GV1N64, thanks."]
    assert marked(result.heard) == ["and", "thank"]


def test_nothing_heard_marks_all_that_was_said():
    result = compare("one two", "")
    assert marked(result.said) == ["one two"]
    assert result.heard == ()


def test_a_turn_too_long_to_align_is_shown_unmarked_and_says_so():
    text = "word " * (int(MAX_PAIRS**0.5) + 2)
    result = compare(text, text)
    assert not result.compared
    assert result.said[0].text == text.strip()


texts = st.text(st.sampled_from("ab1$%.,'-_ \u00e9\u2019<&\n"), max_size=60)


@settings(deadline=None)
@given(texts, texts)
def test_no_word_is_lost_or_moved(said, heard):
    result = compare(said, heard)
    assert " ".join(part.text for part in result.said) == " ".join(said.split())
    assert " ".join(part.text for part in result.heard) == " ".join(heard.split())


@settings(deadline=None)
@given(texts)
def test_the_same_words_never_differ(said):
    result = compare(said, said)
    assert not marked(result.said)
    assert not marked(result.heard)
