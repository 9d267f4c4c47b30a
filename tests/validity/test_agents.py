"""The quick part of `make validity`: three agents on all 50 scenarios, over the real services."""

from __future__ import annotations

import pytest
from tau2eval_validity.agents import DO_NOTHING, GOLD, agents, check_agent, run_agent
from tau2eval_validity.tables import PROVES

import tau2eval_airline as airline

LIAR = "scripted/liar"


@pytest.mark.parametrize("agent", [GOLD, DO_NOTHING, LIAR])
def test_an_agent_ends_as_its_row_says_in_all_scenarios(services, agent: str) -> None:
    result = check_agent(agent, run_agent(services, agent, True), True)
    assert result.deviations == []
    assert sum(result.found.values()) == 50
    if agent == GOLD:
        assert result.found["failed"] == 0
        assert result.found["passed"] == 50
    else:
        assert result.found["passed"] == 0
        assert result.signals["DB_STATE_MATCH"] == 26
        assert result.signals["NL_ASSERTION"] == 24
        assert result.signals["CLEAN_EXIT"] == 0


def test_a_table_that_is_wrong_is_found(services) -> None:
    """The check itself: a gold run is not what the table says of an agent that does nothing."""
    names = ("tau2_airline__1", "tau2_airline__11")
    run = run_agent(services, GOLD, False, names=names)
    assert check_agent(GOLD, run, False, names).deviations == []
    wrong = check_agent(DO_NOTHING, run, False, names).deviations
    assert any("tau2_airline__11" in words and "outcome is passed" in words for words in wrong)
    missing = check_agent(GOLD, run, False).deviations
    assert any("missing" in words for words in missing)


def test_every_agent_and_scenario_is_in_the_suite() -> None:
    assert len(airline.list_scenarios()) == 50
    assert {GOLD, DO_NOTHING, LIAR, "scripted/crash"} <= {*agents()}
    assert {*PROVES} == {*agents()}
