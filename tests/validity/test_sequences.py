"""The part of the comparison with the official toolkit that needs no toolkit.

The toolkit itself is asked by `make validity`. Here: the set of sequences is the same everywhere,
its sample ends as it did when it was compared, and a comparison that should fail does.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from tau2eval_validity.compare import compare, report, shrink
from tau2eval_validity.generate import COUNT, make_sequence, tools_used
from tau2eval_validity.ours import make_tools, run_ours, scenario
from tau2eval_validity.peer import Answers, PeerError, Theirs, peer_python
from tau2eval_validity.pins import pin, pinned_numbers, read_pins
from tau2eval_validity.rules import GOLD_CORRECTION, PAYMENT_ORDER, rewrite
from tau2eval_validity.sequences import Call, Sequence

import tau2eval_airline as airline

HINT = (
    "If the tools or the sequences changed on purpose, run `make validity` and then "
    "`tests/validity/run.py toolkit --update-pins`: pins are taken from what the toolkit agreed to."
)
SAMPLE = [make_sequence(number) for number in pinned_numbers()]


class Twin:
    """Stands for the toolkit: our own tools with an official evaluator's strictness, or a fault."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.asked = 0

    def run(
        self, calls: list[Call], task: str | None = None, leave_out: list[str] | None = None
    ) -> Theirs:
        self.asked += 1
        state: dict[str, Any] = {}
        tools = make_tools(state)
        ok = []
        for call in calls:
            result = tools[call.tool].invoke(**copy.deepcopy(call.arguments))
            ok.append("error_type" not in result)
            if self.fault == call.tool and ok[-1]:
                self._spoil(state["db"], call)
        records = {(each.table, each.key): each.record for each in state["db"].changed_records()}
        match = None
        if task is not None:
            expected = scenario(task).expected_scenario_db
            match = expected.hash() == state["db"].hash() and self.fault != "verdict"
        return Theirs(False, tuple(ok), ("",) * len(ok), records, match)

    def _spoil(self, db: airline.OverlayDatabase, call: Call) -> None:
        key = call.arguments["reservation_id"].upper()
        record = db.read("reservations", key)
        assert record is not None
        record["total_baggages"] += 1
        db.put("reservations", key, record)


def bags(total: object = 3, key: str = "4WQ150") -> Call:
    """A change of bags that succeeds."""
    db = airline.OverlayDatabase(airline.load_seed())
    record = db.view("reservations", "4WQ150")
    assert record is not None
    user = db.view("users", record["user_id"])
    assert user is not None
    method = next(
        name for name, each in user["payment_methods"].items() if each["source"] != "certificate"
    )
    return Call(
        "update_reservation_baggages",
        {
            "reservation_id": key,
            "total_baggages": total,
            "nonfree_baggages": 0,
            "payment_id": method,
        },
    )


READ = Call("list_all_airports", {})


@pytest.mark.parametrize("at", range(len(SAMPLE)))
def test_the_sample_ends_as_it_did_when_the_toolkit_agreed(at: int) -> None:
    ours = run_ours(SAMPLE[at])
    assert pin(SAMPLE[at], ours.ok, ours.db_hash, ours.match) == read_pins()[at], HINT


def test_the_sample_is_worth_something() -> None:
    assert len(SAMPLE) == len(read_pins()) == 100
    assert all(tools_used(SAMPLE).values())
    ends = [run_ours(sequence) for sequence in SAMPLE]
    assert sum(end.db_hash != airline.SEED_DB_HASH for end in ends) > 50
    assert {end.match for end in ends} == {True, False, None}


def test_a_sequence_is_the_same_each_time() -> None:
    numbers = (0, 17, COUNT - 1)
    assert [make_sequence(at).text() for at in numbers] == [
        make_sequence(at).text() for at in numbers
    ]


def test_equal_ends_need_no_rule() -> None:
    outcome = compare(Sequence(0, "test", None, (READ, bags())), Twin())
    assert outcome.identical
    assert not outcome.problems
    assert not outcome.rules


def test_a_record_that_differs_is_a_deviation_and_shrinks_to_its_call() -> None:
    twin = Twin("update_reservation_baggages")
    cancel = Call("send_certificate", {"user_id": "mia_li_3668", "amount": 50})
    outcome = compare(Sequence(0, "test", None, (READ, cancel, bags(), READ)), twin)
    assert any("reservations/4WQ150" in problem for problem in outcome.problems)
    small = shrink(outcome, twin)
    assert [call.tool for call in small.sequence.calls] == ["update_reservation_baggages"]
    assert "total_baggages" in report(small)
    assert "tools/" in report(small)


def test_a_rule_that_applies_excuses_no_other_difference() -> None:
    """The sequence has a call in another case, and the toolkit a fault besides."""
    sequence = Sequence(0, "test", None, (bags(key="4wq150"),))
    assert rewrite(sequence.calls[0], airline.OverlayDatabase(airline.load_seed())).rules
    outcome = compare(sequence, Twin("update_reservation_baggages"))
    assert outcome.rules
    assert outcome.problems


def test_a_verdict_that_differs_is_a_deviation() -> None:
    outcome = compare(Sequence(0, "unchanged", "0", ()), Twin("verdict"))
    assert outcome.identical
    assert any("DB_STATE_MATCH" in problem for problem in outcome.problems)


def test_a_reordered_booking_is_excused_in_the_verdict_only() -> None:
    for task in range(50):
        gold = [Call(each.name, each.arguments) for each in scenario(str(task)).gold_actions]
        split = [call for call in gold if len(call.arguments.get("payment_methods", ())) > 1]
        if split:
            split[0].arguments["payment_methods"].reverse()
            break
    outcome = compare(Sequence(0, "payment_order", str(task), tuple(gold)), Twin())
    assert outcome.identical
    assert outcome.same_verdict is False
    assert outcome.verdict_rules == (PAYMENT_ORDER,)
    assert not outcome.problems


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (bags(key=" 4wq150"), "canonical ids, codes, choices, dates, names"),
        (bags("3"), "whole numbers are integers"),
        (bags(3.5), "whole numbers are integers"),
        (bags(-1), "no negative bags, payments, certificates"),
        (Call("cancel_reservation", {}), "parameters are checked"),
        (Call("transfer_to_human_agents", {"summary": " "}), "text is text and not empty"),
        (Call("calculate", {"expression": "9**9**9"}), "arithmetic is bounded"),
        (
            Call("get_flight_status", {"flight_number": "HAT001", "date": "2024-02-30"}),
            "dates are real",
        ),
        (
            Call(
                "search_direct_flight",
                {"origin": "XYZ", "destination": "JFK", "date": "2024-05-20"},
            ),
            "airports exist",
        ),
    ],
)
def test_rules_apply_where_ours_departs(call: Call, rule: str) -> None:
    made = rewrite(call, airline.OverlayDatabase(airline.load_seed()))
    assert rule in made.rules
    ours = run_ours(Sequence(0, "test", None, (call,)))
    assert ours.ok == (made.call is not None,)


def test_a_cancelled_reservation_is_a_rule_only_after_it_was_cancelled() -> None:
    cancel = Call("cancel_reservation", {"reservation_id": "4WQ150"})
    ours = run_ours(Sequence(0, "test", None, (cancel, cancel)))
    assert [each.rules for each in ours.rewrites] == [(), ("cancelled is final",)]
    assert ours.ok == (True, False)


def test_the_corrected_gold_is_the_only_one() -> None:
    from tau2eval_validity.ours import verdict_rewrite

    corrected = [
        task
        for task in map(str, range(50))
        if GOLD_CORRECTION in verdict_rewrite(Sequence(0, "unchanged", task, ()), [])[2]
    ]
    assert corrected == ["39"]


def test_kept_answers_are_found_again_and_a_torn_line_is_not(tmp_path) -> None:
    path = tmp_path / "answers.jsonl"
    Answers(path).put({"calls": [1]}, {"hung": False})
    with path.open("a") as file:
        file.write('{"key": "torn')
    kept = Answers(path)
    assert kept.get({"calls": [1]}) == {"hung": False}
    assert kept.get({"calls": [2]}) is None
    assert kept.used == 1


def test_without_the_toolkit_nothing_is_proved(tmp_path) -> None:
    with pytest.raises(PeerError, match="make validity"):
        peer_python(tmp_path)
