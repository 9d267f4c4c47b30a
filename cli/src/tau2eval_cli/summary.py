"""The end of a run: its summary for a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tau2eval_cli import words
from tau2eval_cli.progress import OUTCOME_STYLES, clock_time
from tau2eval_cli.results import RunResult, TrialResult


def print_summary(console: Console, result: RunResult) -> None:
    """Prints outcome, signals, turns, latency, duration and word error rate of each trial.

    Counts, rates, reservations, gates and the place of the artifacts follow.
    """
    console.print()
    if result.trials:
        console.print(_table(result.trials))
    counts = ", ".join(
        f"{count} {outcome.replace('_', ' ')}" for outcome, count in result.counts.items()
    )
    console.print(Text(f"run {result.run_id}: {counts}", style="bold"))
    for trial in result.trials:
        if trial.outcome != "passed" and trial.verdict.explanation:
            _line(console, f"{trial.label}: {trial.verdict.explanation}")
    print_rates(console, result.summary)
    unjudged = [trial.label for trial in result.trials if _unjudged(trial)]
    if unjudged:
        _line(
            console,
            f"not fully judged (nothing checks what had to be said): {', '.join(unjudged)}",
            "yellow",
        )
    for heading, trials in (
        ("not started", result.not_started),
        ("cut off", result.cut_off),
        ("held by another runner", result.others),
    ):
        if trials:
            _line(console, f"{heading}: {', '.join(result.labels(trials))}", "yellow")
    if result.interrupted:
        _line(
            console,
            f"interrupted; what was done is kept: `tau2-eval run --resume {result.run_id}` goes on",
            "yellow",
        )
    for problem in result.problems:
        _line(console, problem, "red")
    _print_gates(console, result)
    _line(console, f"artifacts: {result.output_dir}")


def print_rates(console: Console, summary: Mapping[str, Any]) -> None:
    """Prints the rates and warnings of an all_metrics.json; nothing when it is empty."""
    if not summary:
        return
    _rate(console, "success rate", summary.get("success_rate"))
    _rate(
        console,
        "with the agent's own not run as failures",
        summary.get("success_rate_with_agent_faults_failed"),
    )
    table = (summary.get("pass_hat") or {}).get("rates") or []
    if len(table) > 1:
        shares = ", ".join(f"pass^{row['k']} {_share(row['rate'])}{_strict(row)}" for row in table)
        _line(console, shares)
    for name, entry in (summary.get("signals") or {}).items():
        if entry.get("gates"):
            _rate(console, name, entry)
    _rate(console, "assertions that hold", summary.get("nl_assertions"))
    for warning in summary.get("warnings") or []:
        _line(console, warning, "yellow")


def _rate(console: Console, name: str, entry: Mapping[str, Any] | None) -> None:
    if not entry or not entry.get("of"):
        return
    bounds = entry.get("interval_95")
    interval = f", 95 % interval {_share(bounds[0])} to {_share(bounds[1])}" if bounds else ""
    share = f"{_share(entry['rate'])} ({entry['passed']}/{entry['of']}{interval})"
    _line(console, f"{name}: {share}{_strict(entry)}")


def _strict(entry: Mapping[str, Any]) -> str:
    """The rate with the agent's own not_run as failures, where it says something else."""
    strict = entry.get("with_agent_faults_failed")
    if not strict or strict["rate"] == entry["rate"]:
        return ""
    return f" [{_share(strict['rate'])} with the agent's own not run as failures]"


def _share(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.1%}"


def _unjudged(trial: TrialResult) -> bool:
    return trial.scored and not trial.verdict.fully_judged


def _print_gates(console: Console, result: RunResult) -> None:
    gates = result.gates
    for reason in result.not_clean:
        _line(console, f"not clean: {reason}", "red")
    if gates.fail_under is None:
        return
    share = gates.share(result.summary)
    least = f"{float(gates.fail_under):.1%}"
    if share is None:
        _line(console, f"--fail-under {least}: nothing was scored", "red")
    elif gates.fails(share):
        _line(console, f"--fail-under {least}: {float(share):.1%} is less", "red")
    else:
        _line(console, f"--fail-under {least}: {float(share):.1%} is enough", "green")


def _table(trials: list[TrialResult]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("scenario", no_wrap=True)
    table.add_column("outcome", overflow="fold")
    table.add_column("signals", overflow="fold")
    for heading in ("turns", "p50 ms", "p95 ms", "time", "WER"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("ended by", no_wrap=True)
    for trial in trials:
        verdict, metrics = trial.verdict, trial.metrics
        outcome = trial.outcome.replace("_", " ")
        if verdict.not_run_kind:
            outcome += f" ({verdict.not_run_kind})"
        latency = metrics.get("latency_stats") or {}
        table.add_row(
            trial.label,
            Text(outcome, style=OUTCOME_STYLES.get(trial.outcome, "")),
            _signals(trial),
            _number(metrics.get("total_turns"), "{:.0f}"),
            _number(latency.get("p50_ms"), "{:.0f}"),
            _number(latency.get("p95_ms"), "{:.0f}"),
            clock_time(verdict.duration_seconds),
            _number(word_error_rate(metrics), "{:.1%}"),
            words.stop_reason(verdict.stop_reason) or "-",
        )
    return table


def _signals(trial: TrialResult) -> Text:
    breakdown = trial.verdict.success_breakdown
    text = Text()
    for names, mark, style in (
        (breakdown.passed, "+", "green"),
        (breakdown.failed, "-", "red"),
    ):
        for name in names:
            text.append(f"{mark}{name} ", style=style)
    return text or Text("-")


def word_error_rate(metrics: dict[str, Any]) -> float | None:
    """Returns the word error rate on ordinary words, both directions together, as a share.

    None where nothing was recognised.
    """
    directions = [
        direction
        for direction in (metrics.get("speech_accuracy") or {}).values()
        if direction.get("words")
    ]
    words_said = sum(direction["words"] for direction in directions)
    errors = sum(direction["ordinary_errors"] for direction in directions)
    return errors / words_said if words_said else None


def _number(value: object, form: str) -> str:
    return form.format(value) if isinstance(value, (int, float)) else "-"


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=True)
