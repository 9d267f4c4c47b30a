"""A comparison of two runs as text."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

_VERDICTS = {
    "worse": "B is worse than A",
    "better": "B is better than A",
    "no_difference_shown": "no difference is shown",
    "not_comparable": "nothing can be compared: no task has a score in both runs",
}


def comparison_text(comparison: Mapping[str, Any]) -> str:
    """Returns a comparison for a person.

    Args:
        comparison: What `compare.compare_runs` returned.
    """
    a, b = comparison["run_a"], comparison["run_b"]
    plain = comparison["difference"]
    strict = comparison["difference_with_agent_faults_failed"]
    lines = [
        f"A  {a['run_id']}   {_counts(a)}",
        f"B  {b['run_id']}   {_counts(b)}",
        "",
        f"{_VERDICTS[comparison['verdict']]}   ({comparison['worse_rule']})",
        "",
        f"{'':34}{'A':>9}{'B':>9}{'B - A':>9}   95 % interval",
        _difference("success rate, paired tasks", plain),
        _difference("  agent's own not_run as failures", strict),
        "",
        *_tests(comparison),
        *_latency(comparison["latency"]),
        *_cost(comparison["cost"]),
    ]
    for label, key in (("Worse in B", "worse"), ("Better in B", "better")):
        flipped = comparison["flipped"][key]
        if flipped:
            lines += ["", f"{label} ({len(flipped)}):"]
            lines += [
                f"  {item['scenario']}: {item['a']['passed']}/{item['a']['of']} -> "
                f"{item['b']['passed']}/{item['b']['of']}"
                for item in flipped
            ]
    if comparison["not_comparable"]:
        lines += ["", f"Not comparable ({len(comparison['not_comparable'])}):"]
        lines += [
            f"  {item['scenario']}: A {item['a'] or 'scored'}; B {item['b'] or 'scored'}"
            for item in comparison["not_comparable"]
        ]
    lines += _settings(comparison)
    for warning in comparison["warnings"]:
        lines += ["", *textwrap.wrap(f"Warning: {warning}", 100, break_long_words=False)]
    return "\n".join(lines) + "\n"


def _counts(side: Mapping[str, Any]) -> str:
    counts = side["counts"]
    return (
        f"{counts['passed']} passed, {counts['failed']} failed, {counts['not_run']} not run, "
        f"{counts['missing']} missing of {counts['planned']}"
    )


def _difference(label: str, entry: Mapping[str, Any]) -> str:
    bounds = entry["interval_95"]
    interval = f"[{100 * bounds[0]:+.1f}, {100 * bounds[1]:+.1f}]" if bounds else "none"
    return (
        f"{label:<34}{_percent(entry['rate_a']):>9}{_percent(entry['rate_b']):>9}"
        f"{_percent(entry['difference'], '+'):>9}   {interval}, {entry['tasks']} tasks"
    )


def _tests(comparison: Mapping[str, Any]) -> list[str]:
    test = comparison["mcnemar"]
    pairs = (
        "one trial a task"
        if test["pairing"] == "trials"
        else "one pair a task, by its rates: trials of one task are not independent"
    )
    p_value = "no discordant pair" if test["p_value"] is None else f"p = {test['p_value']:.4f}"
    return [
        f"McNemar, exact: {test['only_b_better']} tasks better, {test['only_a_better']} worse, "
        f"{test['same']} the same; {p_value} ({pairs})",
    ]


def _latency(latency: Mapping[str, Any]) -> list[str]:
    if not latency["tasks"]:
        return ["Response latency: no task has one in both runs"]
    lines = []
    for name in ("p50_ms", "p95_ms"):
        entry = latency[f"{name}_difference"]
        bounds = entry["interval_95"]
        interval = f" [{bounds[0]:+.0f}, {bounds[1]:+.0f}]" if bounds else ""
        lines.append(
            f"Response latency {name[:3]}: {latency['a'][name]:.0f} ms -> "
            f"{latency['b'][name]:.0f} ms, {entry['difference']:+.0f} ms{interval}"
        )
    return lines


def _cost(cost: Mapping[str, Any]) -> list[str]:
    lines = []
    for label in ("a", "b"):
        side = cost[label]
        roles = "; ".join(
            f"{role} {usage['prompt']} + {usage['completion']} tokens, "
            f"{_dollars(usage['cost_usd'])}"
            + (f" without {usage['unpriced_calls']} calls" if usage["unpriced_calls"] else "")
            for role, usage in side["roles"].items()
        )
        lines.append(f"Cost {label.upper()}: {_dollars(side['cost_usd'])} ({roles})")
    if cost["paired_tasks"]:
        lines.append(
            f"Cost of a conversation, {cost['paired_tasks']} paired tasks, no judge: "
            f"{_dollars(cost['usd_a_conversation_of_a'])} -> "
            f"{_dollars(cost['usd_a_conversation_of_b'])}"
        )
    return lines


def _settings(comparison: Mapping[str, Any]) -> list[str]:
    lines = []
    if comparison["settings_differences"]:
        lines += ["", "Settings that differ:"]
        lines += [
            f"  {item['name']}: {item['a']!r} -> {item['b']!r}"
            for item in comparison["settings_differences"]
        ]
    if comparison["version_differences"]:
        lines += ["", "Versions that differ:"]
        lines += [
            f"  {item['name']}: {_listed(item['a'])} -> {_listed(item['b'])}"
            for item in comparison["version_differences"]
        ]
    return lines


def _listed(versions: Mapping[str, int]) -> str:
    return ", ".join(f"{value[:24]} ({count})" for value, count in versions.items()) or "none"


def _percent(share: float | None, sign: str = "") -> str:
    return "n/a" if share is None else f"{100 * share:{sign}.1f} %"


def _dollars(cost: float | None) -> str:
    return "price unknown" if cost is None else f"${cost:.6f}"
