"""The end of a run: its summary for a person."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tau2eval_cli import words
from tau2eval_cli.progress import OUTCOME_STYLES, clock_time
from tau2eval_cli.results import RunResult, ScenarioResult


def print_summary(console: Console, result: RunResult) -> None:
    """Prints outcome, signals, turns, latency, duration and word error rate of each scenario.

    Counts, reservations and the place of the artifacts follow.
    """
    console.print()
    if result.scenarios:
        console.print(_table(result.scenarios))
    counts = ", ".join(
        f"{count} {outcome.replace('_', ' ')}" for outcome, count in result.counts.items()
    )
    console.print(Text(f"run {result.run_id}: {counts}", style="bold"))
    for scenario in result.scenarios:
        if scenario.outcome != "passed" and scenario.verdict.explanation:
            _line(console, f"{scenario.name}: {scenario.verdict.explanation}")
    unjudged = [
        scenario.name
        for scenario in result.scenarios
        if scenario.outcome in ("passed", "failed") and not scenario.verdict.fully_judged
    ]
    if unjudged:
        _line(
            console,
            f"not fully judged (nothing checks what had to be said): {', '.join(unjudged)}",
            "yellow",
        )
    if result.not_started:
        _line(console, f"not started: {', '.join(result.not_started)}", "yellow")
    if result.interrupted:
        _line(console, "interrupted; what was done is kept", "yellow")
    for problem in result.problems:
        _line(console, problem, "red")
    _line(console, f"artifacts: {result.output_dir}")


def _table(scenarios: list[ScenarioResult]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("scenario", no_wrap=True)
    table.add_column("outcome", overflow="fold")
    table.add_column("signals", overflow="fold")
    for heading in ("turns", "p50 ms", "p95 ms", "time", "WER"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("ended by", no_wrap=True)
    for scenario in scenarios:
        verdict, metrics = scenario.verdict, scenario.metrics
        outcome = scenario.outcome.replace("_", " ")
        if verdict.not_run_kind:
            outcome += f" ({verdict.not_run_kind})"
        latency = metrics.get("latency_stats") or {}
        table.add_row(
            scenario.name,
            Text(outcome, style=OUTCOME_STYLES.get(scenario.outcome, "")),
            _signals(scenario),
            _number(metrics.get("total_turns"), "{:.0f}"),
            _number(latency.get("p50_ms"), "{:.0f}"),
            _number(latency.get("p95_ms"), "{:.0f}"),
            clock_time(verdict.duration_seconds),
            _number(word_error_rate(metrics), "{:.1%}"),
            words.stop_reason(verdict.stop_reason) or "-",
        )
    return table


def _signals(scenario: ScenarioResult) -> Text:
    breakdown = scenario.verdict.success_breakdown
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
