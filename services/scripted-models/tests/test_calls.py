"""Every scripted agent against scripted/caller, over HTTP, with the airline's own tools."""

import json

import pytest

from tau2eval_airline import get_scenario, list_scenarios
from tau2eval_scripted.models import EXPECTED_OUTCOMES

NAMES = list_scenarios("tau2_airline")
SOME = [f"tau2_airline__{n}" for n in (0, 13, 14, 44)]
WRITE = "send_certificate"


def test_there_are_fifty_scenarios():
    assert len(NAMES) == 50


@pytest.mark.parametrize("name", NAMES)
async def test_gold_ends_cleanly_in_the_expected_state(client, tools, name):
    call = await tools.hold_call(client.ask, name, "scripted/gold")
    scenario = get_scenario(name)
    transfers = any(action.name == "transfer_to_human_agents" for action in scenario.gold_actions)
    assert call.db_hash == scenario.expected_db_hash
    assert call.end == ("transfer" if transfers else "agent_exit")
    assert call.errors == []
    assert len(call.turns) >= 2, "a call of fewer agent turns counts as a failure"
    assert len(call.call_ids) == len(set(call.call_ids))
    walked = iter(
        (c["function"]["name"], json.loads(c["function"]["arguments"]))
        for m in call.messages
        for c in m.get("tool_calls", ())
    )
    for action in scenario.gold_actions:
        assert (action.name, action.arguments) in walked, "gold's actions, in gold's order"
    if transfers:
        assert "human agent" in call.turns[-1]
    else:
        assert "Goodbye" in call.turns[-1]
        assert any("anything else" in turn for turn in call.turns)


@pytest.mark.parametrize("name", NAMES)
async def test_gold_asks_for_a_yes_before_the_first_write(client, tools, name):
    call = await tools.hold_call(client.ask, name, "scripted/gold")
    scenario = get_scenario(name)
    if not scenario.gold_mutates:
        assert not any("go ahead" in turn for turn in call.turns)
        return
    asked = next(i for i, m in enumerate(call.messages) if "go ahead?" in (m["content"] or ""))
    assert call.messages[asked]["role"] == "assistant"
    assert call.messages[asked + 1] == {"role": "user", "content": "Yes, please go ahead."}
    early = [c["function"]["name"] for m in call.messages[:asked] for c in m.get("tool_calls", ())]
    assert all(tool.startswith(("get_", "search_", "calculate")) for tool in early)


@pytest.mark.parametrize("name", NAMES)
async def test_gold_speaks_short_turns(client, tools, name):
    call = await tools.hold_call(client.ask, name, "scripted/gold")
    for turn in call.turns:
        assert 1 <= len([s for s in turn.replace("?", ".").split(". ") if s.strip(" .")]) <= 4
        assert "_" not in turn, "no payment or user id is read out"
        assert "  " not in turn
        assert "None" not in turn
    assert len(call.replies[0].split()) <= 65
    assert "you" not in call.replies[0].lower().split()


@pytest.mark.parametrize("name", NAMES)
async def test_a_rogue_write_never_ends_in_the_expected_state(client, tools, name):
    call = await tools.hold_call(client.ask, name, "scripted/rogue-write")
    assert WRITE in call.tools
    assert call.errors == []
    assert call.db_hash != get_scenario(name).expected_db_hash
    assert call.end in ("agent_exit", "transfer")


async def test_no_gold_sends_a_certificate():
    sends = [a for n in NAMES for a in get_scenario(n).gold_actions if a.name == WRITE]
    assert sends == []


@pytest.mark.parametrize("name", NAMES)
async def test_do_nothing_ends_in_three_turns_and_changes_nothing(client, tools, name):
    call = await tools.hold_call(client.ask, name, "scripted/do-nothing")
    scenario = get_scenario(name)
    assert len(call.turns) == 3
    assert call.end == "agent_exit"
    assert call.tools == ["end_conversation"]
    expected = EXPECTED_OUTCOMES["scripted/do-nothing"].expectation(
        gold_writes=scenario.gold_mutates, asserted=scenario.nl_assertions is not None
    )
    assert expected.outcome == "failed"
    matches = call.db_hash == scenario.expected_db_hash
    assert expected.failing_signals == (("NL_ASSERTION",) if matches else ("DB_STATE_MATCH",))


@pytest.mark.parametrize("name", SOME)
async def test_slow_does_as_gold(client, tools, name):
    gold = await tools.hold_call(client.ask, name, "scripted/gold")
    slow = await tools.hold_call(client.ask, name, "scripted/slow")
    assert (slow.turns, slow.tools, slow.db_hash) == (gold.turns, gold.tools, gold.db_hash)


@pytest.mark.parametrize("name", SOME)
async def test_never_hangs_up_talks_on_and_the_caller_answers(client, tools, name):
    call = await tools.hold_call(client.ask, name, "scripted/never-hangs-up", max_turns=40)
    assert call.end is None
    assert len(call.turns) == 40
    assert call.tools == []
    assert all(turn.endswith("?") for turn in call.turns)
    assert len(call.replies) == 39


@pytest.mark.parametrize("name", SOME)
async def test_crash_fails_on_its_third_turn_and_again_when_asked_again(client, tools, name):
    with pytest.raises(tools.AskFailed) as failed:
        await tools.hold_call(client.ask, name, "scripted/crash")
    assert failed.value.status == 500
    assert failed.value.body["error"]["type"] == "server_error"
    call = failed.value.call
    assert len(call.turns) == 2
    body = {"model": "scripted/crash", "messages": call.messages}
    for _ in range(2):
        status, _ = await client.raw(body, tools.headers_of(name, "agent"))
        assert status == 500


@pytest.mark.parametrize("name", SOME)
async def test_silent_says_nothing(client, tools, name):
    call = await tools.hold_call(client.ask, name, "scripted/silent")
    assert (call.turns, call.tools, call.end) == ([], [], None)


async def test_the_bookings_of_a_gold_are_for_one_trip():
    # What is said of them relies on it.
    for name in NAMES:
        trips = {
            (a.arguments["origin"], a.arguments["destination"], str(a.arguments["flights"]))
            for a in get_scenario(name).gold_actions
            if a.name == "book_reservation"
        }
        assert len(trips) <= 1, name


def test_every_agent_has_its_row():
    assert {m.id for m in EXPECTED_OUTCOMES.values() if m.role == "agent"} == {
        "scripted/gold",
        "scripted/slow",
        "scripted/do-nothing",
        "scripted/refuse-all",
        "scripted/liar",
        "scripted/parrot",
        "scripted/transfer-at-once",
        "scripted/silent",
        "scripted/rogue-write",
        "scripted/never-hangs-up",
        "scripted/crash",
    }


@pytest.mark.parametrize("writes", [True, False])
def test_only_gold_and_slow_may_pass(writes):
    passing = {
        m.id
        for m in EXPECTED_OUTCOMES.values()
        if m.role == "agent"
        and m.expectation(gold_writes=writes, asserted=not writes).outcome == "passed"
    }
    assert passing == {"scripted/gold", "scripted/slow"}


@pytest.mark.parametrize("model", [m for m in EXPECTED_OUTCOMES.values() if m.role == "agent"])
def test_without_a_judge_nothing_that_needs_one_passes_or_fails(model):
    row = model.expectation(gold_writes=False, asserted=True, judge=False)
    assert row.outcome == "not_run"
    assert row.not_run_kind == (model.not_run_kind or "judge_off")


@pytest.mark.parametrize("name", NAMES)
def test_each_scenario_writes_or_has_assertions(name):
    scenario = get_scenario(name)
    assert scenario.gold_mutates == (scenario.nl_assertions is None)
