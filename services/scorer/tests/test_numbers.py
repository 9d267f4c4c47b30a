"""Latency, percentiles, JSON, accuracy and the aggregates."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_scorer.accuracy import combine, speech_accuracy
from tau2eval_scorer.jsonio import dump_json, dump_line, parse_json, parse_object, redact
from tau2eval_scorer.latency import latency_samples, latency_stats, percentile
from tau2eval_scorer.record import Role, Turn
from tau2eval_scorer.store import Plan, Run
from tau2eval_scorer.summary import Row, latencies_csv, summarize
from tau2eval_scorer.summary_text import summary_text


def turn(role, text="words", latency=None, heard=None, at=0.0, spoken=""):
    return Turn(
        Role(role), text, text if heard is None else heard, spoken, at, at + 1, False, "", latency
    )


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.floats(0, 1))
def test_percentiles_are_those_of_numpy(values, share):
    ours = percentile(values, share)
    assert math.isclose(ours, float(np.percentile(values, share * 100)), rel_tol=1e-9, abs_tol=1e-6)
    assert min(values) <= ours <= max(values)


def test_percentiles_need_values():
    with pytest.raises(ValueError, match="needs values"):
        percentile([], 0.5)


def test_latency_stats():
    assert latency_stats([]) == {
        "count": 0, "mean_ms": None, "p50_ms": None, "p95_ms": None, "min_ms": None, "max_ms": None,
    }  # fmt: skip
    assert latency_stats([400.0, 100.0, 200.0, 300.0]) == {
        "count": 4, "mean_ms": 250.0, "p50_ms": 250.0, "p95_ms": 385.0, "min_ms": 100.0,
        "max_ms": 400.0,
    }  # fmt: skip


def test_only_turns_with_a_latency_count_and_keep_what_was_asked():
    turns = [
        turn("agent", "hello"),
        turn("user", "one"),
        turn("user", "two"),
        turn("agent", "answer", 0.5),
        turn("user", "three"),
        turn("agent", "barged in"),
        turn("agent", "zero", 0.0),
    ]
    samples = latency_samples(turns)
    assert [(s.user_transcript, s.agent_transcript, s.latency_ms) for s in samples] == [
        ("one two", "answer", 500.0),
        ("", "zero", 0.0),
    ]


def test_accuracy_has_both_directions_and_sums():
    turns = [
        turn("user", "I want to fly", heard="I want a fly"),
        turn("agent", "Sure", heard="Sure"),
        turn("user", "Today", heard=""),
    ]
    result = speech_accuracy(turns)
    agent = result["agent_heard_user"]
    assert (agent["turns"], agent["words"], agent["ordinary_errors"]) == (2, 5, 2)
    assert agent["ordinary_wer"] == 0.4
    assert result["user_heard_agent"]["ordinary_wer"] == 0
    total = combine([result, result])["agent_heard_user"]
    assert (total["words"], total["ordinary_wer"]) == (10, 0.4)
    assert combine([])["agent_heard_user"]["ordinary_wer"] is None
    assert speech_accuracy(turns, "text")["agent_heard_user"]["turns"] == 0


def test_words_that_the_end_of_the_call_cut_off_are_no_errors():
    def said(role, words, heard, end):
        return dataclasses.replace(turn(role, words, heard=heard), end_seconds=end)

    def errors(turns, duration=20.0):
        result = speech_accuracy(turns, "voice", duration)
        return {name: part["ordinary_errors"] for name, part in result.items()}

    missed = said("user", "book it", "", 10.0)
    bye = said("agent", "good bye", "", 19.5)
    assert errors([missed, bye]) == {"agent_heard_user": 2, "user_heard_agent": 0}
    two = [missed, said("agent", "done", "", 18.0), bye]
    assert errors(two) == {"agent_heard_user": 2, "user_heard_agent": 0}
    # Heard words, and words well before the end, count as ever.
    wrong = said("agent", "good bye", "good pie", 19.5)
    assert errors([wrong]) == {"agent_heard_user": 0, "user_heard_agent": 1}
    assert errors([said("agent", "good bye", "", 10.0)]) == {
        "agent_heard_user": 0,
        "user_heard_agent": 2,
    }
    # The other side's earlier turn was there to be heard, however near the end.
    assert errors([said("user", "no", "", 18.5), bye])["agent_heard_user"] == 1


def test_what_was_said_is_the_spoken_form():
    spoken = turn("user", "On the 1st leg", heard="on the opening leg", spoken="On the opening leg")
    assert speech_accuracy([spoken])["agent_heard_user"]["ordinary_errors"] == 0


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_values)
def test_what_is_written_is_always_valid_json(value):
    def refuse(constant):
        raise AssertionError(constant)

    for dump in (dump_json, dump_line):
        json.loads(dump(value), parse_constant=refuse)
    assert dump_line(value).count(b"\n") == 1


@pytest.mark.parametrize("text", ["NaN", '{"a": Infinity}', "{", "[" * 5000, "[" * 101 + "]" * 101])
def test_what_is_no_json_is_refused(text):
    with pytest.raises(ValueError, match=r".+"):
        parse_json(text)


def test_objects():
    assert parse_object("") == {}
    with pytest.raises(ValueError, match="not a JSON object"):
        parse_object("[]")


def test_secrets_are_blanked_and_token_counts_are_not():
    value = {
        "api_key": "k", "x": [{"Authorization": "b", "max_tokens": 3}], "openai-api-key": "k",
        "password": "", "token": "t", "tokens": 5,
    }  # fmt: skip
    assert redact(value) == {
        "api_key": "[redacted]", "x": [{"Authorization": "[redacted]", "max_tokens": 3}],
        "openai-api-key": "[redacted]", "password": "", "token": "[redacted]", "tokens": 5,
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["aws_secret_access_key", "openaiApiKey", "X-Api-Key", "private_key", "Cookie", "accessToken"],
)
def test_names_of_secrets(name):
    assert redact({"a": [{name: "hush"}]}) == {"a": [{name: "[redacted]"}]}


def test_secrets_under_other_names():
    hidden = ("Bearer hush-hush-hush", "Basic aHVzaDpodXNo", "https://me:hush@host/v1")
    assert redact(list(hidden)) == ["[redacted]"] * 3
    inner = {"model": {"parameters_json": '{"a":[{"Cookie":"hush"}]}'}}
    assert redact(inner) == {"model": {"parameters_json": '{"a":[{"Cookie":"[redacted]"}]}'}}
    for text in (
        '{"seed": 1}',
        "{no json",
        "[1, 2]",
        "basic economy",
        "bearer of news",
        "https://host:443/v1",
        "127.0.0.1:80",
        "a@b",
    ):
        assert redact({"x": text}) == {"x": text}
    for name in ("max_tokens", "keys", "seed", "top_k", "key", "monkey", "stop_tokens"):
        assert redact({name: "x"}) == {name: "x"}


SIDE = {
    "n_calls": 1, "prompt": 2, "completion": 3, "cached": 0, "cost_usd": None, "unpriced_calls": 1,
    "models": [],
}  # fmt: skip


def row(scenario, trial, outcome, kind="", statuses=("passed", "passed"), few=False, judged=True):
    signals = dict(zip(("DB_STATE_MATCH", "CLEAN_EXIT"), statuses, strict=True))
    metrics = {
        "attempt_id": "a", "domain": scenario.split("__")[0], "scenario_directory": scenario,
        "is_successful": None if outcome == "not_run" else outcome == "passed",
        "insufficient_agent_turns": few, "caused_by_agent": kind == "agent_lost",
        "signals": {name: {"status": status} for name, status in signals.items()},
        "total_turns": 2, "latency_stats": latency_stats([5.0]),
        "latencies": [{"user_transcript": "a,b", "agent_transcript": "c", "latency_ms": 5.0}],
        "token_usage": {"agent": SIDE, "user": SIDE}, "cost_usd": None,
        "speech_accuracy": speech_accuracy([]), "db_state_match": True,
        "db_state_match_how": "exact", "is_action_match": True,
    }  # fmt: skip
    verdict = {
        "outcome": outcome, "not_run_kind": kind, "success_breakdown": {"passed": []},
        "stop_reason": "agent_stalled" if outcome == "failed" else "agent_exit",
        "duration_seconds": 1.0, "fully_judged": judged, "explanation": "because",
    }  # fmt: skip
    return Row(scenario, trial, verdict, metrics)


def run(scenarios, trials=1, finished=""):
    return Run(Plan("r", tuple(scenarios), trials, {}), "2026-01-01T00:00:00Z", finished)


SCENARIOS = ("d__2", "d__10", "e__1")


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(SCENARIOS), st.integers(0, 2)),
        st.tuples(
            st.sampled_from(
                [
                    ("passed", ""),
                    ("failed", ""),
                    ("not_run", "agent_lost"),
                    ("not_run", "user_lost"),
                ]
            ),
            st.tuples(*[st.sampled_from(["passed", "failed", "not_applicable"])] * 2),
            st.booleans(),
        ),
    )
)
def test_denominators_add_up(content):
    rows = [
        row(scenario, trial, outcome, kind, statuses, few and outcome == "failed")
        for (scenario, trial), ((outcome, kind), statuses, few) in content.items()
    ]
    summary = summarize(run(SCENARIOS, 3), rows)
    counts = summary["counts"]
    assert counts["planned"] == 9
    assert sum(counts[name] for name in ("passed", "failed", "not_run", "missing")) == 9
    assert len(summary["missing"]) == counts["missing"]
    assert sum(summary["not_run_kinds"].values()) == counts["not_run"]
    overall = summary["success_rate"]
    assert (overall["passed"], overall["of"]) == (
        counts["passed"],
        counts["passed"] + counts["failed"],
    )
    strict = summary["success_rate_with_agent_faults_failed"]
    assert strict["of"] == overall["of"] + summary["not_run_kinds"].get("agent_lost", 0)
    assert strict["passed"] == overall["passed"]
    domains = summary["domains"].values()
    assert sum(domain["success_rate"]["of"] for domain in domains) == overall["of"]
    assert sum(domain["not_run"] for domain in domains) == counts["not_run"]
    skipped = len(summary["insufficient_agent_turns"])
    for name, signal in summary["signals"].items():
        applied = [
            r
            for r in rows
            if r.scored
            and not r.metrics["insufficient_agent_turns"]
            and r.metrics["signals"][name]["status"] != "not_applicable"
        ]
        assert signal["of"] == len(applied) <= overall["of"] - skipped
    assert summary["latency_stats"]["count"] == overall["of"]
    json.loads(dump_json(summary))
    assert summary_text(summary).endswith("\n")


def test_the_text_names_what_matters():
    rows = [
        row("d__2", 0, "passed", judged=False),
        row("d__10", 0, "failed", statuses=("failed", "failed")),
        row("e__1", 0, "not_run", "agent_lost"),
    ]
    text = summary_text(summarize(run((*SCENARIOS, "e__2")), rows))
    for line in (
        "planned 4: 1 passed, 1 failed, 1 not run, 1 missing",
        "Not run, never a score: agent_lost 1",
        "Missing: e__2",
        "Overall Success Rate: 50.0 % (1/2) [1.3, 98.7]",
        "with the agent's own not_run as failures: 33.3 % (1/3) [",
        "DB_STATE_MATCH pass: 50.0 % (1/2 calls)",
        "Domain e: n/a (0/0)",
        "beside: 1 not run (agent_lost 1), 1 missing",
        "Warning, calls stalled. agent: d__10",
        "Not fully judged: 1 scenarios.",
        "hangs up passes them: d__2",
        "Overall latency: 2 turns, mean 5 ms",
    ):
        assert line in text
    # Scenarios come in the order of the plan.
    assert text.index("== d__2") < text.index("== d__10") < text.index("== e__1")


def test_the_table_of_latencies_quotes():
    text = latencies_csv([row("d__2", 0, "passed")], trials=1)
    assert text.splitlines()[1] == 'd__2,"a,b",c,5.0'
    assert latencies_csv([row("d__2", 1, "passed")], 2).splitlines()[1].startswith("d__2/trial_1,")
