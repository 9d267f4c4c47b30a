"""Checks every adopted assertion against policy.md and db.json; writes docs/assertions-audit.md.

    python scripts/audit_assertions.py            # check, and write the table
    python scripts/audit_assertions.py --check    # check, and refuse a table that is stale

The fixtures are the pinned files (tau2eval_airline.fixtures.SHA256). Exit code 1 when a fact, a
rule or the table is wrong; each problem is a line of stderr.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from assertion_audit.evidence import ROWS, USERS, Kind, Row
from assertion_audit.facts import Data
from assertion_audit.rules import policy_sections

from tau2eval_airline import (
    ADOPTED_NL_ASSERTIONS,
    SEED_DB_HASH,
    assertions_sha256,
    get_scenario,
    list_scenarios,
)

TABLE = Path(__file__).parents[1] / "docs" / "assertions-audit.md"

OPENINGS = {
    Kind.SPOKEN: r"The agent (tells|declines, in words,)|The agent's final answer to .+ in words,",
    Kind.CONDITIONAL: r"If .+ the agent(?: tells|'s final answer is)",
    Kind.LOOKUP: r"The agent looks up|If .+ the agent searches",
    Kind.PROHIBITION: r"(The agent|Once it has refused, the agent) (does not|makes no offer)",
}
"""How an assertion of each kind begins: the kind in the table is what the words say."""

HEAD = """\
# Audit of the adopted assertions

Written by `scripts/audit_assertions.py`; do not edit. The facts are read from the pinned db.json
and tasks.json, the rules found in the pinned policy.md by section and key words; a test runs the
check, so a fact that is wrong, a rule that is gone or a changed assertion fails.

- {tasks} tasks, {claims} assertions: {kinds}.
- SHA-256 of the set: `{digest}`.
- Clock: 2024-05-15T15:00:00. "hours old" counts from a reservation's created_at to it, "flown" its
  flights that landed or fly, "to come" those that did not take off, "cancelled" those that the
  airline cancelled. "script" is what the caller of tasks.json is told, "gold" its gold list.
- Every reservation of a row belongs to the task's caller, and every task's gold replay ends in the
  seeded database. No assertion is one of tau2's 123.
- A cancellation or a refund is ruled out "as it stands": the policy lets the caller change to
  business class and cancel then, and task 7's gold does. Where a flight was flown that way is shut.
- The set was read a second time by a reader who had not written it and saw this table only
  afterwards: from both sides, whether a right agent could fail a claim and whether a wrong one
  could pass them all. 40 of the 84 texts were changed by it: no refusal stands that a later "just
  this once" takes back, no compensation in another guise passes, and what a right call may leave
  out is asked for only on its condition.

| Task | Kind | Claim | Evidence | Rule |
| --- | --- | --- | --- | --- |
"""


def problems(
    data: Data,
    claims: Mapping[str, Sequence[str]] = ADOPTED_NL_ASSERTIONS,
    rows: Mapping[str, Sequence[Row]] = ROWS,
) -> list[str]:
    """Returns all that is wrong with the set, its facts and its rules, one line each."""
    found = [f"task {task}: {text}" for task, text in _of_the_set(data, claims, rows)]
    sections = policy_sections(data.policy)
    for task in claims.keys() & rows.keys():
        for number, (claim, row) in enumerate(zip(claims[task], rows[task], strict=False), 1):
            wrong = [line for fact in row.facts for line in fact.problems(data)]
            wrong += [line for rule in row.rules for line in rule.problems(sections)]
            wrong += _of_the_words(data, claim, row)
            found += [f"task {task}, claim {number}: {line}" for line in wrong]
    return sorted(found)


def _of_the_set(
    data: Data, claims: Mapping[str, Sequence[str]], rows: Mapping[str, Sequence[Row]]
) -> Iterator[tuple[str, str]]:
    unchanged = {
        scenario.tau2_id
        for scenario in map(get_scenario, list_scenarios("tau2_airline"))
        if scenario.expected_db_hash == SEED_DB_HASH
    }
    for task in sorted(claims.keys() ^ unchanged):
        yield task, "the set holds exactly the tasks whose gold changes nothing"
    upstream = {
        _plain(text)
        for record in data.tasks.values()
        for text in record["evaluation_criteria"]["nl_assertions"] or []
    }
    for task in sorted(claims.keys() | rows.keys()):
        texts, kinds = claims.get(task, ()), [row.kind for row in rows.get(task, ())]
        if len(texts) != len(kinds):
            yield task, f"{len(texts)} assertions have {len(kinds)} rows of evidence"
        if not 2 <= len(texts) <= 9:
            yield task, f"{len(texts)} assertions; two to nine were decided on"
        for kind in (Kind.SPOKEN, Kind.PROHIBITION):
            if kind not in kinds:
                yield task, f"it has no {kind.value}"
        for text in texts:
            if _plain(text) in upstream:
                yield task, f"copied from upstream: {text}"
        yield from ((task, line) for line in _of_the_owner(data, task, rows.get(task, ())))


def _of_the_owner(data: Data, task: str, rows: Sequence[Row]) -> Iterator[str]:
    owner = USERS.get(task, "")
    known = str(data.tasks[task]["user_scenario"]["instructions"]["known_info"])
    if not owner or owner not in known:
        yield f"its caller does not know the user id {owner!r}"
    for about in sorted({fact.about for row in rows for fact in row.facts}):
        record = data.reservations.get(about)
        if record and record["user_id"] != owner:
            yield f"reservation {about} belongs to {record['user_id']}, not to {owner}"


def _of_the_words(data: Data, claim: str, row: Row) -> list[str]:
    wrong = []
    if not re.match(OPENINGS[row.kind], claim):
        wrong.append(f"it does not read like a {row.kind.value}: {claim}")
    if not row.facts or not row.rules:
        wrong.append("it needs a fact and a rule")
    shown = " ".join(fact.shown() for fact in row.facts)
    for word in re.findall(r"\b[A-Z0-9]{6}\b", claim):
        known = word in data.reservations or word in data.flights
        if not known or word not in shown:
            wrong.append(f"no fact is about {word}")
    return wrong


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))


def render() -> str:
    """Returns the table as it is written to docs/."""
    kinds = [row.kind for rows in ROWS.values() for row in rows]
    lines = [
        HEAD.format(
            tasks=len(ADOPTED_NL_ASSERTIONS),
            claims=sum(map(len, ADOPTED_NL_ASSERTIONS.values())),
            kinds=", ".join(f"{kinds.count(kind)} {kind.value}s" for kind in Kind),
            digest=assertions_sha256(),
        )
    ]
    for task, claims in ADOPTED_NL_ASSERTIONS.items():
        for claim, row in zip(claims, ROWS[task], strict=True):
            facts = "; ".join(fact.shown() for fact in row.facts)
            rules = "; ".join(rule.shown() for rule in row.rules)
            lines.append(f"| {task} | {row.kind.value} | {claim} | {facts} | {rules} |\n")
    return "".join(lines)


def main(arguments: Sequence[str] | None = None, table: Path = TABLE) -> int:
    """Runs the check.

    Args:
        arguments: The command line; the process's own by default.
        table: The file to write or to compare.

    Returns:
        The exit code.

    Raises:
        FixtureError: If the fixtures are missing or are not the pinned ones.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; refuse a stale table")
    options = parser.parse_args(arguments)
    found = problems(Data.load())
    if not found:
        text = render()
        if not options.check:
            table.write_text(text, encoding="utf-8")
        elif not table.exists() or table.read_text(encoding="utf-8") != text:
            found = [f"{table.name} is stale: run python scripts/audit_assertions.py"]
    for line in found:
        print(line, file=sys.stderr)
    if not found:
        print(f"{sum(map(len, ADOPTED_NL_ASSERTIONS.values()))} assertions hold")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
