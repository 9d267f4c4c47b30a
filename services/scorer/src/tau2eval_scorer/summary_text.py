"""all_summary.txt: a run for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
        listed = ", ".join(f"{kind} {count}" for kind, count in kinds.items())
        lines.append(f"   Not run, never a score: {listed}")
    if summary["missing"]:
        lines.append(f"   Missing: {_names(summary['missing'], summary['trials'])}")
    lines += [
        "",
        f"   Overall Success Rate: {_rate(summary['success_rate'])} of the scored calls",
    ]
    strict = summary["success_rate_with_agent_faults_failed"]
    if strict["of"] != summary["success_rate"]["of"]:
        lines.append(f"   The same with lost agents taken as failures: {_rate(strict)}")
    for name, signal in summary["signals"].items():
        note = "" if signal["gates"] else "   (diagnostic, not part of the verdict)"
        lines.append(f"   {name} pass: {_rate(signal)}{note}")
    if summary["insufficient_agent_turns"]:
        lines.append(
            "   Too few agent turns (failed, and left out of the signals' rates): "
            + _names(summary["insufficient_agent_turns"], summary["trials"])
        )
    lines += ["", f"   Overall latency: {_latency(summary['latency_stats'])}"]
    lines += _speech(summary["speech_accuracy"])
    for side, usage in summary["token_usage"].items():
        lines.append(
            f"   Tokens, {side}: {usage['n_calls']} calls, {usage['prompt']} prompt, "
            f"{usage['completion']} completion, {_dollars(usage)}"
        )
    for domain, entry in summary["domains"].items():
        lines.append(f"   Domain {domain}: {_rate(entry['success_rate'])}")
    lines += _warnings(summary)
    return lines


def _warnings(summary: Mapping[str, Any]) -> list[str]:
    lines = []
    stalled = [
        f"{side}: {_names(summary[f'{side}_stalled'], summary['trials'])}"
        for side in ("agent", "user")
        if summary[f"{side}_stalled"]
    ]
    if stalled:
        lines += ["", f"   Warning, calls stalled. {'; '.join(stalled)}"]
    unjudged = summary["not_fully_judged"]
    if unjudged:
        lines += [
            "",
            f"   Not fully judged: {len(unjudged)} scenarios. Their right end changes nothing in",
            "   the database, and nothing judges yet what had to be said, so an agent that only",
            f"   hangs up passes them: {', '.join(unjudged)}",
        ]
    return lines


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


def _rate(entry: Mapping[str, Any]) -> str:
    return f"{_percent(entry['rate'])} ({entry['passed']}/{entry['of']})"


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
