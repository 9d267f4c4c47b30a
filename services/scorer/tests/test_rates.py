"""Rates over trials, what stands beside them, and the comparison of two runs."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau2eval_common.errors import InvalidInput
from tau2eval_scorer.accuracy import speech_accuracy
from tau2eval_scorer.compare import compare_runs
from tau2eval_scorer.compare_text import comparison_text
from tau2eval_scorer.jsonio import dump_json
from tau2eval_scorer.latency import latency_stats
from tau2eval_scorer.rates import Row
from tau2eval_scorer.stats import clustered_interval, pass_hat
from tau2eval_scorer.store import Plan, Resume, Run
from tau2eval_scorer.summary import summarize
from tau2eval_scorer.summary_text import summary_text

GATES = ["DB_STATE_MATCH", "CLEAN_EXIT"]


def usage(calls=0, cost=None):
    return {
        "n_calls": calls, "prompt": 10 * calls, "completion": calls, "cached": 0,
        "cost_usd": cost, "unpriced_calls": calls if cost is None else 0,
        "models": ["m"] if calls else [],
    }  # fmt: skip


def row(
    scenario,
    trial=0,
    outcome="passed",
    kind="",
    *,
    by_agent=None,
    signals=None,
    few=False,
    agent_turns=3,
    nl=None,
    latency=5.0,
    judge_model=None,
    attempt="a",
    cost=0.5,
):
    status = {"passed": "passed", "failed": "failed"}.get(outcome, "not_applicable")
    signals = signals or {**dict.fromkeys(GATES, status), "ACTION_MATCH": "passed"}
    gates = [name for name in signals if name not in ("ACTION_MATCH", "JUDGE_PASSED")]
    breakdown = {
        "passed": [name for name in gates if signals[name] == "passed"],
        "failed": [name for name in gates if signals[name] == "failed"],
        "not_applicable": [name for name in gates if signals[name] not in ("passed", "failed")],
        "excluded": [name for name in signals if name not in gates],
    }
    metrics = {
        "attempt_id": attempt, "domain": scenario.split("__")[0], "scenario_directory": scenario,
        "is_successful": None if outcome == "not_run" else outcome == "passed",
        "insufficient_agent_turns": few, "agent_turns": agent_turns, "min_agent_turns": 2,
        "caused_by_agent": kind == "agent_lost" if by_agent is None else by_agent,
        "signals": {name: {"status": value} for name, value in signals.items()},
        "total_turns": 2, "latency_stats": latency_stats([latency]),
        "latencies": [
            {"user_transcript": "u", "agent_transcript": "v", "latency_ms": latency}
        ],
        "token_usage": {
            "agent": usage(2, cost), "user": usage(1, 0.25),
            "judge": usage(1, 0.125) if nl else usage(),
        },
        "cost_usd": (cost or 0) + 0.25, "speech_accuracy": speech_accuracy([]),
        "db_state_match": True, "db_state_match_how": "exact", "is_action_match": True,
        "judge_status": "judged" if nl else "off", "judge_score": nl and nl[0] / nl[1],
        "judge_passed": nl and nl[0] == nl[1], "judge_agreement": nl and 1.0,
        "nl_assertion_pass_count": nl and nl[0], "nl_assertion_total": nl and nl[1],
        "nl_assertion_pass_rate": nl and nl[0] / nl[1],
        "versions": {"scorer": "1", "assertions": "abc", "judge_model": judge_model},
    }  # fmt: skip
    verdict = {
        "outcome": outcome, "not_run_kind": kind, "success_breakdown": breakdown,
        "stop_reason": "agent_lost" if kind == "agent_lost" else "agent_exit",
        "duration_seconds": 1.0, "fully_judged": True, "explanation": f"because {kind}",
    }  # fmt: skip
    return Row(scenario, trial, verdict, metrics)


def run(scenarios, trials=1, run_id="r", resumes=(), **plan_settings):
    plan = Plan(run_id, tuple(scenarios), trials, plan_settings)
    return Run(plan, "2026-01-01T00:00:00Z", "", tuple(resumes))


def test_pass_hat_uses_each_tasks_own_trials_and_names_the_short_ones():
    rows = [
        *(row("d__1", trial) for trial in range(4)),
        *(row("d__2", trial, "passed" if trial < 2 else "failed") for trial in range(4)),
        row("d__3", 0),
        row("d__3", 1, "failed"),
        row("d__3", 2, "not_run", "user_lost"),
        *(row("d__4", trial, "not_run", "speech_error") for trial in range(4)),
    ]
    summary = summarize(run(("d__1", "d__2", "d__3", "d__4", "d__5"), 4), rows)
    table = summary["pass_hat"]
    assert (table["planned_tasks"], table["planned_trials"]) == (5, 4)
    assert table["upstream_max_k"] == 2
    rates = {entry["k"]: entry for entry in table["rates"]}
    assert rates[1]["rate"] == pytest.approx((1 + 0.5 + 0.5) / 3, abs=1e-6)
    assert rates[2]["rate"] == pytest.approx((1 + 1 / 6 + 0) / 3, abs=1e-6)
    assert rates[3]["rate"] == pytest.approx((1 + 0) / 2, abs=1e-6)
    assert [rates[k]["tasks"] for k in (1, 2, 3, 4)] == [3, 3, 2, 2]
    assert [rates[k]["tasks_short"] for k in (1, 2, 3, 4)] == [2, 2, 3, 3]
    assert summary["short_of_trials"] == [
        {
            "scenario": "d__3", "planned": 4, "scored": 2, "not_run": 1, "missing": 1,
            "not_run_kinds": {"user_lost": 1},
        },
        {
            "scenario": "d__4", "planned": 4, "scored": 0, "not_run": 4, "missing": 0,
            "not_run_kinds": {"speech_error": 4},
        },
        {
            "scenario": "d__5", "planned": 4, "scored": 0, "not_run": 0, "missing": 4,
            "not_run_kinds": {},
        },
    ]  # fmt: skip
    text = summary_text(summary)
    assert "d__4 (0/4), d__5 (0/4)" in " ".join(text.split())
    assert "3 of 5" in text
    assert "tau2-bench would stop at k = 2" in text


def test_an_agent_gains_nothing_by_crashing():
    rows = [row("d__1"), row("d__2"), row("d__3", 0, "not_run", "agent_lost")]
    crashed = row("d__2", 0, "not_run", "agent_lost", attempt="first")
    summary = summarize(run(("d__1", "d__2", "d__3")), rows, [crashed])
    assert (summary["success_rate"]["passed"], summary["success_rate"]["of"]) == (2, 2)
    # d__3 crashed, and d__2 passed only because it was called again.
    for strict in (
        summary["success_rate_with_agent_faults_failed"],
        summary["domains"]["d"]["success_rate_with_agent_faults_failed"],
        summary["signals"]["DB_STATE_MATCH"]["with_agent_faults_failed"],
        summary["signals"]["ACTION_MATCH"]["with_agent_faults_failed"],
    ):
        assert (strict["passed"], strict["of"], strict["tasks"]) == (1, 3, 3)
    assert summary["pass_hat"]["rates"][0]["with_agent_faults_failed"]["rate"] == 0.333333
    assert summary["other_attempts"]["count"] == 1
    assert summary["other_attempts"]["reasons"] == {"agent_lost": 1}
    assert summary["other_attempts"]["attempts"][0]["attempt_id"] == "first"
    text = summary_text(summary)
    assert "Repeated attempts, kept and not counted: agent_lost 1" in text
    assert "d__2, first: because agent_lost" in text


def test_signals_go_on_without_a_judge_and_skip_calls_with_too_few_turns():
    waiting = {**dict.fromkeys(GATES, "passed"), "NL_ASSERTION": "not_judged"}
    rows = [
        row("d__1", outcome="not_run", kind="judge_off", signals=waiting),
        row("d__2", outcome="not_run", kind="judge_off", signals=waiting, agent_turns=1),
        row("d__3", outcome="not_run", kind="user_lost", signals={"DB_STATE_MATCH": "failed"}),
        row("d__4", outcome="failed", few=True, agent_turns=1),
        row("d__5"),
    ]
    summary = summarize(run([f"d__{n}" for n in range(1, 6)]), rows)
    database = summary["signals"]["DB_STATE_MATCH"]
    assert (database["passed"], database["of"]) == (2, 2)
    assert "NL_ASSERTION" not in summary["signals"]
    assert (summary["success_rate"]["passed"], summary["success_rate"]["of"]) == (1, 2)
    assert summary["not_run_kinds"] == {"judge_off": 2, "user_lost": 1}
    text = " ".join(summary_text(summary).split())
    assert "Warning: 2 conversations wait for a judge" in text
    assert "`tau2-eval score r --judge-model MODEL`" in text


def test_assertions_are_counted_one_by_one():
    def judged(name, passed, total):
        status = "passed" if passed == total else "failed"
        signals = {
            **dict.fromkeys(GATES, "passed"), "NL_ASSERTION": status, "JUDGE_PASSED": status,
        }  # fmt: skip
        return row(name, outcome=status, signals=signals, nl=(passed, total))

    summary = summarize(
        run(("d__1", "d__2", "d__3")), [judged("d__1", 2, 2), judged("d__2", 1, 8), row("d__3")]
    )
    rate = summary["nl_assertions"]
    assert (rate["passed"], rate["of"], rate["rate"], rate["conversations"]) == (3, 10, 0.3, 2)
    assert summary["signals"]["NL_ASSERTION"]["of"] == 2
    assert not summary["signals"]["JUDGE_PASSED"]["gates"]
    assert summary["judge"]["mean_score"] == 0.5625
    assert summary["judge"]["statuses"] == {"judged": 2, "off": 1}
    assert summary["token_usage"]["judge"]["cost_usd"] == 0.25
    text = summary_text(summary)
    assert "NL-Assertion pass: 30.0 % (3/10 assertions)" in text
    assert "Tokens, judge: 2 calls" in text


def test_mixed_settings_and_versions_are_shown():
    change = {"name": "agent_model", "before": "old", "after": "new"}
    resumes = (
        Resume(at="2026-01-02T00:00:00Z", settings={}, changes=()),
        Resume(at="2026-01-03T00:00:00Z", settings={}, changes=(change,)),
    )
    rows = [row("d__1", judge_model="x"), row("d__2", judge_model="y")]
    summary = summarize(run(("d__1", "d__2"), resumes=resumes), rows)
    assert summary["mixed_settings"]
    assert [resume["changes"] for resume in summary["resumes"]] == [[], [change]]
    text = " ".join(summary_text(summary).split())
    assert 'Resumed 2026-01-03T00:00:00Z with agent_model "old" -> "new"' in text
    assert "Mixed settings: the run was resumed with another agent_model." in text
    assert "Not all conversations have the same judge: x (1), y (1)." in text
    assert not summarize(run(("d__1", "d__2"), resumes=resumes[:1]), rows)["mixed_settings"]


NAMES = ("d__1", "d__2", "e__1")
CELL = st.sampled_from(["passed", "failed", "agent_lost", "user_lost", "judge_off", None])
GRID = st.lists(st.lists(CELL, min_size=3, max_size=3), min_size=3, max_size=3)


def grid_rows(grid):
    return [
        row(name, trial, *((cell, "") if cell in ("passed", "failed") else ("not_run", cell)))
        for name, cells in zip(NAMES, grid, strict=True)
        for trial, cell in enumerate(cells)
        if cell
    ]


@settings(max_examples=60, deadline=None)
@given(GRID, st.randoms())
def test_every_planned_trial_is_accounted_for(grid, random):
    rows = grid_rows(grid)
    summary = summarize(run(NAMES, 3), rows)
    assert summarize(run(NAMES, 3), random.sample(rows, len(rows))) == summary
    for task, cells in zip(summary["tasks"], grid, strict=True):
        assert task["of"] + task["not_run"] + task["missing"] == task["planned"] == 3
        assert task["passed"] == cells.count("passed")
        assert task["of_with_agent_faults_failed"] == task["of"] + cells.count("agent_lost")
    short = {task["scenario"] for task in summary["short_of_trials"]}
    assert short == {task["scenario"] for task in summary["tasks"] if task["of"] < 3}
    scored = [(c.count("passed"), c.count("passed") + c.count("failed")) for c in grid]
    interval = clustered_interval(scored)
    assert summary["success_rate"]["interval_95"] == (interval and interval.to_list())
    previous = None
    for entry in summary["pass_hat"]["rates"]:
        k = entry["k"]
        values = [pass_hat(passed, of, k) for passed, of in scored if of >= k]
        assert entry["tasks"] == len(values)
        assert entry["tasks"] + entry["tasks_short"] == 3
        if values:
            assert entry["rate"] == pytest.approx(sum(values) / len(values), abs=1e-6)
            assert entry["interval_95"][0] <= entry["rate"] <= entry["interval_95"][1]
            if previous is not None and all(of == 3 for _, of in scored):
                assert entry["rate"] <= previous
            previous = entry["rate"]
        else:
            assert entry["rate"] is entry["interval_95"] is None
        strict = entry["with_agent_faults_failed"]
        assert strict["tasks"] >= entry["tasks"]
    plain, strict = (
        summary[name] for name in ("success_rate", "success_rate_with_agent_faults_failed")
    )
    if plain["of"]:
        assert strict["rate"] <= plain["rate"]
    domains = summary["domains"].values()
    assert sum(domain["planned"] for domain in domains) == 9
    assert sum(domain["missing"] for domain in domains) == summary["counts"]["missing"]
    json.loads(dump_json(summary))
    assert summary_text(summary).endswith("\n")


@settings(max_examples=40, deadline=None)
@given(GRID, GRID)
def test_a_comparison_has_two_sides(first, second):
    a, b = run(NAMES, 3, "a"), run(NAMES, 3, "b")
    rows_a, rows_b = grid_rows(first), grid_rows(second)
    there = compare_runs(a, rows_a, b, rows_b, 200)
    back = compare_runs(b, rows_b, a, rows_a, 200)
    mirrored = {"worse": "better", "better": "worse"}
    if there["verdict"] == "worse":
        # The stricter of two intervals decides on "worse", both on "better".
        assert back["verdict"] != "worse"
    assert there["worse"] == (there["verdict"] == "worse")
    for key in ("difference", "difference_with_agent_faults_failed"):
        if there[key]["tasks"]:
            assert there[key]["difference"] == pytest.approx(-back[key]["difference"], abs=2e-6)
    for kind, other in mirrored.items():
        assert [i["scenario"] for i in there["flipped"][kind]] == [
            i["scenario"] for i in back["flipped"][other]
        ]
    assert there["mcnemar"]["p_value"] == back["mcnemar"]["p_value"]
    tasks = there["difference"]["tasks"]
    assert tasks + len(there["not_comparable"]) == len(NAMES)
    test = there["mcnemar"]
    assert test["only_a_better"] + test["only_b_better"] + test["same"] == tasks
    assert sum(there["trial_pairs"].values()) == 9
    assert compare_runs(a, rows_a, b, rows_b, 200) == there
    json.loads(dump_json(there))
    assert comparison_text(there).endswith("\n")


def many(outcomes, **fields):
    return [row(f"d__{n}", outcome=outcome, **fields) for n, outcome in enumerate(outcomes)]


def plans(count, **settings_b):
    names = [f"d__{n}" for n in range(count)]
    return run(names, run_id="a", model="x"), run(names, run_id="b", **{"model": "x", **settings_b})


def test_a_run_that_lost_tasks_is_worse():
    a, b = plans(50)
    good = many(["passed"] * 50)
    result = compare_runs(a, good, b, many(["failed"] * 9 + ["passed"] * 41))
    assert result["worse"]
    assert result["difference"]["difference"] == pytest.approx(-0.18)
    assert result["mcnemar"] == {
        "pairing": "trials", "only_b_better": 0, "only_a_better": 9, "same": 41,
        "p_value": 0.003906,
    }  # fmt: skip
    assert [item["scenario"] for item in result["flipped"]["worse"]] == [
        f"d__{n}" for n in range(9)
    ]
    assert result["trial_pairs"]["only_a_passed"] == 9
    slight = compare_runs(a, good, b, many(["failed"] + ["passed"] * 49))
    assert not slight["worse"]
    assert slight["any_drop"]
    assert slight["verdict"] == "no_difference_shown"
    assert compare_runs(b, many(["failed"] * 9 + ["passed"] * 41), a, good)["verdict"] == "better"
    same = compare_runs(a, good, b, good)
    assert not same["any_drop"]
    assert same["mcnemar"]["p_value"] is None


def test_an_agent_that_crashes_on_what_it_would_fail_is_worse():
    a, b = plans(30)
    crashing = [
        row(f"d__{n}", outcome="not_run", kind="agent_lost") if n < 10 else row(f"d__{n}")
        for n in range(30)
    ]
    result = compare_runs(a, many(["passed"] * 30), b, crashing)
    assert result["difference"]["difference"] == 0
    assert result["difference"]["tasks"] == 20
    assert result["difference_with_agent_faults_failed"]["difference"] == pytest.approx(
        -1 / 3, abs=1e-6
    )
    assert result["worse"]
    assert result["not_comparable"][0] == {
        "scenario": "d__0", "a": None, "b": "agent_lost 1", "in_strict_comparison": True,
    }  # fmt: skip
    # A run in which nothing was scored is no base for "not worse".
    nothing = [row(f"d__{n}", outcome="not_run", kind="judge_off") for n in range(30)]
    empty = compare_runs(a, many(["passed"] * 30), b, nothing)
    assert empty["verdict"] == "not_comparable"
    assert "nothing can be compared" in comparison_text(empty)
    assert "d__0: A scored; B judge_off 1" in comparison_text(empty)


def test_what_differs_between_the_runs_is_named():
    a, b = plans(3, model="y", speech={"tts": "z"})
    result = compare_runs(
        a,
        many(["passed"] * 3, judge_model="j1", latency=100.0, cost=0.5),
        b,
        many(["passed"] * 3, judge_model="j2", latency=150.0, cost=0.75),
    )
    assert result["settings_differences"] == [
        {"name": "model", "a": "x", "b": "y"},
        {"name": "speech.tts", "a": None, "b": "z"},
    ]
    assert result["version_differences"] == [
        {"name": "judge_model", "a": {"j1": 3}, "b": {"j2": 3}}
    ]
    assert any("were not scored alike, by: the judge." in text for text in result["warnings"])
    assert result["latency"]["p50_ms_difference"] == {
        "difference": 50.0, "interval_95": [50.0, 50.0],
    }  # fmt: skip
    assert result["cost"]["usd_a_conversation_difference"] == 0.25
    assert result["cost"]["a"]["roles"]["agent"]["cost_usd"] == 1.5
    text = comparison_text(result)
    assert "model: 'x' -> 'y'" in text
    assert "Response latency p95: 100 ms -> 150 ms, +50 ms [+50, +50]" in text


def test_unknown_prices_are_not_taken_for_nothing():
    a, b = plans(1)
    result = compare_runs(a, many(["passed"], cost=None), b, many(["passed"], cost=0.5))
    assert result["cost"]["paired_tasks"] == 0
    assert result["cost"]["usd_a_conversation_difference"] is None


def test_the_number_of_samples_is_checked():
    a, b = plans(1)
    for samples in (0, 99, 1_000_001):
        with pytest.raises(InvalidInput, match="bootstrap samples"):
            compare_runs(a, [], b, [], samples)
