"""tau2's own text conversations: no header names the scenario, and tokens end the call."""

import json

import pytest

from tau2eval_airline import get_scenario, list_scenarios
from tau2eval_scripted.caller import opening

NAMES = list_scenarios("tau2_airline")
GUIDE = "Guidelines. Generate '###STOP###' when done, '###TRANSFER###' when transferred."
TOOLS = [{"type": "function", "function": {"name": "get_user_details"}}]
TWINS = ("tau2_airline__15", "tau2_airline__16")


def caller_prompt(name):
    """The user simulator's system prompt, in tau2's layout."""
    parts = get_scenario(name).tau2_task["user_scenario"]["instructions"]
    lines = [GUIDE, "<scenario>", "Instructions:"]
    for part, text in parts.items():
        lines += [f"\t{part}:", *(f"\t\t{line}" for line in (text or "").splitlines())]
    return "\n".join([*lines, "</scenario>"])


def caller_body(name, *said, model="scripted/caller"):
    messages = [{"role": "system", "content": caller_prompt(name)}]
    for at, text in enumerate(said):
        messages.append({"role": "assistant" if at % 2 else "user", "content": text})
    return {"model": model, "messages": messages}


async def first_words(client, name):
    message = await client.ask(caller_body(name, "Hi! How can I help you today?"), {})
    return message["content"]


@pytest.mark.parametrize("name", NAMES)
async def test_the_caller_is_known_by_its_instructions(client, catalog, name):
    assert await first_words(client, name) == opening(catalog.get(name).caller)


@pytest.mark.parametrize("name", NAMES)
async def test_the_agent_is_known_by_the_callers_words(client, tools, catalog, name):
    messages = [
        {"role": "system", "content": "policy"},
        {"role": "assistant", "content": "Hi! How can I help you today?"},
        {"role": "user", "content": opening(catalog.get(name).caller)},
    ]
    body = {"model": "scripted/gold", "messages": messages, "tools": TOOLS}
    known = await client.ask(body, tools.headers_of(name, "agent"))
    task = name.removeprefix("tau2_airline__")
    named = await client.ask({**body, "model": f"scripted/gold@{task}"}, {})
    status, data = await client.raw(body)
    if name in TWINS:
        assert (status, json.loads(data)["error"]["code"]) == (400, "scenario_ambiguous")
        assert all(twin in json.loads(data)["error"]["message"] for twin in TWINS)
    else:
        assert status == 200
        found = json.loads(data)["choices"][0]["message"]
        assert found["content"] == known["content"]
    assert named["content"] == known["content"]


async def test_unknown_words_and_tasks_are_refused(client):
    for body, code in (
        (caller_body(NAMES[0])["messages"], "scenario_header_missing"),
        ([{"role": "user", "content": "Hello, I am nobody."}], "scenario_header_missing"),
    ):
        status, data = await client.raw({"model": "scripted/gold", "messages": body})
        assert (status, json.loads(data)["error"]["code"]) == (400, code)
        assert "@TASK" in json.loads(data)["error"]["message"]
    hello = [{"role": "user", "content": "Hello"}]
    for task in ("50", "tau2_airline__50", "x"):
        status, data = await client.raw({"model": f"scripted/gold@{task}", "messages": hello})
        assert (status, json.loads(data)["error"]["code"]) == (400, "scenario_not_found")


async def test_the_answer_echoes_the_whole_id(client):
    hello = [{"role": "user", "content": "Hello"}]
    status, data = await client.raw({"model": "scripted/gold@11", "messages": hello})
    assert (status, json.loads(data)["model"]) == (200, "scripted/gold@11")


@pytest.mark.parametrize(
    ("heard", "told"),
    [
        ("Is there anything else I can help you with?", "###STOP###"),
        ("Thank you for calling. Goodbye.", "###STOP###"),
        ("You are being transferred to a human agent. Please hold on.", "###TRANSFER###"),
        ("I will hand you over to a human agent.", ""),
        ("I will cancel it. Shall I go ahead?", ""),
    ],
)
async def test_tokens_end_the_call_where_tau2_asks_for_them(client, catalog, heard, told):
    name = "tau2_airline__11"
    words = opening(catalog.get(name).caller)
    said = (await client.ask(caller_body(name, "Hi!", words, heard), {}))["content"]
    assert ("###" in said) is bool(told)
    assert told in said
    # In a voice call nobody speaks tokens.
    body = caller_body(name, "Hi!", words, heard)
    body["messages"][0] = {"role": "system", "content": "You are the caller."}
    status, data = await client.raw(body, {"x-tau2eval-scenario": name})
    assert status == 200
    assert "###" not in json.loads(data)["choices"][0]["message"]["content"]


async def test_without_the_tool_the_agent_says_goodbye_in_words(client, tools):
    name = "tau2_airline__1"
    call = await tools.hold_call(client.ask, name, "scripted/gold")
    at = next(
        index for index, message in enumerate(call.messages)
        if any(c["function"]["name"] == "end_conversation" for c in message.get("tool_calls", ()))
    )  # fmt: skip
    body = {"model": "scripted/gold", "messages": call.messages[:at]}
    headers = tools.headers_of(name, "agent")
    assert (await client.ask(body, headers))["tool_calls"]
    plain = await client.ask({**body, "tools": TOOLS}, headers)
    assert not plain.get("tool_calls")
    assert "Goodbye" in plain["content"]
