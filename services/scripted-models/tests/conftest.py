"""A call without bridge and bots: agent and caller by the server, real tools on a real database."""

import json
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web

from tau2eval_airline import (
    apply_initialization,
    call_tool,
    get_scenario,
    resolve_tools,
    session_summary,
)
from tau2eval_scripted.app import ScriptedModels
from tau2eval_scripted.catalog import Catalog
from tau2eval_scripted.judge import judgement

MAX_RESPONSES = 120  # Of the agent's model; task 44 alone calls 19 tools.


class AskFailed(Exception):
    def __init__(self, status, body):
        super().__init__(status, body)
        self.status = status
        self.body = body


@dataclass
class Clean:
    """A line on which every word arrives, and nobody interrupts."""

    def play(self, text):
        """Returns the words of the agent that were played: what both contexts then hold."""
        return text

    def hear(self, text):
        """Returns the user messages that the agent's recogniser makes of the caller's words."""
        return [text]


@dataclass
class Call:
    """What came of a call."""

    end: str | None = None
    db_hash: str | None = None
    turns: list[str] = field(default_factory=list)  # What the agent said, interruptions included.
    replies: list[str] = field(default_factory=list)  # What the caller said.
    messages: list[dict] = field(default_factory=list)  # The agent's context.
    tools: list[str] = field(default_factory=list)
    errors: list[dict] = field(default_factory=list)
    call_ids: list[str] = field(default_factory=list)


def headers_of(scenario, role, session="session-1"):
    return {
        "x-tau2eval-run": "run-1",
        "x-tau2eval-scenario": scenario,
        "x-tau2eval-trial": "0",
        "x-tau2eval-role": role,
        "x-tau2eval-session": session,
    }


async def hold_call(ask, scenario_name, agent, *, line=None, max_turns=40, stimulus="Hello"):
    """Holds a call until the agent ends it, or until it has spoken `max_turns` times.

    Raises what `ask` raises, with the call so far as `error.call`.
    """
    line = line or Clean()
    scenario = get_scenario(scenario_name)
    state = scenario.setup_shared_state({})
    apply_initialization(state, state["db_path"])
    resources = scenario.agent_resources
    tools = resolve_tools(resources.tool_domain, resources.tools, state)
    schemas = [tool.openai_schema() for tool in tools.values()]
    call = Call()
    call.messages = [
        {"role": "system", "content": scenario.get_agent_prompt()},
        {"role": "user", "content": stimulus},
    ]
    caller = [{"role": "system", "content": scenario.get_user_prompt()}]
    for _ in range(MAX_RESPONSES):
        body = {"model": agent, "messages": call.messages, "tools": schemas}
        try:
            message = await ask(body, headers_of(scenario_name, "agent"))
        except AskFailed as error:
            error.call = call
            raise
        text, calls = message.get("content") or "", message.get("tool_calls") or []
        assert len(calls) <= 1, "the policy allows one tool call at a time"
        # The end of a call is not interrupted: nobody speaks after a goodbye.
        played = text if calls else line.play(text)
        if played or calls:
            kept = {"role": "assistant", "content": played}
            call.messages.append({**kept, "tool_calls": calls} if calls else kept)
        ends = None
        for each in calls:
            function = each["function"]
            outcome = await call_tool(tools, function["name"], function["arguments"])
            call.tools.append(function["name"])
            call.call_ids.append(each["id"])
            if outcome.is_error:
                call.errors.append({"call": function, "result": outcome.result})
            result = {"role": "tool", "tool_call_id": each["id"]}
            call.messages.append({**result, "content": json.dumps(outcome.result)})
            ends = outcome.exit_reason
        if text:
            call.turns.append(text)
        if ends == "agent_exit" or (call.end == "transfer" and text):
            call.end = call.end or ends
            break
        call.end = ends or call.end
        if calls:
            continue
        if len(call.turns) >= max_turns or not text:
            break
        caller.append({"role": "user", "content": played or "Hm?"})
        reply = await ask(
            {"model": "scripted/caller", "messages": caller}, headers_of(scenario_name, "user")
        )
        assert reply["content"].strip(), "the caller never says nothing"
        assert not reply.get("tool_calls")
        call.replies.append(reply["content"])
        caller.append({"role": "assistant", "content": reply["content"]})
        for heard in line.hear(reply["content"]):
            if call.messages[-1]["role"] == "user" and not played:
                call.messages[-1]["content"] += f"\n{heard}"  # Merged: nothing was said between.
            else:
                call.messages.append({"role": "user", "content": heard})
    call.db_hash = session_summary(state).db_hash
    return call


def histories(messages):
    """The contexts of both sides from the agent's messages, as the scorer makes them."""
    agent, user = [], []
    stimulus = next(i for i, m in enumerate(messages) if m["role"] == "user")
    for at, message in enumerate(messages):
        if at == stimulus or message["role"] == "system":
            continue
        if message["role"] == "user":
            agent.append({"role": "user", "content": message["content"]})
            user.append({"role": "assistant", "content": message["content"]})
        elif message["role"] == "assistant":
            if message.get("content"):
                agent.append({"role": "assistant", "content": message["content"]})
                user.append({"role": "user", "content": message["content"]})
            for call in message.get("tool_calls") or ():
                function = call["function"]
                made = {
                    "id": call["id"],
                    "name": function["name"],
                    "arguments": json.loads(function["arguments"]),
                }
                agent.append({"role": "assistant", "tool_call": made})
        else:
            result = json.loads(message["content"])
            entry = {"role": "tool", "id": message["tool_call_id"], "name": "", "result": result}
            if isinstance(result, dict) and result.get("status") == "error":
                entry["is_error"] = True
            agent.append(entry)
    return agent, user


def escaped(value):
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def judge_request(assertions, agent, user):
    """A request to the judge as the scorer makes it."""
    sections = {
        "reference": {"actions": []},
        "prediction": {"actions": [], "ended_by": "agent_exit"},
        "nl_assertions": [
            {"index": at, "assertion": text} for at, text in enumerate(assertions, 1)
        ],
        "agent_context_history": agent,
        "user_context_history": user,
    }
    content = "".join(f"<{name}>\n{escaped(body)}\n</{name}>\n" for name, body in sections.items())
    return {
        "model": "scripted/judge",
        "messages": [
            {"role": "system", "content": "You judge."},
            {"role": "user", "content": content},
        ],
    }


def judged(assertions, agent, user):
    """Whether each assertion holds, by scripted/judge."""
    answer = json.loads(judgement(judge_request(assertions, agent, user)))
    verdicts = answer["nl_assertion_verdicts"]
    assert [verdict["index"] for verdict in verdicts] == list(range(1, len(assertions) + 1))
    return [verdict["passed"] for verdict in verdicts]


class Client:
    """Asks the server over HTTP."""

    def __init__(self, session, url):
        self.session = session
        self.url = url

    async def raw(self, body, headers=None):
        """Returns status and body of a chat completion request."""
        url = f"{self.url}/v1/chat/completions"
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.post(url, data=data, headers=headers or {}) as response:
            return response.status, await response.read()

    async def ask(self, body, headers):
        status, data = await self.raw(body, headers)
        if status != 200:
            raise AskFailed(status, json.loads(data))
        return json.loads(data)["choices"][0]["message"]


@pytest.fixture(scope="session")
def catalog():
    return Catalog()


@pytest.fixture(scope="session")
def tools():
    """What the tests share, as pytest's import mode has no modules of test helpers."""

    class Tools:
        hold_call = staticmethod(hold_call)
        headers_of = staticmethod(headers_of)
        histories = staticmethod(histories)
        judge_request = staticmethod(judge_request)
        judged = staticmethod(judged)

    Tools.AskFailed, Tools.Clean = AskFailed, Clean
    return Tools


@pytest.fixture(scope="session")
def direct(catalog):
    """Asks the core without HTTP."""
    models = ScriptedModels(catalog, slow_seconds=0)

    async def ask(body, headers):
        completion = await models.answer(body, headers)
        return json.loads(completion.body())["choices"][0]["message"]

    return ask


@pytest.fixture(scope="session")
def gold_calls():
    return {}


@pytest.fixture
async def gold(direct, tools, gold_calls):
    """Holds a call of gold in a task, once; returns it with copies of both contexts."""

    async def hold(task):
        if task not in gold_calls:
            gold_calls[task] = await tools.hold_call(
                direct, f"tau2_airline__{task}", "scripted/gold"
            )
        return gold_calls[task], *histories(gold_calls[task].messages)

    return hold


@pytest.fixture
async def client(catalog):
    """A client of the real application on a free port of 127.0.0.1."""
    runner = web.AppRunner(ScriptedModels(catalog, slow_seconds=0.01).application())
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    async with aiohttp.ClientSession() as session:
        yield Client(session, f"http://{host}:{port}")
    await runner.cleanup()
