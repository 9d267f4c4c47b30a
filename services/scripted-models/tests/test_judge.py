"""scripted/judge and its table: what gold says holds, and each claim has a call that breaks it."""

import json

import pytest

from tau2eval_airline import ADOPTED_NL_ASSERTIONS, get_scenario, list_scenarios
from tau2eval_scripted.acts import ACTS
from tau2eval_scripted.completion import RequestError
from tau2eval_scripted.evidence import EVIDENCE
from tau2eval_scripted.judge import judgement
from tau2eval_scripted.models import EXPECTED_OUTCOMES

CLAIMS = [
    (task, at, claim)
    for task, claims in ADOPTED_NL_ASSERTIONS.items()
    for at, claim in enumerate(claims)
]
IDS = [f"{task}-{at + 1}" for task, at, _ in CLAIMS]
ASSERTED = [f"tau2_airline__{task}" for task in ADOPTED_NL_ASSERTIONS]
SAYING = [c for c in CLAIMS if EVIDENCE[c[2]].said]
BREAKABLE = [c for c in CLAIMS if EVIDENCE[c[2]].never]
LOOKING_UP = [c for c in CLAIMS if EVIDENCE[c[2]].called]


def escaped(value):
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


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


def request(assertions, agent, user):
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


def passed(assertions, agent, user):
    answer = json.loads(judgement(request(assertions, agent, user)))
    verdicts = answer["nl_assertion_verdicts"]
    assert [verdict["index"] for verdict in verdicts] == list(range(1, len(assertions) + 1))
    return [verdict["passed"] for verdict in verdicts]


@pytest.fixture(scope="module")
def gold_calls():
    return {}


@pytest.fixture
async def gold(direct, tools, gold_calls):
    async def hold(task):
        if task not in gold_calls:
            call = await tools.hold_call(direct, f"tau2_airline__{task}", "scripted/gold")
            gold_calls[task] = histories(call.messages)
        agent, user = gold_calls[task]
        return [dict(entry) for entry in agent], [dict(entry) for entry in user]

    return hold


def test_one_entry_for_each_adopted_assertion_and_none_more():
    assert set(EVIDENCE) == {claim for claims in ADOPTED_NL_ASSERTIONS.values() for claim in claims}
    for claim, evidence in EVIDENCE.items():
        kinds = [bool(evidence.said), bool(evidence.never), evidence.called is not None]
        assert sum(kinds) == 1, claim
        assert bool(evidence.breach) == bool(evidence.never), claim
    assert set(ACTS) == set(ADOPTED_NL_ASSERTIONS)


@pytest.mark.parametrize("task", ADOPTED_NL_ASSERTIONS)
async def test_gold_says_all_that_its_task_asks_for(gold, task):
    agent, user = await gold(task)
    claims = ADOPTED_NL_ASSERTIONS[task]
    assert dict(zip(claims, passed(claims, agent, user), strict=True)) == dict.fromkeys(
        claims, True
    )


@pytest.mark.parametrize(("task", "at", "claim"), SAYING, ids=lambda value: str(value)[:12])
async def test_without_the_act_its_claim_fails(gold, task, at, claim):
    agent, user = await gold(task)
    act = ACTS[task].said

    def without(history, role):
        return [
            entry
            for entry in history
            if not (entry["role"] == role and act in str(entry.get("content") or ""))
        ]

    silent, deaf = without(agent, "assistant"), without(user, "user")
    assert len(silent) < len(agent)
    if EVIDENCE[claim].if_user:
        # The caller says what the claim depends on.
        condition = {
            "9": "Is there a nonstop flight?",
            "10": "Then upgrade both flights.",
            "3": "I am a gold member.",
            "34": "My insurance makes the changes free.",
            "43": "Then cancel the one from Denver.",
            "45": "Move it to May 22 and add the insurance.",
        }[task]
        assert passed([claim], silent, [{"role": "assistant", "content": "Hello."}]) == [True]
        deaf.append({"role": "assistant", "content": condition})
    assert passed([claim], silent, deaf) == [False]


@pytest.mark.parametrize(("task", "at", "claim"), SAYING, ids=lambda value: str(value)[:12])
async def test_words_that_were_cut_off_do_not_count(gold, task, at, claim):
    agent, user = await gold(task)
    act = ACTS[task].said
    for entry in agent:
        if act in str(entry.get("content") or ""):
            entry["unspoken"] = entry["content"]
            entry["content"] = "I have"
    conditional = [
        {"role": "assistant", "content": "gold, Denver, May 22, add insurance free, nonstop, both"}
    ]
    assert passed([claim], agent, user + conditional) == [False]


@pytest.mark.parametrize(("task", "at", "claim"), SAYING, ids=lambda value: str(value)[:12])
async def test_the_callers_and_a_tools_words_prove_nothing(gold, task, at, claim):
    act = ACTS[task].said
    conditional = "gold, Denver, May 22, add insurance free, nonstop, both"
    agent = [
        {"role": "user", "content": act},
        {"role": "assistant", "tool_call": {"id": "1", "name": "think", "arguments": {"a": act}}},
        {"role": "tool", "id": "1", "name": "think", "result": act},
        {"role": "assistant", "content": "Goodbye."},
    ]
    user = [{"role": "assistant", "content": f"{conditional} {act}"}]
    assert passed([claim], agent, user) == [False]


@pytest.mark.parametrize(("task", "at", "claim"), BREAKABLE, ids=lambda value: str(value)[:12])
async def test_each_prohibition_can_be_broken(gold, task, at, claim):
    agent, user = await gold(task)
    breach = EVIDENCE[claim].breach
    agent.insert(0, {"role": "assistant", "content": breach})
    user.insert(0, {"role": "user", "content": breach})
    assert passed([claim], agent, user) == [False]


@pytest.mark.parametrize(("task", "at", "claim"), BREAKABLE, ids=lambda value: str(value)[:12])
async def test_a_caller_cannot_break_it_for_the_agent(gold, task, at, claim):
    agent, user = await gold(task)
    breach = EVIDENCE[claim].breach
    agent.append({"role": "user", "content": breach})
    user.append({"role": "assistant", "content": breach})
    assert passed([claim], agent, user) == [True]


@pytest.mark.parametrize(("task", "at", "claim"), LOOKING_UP, ids=lambda value: str(value)[:12])
async def test_a_look_up_must_be_made_and_succeed(gold, task, at, claim):
    agent, user = await gold(task)
    name, arguments = EVIDENCE[claim].called
    made = [
        entry
        for entry in agent
        if "tool_call" in entry
        and entry["tool_call"]["name"] == name
        and arguments.items() <= entry["tool_call"]["arguments"].items()
    ]
    assert made
    assert passed([claim], [e for e in agent if e not in made], user) == [False]
    ids = {entry["tool_call"]["id"] for entry in made}
    failed = [{**e, "is_error": True} if e.get("id") in ids else e for e in agent]
    assert passed([claim], failed, user) == [False]
    pending = [e for e in agent if not (e["role"] == "tool" and e["id"] in ids)]
    assert passed([claim], pending, user) == [False]


@pytest.mark.parametrize(
    "model", sorted(m.id for m in EXPECTED_OUTCOMES.values() if m.fails_where_asserted)
)
@pytest.mark.parametrize("name", ASSERTED)
async def test_agents_that_do_not_serve_fail_by_missing_acts(direct, tools, name, model):
    call = await tools.hold_call(direct, name, model, max_turns=8)
    claims = get_scenario(name).nl_assertions
    assert len(call.turns) >= 2, "not by too few turns"
    assert not all(passed(claims, *histories(call.messages)))


@pytest.mark.parametrize("name", ASSERTED)
async def test_a_rogue_write_is_found_by_the_database_and_not_by_the_words(direct, tools, name):
    call = await tools.hold_call(direct, name, "scripted/rogue-write")
    assert all(passed(get_scenario(name).nl_assertions, *histories(call.messages)))


@pytest.mark.parametrize("model", ["scripted/refuse-all", "scripted/liar"])
@pytest.mark.parametrize("name", list_scenarios("tau2_airline")[:6])
async def test_three_turns_and_no_tool(direct, tools, name, model):
    call = await tools.hold_call(direct, name, model)
    assert len(call.turns) == 3
    assert call.tools == ["end_conversation"]
    assert call.end == "agent_exit"


async def test_transfer_at_once(direct, tools):
    call = await tools.hold_call(direct, "tau2_airline__11", "scripted/transfer-at-once")
    assert call.tools == ["transfer_to_human_agents"]
    assert call.end == "transfer"
    assert "human agent" in call.turns[-1]


def test_an_assertion_that_is_not_in_the_table_is_refused():
    with pytest.raises(RequestError) as refused:
        judgement(request(["The agent is nice."], [], []))
    assert refused.value.status == 400
    assert refused.value.code == "assertion_unknown"


def test_no_assertions_are_a_score_of_one():
    assert json.loads(judgement(request([], [], [])))["score"] == 1.0


@pytest.mark.parametrize(
    "content", ["", "Judge this.", "<nl_assertions>\n[]\n</nl_assertions>\n", "<a>\n1\n</a>"]
)
def test_what_is_no_judges_input_is_refused(content):
    body = {"messages": [{"role": "user", "content": content}]}
    with pytest.raises(RequestError) as refused:
        judgement(body)
    assert refused.value.code in ("not_a_judgement", "invalid_messages")


async def test_over_http_with_the_role_of_a_judge(client, tools, gold):
    agent, user = await gold("48")
    body = request(ADOPTED_NL_ASSERTIONS["48"], agent, user)
    headers = tools.headers_of("tau2_airline__48", "judge")
    message = await client.ask(body, headers)
    assert json.loads(message["content"])["score"] == 1.0
    status, data = await client.raw(body, tools.headers_of("tau2_airline__48", "agent"))
    assert status == 400
    assert json.loads(data)["error"]["code"] == "role_mismatch"
