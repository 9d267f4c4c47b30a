"""Majorities of votes, as properties."""

from hypothesis import given
from hypothesis import strategies as st

from tau2eval_scorer.judge.majority import judged, settled
from tau2eval_scorer.judge.parse import Answer, Decision
from tau2eval_scorer.judge.quotes import QuoteIndex
from tau2eval_scorer.judge.result import JudgeResult


def vote(passes):
    return Answer(0.5, "", tuple(Decision(passed, str(passed), "") for passed in passes))


@st.composite
def ballots(draw):
    """Votes on the same claims, an odd number, of which some were not had."""
    count = draw(st.integers(0, 4))
    asked = draw(st.integers(0, 3)) * 2 + 1
    row = st.lists(st.booleans(), min_size=count, max_size=count)
    rows = draw(st.lists(row, min_size=0, max_size=asked))
    return count, asked, rows


@given(ballots())
def test_what_failed_votes_could_have_turned_is_not_settled(ballot):
    """Settled exactly when every way to fill in the missing votes gives the same verdicts."""
    count, asked, rows = ballot
    missing = asked - len(rows)
    certain = [
        (sum(row[at] for row in rows) * 2 > asked)
        == ((sum(row[at] for row in rows) + missing) * 2 > asked)
        for at in range(count)
    ]
    expected = all(certain) and len(rows) * 2 > asked
    assert settled([vote(row) for row in rows], count, asked) is expected


@given(ballots())
def test_the_majority_of_what_is_settled(ballot):
    count, asked, rows = ballot
    answers = [vote(row) for row in rows]
    if not settled(answers, count, asked):
        return
    claims = [f"claim {at}" for at in range(count)]
    result = judged(JudgeResult("error", votes=asked), claims, answers, QuoteIndex())
    for at, verdict in enumerate(result.verdicts):
        column = [row[at] for row in rows]
        assert verdict.votes == tuple(column)
        assert column.count(verdict.passed) * 2 > asked
        assert verdict.reason == str(verdict.passed)
        assert 0.5 < verdict.agreement <= 1
    assert len(result.verdicts) == count
    assert result.judged
