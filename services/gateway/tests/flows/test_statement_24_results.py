"""Which results of tools are error-shaped (statement 24)."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau2eval_gateway.flows.obligations_results import result_failed
from tau2eval_gateway.flows.obligations_values import Values

FAILED = [
    "Error: booking AB12 is gone",
    "error: not found",
    "ERROR - no such user",
    "[ERROR] boom",
    "**Error:** boom",
    "\u274c Error: boom",
    "Error",
    "Error executing tool cancel_booking",
    "Error while cancelling",
    "An error occurred while cancelling",
    "ValueError: x",
    "KeyError('x')",
    "tools.errors.BookingError: x",
    "Exception: boom",
    "ToolException(x)",
    "MCP error -32602: Invalid arguments",
    "Traceback (most recent call last):\n  File",
    "Failed to cancel",
    "Failed: no rights",
    "Failure",
    "Unable to cancel the booking",
    "Could not cancel",
    "Couldn't cancel",
    "Cannot cancel a flown booking",
    "Booking not found",
    "Booking #A-1 not found.",
    "404 Not Found",
    "HTTP 500: x",
    "403: x",
    "Tool execution failed",
    "Request timed out",
    "timeout",
    "Permission denied",
    "Internal Server Error",
    "Invalid booking id",
    "Missing required argument",
    "Unknown tool: x",
    "Something went wrong",
    "<error>gone</error>",
    "<tool_use_error>gone</tool_use_error>",
    '"Error: gone"',
    '{"error": "x"}',
    '{"error": true}',
    '{"error": {"message": "x", "code": 7}}',
    '{"error": {"code": 0, "message": "x"}}',
    '{"errors": ["x"]}',
    '{"errors": [{"message": "x"}]}',
    '{"error_code": 12}',
    '{"errorMessage": "x"}',
    '{"exception": "x"}',
    '{"isError": true, "content": [{"type": "text", "text": "no"}]}',
    '{"is_error": "true"}',
    '{"isError": false, "content": [{"type": "text", "text": "Error: gone"}]}',
    '{"status": "failed"}',
    '{"status": "ERROR", "booking": "AB12"}',
    '{"status": "not_found"}',
    '{"status": 404}',
    '{"status_code": "500"}',
    '{"statusCode": 403, "body": {}}',
    '{"success": false}',
    '{"ok": "false"}',
    '{"succeeded": false, "reason": "x"}',
    '{"type": "error", "message": "x"}',
    '{"result": {"error": "x"}}',
    '{"result": "Error: x"}',
    '{"data": {"response": {"success": false}}}',
    '{"message": "Failed to cancel"}',
    '[{"ok": true}, {"error": "x"}]',
    '["done", "Error: x"]',
    "{'error': 'x'}",
    "{'success': False}",
    "{'id': 7, 'note': \"it's\", 'is_error': True, 'x': {}}",
    "{'id': 7.5, 'errors': ['x']}",
    "{'status': 'failed', 'x': 1}",
    json.dumps(json.dumps({"error": "x"})),
    '  \n{"error": "x"}\n',
]
FINE = [
    "",
    "   ",
    "null",
    "true",
    "false",
    "[]",
    "{}",
    "0",
    "400",
    "500 dollars were refunded",
    "404 seats are free",
    "done",
    "Cancelled.",
    "Transfer successful",
    "Error free flight",
    "error-free",
    "Errors: 0",
    "Error: none",
    "error_count = 0, all is well",
    "No error",
    "No errors occurred",
    "Errors were corrected",
    "Done. The error was corrected before.",
    "The booking that failed before is now cancelled",
    "Invalidated the old ticket",
    "Timeouts are now set to 30 s",
    "Failed payment was retried, all is paid",
    '{"error": null}',
    '{"error": false}',
    '{"error": ""}',
    '{"error": "none"}',
    '{"error": {}}',
    '{"error": {"code": 0, "message": ""}}',
    '{"errors": []}',
    '{"error_code": 0}',
    '{"isError": false, "content": [{"type": "text", "text": "ok"}]}',
    '{"success": true, "error": null}',
    '{"status": "cancelled"}',
    '{"status": "error free"}',
    '{"status": 200}',
    '{"status": "available", "flights": [{"status": "delayed"}]}',
    '{"booking": "AB12", "note": "the error was corrected", "status": "active"}',
    '{"price": 404, "total": 500}',
    '{"failed": false}',
    '{"failed": 0}',
    "{'error': None, 'booking': 'AB12'}",
    "{'id': 7, 'errors': [], 'status': 'ok'}",
    "{'note': 'an \\\\'error\\\\': True', 'price': 404}",
    "{" + "-" * 19_000,
    "{'a': " * 9_000,
    "{not json",
    "['x'",
    "{" * 3000,
]


@pytest.mark.parametrize("text", FAILED)
def test_statement_24_error_shaped(text):
    assert result_failed({"role": "tool", "tool_call_id": "1", "content": text})
    parts = [{"type": "text", "text": text}]
    assert result_failed({"role": "tool", "tool_call_id": "1", "content": parts})


@pytest.mark.parametrize("text", FINE)
def test_statement_24_not_error_shaped(text):
    assert not result_failed({"role": "tool", "tool_call_id": "1", "content": text})
    parts = [{"type": "text", "text": text}]
    assert not result_failed({"role": "tool", "tool_call_id": "1", "content": parts})


@pytest.mark.parametrize(
    "more",
    [
        {"is_error": True},
        {"isError": True},
        {"error": True},
        {"error": "x"},
        {"status": "error"},
        {"content": {"error": "x"}},
        {"content": [{"type": "text", "text": "done", "is_error": True}]},
    ],
)
def test_statement_24_marks_on_the_message(more):
    assert result_failed({"role": "tool", "tool_call_id": "1", "content": "done", **more})


@pytest.mark.parametrize(
    "more",
    [
        {"is_error": False, "error": None, "name": "error"},
        {"content": None},
        {"content": 3},
        {"content": [None, 3, "done", {"type": "image"}]},
        {"tool_call_id": "error", "id": "failed"},
    ],
)
def test_statement_24_no_marks(more):
    assert not result_failed({"role": "tool", "tool_call_id": "1", "content": "done", **more})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.text() | JSON.map(json.dumps) | JSON.map(str))
def test_statement_24_any_text_is_read(text):
    assert result_failed({"role": "tool", "content": text}) in (True, False)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(["id", "price", "name"]), JSON.map(str) | st.integers()))
def test_statement_24_a_record_is_a_success_whatever_its_fields_say(record):
    assert not result_failed({"role": "tool", "content": json.dumps(record)})


@pytest.mark.parametrize(
    ("word", "texts"),
    [
        ("AB12", ["ab12"]),
        ("#W123", ["#W123"]),
        ("W123", ["order #w123, please"]),
        ("gift_card_77", ["gift_card_77"]),
        ("$1,200.50", ["1200.5"]),
        ("200", ["200.00"]),
        ("May 20", ["2024-05-20"]),
        ("20th of May 2024".replace("of ", ""), ["2024-05-20"]),
        ("2024-05-20", ["May 20, 2024"]),
        ("Mia Li", ["Li", "Mia"]),
        ("business", ["business"]),
        ("ticket 77", ["Ticket 77"]),
        ("Gro\u00dfe", ["GROSSE"]),
    ],
)
def test_statement_24_a_call_carries_a_value(word, texts):
    assert Values(texts).carry(word)


@pytest.mark.parametrize(
    ("word", "texts"),
    [
        ("123", ["91234"]),
        ("AB12", ["AB123", "XAB12", "AB 12"]),
        ("gift_card_77", ["gift_card_7", "gift_card_777"]),
        ("May 20", ["2024-06-20"]),
        ("Mia Li", ["Mia"]),
        ("ticket 77", ["77", "ticket"]),
        ("", ["x"]),
        ("#-/", ["#-/"]),
        ("x", []),
    ],
)
def test_statement_24_a_call_does_not_carry_a_value(word, texts):
    assert not Values(texts).carry(word)
