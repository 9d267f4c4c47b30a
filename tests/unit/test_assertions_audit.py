"""The audit of the adopted assertions holds, and each of its parts can fail."""

from __future__ import annotations

import copy
import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tau2eval_airline import ADOPTED_NL_ASSERTIONS

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module", autouse=True)
def scripts_on_path() -> Iterator[None]:
    sys.path.insert(0, str(SCRIPTS))
    yield
    sys.path.remove(str(SCRIPTS))


@pytest.fixture(scope="module")
def audit() -> Any:
    import audit_assertions

    return audit_assertions


@pytest.fixture(scope="module")
def data(audit: Any) -> Any:
    return audit.Data.load()


def test_the_committed_table_is_fresh_and_true() -> None:
    command = [sys.executable, str(SCRIPTS / "audit_assertions.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_table_has_a_row_for_each_of_84_assertions(audit: Any) -> None:
    lines = audit.TABLE.read_text(encoding="utf-8").splitlines()
    rows = [line.split(" | ") for line in lines if line.startswith("| ")][2:]
    assert len(rows) == 84
    claims = [(task, claim) for task, texts in ADOPTED_NL_ASSERTIONS.items() for claim in texts]
    assert [(row[0].removeprefix("| "), row[2]) for row in rows] == claims
    assert {len(row) for row in rows} == {5}
    assert all(row[3].strip() and row[4].strip(" |") for row in rows)


def test_each_task_pairs_an_act_with_a_prohibition(audit: Any) -> None:
    for task, rows in audit.ROWS.items():
        kinds = {row.kind for row in rows}
        assert {audit.Kind.SPOKEN, audit.Kind.PROHIBITION} <= kinds, task


def test_each_fact_can_fail(audit: Any, data: Any) -> None:
    """Each single value of each fact, set to another, is reported."""
    facts = {id(f): f for rows in audit.ROWS.values() for row in rows for f in row.facts}
    assert len(facts) > 60
    for fact in facts.values():
        assert fact.problems(data) == []
        assert fact.expected
        for name, value in fact.expected.items():
            wrong = not value if isinstance(value, bool) else None
            wrong = value + 1 if isinstance(value, int) and wrong is None else wrong
            changed = {**fact.expected, name: "something else" if wrong is None else wrong}
            (line,) = dataclasses.replace(fact, expected=changed).problems(data)
            assert fact.about in line
            assert name in line


def test_each_rule_can_fail(audit: Any, data: Any) -> None:
    rules = {rule for rows in audit.ROWS.values() for row in rows for rule in row.rules}
    sections = audit.policy_sections(data.policy)
    assert len(rules) > 20
    for rule in rules:
        assert rule.problems(sections) == []
        assert rule.words
        without = {name: text.replace(rule.words[0].lower(), "") for name, text in sections.items()}
        assert len(rule.problems(without)) == 1
        assert dataclasses.replace(rule, section="Seat map").problems(sections)


def other_record(data: Any, table: str, key: str, **values: Any) -> Any:
    records = {**getattr(data, table)}
    records[key] = {**copy.deepcopy(dict(records[key])), **values}
    return dataclasses.replace(data, **{table: records})


@pytest.mark.parametrize(
    ("table", "key", "values", "says"),
    [
        ("reservations", "3RK2T9", {"created_at": "2024-05-15T05:00:00"}, "hours old is 10"),
        ("reservations", "3RK2T9", {"insurance": "yes"}, "insurance is 'yes'"),
        ("reservations", "EHGLP3", {"cabin": "business"}, "cabin is 'business'"),
        ("reservations", "DF89BM", {"user_id": "emma_kim_9957"}, "belongs to emma_kim_9957"),
        ("reservations", "4OG6T3", {"passengers": [{}, {}, {}]}, "passengers is 3"),
        ("users", "anya_garcia_5901", {"membership": "gold"}, "free checked bags is 6"),
        ("users", "sophia_silva_7557", {"reservations": ["4XGCCM"]}, "reservations is 1"),
    ],
)
def test_another_database_is_noticed(
    audit: Any, data: Any, table: str, key: str, values: dict[str, Any], says: str
) -> None:
    found = audit.problems(other_record(data, table, key, **values))
    assert any(says in line for line in found), found


def test_a_missing_record_is_a_problem_and_no_crash(audit: Any, data: Any) -> None:
    records = {key: record for key, record in data.reservations.items() if key != "SI5UKW"}
    found = audit.problems(dataclasses.replace(data, reservations=records))
    assert any("task 28" in line and "SI5UKW" in line for line in found)


def test_a_changed_flight_changes_the_prices(audit: Any, data: Any) -> None:
    dates = copy.deepcopy(dict(data.flights["HAT047"]["dates"]))
    dates["2024-05-24"]["prices"]["business"] = 1
    found = audit.problems(other_record(data, "flights", "HAT047", dates=dates))
    assert len([line for line in found if "task 10" in line and "extra dollars" in line]) == 2


def changed_set(task: str, number: int, text: str) -> dict[str, tuple[str, ...]]:
    claims = list(ADOPTED_NL_ASSERTIONS[task])
    claims[number] = text
    return {**ADOPTED_NL_ASSERTIONS, task: tuple(claims)}


def test_claims_that_their_evidence_does_not_carry_are_refused(audit: Any, data: Any) -> None:
    upstream = data.tasks["47"]["evaluation_criteria"]["nl_assertions"][0]
    for claims, says in (
        (changed_set("47", 1, upstream), "copied from upstream"),
        (changed_set("47", 1, upstream.upper()), "copied from upstream"),
        (changed_set("48", 0, "The agent tells the user that EHGLP3 is old."), "about EHGLP3"),
        (changed_set("48", 0, "The agent tells the user that ABC123 is old."), "about ABC123"),
        (changed_set("48", 0, "The agent does not say a word."), "read like a required act"),
        (changed_set("43", 1, "The agent tells the user a fact."), "read like a conditional act"),
        ({**ADOPTED_NL_ASSERTIONS, "39": ("The agent does not cancel.",) * 2}, "task 39: the set"),
        ({**ADOPTED_NL_ASSERTIONS, "48": ADOPTED_NL_ASSERTIONS["48"][:3]}, "3 assertions have 4"),
        ({**ADOPTED_NL_ASSERTIONS, "48": ADOPTED_NL_ASSERTIONS["48"][:1]}, "two to nine"),
    ):
        found = audit.problems(data, claims)
        assert any(says in line for line in found), (says, found)


def test_a_task_without_one_of_the_two_kinds_is_refused(audit: Any, data: Any) -> None:
    for kind in (audit.Kind.SPOKEN, audit.Kind.PROHIBITION):
        rows = {
            **audit.ROWS,
            "0": tuple(row for row in audit.ROWS["0"] if row.kind is not kind),
        }
        assert f"task 0: it has no {kind.value}" in audit.problems(data, rows=rows)


def test_a_young_booking_cannot_be_called_old(audit: Any) -> None:
    from assertion_audit import evidence

    with pytest.raises(ValueError, match="no more than a day"):
        evidence._old("Q69X3R", "2024-05-14T16:00:00", 23)


def test_a_stale_or_missing_table_is_refused(audit: Any, tmp_path: Path) -> None:
    table = tmp_path / "table.md"
    assert audit.main(["--check"], table) == 1
    assert not table.exists()
    assert audit.main([], table) == 0
    assert audit.main(["--check"], table) == 0
    table.write_text(table.read_text(encoding="utf-8").replace("JMO1MG", "JMO1MH"))
    assert audit.main(["--check"], table) == 1
