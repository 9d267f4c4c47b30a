"""`runs` and `attempts`: what a folder of runs, and one run, hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tau2eval.scorer.v1 import scorer_pb2
from tau2eval_cli import words
from tau2eval_cli.errors import EXIT_DONE
from tau2eval_cli.plan import locate_run
from tau2eval_cli.progress import OUTCOME_STYLES, clock_time
from tau2eval_cli.results import verdict_json
from tau2eval_cli.session import Interruptible, ScorerTarget, make_console, open_session


def runs(target: ScorerTarget, *, as_json: bool = False) -> int:
    """Lists the runs, newest first, and returns the exit code.

    Raises:
        CommandError: For wrong use, and when the scorer cannot be used.
    """
    target.check()
    process = Interruptible()

    async def main() -> list[scorer_pb2.RunInfo]:
        async with open_session(target, _say, started=process.note) as session:
            return await session.scorer.runs()

    found = process.run(main)
    if as_json:
        print(json.dumps({"runs": [_run_json(run) for run in found]}, indent=2), flush=True)
    else:
        _print_runs(make_console(False), found)
    return EXIT_DONE


def attempts(run: str, target: ScorerTarget, *, as_json: bool = False) -> int:
    """Lists every attempt of a run and returns the exit code.

    Raises:
        CommandError: For wrong use, and when the scorer cannot be used.
    """
    run_id, folder = locate_run(run, target.output_dir)
    target = replace(target, output_dir=folder)
    target.check()
    process = Interruptible()

    async def main() -> list[scorer_pb2.Verdict]:
        async with open_session(target, _say, started=process.note) as session:
            return await session.scorer.attempts(run_id)

    found = process.run(main)
    if as_json:
        value = {
            "run_id": run_id,
            "attempts": [{"counts": item.counts, **verdict_json(item)} for item in found],
        }
        print(json.dumps(value, indent=2, ensure_ascii=False), flush=True)
    else:
        _print_attempts(make_console(False), found)
    return EXIT_DONE


def _say(text: str) -> None:
    make_console(True).print(text, markup=False, highlight=False, soft_wrap=True)


def _rate(run: scorer_pb2.RunInfo) -> float | None:
    scored = run.passed + run.failed
    return run.passed / scored if scored else None


def _run_json(run: scorer_pb2.RunInfo) -> dict[str, Any]:
    rate = _rate(run)
    return {
        "run_id": run.run_id,
        "created_at": run.created_at,
        "finished_at": run.finished_at or None,
        "planned": run.planned,
        "passed": run.passed,
        "failed": run.failed,
        "not_run": run.not_run,
        "missing": run.planned - run.passed - run.failed - run.not_run,
        "success_rate": None if rate is None else round(rate, 6),
    }


def _print_runs(console: Console, found: Sequence[scorer_pb2.RunInfo]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("run", "began", "state"):
        table.add_column(heading, no_wrap=True)
    for heading in ("planned", "passed", "failed", "not run", "success"):
        table.add_column(heading, justify="right", no_wrap=True)
    for run in found:
        rate = _rate(run)
        table.add_row(
            run.run_id,
            run.created_at[:19].replace("T", " "),
            "finished" if run.finished_at else "open",
            *(str(number) for number in (run.planned, run.passed, run.failed, run.not_run)),
            "-" if rate is None else f"{rate:.1%}",
        )
    console.print(table)
    console.print(f"{len(found)} runs; success is passed of passed and failed")


def _print_attempts(console: Console, found: Sequence[scorer_pb2.Verdict]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("scenario", "trial", "counts", "outcome", "scorings", "time", "attempt", "why"):
        table.add_column(heading, overflow="fold")
    for item in found:
        outcome = words.outcome(item.outcome)
        kind = f" ({item.not_run_kind})" if item.not_run_kind else ""
        table.add_row(
            item.scenario,
            str(item.trial),
            "yes" if item.counts else "no",
            Text(outcome.replace("_", " ") + kind, style=OUTCOME_STYLES.get(outcome, "")),
            str(item.scoring or 1),
            clock_time(item.duration_seconds),
            item.attempt_id[:12],
            Text(item.explanation),
        )
    console.print(table)
