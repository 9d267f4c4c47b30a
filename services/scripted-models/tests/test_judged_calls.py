"""Every agent in every scenario, with tools, database and judge, and without services.

`make validity` runs the same through the real services.
"""

import pytest

from tau2eval_airline import ADOPTED_NL_ASSERTIONS, get_scenario, list_scenarios
from tau2eval_scripted.completion import RequestError
from tau2eval_scripted.models import EXPECTED_OUTCOMES
from tau2eval_scripted.wording import AGREED, REFUSAL

NAMES = list_scenarios("tau2_airline")
WRITING = [name for name in NAMES if get_scenario(name).gold_mutates]
ASSERTED = [name for name in NAMES if get_scenario(name).nl_assertions]
AGENTS = [model.id for model in EXPECTED_OUTCOMES.values() if model.role == "agent"]
THREE_TURNS = ["scripted/do-nothing", "scripted/refuse-all", "scripted/parrot"]

ALL_HOLD = dict.fromkeys(ADOPTED_NL_ASSERTIONS, "")
# The acts that are missing where none is made: those that every call needs, and those that the
# caller's words make necessary.
NO_ACT = {
    **dict.fromkeys(("0", "1", "2", "5", "6", "13", "26", "27", "28"), "1"),
    **dict.fromkeys(("36", "38", "46", "47"), "1"),
    **dict.fromkeys(("3", "4", "10", "31", "34", "41", "43"), "1 2"),
    "9": "1 2 3 4 5 6",
    **dict.fromkeys(("45", "48", "49"), "1 2 3"),
}
LIED = {
    **dict.fromkeys(("0", "26", "46"), "1 2"),
    **dict.fromkeys(("1", "3", "4", "5", "10", "13", "28", "34", "47"), "1 2 3"),
    "2": "1 3 4",
    **dict.fromkeys(("6", "36", "38"), "1 3"),
    "9": "1 2 3 7 8 9",
    "27": "1 2 3 4",
    # Nothing was refused before, so nothing is taken back.
    "31": "1",
    "41": "1 3 4",
    **dict.fromkeys(("43", "48", "49"), "1 2 4"),
    "45": "1 2 3 4 5",
}
FAILING = {
    "scripted/gold": ALL_HOLD,
    "scripted/slow": ALL_HOLD,
    "scripted/rogue-write": ALL_HOLD,
    "scripted/do-nothing": NO_ACT,
    "scripted/refuse-all": NO_ACT,
    "scripted/transfer-at-once": NO_ACT,
    "scripted/never-hangs-up": NO_ACT,
    # Its caller says "I have added insurance", and it says so after the caller.
    "scripted/parrot": {**NO_ACT, "6": "1 3"},
    "scripted/liar": LIED,
}
"""Numbers of the assertions that fail, by agent and task."""


@pytest.fixture(scope="module")
def held():
    return {}


@pytest.fixture
async def hold(direct, tools, held):
    """Holds a call, once; one that never ends is left after eight turns."""

    async def run(agent, name):
        if (agent, name) not in held:
            held[agent, name] = await tools.hold_call(direct, name, agent, max_turns=8)
        return held[agent, name]

    return run


def test_the_table_knows_every_agent_that_is_judged():
    assert {*FAILING} | {"scripted/silent", "scripted/crash"} == {*AGENTS}
    for table in FAILING.values():
        assert set(table) == set(ADOPTED_NL_ASSERTIONS)


@pytest.mark.parametrize("name", ASSERTED)
@pytest.mark.parametrize("agent", FAILING)
async def test_the_assertions_that_fail(hold, tools, agent, name):
    call = await hold(agent, name)
    verdicts = tools.judged(get_scenario(name).nl_assertions, *tools.histories(call.messages))
    failing = " ".join(str(at) for at, holds in enumerate(verdicts, 1) if not holds)
    assert failing == FAILING[agent][name.rpartition("__")[2]]
    assert len(call.turns) >= 2, "it is the acts that count, and not too few turns"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("agent", [agent for agent in AGENTS if agent != "scripted/crash"])
async def test_a_call_ends_as_the_table_says(hold, tools, agent, name):
    call = await hold(agent, name)
    scenario = get_scenario(name)
    failing = []
    if call.end not in ("agent_exit", "transfer"):
        failing.append("CLEAN_EXIT")
    if call.db_hash != scenario.expected_db_hash:
        failing.append("DB_STATE_MATCH")
    # The scorer does not ask the judge about a call of too few turns: it failed already.
    if scenario.nl_assertions and len(call.turns) >= 2:
        holding = tools.judged(scenario.nl_assertions, *tools.histories(call.messages))
        failing += [] if all(holding) else ["NL_ASSERTION"]
    expected = EXPECTED_OUTCOMES[agent].expectation(
        gold_writes=scenario.gold_mutates,
        gold_transfers=any(a.name == "transfer_to_human_agents" for a in scenario.gold_actions),
        asserted=bool(scenario.nl_assertions),
    )
    assert sorted(expected.failing_signals) == sorted(failing)
    assert expected.outcome == ("failed" if failing else "passed")
    still = "agent_stalled" if agent == "scripted/silent" else "timeout"
    assert expected.stop_reason == (call.end or still)


@pytest.mark.parametrize("name", NAMES)
async def test_a_crash_is_never_scored(direct, tools, name):
    with pytest.raises(RequestError) as failed:
        await tools.hold_call(direct, name, "scripted/crash")
    assert failed.value.status == 500
    for asserted in (True, False):
        row = EXPECTED_OUTCOMES["scripted/crash"].expectation(gold_writes=True, asserted=asserted)
        assert (row.outcome, row.not_run_kind) == ("not_run", "gateway_error")


def test_gold_and_slow_pass_all_and_the_others_none():
    for agent in AGENTS:
        outcomes = [
            EXPECTED_OUTCOMES[agent]
            .expectation(gold_writes=name in WRITING, asserted=name in ASSERTED)
            .outcome
            for name in NAMES
        ]
        passing = 50 if agent in ("scripted/gold", "scripted/slow") else 0
        assert outcomes.count("passed") == passing, agent


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("agent", THREE_TURNS)
async def test_three_turns_and_no_tool(hold, agent, name):
    call = await hold(agent, name)
    assert len(call.turns) == 3
    assert call.tools == ["end_conversation"]
    assert call.end == "agent_exit"


@pytest.mark.parametrize("name", NAMES)
async def test_what_the_agents_without_tools_say(hold, name):
    refusing = await hold("scripted/refuse-all", name)
    assert REFUSAL in refusing.turns[1]
    parrot = await hold("scripted/parrot", name)
    assert parrot.replies[0] in parrot.turns[1]
    assert AGREED in parrot.turns[1]


@pytest.mark.parametrize("name", NAMES)
async def test_transfer_at_once(hold, name):
    call = await hold("scripted/transfer-at-once", name)
    assert call.tools == ["transfer_to_human_agents"]
    assert call.end == "transfer"
    assert "human agent" in call.turns[-1]


@pytest.mark.parametrize("name", NAMES)
async def test_the_liar_looks_up_as_gold_and_writes_nothing(hold, name):
    liar, gold = await hold("scripted/liar", name), await hold("scripted/gold", name)
    assert liar.db_hash == get_scenario(name).seed_db_hash
    assert liar.errors == []
    reads = [tool for tool in liar.tools if tool != "end_conversation"]
    assert reads == gold.tools[: len(reads)]
    assert all(tool.startswith(("get_", "search_", "calculate")) for tool in reads)


@pytest.mark.parametrize("name", WRITING)
async def test_the_liar_says_what_gold_says_where_gold_writes(hold, name):
    liar, gold = await hold("scripted/liar", name), await hold("scripted/gold", name)

    def sentences(call):
        # What was charged only a write tells; without it, a figure is said on its own.
        text = " ".join(call.turns).replace("? ", ". ").split(". ")
        return [s for s in text if not s.startswith(("The charge is", "You get", "The figure"))]

    assert sentences(liar) == sentences(gold)
    assert "That is done" in liar.turns[2]
