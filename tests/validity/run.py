"""The validity suite: `make validity`.

Holds the tools against the official toolkit, the scripted agents against their table, and the judge
against itself; prints the tables, and writes docs/validity.md when all parts ran and hold.

Exit codes: 0 all holds, 1 something deviates, 2 wrong use, 3 it could not be found out (the toolkit
or the services did not run), 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from tau2eval_validity.agents import (
    DO_NOTHING,
    GOLD,
    JUDGE,
    AgentResult,
    agents,
    check_agent,
    run_agent,
)
from tau2eval_validity.generate import COUNT, SEED
from tau2eval_validity.judging import (
    Check,
    off_is_never_passed,
    same_from_the_record,
    same_with_votes,
)
from tau2eval_validity.peer import Answers, PeerError
from tau2eval_validity.pins import write_pins
from tau2eval_validity.services import ServiceError, Services
from tau2eval_validity.tables import (
    HEADER,
    agents_section,
    judge_section,
    toolkit_section,
    versions,
)
from tau2eval_validity.toolkit import ToolkitResult, compare_all

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "validity.md"
PARTS = ("toolkit", "agents", "judge")
EXIT_DEVIATES, EXIT_UNKNOWN, EXIT_INTERRUPTED = 1, 3, 130
SHOWN = 20


def say(text: str) -> None:
    """Prints progress, which is no result."""
    print(f"validity: {text}", file=sys.stderr, flush=True)


def run_toolkit(arguments: argparse.Namespace) -> ToolkitResult:
    """Part A."""
    kept = arguments.peer / "validity-answers.jsonl"
    if arguments.fresh:
        kept.unlink(missing_ok=True)
    answers = Answers(kept)
    began = time.monotonic()

    def progress(done: int, of: int) -> None:
        if done % 100 == 0:
            say(f"{done} of {of} sequences compared after {time.monotonic() - began:.0f} s")

    result = compare_all(
        arguments.peer, answers, arguments.count, arguments.seed, arguments.workers, progress
    )
    if answers.used:
        say(f"{answers.used} answers of the toolkit are kept ones; --fresh asks again")
    return result


def run_calls(services: Services, parts: list[str]) -> tuple[list[AgentResult], list[Check]]:
    """Parts B and C; the checks of the judge use the runs of the agents."""
    results: list[AgentResult] = []
    wanted = agents() if "agents" in parts else (GOLD, DO_NOTHING)
    for agent in wanted:
        began = time.monotonic()
        results.append(check_agent(agent, run_agent(services, agent, True), True))
        say(f"{agent}: 50 scenarios in {time.monotonic() - began:.0f} s")
    checks: list[Check] = []
    if "judge" in parts:
        runs = {result.agent: result.run for result in results}
        for agent in (GOLD, DO_NOTHING):
            checks.append(same_with_votes(services, agent, runs[agent]))
            checks.append(same_from_the_record(services, agent, runs[agent]))
            anew = ("--judge-model", JUDGE)
            checks.append(same_from_the_record(services, agent, runs[agent], *anew))
        for agent in (GOLD, DO_NOTHING):
            checks.append(off_is_never_passed(services, agent))
        say("the judge was checked")
    return results, checks


def main() -> int:
    """Runs the parts and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--count", type=int, default=COUNT, help="sequences of the part toolkit")
    parser.add_argument("--seed", type=int, default=SEED, help="where their chance starts")
    parser.add_argument("--workers", type=int, default=2, help="processes of the toolkit")
    parser.add_argument("--fresh", action="store_true", help="ask the toolkit everything again")
    parser.add_argument("--peer", type=Path, default=ROOT / ".venv-peer", help="its environment")
    parser.add_argument("--json", action="store_true", help="print facts as JSON, not tables")
    parser.add_argument("--update-pins", action="store_true", help="write pins.json for make test")
    arguments = parser.parse_args()
    parts = arguments.parts or list(PARTS)

    sections: list[str] = []
    deviations: list[str] = []
    facts: dict[str, object] = {"judge": JUDGE}
    toolkit: ToolkitResult | None = None
    if "toolkit" in parts:
        toolkit = run_toolkit(arguments)
        sections.append(toolkit_section(toolkit))
        deviations += toolkit.deviations + toolkit.weaknesses()
        hidden = len(toolkit.deviating) - len(toolkit.deviations)
        deviations += [f"{hidden} further sequences deviate."] * (hidden > 0)
        facts["toolkit"] = {
            "version": toolkit.version,
            "sequences": len(toolkit.outcomes),
            "identical": sum(outcome.identical for outcome in toolkit.outcomes),
            "deviating": len(toolkit.deviating),
            "verdicts": len(toolkit.verdicts),
            "same_verdict": sum(bool(outcome.same_verdict) for outcome in toolkit.verdicts),
            "rules": toolkit.by_rule(),
        }
        if (
            arguments.update_pins
            and not deviations
            and (arguments.count, arguments.seed)
            == (
                COUNT,
                SEED,
            )
        ):
            write_pins(toolkit.outcomes)
    if {"agents", "judge"} & {*parts}:
        # Kept when something deviates: the words of a deviation point into it.
        folder = Path(tempfile.mkdtemp(prefix="tau2eval-validity-"))
        with Services(folder) as services:
            results, checks = run_calls(services, parts)
        found = [f"{each.agent}, {words}" for each in results for words in each.deviations]
        found += [f"{each.name}: {words}" for each in checks for words in each.deviations]
        deviations += found[:SHOWN]
        deviations += [f"{len(found) - SHOWN} further deviations."] * (len(found) > SHOWN)
        sections.append(agents_section(results, True))
        if checks:
            sections.append(judge_section(checks))
        facts["agents"] = {each.agent: dict(each.found) for each in results}
        facts["checks"] = {each.name: len(each.deviations) for each in checks}
        if not found:
            _remove(folder)

    facts["deviations"] = deviations
    page = "\n\n".join(
        [HEADER.strip(), "## Run", versions(toolkit.version if toolkit else None, ROOT), *sections]
    )
    print(json.dumps(facts, indent=2) if arguments.json else "\n\n".join(sections))
    for words in deviations:
        print(f"\n{words}", file=sys.stderr)
    if deviations:
        print(f"\nvalidity: {len(deviations)} deviations", file=sys.stderr)
        return EXIT_DEVIATES
    say("all holds")
    if set(parts) == set(PARTS) and (arguments.count, arguments.seed) == (COUNT, SEED):
        PAGE.write_text(page + "\n")
        say(f"{PAGE.relative_to(ROOT)} is written")
    return 0


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (PeerError, ServiceError) as error:
        print(f"validity: it could not be found out: {error}", file=sys.stderr)
        sys.exit(EXIT_UNKNOWN)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
