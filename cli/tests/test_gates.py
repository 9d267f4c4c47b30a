from fractions import Fraction
from pathlib import Path

import pytest

from tau2eval.scorer.v1 import scorer_pb2
from tau2eval_cli.errors import WrongUse
from tau2eval_cli.gates import Gates, parse_share
from tau2eval_cli.results import RunResult, TrialResult
from tau2eval_cli.trials import Trial

STRICT = "success_rate_with_agent_faults_failed"


def verdict(outcome: int = scorer_pb2.OUTCOME_PASSED, judged: bool = True) -> TrialResult:
    return TrialResult(scorer_pb2.Verdict(scenario="demo__1", outcome=outcome, fully_judged=judged))


def result(*trials: TrialResult, summary: dict | None = None, **fields) -> RunResult:
    return RunResult("eval_1", Path("runs/eval_1"), list(trials), summary=summary or {}, **fields)


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("", None),
        ("0.8", Fraction(4, 5)),
        ("80%", Fraction(4, 5)),
        ("80 %", Fraction(4, 5)),
        ("0", Fraction(0)),
        ("1", Fraction(1)),
        ("100%", Fraction(1)),
        (".5", Fraction(1, 2)),
    ],
)
def test_shares(text: str, share: Fraction | None) -> None:
    assert parse_share("--fail-under", text) == share


@pytest.mark.parametrize("text", ["80", "1.1", "-0.1", "101%", "x", "nan", "inf", "%", "1/2"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(WrongUse, match="--fail-under"):
        parse_share("--fail-under", text)


def test_the_gate_is_exact_and_counts_the_agents_faults_as_failures() -> None:
    summary = {
        "success_rate": {"passed": 7, "of": 7, "rate": 1.0},
        STRICT: {"passed": 7, "of": 10, "rate": 0.7},
    }
    for text, code in (("70%", 0), ("0.7", 0), ("70.0001%", 1), ("0.9", 1)):
        gates = Gates(parse_share("--fail-under", text))
        assert result(verdict(), summary=summary, gates=gates).exit_code == code


def test_precedence_of_exit_codes() -> None:
    summary = {STRICT: {"passed": 0, "of": 1, "rate": 0.0}}
    gates = Gates(Fraction(1, 2))
    passed, lost = verdict(), verdict(scorer_pb2.OUTCOME_NOT_RUN)
    assert result(passed, summary=summary).exit_code == 0
    assert result(passed, summary=summary, gates=gates).exit_code == 1
    assert result(passed, lost, summary=summary, gates=gates).exit_code == 3
    assert result(passed, summary={}, gates=gates).exit_code == 3
    for fields in (
        {"not_started": [Trial("demo__2")]},
        {"others": [Trial("demo__2")]},
        {"problems": ["x"]},
    ):
        assert result(passed, summary=summary, gates=gates, **fields).exit_code == 3
    assert result(lost, summary=summary, gates=gates, interrupted=True).exit_code == 130


@pytest.mark.parametrize(
    ("summary", "told"),
    [
        ({}, "summary could not be had"),
        ({"short_of_trials": [{"scenario": "a", "scored": 1, "planned": 2}]}, r"a \(1/2\)"),
        ({"mixed_settings": True}, "other settings"),
        ({"versions": {"judge_model": {"a": 1, "b": 2}}}, "alike: judge_model"),
        (
            {
                "other_attempts": {
                    "attempts": [
                        {
                            "scenario": "a",
                            "trial": 0,
                            "outcome": "not_run",
                            "not_run_kind": "user_lost",
                        }
                    ]
                }
            },
            "user_lost",
        ),
    ],
)
def test_what_is_not_clean(summary: dict, told: str) -> None:
    import re

    strict = result(verdict(), summary=summary, gates=Gates(require_clean=True))
    assert strict.exit_code == 3
    assert re.search(told, strict.not_clean[0])
    assert result(verdict(), summary=summary).exit_code == 0


def test_a_clean_result_and_one_that_is_not_fully_judged() -> None:
    summary = {
        "short_of_trials": [],
        "mixed_settings": False,
        "other_attempts": {"attempts": []},
        "versions": {"judge_model": {"a": 2}, "bridge": {"1": 1, "2": 1}},
    }
    gates = Gates(require_clean=True)
    assert result(verdict(), summary=summary, gates=gates).exit_code == 0
    half = result(verdict(judged=False), summary=summary, gates=gates)
    assert half.exit_code == 3
    assert half.to_json()["gates"]["require_clean"] == {
        "passed": False,
        "reasons": ["not fully judged: demo__1"],
    }
