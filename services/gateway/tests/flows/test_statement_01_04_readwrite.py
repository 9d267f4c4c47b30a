from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_airline.tools import TAU2_AIRLINE_TOOL_NAME_TO_CLASS, resolve_tools
from tau2eval_gateway.flows.readwrite import (
    MAX_CALLS,
    MAX_NESTING,
    Why,
    classify,
    is_write,
)
from tau2eval_gateway.flows.readwrite_words import as_words

AIRLINE_WRITES = {
    "book_reservation",
    "cancel_reservation",
    "send_certificate",
    "update_reservation_baggages",
    "update_reservation_flights",
    "update_reservation_passengers",
    "transfer_to_human_agents",
}


def tool(name: str, description: str = "", **annotations: Any) -> dict[str, Any]:
    declared: dict[str, Any] = {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": {"type": "object"}},
    }
    return {**declared, "annotations": annotations} if annotations else declared


def airline(hints: bool) -> dict[str, dict[str, Any]]:
    found = {}
    tools = resolve_tools("tau2_airline", list(TAU2_AIRLINE_TOOL_NAME_TO_CLASS), {})
    for name, each in tools.items():
        found[name] = each.openai_schema()
        if not hints:
            del found[name]["annotations"]
    return found


@pytest.mark.parametrize("hints", [True, False])
def test_statement_02_the_airline_tools(hints: bool) -> None:
    declared = airline(hints)
    assert len(declared) == 14
    assert {name for name in declared if is_write(name, declared[name], {})} == AIRLINE_WRITES
    # The official tau2 has one more, which only thinks; names alone tell them apart as well.
    assert not is_write("think", tool("think", "Use the tool to think about something."), {})
    assert {name for name in declared if is_write(name, None, None)} == AIRLINE_WRITES


def test_statement_01_the_hint_wins_either_way() -> None:
    assert not is_write("delete_user", tool("delete_user", "Deletes.", readOnlyHint=True), {})
    assert is_write("get_user", tool("get_user", "Gets a user.", readOnlyHint=False), {})
    both = tool("delete_user", readOnlyHint=True, destructiveHint=True)
    assert classify("delete_user", both, {}).why == Why.READ_ONLY_HINT
    assert not is_write("delete_user", both, {})


def test_statement_01_a_destructive_tool_writes() -> None:
    verdict = classify("get_user", tool("get_user", destructiveHint=True), {})
    assert (verdict.write, verdict.why) == (True, Why.DESTRUCTIVE_HINT)
    # destructiveHint false speaks of the kind of change, not of none.
    assert not is_write("get_user", tool("get_user", destructiveHint=False), {})
    assert is_write("put_user", tool("put_user", destructiveHint=False), {})


def test_statement_01_hints_stand_on_the_entry_or_in_the_function() -> None:
    inside = tool("delete_user")
    inside["function"]["annotations"] = {"readOnlyHint": True}
    assert not is_write("delete_user", inside, {})
    inside["annotations"] = {"readOnlyHint": False}
    assert is_write("delete_user", inside, {}), "of two that disagree the careful one counts"
    mcp = {"name": "delete_user", "description": "", "annotations": {"readOnlyHint": True}}
    assert not is_write("delete_user", mcp, {})


@pytest.mark.parametrize("hint", ["true", 1, None, [], {"x": 1}])
def test_statement_01_what_is_no_boolean_is_no_hint(hint: Any) -> None:
    assert is_write("delete_user", tool("delete_user", readOnlyHint=hint), {})
    odd = {**tool("delete_user"), "annotations": hint}
    assert is_write("delete_user", odd, {})


READS = sorted(
    as_words("""
    get_user getUser GetUser GET_USER getUserV2 get-user get2FACode v1_get_user batch_get_users
    mcp__server__get_x mcp__update-server__get_x airline.get_user users.list users/list order.get
    get.order.details list_all_product_types list_cancelled_orders listUpdates lists_orders
    get_last_update get_update_status get_refund_policy find_user_id_by_email search_direct_flight
    lookUpOrder look_up_order lookup web_search order_lookup book_search calculate calculator think
    can_cancel_order can_send_mms is_eligible check_status_bar read_file query_db HTTPGet __get__
""")
)
WRITES = sorted(
    as_words("""
    get_and_delete_x get_or_create_user search_and_replace search_replace fetchThenDelete
    list_price_update check_in_passenger checkOutGuest get_rid_of_user find_remove_user read_write
    return_delivered_order_items exchange_items modify_pending_order toggle_airplane_mode
    github.issues.create users:delete delete.list mcp__get__update_x write_file save_search
    run_speed_test getuser book booking pay_get_back enable_roaming order_lunch update_list
    mcp__x__y _ 123 x tool do get\u0435r \u0433et_user
""")
)


@pytest.mark.parametrize("name", READS)
def test_statement_02_lookup_names_read(name: str) -> None:
    assert not is_write(name, tool(name), {}), classify(name, tool(name), {})
    assert not is_write(name, None, None)


@pytest.mark.parametrize("name", WRITES)
def test_statement_02_and_03_other_names_write(name: str) -> None:
    assert is_write(name, tool(name), {}), classify(name, tool(name), {})
    assert is_write(name, None, None)


@pytest.mark.parametrize(
    "description",
    [
        "Deletes the user.",
        "Permanently delete a user",
        "This tool cancels the order.",
        "Use this function to update a user.",
        "Tool for deleting users.",
        "Book the flight.",
        "Looks up the order and cancels it.",
        "Finds the user, then deletes the account.",
        "Checks in the passenger.",
    ],
)
def test_statement_02_a_leading_write_verb_in_the_description_beats_the_name(
    description: str,
) -> None:
    assert classify("get_user", tool("get_user", description), {}).why == Why.DESCRIPTION
    assert is_write("get_user", tool("get_user", description), {})


@pytest.mark.parametrize(
    "description",
    ["Order details.", "The user's bookings.", "Get the status and updates of a flight.", ""],
)
def test_statement_02_a_noun_beats_no_name(description: str) -> None:
    assert not is_write("get_user", tool("get_user", description), {})


@pytest.mark.parametrize(
    "description",
    [
        "Look up a user.",
        "Looks up a user by id.",
        "Returns the weather of a city.",
        "Use this tool to find a user.",
        "This function allows you to search for flights.",
        "A list of airports.",
        "Show flights that can be booked.",
        "Shows all orders of a user.",
        "**Search** the web.",
    ],
)
def test_statement_03_a_description_that_only_looks_up_reads(description: str) -> None:
    verdict = classify("zap", tool("zap", description), {})
    assert (verdict.write, verdict.why) == (False, Why.DESCRIPTION)


@pytest.mark.parametrize(
    "description",
    [
        "",
        "A tool.",
        "Looks up the order and cancels it.",
        "Look up the order. Also deletes it.",
        "Returns the items to the store.",
        "Returns the updated record.",
        "Find a seat and reserve it.",
        "Search for a flight to book.",
        "Checks out the guest.",
        "The search index is rebuilt.",
        "Zaps.",
    ],
)
def test_statement_03_anything_else_writes(description: str) -> None:
    assert is_write("zap", tool("zap", description), {})


def test_statement_03_a_lookup_description_does_not_save_a_write_name() -> None:
    assert is_write("delete_user", tool("delete_user", "Looks up a user."), {})


@pytest.mark.parametrize(
    ("tool_key", "argument_key"),
    [
        ("tool", "arguments"),
        ("tool_name", "tool_args"),
        ("toolName", "args"),
        ("name", "arguments"),
        ("action", "params"),
        ("function", "parameters"),
        ("tool", "input"),
    ],
)
@pytest.mark.parametrize("encode", [True, False])
def test_statement_04_a_dispatcher_is_classed_by_its_inner_tool(
    tool_key: str, argument_key: str, encode: bool
) -> None:
    for inner, write in (("get_user", False), ("cancel_order", True), ("zap", True)):
        arguments = {tool_key: inner, argument_key: '{"id": "1"}' if encode else {"id": "1"}}
        for name in ("call_tool", "use_tool", "dispatch", "perform_action", "mcp.invoke"):
            verdict = classify(name, tool(name, "Executes any tool."), arguments)
            assert (verdict.write, verdict.tool) == (write, inner)


def test_statement_04_the_inner_declaration_counts_when_it_is_known() -> None:
    declared = {"zap": tool("zap", readOnlyHint=True), "get_x": tool("get_x", readOnlyHint=False)}
    for inner, write in (("zap", False), ("get_x", True), ("server.zap", False)):
        call = {"tool": inner, "arguments": {}}
        assert is_write("call_tool", None, call, declared) is write


def test_statement_04_a_dispatcher_with_a_hint() -> None:
    call = {"tool": "delete_user", "arguments": {}}
    assert not is_write("call_tool", tool("call_tool", readOnlyHint=True), call)
    # It says that the dispatcher may write; the inner tool says whether this call does.
    call["tool"] = "get_user"
    assert not is_write("call_tool", tool("call_tool", readOnlyHint=False), call)


def test_statement_04_nested_calls_have_a_bound() -> None:
    call: dict[str, Any] = {"tool": "get_user", "arguments": {}}
    for _ in range(MAX_NESTING - 1):
        call = {"tool": "call_tool", "arguments": call}
    assert not is_write("call_tool", None, call)
    for _ in range(50):
        call = {"tool": "call_tool", "arguments": call}
    verdict = classify("call_tool", None, call)
    assert (verdict.write, verdict.why) == (True, Why.NESTING)


def test_statement_04_of_several_calls_one_write_is_enough() -> None:
    read = {"recipient_name": "functions.get_x", "parameters": {}}
    write = {"recipient_name": "functions.book_x", "parameters": {}}
    name = "multi_tool_use.parallel"
    assert not is_write(name, None, {"tool_uses": [read, read]})
    assert is_write(name, None, {"tool_uses": [read, write]})
    assert is_write(name, None, {"tool_uses": [read, 7]})
    assert is_write(name, None, {"tool_uses": [read] * (MAX_CALLS + 1)})


def test_statement_04_what_only_looks_like_a_dispatcher() -> None:
    call = {"action": "get", "params": {}}
    assert is_write("update_record", None, call), "its own name says that it writes"
    assert is_write("scaffold", None, {"name": "get_orders", "parameters": {}})
    assert not is_write("get_tool_info", None, {"tool": "delete_user"})
    assert not is_write("run_tool", None, {"tool": "get_user"})
    assert is_write("get_anything", None, {"action": "delete_user", "params": {}})


@pytest.mark.parametrize("inner", [7, None, "", {}, ["get_x"]])
def test_statement_04_a_dispatcher_without_a_name_writes(inner: Any) -> None:
    assert is_write("call_tool", None, {"tool": inner, "arguments": {}})
    assert is_write("call_tool", None, None)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.text(), json_values, json_values)
def test_statement_03_nothing_raises(name: str, declaration: Any, arguments: Any) -> None:
    declaration = declaration if isinstance(declaration, dict) else {"function": declaration}
    classify(name, declaration, arguments if isinstance(arguments, dict) else None)


@given(st.sampled_from(sorted(AIRLINE_WRITES)), st.text(), json_values)
def test_statement_02_no_description_turns_an_airline_write_into_a_read(
    name: str, description: str, arguments: Any
) -> None:
    assert is_write(name, tool(name, description), {"x": arguments})
