"""Pins of the airline domain: what a re-import of tau2's fixtures must not change unseen.

The figures are those of shared/reference/{tau2,voice-evaluator}.md, found there by replaying the
golds with the official toolkit.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tau2eval_airline import (
    ADOPTED_NL_ASSERTIONS,
    GOLD_ACTION_DROPS,
    SEED_DB_HASH,
    TAU2_AIRLINE_ACTION_TO_TOOL_NAME,
    Signal,
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
ASSERTIONS = {
    **{"0": 2, "1": 3, "2": 4, "3": 3, "4": 3, "5": 3, "6": 3, "9": 9, "10": 4, "13": 3, "26": 2},
    **{"27": 4, "28": 3, "31": 3, "34": 3, "36": 3, "38": 3, "41": 4, "43": 4, "45": 5, "46": 2},
    **{"47": 3, "48": 4, "49": 4},
}
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


def test_assertion_counts() -> None:
    assert {task: len(claims) for task, claims in ADOPTED_NL_ASSERTIONS.items()} == ASSERTIONS
    assert {int(task) for task in ADOPTED_NL_ASSERTIONS} == UNCHANGED
    assert len(ASSERTIONS) == 24
    assert sum(ASSERTIONS.values()) == 84
    assert (min(ASSERTIONS.values()), max(ASSERTIONS.values())) == (2, 9)


def test_the_adopted_tasks_gate_on_them_and_the_others_have_none(
    scenarios: list[Tau2BaseScenario],
) -> None:
    for scenario in scenarios:
        if scenario.tau2_id in ASSERTIONS:
            assert scenario.nl_assertions == ADOPTED_NL_ASSERTIONS[scenario.tau2_id]
            assert set(scenario.success_signals) == {
                Signal.DB_STATE_MATCH,
                Signal.NL_ASSERTION,
                Signal.CLEAN_EXIT,
            }
        else:
            assert scenario.nl_assertions is None
            assert set(scenario.success_signals) == {Signal.DB_STATE_MATCH, Signal.CLEAN_EXIT}
    assert sum(scenario.nl_assertions is None for scenario in scenarios) == 26


def test_no_assertion_is_upstreams(scenarios: list[Tau2BaseScenario]) -> None:
    upstream = {
        claim.strip().rstrip(".").lower()
        for scenario in scenarios
        for claim in scenario.tau2_task["evaluation_criteria"]["nl_assertions"] or []
    }
    assert len(upstream) > 100
    for claims in ADOPTED_NL_ASSERTIONS.values():
        assert not upstream & {claim.rstrip(".").lower() for claim in claims}


def test_assertions_repeat_only_where_tasks_repeat() -> None:
    """Tasks 2 and 38 are one delay, as are 5 and 27; 48 and 49 are one reservation."""
    for claims in ADOPTED_NL_ASSERTIONS.values():
        assert len(set(claims)) == len(claims)
    tasks: dict[str, set[str]] = {}
    for task, claims in ADOPTED_NL_ASSERTIONS.items():
        for claim in claims:
            tasks.setdefault(claim, set()).add(task)
    repeated = [sorted(found) for found in tasks.values() if len(found) > 1]
    assert sorted(repeated) == sorted([["2", "38"]] * 2 + [["2", "27", "5"]] + [["48", "49"]] * 2)


def test_tasks_48_and_49_discriminate() -> None:
    """One reservation, opposite deceptions: about its age, and about its insurance."""
    age, insurance = (set(ADOPTED_NL_ASSERTIONS[task]) for task in ("48", "49"))
    assert any("tells" in c and "more than 24 hours ago" in c for c in age - insurance)
    assert any("tells" in c and "no travel insurance" in c for c in insurance - age)
    assert not any("insurance" in c for c in age)
    assert any("does not offer the user a refund" in c for c in age)
    assert not any("hours" in c for c in insurance)


def test_task_27_asserts_the_refusal() -> None:
    """Upstream asserts the compensation of a silver member who keeps his reservation."""
    upstream = get_scenario("tau2_airline__27").tau2_task["evaluation_criteria"]["nl_assertions"]
    assert any("Silver" in claim and "can receive" in claim for claim in upstream)
    assert any("declines" in claim for claim in ADOPTED_NL_ASSERTIONS["27"])
    assert any("does not say that silver" in claim for claim in ADOPTED_NL_ASSERTIONS["27"])


def test_task_13_is_one_transfer_and_is_adopted() -> None:
    scenario = get_scenario("tau2_airline__13")
    (record,) = scenario.reference_answer["actions"]
    assert record["name"] == "transfer_to_human_agents"
    assert scenario.nl_assertions
