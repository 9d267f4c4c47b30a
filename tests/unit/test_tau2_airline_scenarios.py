"""Pins of the airline domain: what a re-import of tau2's fixtures must not change unseen.

The figures are those of shared/reference/{tau2,voice-evaluator}.md, found there by replaying the
golds with the official toolkit.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tau2eval_airline import (
    GOLD_ACTION_DROPS,
    SEED_DB_HASH,
    TAU2_AIRLINE_ACTION_TO_TOOL_NAME,
    Tau2BaseScenario,
    compare_actions,
    compare_databases,
    get_scenario,
    list_scenarios,
    plain_hash,
)
from tau2eval_airline.scenarios import airline

TASK_39 = "a0787f6a5bb645deda9ba1dbdf3bc9b00bf7f69022c12969e199cacd6d011629"
TASK_39_UPSTREAM = "50faaf8b0384987d8ada438d7f935fdf3c51bc1a3bf87f97b8d4a06ec990ab97"
UNCHANGED = {*range(7), 9, 10, 13, 26, 27, 28, 31, 34, 36, 38, 41, 43, *range(45, 50)}


@pytest.fixture(scope="module")
def scenarios() -> list[Tau2BaseScenario]:
    return [get_scenario(name) for name in list_scenarios("tau2_airline")]


def test_counts(scenarios: list[Tau2BaseScenario]) -> None:
    records = [scenario.reference_answer["actions"] for scenario in scenarios]
    assert len(scenarios) == 50
    assert sum(1 for actions in records if actions) == 27
    assert sum(len(actions) for actions in records) == 49
    assert Counter(action["name"] for actions in records for action in actions) == {
        "update_reservation_flights": 20,
        "book_reservation": 10,
        "cancel_reservation": 10,
        "update_reservation_baggages": 5,
        "update_reservation_passengers": 3,
        "transfer_to_human_agents": 1,
    }


def test_expected_hashes(scenarios: list[Tau2BaseScenario]) -> None:
    same = {int(s.tau2_id) for s in scenarios if s.expected_db_hash == SEED_DB_HASH}
    assert same == UNCHANGED
    assert len(same) == 24
    assert {int(s.tau2_id) for s in scenarios if not s.gold_mutates} == UNCHANGED
    assert {s.seed_db_hash for s in scenarios} == {SEED_DB_HASH}


def test_expected_hashes_are_plain(scenarios: list[Tau2BaseScenario]) -> None:
    for number in (8, 14, 18, 23, 44):
        scenario = scenarios[number]
        assert scenario.expected_db_hash == plain_hash(scenario.expected_scenario_db.materialise())


def test_records_have_the_shape_of_the_reference(scenarios: list[Tau2BaseScenario]) -> None:
    shapes = {
        "book_reservation": {"reservation_id"},
        "cancel_reservation": {"reservation_id", "status"},
        "update_reservation_baggages": {"reservation_id", "charged"},
        "update_reservation_flights": {"reservation_id", "charged"},
        "update_reservation_passengers": {"reservation_id"},
        "transfer_to_human_agents": {"message"},
    }
    for scenario in scenarios:
        for record in scenario.reference_answer["actions"]:
            assert set(record) == {"action_type", "name", "arguments", "result", "side"}
            assert record["action_type"] == record["name"]
            assert record["side"] == "agent"
            assert set(record["result"]) == shapes[record["name"]]
    assert scenarios[11].reference_answer["actions"][0]["result"] == {
        "reservation_id": "GV1N64",
        "charged": -5244,
    }


def test_golds_are_canonical_already(scenarios: list[Tau2BaseScenario]) -> None:
    for scenario in scenarios:
        sent = [
            {"name": action.name, "arguments": action.arguments}
            for action in scenario.gold_actions
            if action.name in {record["name"] for record in scenario.reference_answer["actions"]}
        ]
        assert compare_actions(scenario.reference_answer, sent, strict=True)


def test_every_gold_action_is_one_of_the_tools(scenarios: list[Tau2BaseScenario]) -> None:
    used = {action.name for scenario in scenarios for action in scenario.gold_actions}
    assert used <= set(TAU2_AIRLINE_ACTION_TO_TOOL_NAME)


def test_task_39_is_corrected() -> None:
    assert {"39": frozenset({"39_10"})} == GOLD_ACTION_DROPS
    scenario = get_scenario("tau2_airline__39")
    assert scenario.expected_db_hash == TASK_39
    cancelled = [
        record["arguments"]["reservation_id"] for record in scenario.reference_answer["actions"]
    ]
    assert cancelled == ["8C8K4E", "LU15PA"]


def test_the_dropped_action_is_the_msj4oa_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    corrected = get_scenario("tau2_airline__39")
    assert corrected.expected_db_hash == TASK_39
    monkeypatch.setattr(airline, "GOLD_ACTION_DROPS", {})
    upstream = get_scenario("tau2_airline__39")
    assert upstream.expected_db_hash == TASK_39_UPSTREAM
    assert len(upstream.reference_answer["actions"]) == 3
    result = compare_databases(corrected.expected_scenario_db, upstream.expected_scenario_db)
    assert not result.match
    assert {difference["key"] for difference in result.differences} == {"MSJ4OA"}


def test_emptying_the_drops_changes_no_other_task(
    monkeypatch: pytest.MonkeyPatch, scenarios: list[Tau2BaseScenario]
) -> None:
    monkeypatch.setattr(airline, "GOLD_ACTION_DROPS", {})
    changed = [
        s.name for s in scenarios if get_scenario(s.name).expected_db_hash != s.expected_db_hash
    ]
    assert changed == ["tau2_airline__39"]


def test_task_39_assertions_are_not_adopted() -> None:
    """Upstream claims that MSJ4OA is cancelled; the policy forbids it, and the gold drops it."""
    scenario = get_scenario("tau2_airline__39")
    upstream = scenario.tau2_task["evaluation_criteria"]["nl_assertions"]
    assert any("MSJ4OA" in claim for claim in upstream)
    assert scenario.nl_assertions is None
