"""What models write that no parser expects: it may cost no draft, no time, and pass no write."""

import asyncio
import json
import time

import grpc
import pytest

from tau2eval.gateway.v1 import gateway_pb2
from tau2eval_gateway.errors import provider_error
from tau2eval_gateway.flows.argcheck_verdict import read_verdict
from tau2eval_gateway.flows.evidence import check, gather
from tau2eval_gateway.flows.hold import judge
from tau2eval_gateway.flows.hold_changes import Evidence
from tau2eval_gateway.flows.messages import json_objects, parse_json_object, tool_calls
from tau2eval_gateway.flows.readwrite import is_write
from tau2eval_gateway.flows.verify_calls import calls_in
from tau2eval_gateway.flows.verify_prompt import read_review
from tau2eval_gateway.sse import read_json

TOOLS = [{"type": "function", "function": {"name": "cancel_order", "parameters": {}}}]
IDS = (
    "marina/verify:ext/agent+ext/judge",
    "marina/obligations:ext/agent",
    "marina/argcheck:ext/agent",
    "marina/obligations:marina/argcheck:marina/verify:ext/agent+ext/judge",
)


def call(arguments, name="cancel_order"):
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}


# Time: CPU seconds, hundreds of times what a linear reading takes.


@pytest.mark.parametrize(
    "text", ["{" * 199_000, '{"a":' * 39_000, "<think>" * 28_000, "[" * 199_000, "{" * 10_000_000]
)
def test_an_answer_is_read_in_time_whatever_it_is(text):
    began = time.process_time()
    assert json_objects(text) == []
    assert read_review(text) is None
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    "text", ['"' + '\\"' * 200_000, '{"a":"' + '\\"' * 200_000, '"\\' * 99_999]
)
def test_malformed_arguments_are_checked_in_time(text):
    seen = tool_calls({"tool_calls": [call(text)]})[0]
    began = time.process_time()
    check(seen, gather([{"role": "user", "content": "Hi"}]), {})
    assert time.process_time() - began < 5


def test_many_ids_and_long_failures_are_checked_in_time():
    words = " ".join(f"w{n}" for n in range(80_000))
    told = json.dumps({"a": " ".join(f"x{n}y" for n in range(500))})
    asked = json.dumps({f"k{n}": f"AB{n}CD" for n in range(2_000)})
    began = time.process_time()
    said = gather(
        [
            {"role": "assistant", "content": None, "tool_calls": [call(told)]},
            {"role": "tool", "tool_call_id": "c1", "content": f"Error: {words}"},
        ]
    )
    assert len(check(tool_calls({"tool_calls": [call(asked)]})[0], said, {})) == 2_000
    assert time.process_time() - began < 15


def test_values_of_malformed_arguments_are_found_up_to_their_end():
    seen = tool_calls({"tool_calls": [call('{"id": "ABC123", "more": 77, "last": "XYZ999')]})[0]
    found = check(seen, gather([{"role": "user", "content": "Hi"}]), {})
    assert [each.leaf.value for each in found] == ["ABC123", "77", "XYZ999"]


# What an answer says.


def test_the_object_that_was_asked_for_is_read_and_not_one_that_is_thought_or_quoted():
    answer = (
        '<think>The order is {"id": 4} and {"open": []}.</think>The user wrote {"id": 5}.\n'
        '```json\n{"open": [{"id": 1, "status": "owed"}]}\n```'
    )
    assert parse_json_object(answer, "open") == {"open": [{"id": 1, "status": "owed"}]}
    assert parse_json_object('{"id": 5}', "open") is None
    assert read_verdict('{"id": 5} {"calls": []}', [], {}, believe=False) == []


# Calls that mean one thing to one client and another to the next.


@pytest.mark.parametrize(
    "arguments",
    [
        {"tool": "get_user", "name": "cancel_order", "arguments": {}},
        {"tool": "get_user", "tool_name": "cancel_order", "arguments": {}},
        {"calls": [{"tool": "get_user", "arguments": {}}], "tool": "cancel_order", "arguments": {}},
        {"calls": [{"tool": "get_a", "args": {}}], "actions": [{"tool": "cancel_order"}]},
        {"calls": [{"tool": "get_a", "name": "cancel_order", "args": {}}]},
        {"tool": "get_user", "arguments": {}, "function": {"name": "cancel_order"}},
        {"tool": "get_user", "arguments": {}, "name": "odd_one"},
    ],
)
def test_a_dispatcher_that_could_be_told_to_write_writes(arguments):
    tools = {"odd_one": {"type": "function", "function": {"name": "odd_one"}}}
    assert is_write("call_tool", None, arguments, tools)
    assert not is_write("call_tool", None, {"tool": "get_user", "arguments": {}}, tools)


@pytest.mark.parametrize(
    ("text", "clear"),
    [
        ('{"id": "A", "id": "B"}', False),
        ('{"a": {"id": 1, "id": 1.0}}', False),
        ('{"a": {"id": 1, "id": true}}', False),
        ('{"id": "A", "id": "A"}', True),
        ('{"id": "A", "other": "A"}', True),
    ],
)
def test_a_member_with_two_values_makes_arguments_unreadable(text, clear):
    assert (tool_calls({"tool_calls": [call(text)]})[0].arguments is not None) == clear


def test_a_dispatchers_second_tool_is_a_write():
    text = '{"tool": "cancel_order", "tool": "get_user", "arguments": {}}'
    seen = calls_in({"tool_calls": [call(text, "call_tool")]}, {"tools": TOOLS})
    assert [one.write for one in seen] == [True]


# Text that is no Unicode, and other JSON that only lenient parsers take.

ODD = {
    "half an emoji": b'"\\ud83d"',
    "not a number": b'"Fine.", "score": NaN',
    "nested deeply": b'"Fine.", "x": ' + b"[" * 1015 + b"]" * 1015,
    "large number": b'"Fine.", "x": 123456789012345678901234567890, "y": 1e999',
}


def test_json_of_lenient_parsers_is_read():
    assert read_json(b'{"a": "\\ud83d", "b": Infinity}')["a"] == "\ud83d"
    for broken in (b"{", b'{"a": \xff}', b"[" * 100_000, b""):
        with pytest.raises(ValueError, match=r".*"):
            read_json(broken)


def odd_answer(kind, message=""):
    return (
        b'{"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [{"index"'
        b': 0, "finish_reason": "stop", "message": {"role": "assistant"' + message.encode() + b", "
        b'"content": ' + ODD[kind] + b'}}], "usage": {"prompt_tokens": 5, "completion_tokens": 1, '
        b'"cost": 0.5}}'
    )


@pytest.mark.parametrize("model", ["ext/agent", *IDS])
@pytest.mark.parametrize("kind", ODD)
async def test_an_odd_answer_reaches_its_caller(upstream, gateway, h, model, kind):
    raw = odd_answer(kind)

    async def agent(request, body):
        return h.raw(raw)

    async def judge(request, body):
        return h.raw(odd_answer(kind))

    upstream.replies = {"agent": agent, "judge": judge}
    async with gateway.post(h.ask(model, tools=TOOLS)) as response:
        given = await response.read()
        assert response.status == 200, given
    message = read_json(given)["choices"][0]["message"]
    assert message["content"] == read_json(raw)["choices"][0]["message"]["content"]
    rows = await gateway.rows()
    assert (
        float(response.headers["x-marina-cost-usd"])
        == 0.5 * len(rows)
        == 0.5 * len(upstream.bodies)
    )


async def test_a_revision_that_cannot_be_written_leaves_the_draft(upstream, gateway, h):
    answers = [h.raw(odd_answer("half an emoji")), h.raw(odd_answer("nested deeply"))]

    async def agent(request, body):
        return answers.pop(0)

    review = {"verdict": "revise", "note": "Say more."}
    upstream.replies = {
        "agent": agent,
        "judge": upstream.answer(h.completion(json.dumps(review))),
    }
    async with gateway.post(h.ask("marina/verify:ext/agent+ext/judge")) as response:
        assert response.status == 200
        assert json.loads(await response.read())["choices"][0]["message"]["content"] == "\ud83d"
        assert response.headers["x-marina-verify"] == "revision-failed"


async def test_half_an_emoji_breaks_no_stream(upstream, gateway, h):
    half = b'data: {"choices": [{"index": 0, "delta": {"content": "\\ud83d"}}]}\n\n'
    upstream.replies["agent"] = upstream.stream(half, h.chunk({}, "stop"))
    async with gateway.post(h.ask("ext/agent", stream=True)) as response:
        told = await response.read()
    assert told.startswith(half)
    assert told.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("status", [400, 429, 500])
async def test_an_error_with_half_an_emoji_is_passed_on(upstream, gateway, h, status):
    error = {"message": "half \ud83d", "code": "c\ud83d", "type": "t\ud83d", "more": "\ud83d"}
    assert b"half ?" in provider_error(status, {"error": error}, provider="p").body_json()
    upstream.replies["agent"] = upstream.answer({"error": error}, status)
    async with gateway.post(h.ask("ext/agent")) as response:
        assert response.status == status
        assert (await response.json())["error"]["message"] == "half ?"
    await asyncio.sleep(0)
    assert (await gateway.rows())[-1]["http_status"] == status


@pytest.mark.parametrize("model", ["ext/agent", IDS[1]])
@pytest.mark.parametrize(
    ("status", "code"), [(400, "invalid_request_error"), (500, "upstream_error")]
)
async def test_a_key_in_an_errors_code_goes_no_further(upstream, gateway, h, model, status, code):
    # A key looks much like a code.
    key = "very-secret-value"
    error = {"message": "no", "type": key, "code": key, "param": key}
    upstream.replies["agent"] = upstream.answer({"error": error}, status)
    async with gateway.post(h.ask(model)) as response:
        assert response.status == status
        told = (await response.json())["error"]
    assert told["code"] == code
    assert key not in str(told)
    assert [row["status"] for row in await gateway.rows()] == [code]
    asked = gateway_pb2.ChatCompletionRequest(body_json=json.dumps(h.ask(model)).encode())
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await gateway.chat.ChatCompletion(asked)
    assert "secret" not in str(failed.value.trailing_metadata()).lower()


# Revisions that make another call than they seem to.


def gated(draft, revision):
    body = {"tools": TOOLS, "messages": []}
    return judge(calls_in(draft, body), calls_in(revision, body), [], Evidence(()))


@pytest.mark.parametrize(
    "revision",
    [
        {"function_call": {"name": "cancel_order", "arguments": '{"id": 1}'}},
        {"tool_calls": [call('{"id": 1.0}')]},
        {"tool_calls": [call('{"id": "1"}')]},
        {"tool_calls": [call('{"id": 2, "id": 1}')]},
        {"tool_calls": [call('{"id": 1}', "c\u0430ncel_order")]},
        {"tool_calls": [call('{"id": 1}', "cancel_order ")]},
        {"tool_calls": {"0": call('{"id": 1}')}},
        {"tool_calls": [call('{"id": 1}'), None]},
        {"tool_calls": [call('{"id": 1}'), call('{"id": 1}')]},
        {"tool_calls": []},
        {
            "tool_calls": [
                call('{"id": 1}'),
                {**call("{}", "get_user"), "custom": {"name": "cancel_order", "input": "2"}},
            ]
        },
    ],
)
def test_a_write_in_disguise_is_held(revision):
    draft = {"tool_calls": [call('{"id": 1}')]}
    assert gated(draft, {"tool_calls": [call('{ "id":1 }')]}).passes
    assert not gated(draft, revision).passes


def test_the_form_before_tool_calls_is_compared_with_itself():
    legacy = {"function_call": {"name": "cancel_order", "arguments": '{"id": 1}'}}
    assert gated(legacy, legacy).passes
    assert not gated(legacy, {"tool_calls": [call('{"id": 1}')]}).passes
