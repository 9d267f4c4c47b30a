"""all_summary.txt: a run for a person."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from tau2eval_scorer.jsonio import dump_line

_MAX_VALUE_CHARS = 80


def summary_text(summary: Mapping[str, Any]) -> str:
    """Returns the text of a run's aggregates.

    Args:
        summary: What `summary.summarize` returned.
    """
    lines: list[str] = []
    for scenario in summary["scenarios"]:
        lines += _scenario_block(scenario, summary["trials"])
    lines += _overall(summary)
    return "\n".join(lines) + "\n"


def _scenario_block(scenario: Mapping[str, Any], trials: int) -> list[str]:
    title = scenario["scenario_name"]
    if trials > 1:
        title += f", trial {scenario['trial']}"
    outcome = scenario["outcome"]
    if scenario["not_run_kind"]:
        outcome += f" ({scenario['not_run_kind']})"
    lines = [
        f"== {title}",
        f"   outcome:   {outcome}" + ("" if scenario["fully_judged"] else "   [not fully judged]"),
        f"   why:       {' '.join(scenario['explanation'].split())}",
        f"   call:      {scenario['duration_seconds']:.1f} s, {scenario['total_turns']} turns, "
        f"ended by {scenario['stop_reason']}",
        f"   latency:   {_latency(scenario['latency_stats'])}",
    ]
    buckets = scenario["success_breakdown"]
    lines.append(
        "   signals:   "
        + "; ".join(
            f"{bucket.replace('_', ' ')}: {', '.join(names)}"
            for bucket, names in buckets.items()
            if names
        )
    )
    if scenario["nl_assertion_total"]:
        line = f"{scenario['nl_assertion_pass_count']} of {scenario['nl_assertion_total']} hold"
        if scenario["judge_score"] is not None:
            line += f"; judge's score {scenario['judge_score']:g} (informational)"
        lines.append(f"   assertions: {line}")
    return [*lines, ""]


def _overall(summary: Mapping[str, Any]) -> list[str]:
    counts = summary["counts"]
    state = f"finished {summary['finished_at']}" if summary["finished_at"] else "not finished"
    lines = [
        f"== Run {summary['run_id']} ({state})",
        f"   planned {counts['planned']}: {counts['passed']} passed, {counts['failed']} failed, "
        f"{counts['not_run']} not run, {counts['missing']} missing",
    ]
    kinds = summary["not_run_kinds"]
    if kinds:
        lines.append(f"   Not run, never a score: {_counted(kinds)}")
    if summary["missing"]:
        lines.append(f"   Missing: {_names(summary['missing'], summary['trials'])}")
    lines += _attempts(summary)
    lines += [
        "",
        f"   Overall Success Rate: {_rate(summary['success_rate'])} of the scored calls",
        f"{_STRICT}{_rate(summary['success_rate_with_agent_faults_failed'])}",
        *_pass_hat(summary),
        "",
        *_signals(summary),
        "",
        f"   Overall latency: {_latency(summary['latency_stats'])}",
        *_speech(summary["speech_accuracy"]),
        *_usage(summary),
        *_control_flow(summary),
        "",
    ]
    for domain, entry in summary["domains"].items():
        lines.append(f"   Domain {domain}: {_rate(entry['success_rate'])}")
        lines.append(f"{_STRICT}{_rate(entry['success_rate_with_agent_faults_failed'])}")
        if entry["not_run"] or entry["missing"]:
            kinds = f" ({_counted(entry['not_run_kinds'])})" if entry["not_run"] else ""
            lines.append(
                f"      beside: {entry['not_run']} not run{kinds}, {entry['missing']} missing"
            )
    lines += [
        "",
        "   [ ] are 95 % confidence intervals, clustered by task. A rate is of scored calls only.",
    ]
    lines += _warnings(summary)
    return lines


_STRICT = "      with the agent's own not_run as failures: "


def _attempts(summary: Mapping[str, Any]) -> list[str]:
    others = summary["other_attempts"]
    lines = []
    if others["count"]:
        lines.append(f"   Repeated attempts, kept and not counted: {_counted(others['reasons'])}")
        for attempt in others["attempts"]:
            place = _names([attempt], summary["trials"])
            lines.append(
                f"      {place}, {attempt['attempt_id']}: "
                f"{' '.join(attempt['explanation'].split())}"
            )
    for resume in summary["resumes"]:
        changed = ", ".join(
            f"{change['name']} {_value(change['before'])} -> {_value(change['after'])}"
            for change in resume["changes"]
        )
        lines.append(f"   Resumed {resume['at']}" + (f" with {changed}" if changed else ""))
    return lines


def _pass_hat(summary: Mapping[str, Any]) -> list[str]:
    table = summary["pass_hat"]
    if table["planned_trials"] < 2:
        return []
    lines = ["", f"   {'k':>4}  {'pass^k':<26}{'agent faults failed':<26}tasks"]
    for entry in table["rates"]:
        strict = entry["with_agent_faults_failed"]
        lines.append(
            f"   {entry['k']:>4}  {_share(entry):<26}{_share(strict):<26}"
            f"{entry['tasks']} of {table['planned_tasks']}"
        )
    lines.append(
        f"   tau2-bench would stop at k = {table['upstream_max_k']}, the fewest trials of a task "
        f"that has any."
        if table["upstream_max_k"]
        else "   No task has a score."
    )
    return lines


def _signals(summary: Mapping[str, Any]) -> list[str]:
    lines = []
    for name, signal in summary["signals"].items():
        note = "" if signal["gates"] else "   (diagnostic, not part of the verdict)"
        lines.append(f"   {name} pass: {_rate(signal, 'calls')}{note}")
        strict = signal["with_agent_faults_failed"]
        if strict["of"] != signal["of"] or strict["passed"] != signal["passed"]:
            lines.append(f"{_STRICT}{_rate(strict)}")
    assertions, judge = summary["nl_assertions"], summary["judge"]
    if assertions["of"]:
        lines.append(
            f"   NL-Assertion pass: {_rate(assertions, 'assertions')}, in "
            f"{assertions['conversations']} judged calls"
        )
    if judge["scored"]:
        lines.append(
            f"   Judge's score: mean {judge['mean_score']:.3f} over {judge['scored']} calls   "
            f"(diagnostic, not part of the verdict)"
        )
    if judge["agreement"] is not None and (judge["votes"] or 1) > 1:
        lines.append(
            f"   Judge's agreement: {_percent(judge['agreement'])} of the votes agree with the "
            f"majority ({judge['votes']} votes an assertion)"
        )
    if summary["insufficient_agent_turns"]:
        lines.append(
            "   Too few agent turns (failed, and left out of the signals' rates): "
            + _names(summary["insufficient_agent_turns"], summary["trials"])
        )
    return lines


def _usage(summary: Mapping[str, Any]) -> list[str]:
    lines = [
        f"   Tokens, {role}: {usage['n_calls']} calls, {usage['prompt']} prompt, "
        f"{usage['completion']} completion, {_dollars(usage)}"
        for role, usage in summary["token_usage"].items()
    ]
    if summary["cost_usd"] is not None:
        lines.append(f"   Cost, all three: ${summary['cost_usd']:.6f} of the known prices")
    if summary["other_attempts"]["cost_usd"] is not None:
        lines.append(f"   and repeated attempts: ${summary['other_attempts']['cost_usd']:.6f}")
    return lines


def _control_flow(summary: Mapping[str, Any]) -> list[str]:
    return [
        f"   Control flow, {role}: {name} in {flow['calls']} calls"
        + (f" ({_counted(flow['counts'])})" if flow["counts"] else "")
        for role, flows in summary["control_flow"].items()
        for name, flow in flows.items()
    ]


def _warnings(summary: Mapping[str, Any]) -> list[str]:
    lines = []
    stalled = [
        f"{side}: {_names(summary[f'{side}_stalled'], summary['trials'])}"
        for side in ("agent", "user")
        if summary[f"{side}_stalled"]
    ]
    if stalled:
        lines += ["", f"   Warning, calls stalled. {'; '.join(stalled)}"]
    for warning in summary["warnings"]:
        lines += ["", *textwrap.wrap(f"Warning: {warning}", 100, **_INDENT)]
    unjudged = summary["not_fully_judged"]
    if unjudged:
        lines += [
            "",
            f"   Not fully judged: {len(unjudged)} scenarios. Their right end changes nothing in",
            "   the database, and nothing judged what had to be said, so an agent that only",
            f"   hangs up passes them: {', '.join(unjudged)}",
        ]
    return lines


_INDENT: Any = {
    "initial_indent": "   ",
    "subsequent_indent": "   ",
    "break_long_words": False,
    "break_on_hyphens": False,
}


def _speech(accuracy: Mapping[str, Any]) -> list[str]:
    lines = []
    for direction, label in (
        ("agent_heard_user", "agent heard the caller"),
        ("user_heard_agent", "caller heard the agent"),
    ):
        entry = accuracy[direction]
        if not entry["turns"]:
            continue
        parts = [f"word error rate {_percent(entry['ordinary_wer'])} on ordinary words"]
        if entry["identifiers"]:
            parts.append(
                f"{entry['exact_identifiers']} of {entry['identifiers']} identifiers exact"
            )
        lines.append(f"   Speech, {label}: {', '.join(parts)}")
    return lines


def _rate(entry: Mapping[str, Any], unit: str = "") -> str:
    of = f"{entry['passed']}/{entry['of']}" + (f" {unit}" if unit else "")
    return f"{_percent(entry['rate'])} ({of}){_interval(entry)}"


def _share(entry: Mapping[str, Any]) -> str:
    return f"{_percent(entry['rate'])}{_interval(entry)}"


def _interval(entry: Mapping[str, Any]) -> str:
    bounds = entry["interval_95"]
    return f" [{100 * bounds[0]:.1f}, {100 * bounds[1]:.1f}]" if bounds else ""


def _counted(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in kinds.items())


def _value(value: Any) -> str:
    text = dump_line(value).decode().strip()
    return text if len(text) <= _MAX_VALUE_CHARS else text[:_MAX_VALUE_CHARS] + "…"


def _percent(share: float | None) -> str:
    return "n/a" if share is None else f"{100 * share:.1f} %"


def _latency(stats: Mapping[str, Any]) -> str:
    if not stats["count"]:
        return "no turn has one"
    return (
        f"{stats['count']} turns, mean {stats['mean_ms']:.0f} ms, p50 {stats['p50_ms']:.0f}, "
        f"p95 {stats['p95_ms']:.0f}, min {stats['min_ms']:.0f}, max {stats['max_ms']:.0f}"
    )


def _dollars(usage: Mapping[str, Any]) -> str:
    if usage["cost_usd"] is None:
        return "price unknown" if usage["n_calls"] else "no cost"
    missing = f" without {usage['unpriced_calls']} calls" if usage["unpriced_calls"] else ""
    return f"${usage['cost_usd']:.6f}{missing}"


def _names(entries: Any, trials: int) -> str:
    return ", ".join(
        entry["scenario"] + (f" trial {entry['trial']}" if trials > 1 else "") for entry in entries
    )
