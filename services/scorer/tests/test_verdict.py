"""The rules of the verdict, as tables and as properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_scorer.judge import AssertionVerdict, JudgeResult
from tau2eval_scorer.record import StopReason
from tau2eval_scorer.signals import (
    ACTION_MATCH,
    CLEAN_EXIT,
    DB_STATE_MATCH,
    JUDGE_PASSED,
    NL_ASSERTION,
    DbState,
    Signal,
    Status,
    action_match,
    clean_exit,
    db_state_match,
    judge_passed,
    nl_assertion,
)
from tau2eval_scorer.verdict import Evidence, Outcome, compose

GATES = (DB_STATE_MATCH, CLEAN_EXIT)


def evidence(reason=StopReason.AGENT_EXIT, db="exact", actions=True, **fields):
    state = DbState(True, "e", "a", db)
    signals = {
        signal.name: signal
        for signal in (db_state_match(state), clean_exit(reason), action_match(actions))
    }
    values = {
        "stop_reason": reason,
        "stop_detail": "",
        "signals": signals,
        "success_signals": GATES,
        "agent_turns": 3,
        "min_agent_turns": 2,
        **fields,
    }
    return Evidence(**values)


@pytest.mark.parametrize(
    ("reason", "clean", "outcome", "kind"),
    [
        ("agent_exit", Status.PASSED, "passed", ""),
        ("transfer", Status.PASSED, "passed", ""),
        ("timeout", Status.FAILED, "failed", ""),
        ("agent_stalled", Status.FAILED, "failed", ""),
        ("agent_error", Status.FAILED, "failed", ""),
        ("user_stalled", Status.NOT_APPLICABLE, "not_run", "user_stalled"),
        ("agent_lost", Status.NOT_APPLICABLE, "not_run", "agent_lost"),
        ("user_lost", Status.NOT_APPLICABLE, "not_run", "user_lost"),
        ("speech_error", Status.NOT_APPLICABLE, "not_run", "speech_error"),
        ("gateway_error", Status.NOT_APPLICABLE, "not_run", "gateway_error"),
        ("harness_error", Status.NOT_APPLICABLE, "not_run", "harness_error"),
        ("cancelled", Status.NOT_APPLICABLE, "not_run", "cancelled"),
    ],
)
@pytest.mark.parametrize("db", ["exact", "payment_order", "different", "missing"])
def test_every_stop_reason(reason, clean, outcome, kind, db):
    reason = StopReason(reason)
    assert clean_exit(reason).status is clean
    result = compose(evidence(reason, db))
    if outcome == "passed" and db in ("different", "missing"):
        outcome = "failed"
    assert (result.outcome, result.not_run_kind) == (outcome, kind)
    assert result.breakdown.excluded == (ACTION_MATCH,)
    if kind:
        assert result.breakdown.not_applicable == GATES
        assert result.is_successful is None
        assert result.caused_by_agent is (kind == "agent_lost")


def test_every_stop_reason_is_in_the_table():
    assert len(StopReason) == 12
    from tau2eval.scorer.v1 import record_pb2

    values = record_pb2.StopReason.DESCRIPTOR.values
    names = {value.name.removeprefix("STOP_REASON_").lower() for value in values}
    assert names - {"unspecified"} == set(StopReason)


@pytest.mark.parametrize(
    ("state", "status", "match"),
    [
        (DbState(False), Status.NOT_APPLICABLE, None),
        (DbState(True, "e", "e", "exact"), Status.PASSED, True),
        (DbState(True, "e", "a", "payment_order"), Status.PASSED, True),
        (DbState(True, "e", "a", "different"), Status.FAILED, False),
        (DbState(True, "e", "", "missing"), Status.FAILED, False),
        (DbState(True, "e", "a", inconsistent="lie"), Status.NOT_APPLICABLE, None),
    ],
)
def test_db_state(state, status, match):
    assert db_state_match(state).status is status
    assert state.match is match


def test_differences_are_named():
    places = [
        {"table": "users", "key": f"u{at}", "path": "a.b" if at else "", "expected": 1}
        for at in range(5)
    ]
    detail = db_state_match(DbState(True, "e", "a", "different", places)).detail
    assert "users/u0, users/u1 a.b, users/u2 a.b and 2 more places" in detail


def judgement(verdicts=(), status="judged", **fields):
    return JudgeResult(
        status=status,
        verdicts=tuple(
            AssertionVerdict(at, name, passed, "", "", None, (passed,))
            for at, (name, passed) in enumerate(verdicts, start=1)
        ),
        **fields,
    )


@pytest.mark.parametrize(
    ("assertions", "found", "status"),
    [
        ([], None, Status.NOT_APPLICABLE),
        ([], judgement(), Status.NOT_APPLICABLE),
        (["a"], None, Status.NOT_JUDGED),
        (["a"], judgement(status="off"), Status.NOT_JUDGED),
        (["a"], judgement(status="error", error="down"), Status.JUDGE_FAILED),
        (["a"], judgement(status="not_needed"), Status.NOT_APPLICABLE),
        (["a", "b"], judgement([("a", True), ("b", True)]), Status.PASSED),
        (["a", "b"], judgement([("a", True), ("b", False)]), Status.FAILED),
        (["a", "b"], judgement([("a", False), ("b", False)]), Status.FAILED),
    ],
)
def test_nl_assertions(assertions, found, status):
    assert nl_assertion(assertions, found).status is status


@pytest.mark.parametrize("verdicts", [[], [("a", True)], [("b", True), ("a", True)]])
def test_verdicts_on_other_assertions_are_a_fault(verdicts):
    with pytest.raises(ValueError, match="verdicts are not on the 2 assertions"):
        nl_assertion(["a", "b"], judgement(verdicts))


@pytest.mark.parametrize(
    ("score", "threshold", "status"),
    [(1.0, 1.0, Status.PASSED), (0.999, 1.0, Status.FAILED), (0.0, 0.0, Status.PASSED)],
)
def test_judge_passed(score, threshold, status):
    assert judge_passed(judgement(score=score), threshold).status is status


def with_judge(found, **fields):
    base = evidence()
    signals = {**base.signals, NL_ASSERTION: nl_assertion(["a"], found)}
    if found.judged:
        signals[JUDGE_PASSED] = judge_passed(found, 1.0)
    return compose(evidence(signals=signals, success_signals=(*GATES, NL_ASSERTION), **fields))


def test_the_judge_s_score_never_gates():
    result = with_judge(judgement([("a", True)], score=0.0))
    assert result.outcome is Outcome.PASSED
    assert result.breakdown.excluded == (ACTION_MATCH, JUDGE_PASSED)
    result = with_judge(judgement([("a", False)], score=1.0))
    assert result.outcome is Outcome.FAILED
    assert result.breakdown.failed == (NL_ASSERTION,)


@pytest.mark.parametrize(("status", "kind"), [("off", "judge_off"), ("error", "judge_error")])
@pytest.mark.parametrize("db", ["exact", "different", "missing"])
def test_without_verdicts_it_is_neither_passed_nor_failed(status, kind, db):
    found = judgement(status=status, error="down" if status == "error" else "")
    base = evidence(db=db)
    signals = {**base.signals, NL_ASSERTION: nl_assertion(["a"], found)}
    result = compose(evidence(signals=signals, success_signals=(*GATES, NL_ASSERTION)))
    assert (result.outcome, result.not_run_kind) == (Outcome.NOT_RUN, kind)
    assert result.is_successful is None
    assert not result.caused_by_agent
    # The other signals keep what they say, for their own rates.
    assert CLEAN_EXIT in result.breakdown.passed
    assert (DB_STATE_MATCH in result.breakdown.passed) is (db == "exact")
    assert NL_ASSERTION in result.breakdown.not_applicable


def test_too_few_turns_fail_without_a_judgement():
    result = with_judge(judgement(status="not_needed"), agent_turns=1)
    assert result.outcome is Outcome.FAILED
    assert result.insufficient_agent_turns


def test_a_gate_that_was_not_judged_is_no_pass():
    result = with_judge(judgement(status="not_needed"))
    assert (result.outcome, result.not_run_kind) == (Outcome.NOT_RUN, "harness_error")


def test_without_a_judge_nothing_passes():
    base = evidence()
    signals = {**base.signals, NL_ASSERTION: nl_assertion(["a"], None)}
    result = compose(evidence(signals=signals, success_signals=(*GATES, NL_ASSERTION)))
    assert (result.outcome, result.not_run_kind) == (Outcome.NOT_RUN, "judge_off")
    assert result.breakdown.passed == GATES


def test_a_whitelisted_signal_that_nothing_computes_is_no_pass():
    result = compose(evidence(success_signals=(*GATES, "NOVEL")))
    assert (result.outcome, result.not_run_kind) == (Outcome.NOT_RUN, "harness_error")
    assert "NOVEL" in result.explanation


def test_nothing_that_applies_is_no_pass():
    signals = {DB_STATE_MATCH: db_state_match(DbState(False))}
    result = compose(evidence(signals=signals, success_signals=(DB_STATE_MATCH,)))
    assert result.outcome is Outcome.NOT_RUN


def test_an_inconsistent_report_is_never_a_score():
    result = compose(evidence(db_inconsistent="it lies"))
    assert (result.outcome, result.not_run_kind) == (Outcome.NOT_RUN, "harness_error")
    assert result.caused_by_agent


@pytest.mark.parametrize(
    ("turns", "minimum", "enough"), [(1, 2, False), (2, 2, True), (0, 0, True)]
)
def test_minimum_of_agent_turns(turns, minimum, enough):
    result = compose(evidence(agent_turns=turns, min_agent_turns=minimum))
    assert result.insufficient_agent_turns is not enough
    assert (result.outcome is Outcome.PASSED) is enough
    assert result.breakdown.passed == GATES


def test_action_match_never_gates():
    result = compose(evidence(actions=False, success_signals=(*GATES, ACTION_MATCH)))
    assert result.outcome is Outcome.PASSED
    assert result.breakdown.excluded == (ACTION_MATCH,)


names = st.sampled_from(
    [DB_STATE_MATCH, CLEAN_EXIT, NL_ASSERTION, ACTION_MATCH, JUDGE_PASSED, "OTHER"]
)


@given(
    signals=st.dictionaries(names, st.sampled_from(Status)),
    whitelist=st.lists(names, max_size=7),
    reason=st.sampled_from(StopReason),
    turns=st.integers(0, 4),
    minimum=st.integers(0, 4),
    inconsistent=st.sampled_from(["", "lie"]),
)
def test_properties(signals, whitelist, reason, turns, minimum, inconsistent):
    result = compose(
        Evidence(
            stop_reason=reason,
            stop_detail="",
            signals={name: Signal(name, status) for name, status in signals.items()},
            success_signals=whitelist,
            agent_turns=turns,
            min_agent_turns=minimum,
            db_inconsistent=inconsistent,
        )
    )
    buckets = list(result.breakdown.to_dict().values())
    everything = [name for bucket in buckets for name in bucket]
    # The buckets partition what was computed or asked for.
    assert len(everything) == len(set(everything))
    assert set(signals) <= set(everything)
    assert set(everything) <= set(signals) | set(whitelist)
    gates = [name for name in whitelist if name not in (ACTION_MATCH, JUDGE_PASSED)]
    assert set(gates) <= set(everything)
    assert ACTION_MATCH not in everything or ACTION_MATCH in result.breakdown.excluded
    if result.outcome is Outcome.PASSED:
        # Never with a gate that failed, was not judged or not computed, and never with none.
        statuses = [signals.get(name) for name in gates]
        assert set(statuses) <= {Status.PASSED, Status.NOT_APPLICABLE}
        assert Status.PASSED in statuses
        assert turns >= minimum
        assert not inconsistent
    assert bool(result.not_run_kind) == (result.outcome is Outcome.NOT_RUN)
    assert result.explanation
