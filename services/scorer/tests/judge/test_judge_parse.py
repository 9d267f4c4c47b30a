"""Answers of a judge: read whole and in form, or refused; nothing is ever guessed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_scorer.judge.parse import BadAnswer, parse_answer


def verdict(index=1, passed=True, **fields):
    return {"index": index, "passed": passed, "reason": "r", "quote": "q", **fields}


def answer(*verdicts, **fields):
    return {"score": 0.5, "reason": "all", "nl_assertion_verdicts": list(verdicts), **fields}


def without(value, name):
    return {key: item for key, item in value.items() if key != name}


GOOD = answer(verdict(2, False), verdict(1, True))


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(GOOD),
        json.dumps(GOOD, indent=2) + "\n",
        f"```json\n{json.dumps(GOOD)}\n```",
        f"```\n{json.dumps(GOOD)}```",
        json.dumps({**GOOD, "confidence": 3}),
    ],
)
def test_a_whole_answer_is_put_in_order(text):
    read = parse_answer(text, 2)
    assert [decision.passed for decision in read.decisions] == [True, False]
    assert (read.score, read.reason) == (0.5, "all")


def test_reasons_and_quotes_may_be_missing():
    read = parse_answer(
        json.dumps({"score": 1, "nl_assertion_verdicts": [{"index": 1, "passed": False}]}), 1
    )
    assert (read.decisions[0].passed, read.decisions[0].reason) == (False, "")


def test_without_assertions_the_score_is_all():
    assert parse_answer('{"score": 0.25}', 0).score == 0.25
    assert parse_answer(json.dumps(answer()), 0).decisions == ()


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (answer(verdict(1)), "no verdict on 2"),
        (answer(), "no verdict on 1, 2"),
        (answer(verdict(1), verdict(2), verdict(2)), "two verdicts on assertion 2"),
        (answer(verdict(1), verdict(2), verdict(2, False)), "two verdicts on assertion 2"),
        (answer(verdict(1), verdict(2), verdict(3)), "not there"),
        (answer(verdict(0), verdict(1), verdict(2)), "not there"),
        (answer(verdict(-1), verdict(2)), "not there"),
        (answer(verdict("1"), verdict(2)), "not an integer"),
        (answer(verdict(1.0), verdict(2)), "not an integer"),
        (answer(verdict(True), verdict(2)), "not an integer"),
        (answer(verdict(None), verdict(2)), "not an integer"),
        (answer(verdict(1, "yes"), verdict(2)), "neither true nor false"),
        (answer(verdict(1, 1), verdict(2)), "neither true nor false"),
        (answer(verdict(1, None), verdict(2)), "neither true nor false"),
        (answer(without(verdict(1), "passed"), verdict(2)), "neither true nor false"),
        (answer(verdict(1, reason=3), verdict(2)), "reason is not a text"),
        (answer(verdict(1, quote=["x"]), verdict(2)), "quote is not a text"),
        (answer("1: pass", verdict(2)), "not an object"),
        (without(answer(), "nl_assertion_verdicts"), "not a list"),
        (answer(nl_assertion_verdicts={"1": True, "2": True}), "not a list"),
        (without(answer(verdict(1), verdict(2)), "score"), "score is missing"),
        (answer(verdict(1), verdict(2), score=None), "score is missing"),
        (answer(verdict(1), verdict(2), score="1"), "score is missing or not"),
        (answer(verdict(1), verdict(2), score=True), "score is missing or not"),
        (answer(verdict(1), verdict(2), score=1.01), "not from 0 to 1"),
        (answer(verdict(1), verdict(2), score=-0.01), "not from 0 to 1"),
        (answer(verdict(1), verdict(2), score=10**400), "not from 0 to 1"),
        (answer(verdict(1), verdict(2), score=float("nan")), "NaN"),
        (answer(verdict(1), verdict(2), score=float("inf")), "Infinity"),
        ([answer(verdict(1), verdict(2))], "not a JSON object"),
        ("yes", "not a JSON object"),
    ],
)
def test_what_is_not_in_form_is_refused(value, problem):
    with pytest.raises(BadAnswer, match=problem):
        parse_answer(json.dumps(value), 2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Both hold.",
        json.dumps(GOOD)[:-1],
        f"{json.dumps(GOOD)} {json.dumps(GOOD)}",
        f"Here you are:\n```json\n{json.dumps(GOOD)}\n```",
        f"```json\n{json.dumps(GOOD)}\n```\n```json\n{json.dumps(GOOD)}\n```",
        # Given twice: nobody knows which one is meant.
        '{"score": 1, "nl_assertion_verdicts": [{"index": 1, "passed": false, "passed": true}, '
        '{"index": 2, "passed": true}]}',
        '{"score": 1, "nl_assertion_verdicts": [], "nl_assertion_verdicts": '
        '[{"index": 1, "passed": true}, {"index": 2, "passed": true}]}',
        '{"score": 1e999, "nl_assertion_verdicts": [{"index": 1, "passed": true}, '
        '{"index": 2, "passed": true}]}',
        "[" * 100_000,
        "9" * 10_000,
    ],
)
def test_text_that_is_not_one_answer_is_refused(text):
    with pytest.raises(BadAnswer):
        parse_answer(text, 2)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 4) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
indices = st.integers(-1, 4) | st.sampled_from(["1", 1.0, True, None])
verdicts = st.fixed_dictionaries(
    {"index": indices, "passed": st.booleans() | st.sampled_from(["yes", 1, 0, None])},
    optional={"reason": st.text(max_size=3) | st.none(), "quote": json_values},
)
answers = st.fixed_dictionaries(
    {},
    optional={
        "score": st.floats(0, 1) | st.floats() | json_values,
        "reason": json_values | st.text(max_size=3),
        "nl_assertion_verdicts": st.lists(verdicts, max_size=4) | json_values,
    },
)


@given(value=answers | json_values, count=st.integers(0, 3))
def test_any_answer_is_read_as_it_stands_or_refused(value, count):
    """What is read is exactly what stands there: one boolean for each number, none made up."""
    try:
        read = parse_answer(json.dumps(value), count)
    except BadAnswer:
        return
    given_verdicts = value["nl_assertion_verdicts"] if count else []
    assert [decision.passed for decision in read.decisions] == [
        item["passed"] for item in sorted(given_verdicts, key=lambda item: item["index"])
    ]
    assert sorted(item["index"] for item in given_verdicts) == list(range(1, count + 1))
    assert 0 <= read.score <= 1
    assert read.score == value["score"]


@given(
    passes=st.lists(st.booleans(), max_size=9),
    score=st.floats(0, 1),
    data=st.data(),
)
def test_every_answer_in_form_is_read(passes, score, data):
    items = [verdict(at, passed) for at, passed in enumerate(passes, start=1)]
    shuffled = data.draw(st.permutations(items))
    text = json.dumps(answer(*shuffled, score=score))
    if data.draw(st.booleans()):
        text = f"```json\n{text}\n```"
    read = parse_answer(text, len(passes))
    assert [decision.passed for decision in read.decisions] == passes


@given(st.text(max_size=200), st.integers(0, 3))
def test_no_text_breaks_the_reader(text, count):
    with pytest.raises(BadAnswer):
        parse_answer(text, count)
