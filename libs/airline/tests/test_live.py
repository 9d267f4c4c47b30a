from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau2eval_airline import (
    DB_PATH,
    OverlayDatabase,
    SeedDatabase,
    Tool,
    UnknownToolError,
    apply_changes,
    apply_initialization,
    call_tool,
    gold_walk,
    list_scenarios,
    plain_hash,
    resolve_tools,
    session_summary,
)
from tau2eval_airline.scenarios import Tau2AirlineBaseScenario

NAMES = Tau2AirlineBaseScenario.agent_tools


async def test_a_session_from_start_to_summary(seed: SeedDatabase) -> None:
    state: dict[str, Any] = {}
    apply_initialization(state, DB_PATH, {"db_path": DB_PATH, "extra": 1})
    assert state["extra"] == 1
    tools = resolve_tools("tau2_airline", NAMES, state)
    read = await call_tool(tools, "get_user_details", '{"user_id": "MIA_LI_3668"}')
    assert (read.is_error, read.action, read.exit_reason) == (False, None, None)
    assert json.loads(json.dumps(read.result))["user_id"] == "mia_li_3668"
    write = await call_tool(tools, "cancel_reservation", {"reservation_id": "8c8k4e"})
    assert write.action is not None
    assert write.action["arguments"] == {"reservation_id": "8C8K4E"}
    bad = await call_tool(tools, "cancel_reservation", {"reservation_id": "8C8K4E"})
    assert (bad.is_error, bad.action) == (True, None)
    end = await call_tool(tools, "end_conversation", "")
    assert (end.exit_reason, end.is_error, end.action) == ("agent_exit", False, None)
    summary = session_summary(state)
    assert summary.actions == [write.action]
    assert [(change.table, change.key) for change in summary.changed_records] == [
        ("reservations", "8C8K4E")
    ]
    assert apply_changes(seed, summary.changed_records).hash() == summary.db_hash


async def test_a_transfer_ends_the_call(tools: dict[str, Tool]) -> None:
    done = await call_tool(tools, "transfer_to_human_agents", {"summary": "x"})
    assert done.exit_reason == "transfer"
    assert done.action is not None
    refused = await call_tool(tools, "transfer_to_human_agents", {})
    assert (refused.exit_reason, refused.is_error) == (None, True)


async def test_unknown_tools_get_the_list(tools: dict[str, Tool]) -> None:
    outcome = await call_tool(tools, "refund_everything", "{}")
    assert outcome.is_error
    assert outcome.result["error_type"] == "unknown_tool"
    assert outcome.result["details"]["available_tools"] == list(tools)
    assert "book_reservation" in outcome.result["message"]


@pytest.mark.parametrize("arguments", ["{", "[1]", '{"user_id": }', '{"self": 1, "p": 2}', 5])
async def test_malformed_arguments_are_data(tools: dict[str, Tool], arguments: Any) -> None:
    outcome = await call_tool(tools, "get_user_details", arguments)
    assert outcome.is_error
    assert outcome.result["error_type"] == "validation_error"


def test_unknown_registry_keys_are_errors() -> None:
    with pytest.raises(UnknownToolError, match="did you mean BookReservationTool"):
        resolve_tools("tau2_airline", ["BookReservationsTool"], {})
    with pytest.raises(KeyError, match="other"):
        resolve_tools("other", ["BookReservationTool"], {})
    assert list(resolve_tools("other", ["EndConversationTool"], {})) == ["end_conversation"]


def test_a_side_without_database_has_an_empty_summary() -> None:
    state: dict[str, Any] = {}
    apply_initialization(state, "")
    summary = session_summary(state)
    assert (summary.db_hash, summary.changed_records, summary.actions) == (None, [], [])


async def test_two_sessions_do_not_meet(seed: SeedDatabase) -> None:
    states: list[dict[str, Any]] = [{}, {}]
    for state in states:
        apply_initialization(state, DB_PATH)
    one, two = (resolve_tools("tau2_airline", NAMES, state) for state in states)
    for name, arguments in gold_walk("tau2_airline__14"):
        assert not (await call_tool(one, name, arguments)).is_error
    assert session_summary(states[1]).actions == []
    assert session_summary(states[1]).db_hash == seed.hash()
    for name, arguments in gold_walk("tau2_airline__14"):
        assert not (await call_tool(two, name, arguments)).is_error
    assert session_summary(states[0]).db_hash == session_summary(states[1]).db_hash
    # A new call on the same state starts afresh.
    apply_initialization(states[0], DB_PATH)
    assert session_summary(states[0]).db_hash == seed.hash()


GOLDS = [step for name in list_scenarios("tau2_airline") for step in gold_walk(name)]
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=3,
)
parameters = st.sampled_from(sorted({key for _, arguments in GOLDS for key in arguments}))
calls = st.tuples(
    st.sampled_from(GOLDS), st.dictionaries(parameters, junk, max_size=1), st.booleans()
)


@settings(deadline=None, max_examples=15)
@given(st.lists(calls, max_size=8))
def test_any_calls_leave_the_seed_and_keep_the_hash_plain(
    seed: SeedDatabase, steps: list[Any]
) -> None:
    state: dict[str, Any] = {"db": OverlayDatabase(seed), "actions": []}
    tools = resolve_tools("tau2_airline", NAMES, state)
    for (name, arguments), changes, as_text in steps:
        sent: Any = {**arguments, **changes}
        outcome = asyncio.run(call_tool(tools, name, json.dumps(sent) if as_text else sent))
        json.dumps(outcome.result)
        assert outcome.is_error == (outcome.result.get("status") == "error")
        assert not (outcome.is_error and outcome.action)
    summary = session_summary(state)
    assert summary.db_hash == plain_hash(state["db"].materialise())
    assert apply_changes(seed, summary.changed_records).hash() == summary.db_hash
    fresh = {table: dict(seed.records(table)) for table in seed.tables}
    assert plain_hash(fresh) == seed.hash()
    assert (summary.db_hash == seed.hash()) == (not summary.changed_records)
