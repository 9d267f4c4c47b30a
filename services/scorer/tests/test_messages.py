"""What a response holds of a run that is too large for one."""

import json

from tau2eval_scorer.messages import summary_json, summary_text

OTHER = {"scenario": "s", "outcome": "not_run", "explanation": "x" * 500}


def summary(conversations):
    return {
        "success_rate": {"passed": 1, "of": 2},
        "short_of_trials": [{"scenario": "s"}],
        "missing": [{"scenario": "s", "trial": at} for at in range(conversations)],
        "other_attempts": {"count": conversations, "attempts": [OTHER] * conversations},
        "scenarios": [{"scenario_name": "s", "explanation": "y" * 300}] * conversations,
    }


def test_a_summary_that_fits_is_whole():
    assert json.loads(summary_json(summary(3))) == summary(3)


def test_a_large_summary_keeps_what_gates_are_decided_by():
    large = summary(1000)
    value = json.loads(summary_json(large, 600_000))
    assert value == {**large, "scenarios": []}
    text = summary_json(large, 100_000)
    assert len(text) < 100_000
    value = json.loads(text)
    assert value["success_rate"] == large["success_rate"]
    assert value["short_of_trials"] == large["short_of_trials"]
    assert value["scenarios"] == value["missing"] == []
    assert value["other_attempts"]["attempts"] == [{**OTHER, "explanation": ""}] * 1000


def test_a_long_text_is_cut_between_lines():
    text = "".join(f"line {at} \u00e9\n" for at in range(1000))
    assert summary_text(text) == text
    cut = summary_text(text, 1000)
    assert len(cut.encode()) < 1100
    lines = cut.splitlines()
    assert lines[:-1] == text.splitlines()[: len(lines) - 1]
    assert "all_summary.txt" in lines[-1]
