"""What a voice line does to a conversation: the scripts come to their end all the same."""

import asyncio
import contextlib
import copy
import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tau2eval_airline import get_scenario, list_scenarios
from tau2eval_scripted.agents import AGENTS
from tau2eval_scripted.caller import caller
from tau2eval_scripted.conversation import MalformedMessages, parse, without_stimulus
from tau2eval_scripted.evidence_table import EVIDENCE
from tau2eval_scripted.wording import GREETING, WAIT

NAMES = list_scenarios("tau2_airline")


class BadLine:
    """Cuts the agent off, splits the caller's turns, and mishears; by a given seed.

    Not for ever: words that are never played cannot bring a call to its end.
    """

    MOST_CUTS_IN_A_ROW = 2

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.cuts = 0

    def play(self, text):
        words = text.split()
        if self.cuts < self.MOST_CUTS_IN_A_ROW and self.random.random() < 0.35:
            self.cuts += 1
            return " ".join(words[: self.random.randrange(len(words))])
        self.cuts = 0
        return text

    def hear(self, text):
        words = [w.lower().strip(".,") for w in text.split() if self.random.random() > 0.1] or [
            "um"
        ]
        if len(words) > 4 and self.random.random() < 0.3:
            cut = self.random.randrange(1, len(words))
            return [" ".join(words[:cut]), " ".join(words[cut:])]
        return [" ".join(words)]


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 2**32))
def test_gold_ends_in_the_expected_state_on_a_bad_line(direct, tools, name, seed):
    call = asyncio.run(tools.hold_call(direct, name, "scripted/gold", line=BadLine(seed)))
    assert call.end in ("agent_exit", "transfer")
    assert call.db_hash == get_scenario(name).expected_db_hash
    assert len(call.call_ids) == len(set(call.call_ids))


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 2**32))
def test_rogue_write_and_do_nothing_on_a_bad_line(direct, tools, name, seed):
    rogue = asyncio.run(tools.hold_call(direct, name, "scripted/rogue-write", line=BadLine(seed)))
    assert rogue.end in ("agent_exit", "transfer")
    assert rogue.db_hash != get_scenario(name).expected_db_hash
    idle = asyncio.run(tools.hold_call(direct, name, "scripted/do-nothing", line=BadLine(seed)))
    assert idle.end == "agent_exit"
    assert idle.db_hash == get_scenario(name).seed_db_hash


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    name=st.sampled_from(NAMES),
    seed=st.integers(0, 2**32),
    agent=st.sampled_from(["liar", "parrot", "refuse-all", "transfer-at-once"]),
)
def test_agents_that_write_nothing_end_on_a_bad_line(direct, tools, name, seed, agent):
    call = asyncio.run(tools.hold_call(direct, name, f"scripted/{agent}", line=BadLine(seed)))
    assert call.end == ("transfer" if agent == "transfer-at-once" else "agent_exit")
    assert call.db_hash == get_scenario(name).seed_db_hash


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    name=st.sampled_from([n for n in NAMES if get_scenario(n).nl_assertions]),
    seed=st.integers(0, 2**32),
)
def test_on_a_bad_line_gold_breaks_no_prohibition(direct, tools, name, seed):
    call = asyncio.run(tools.hold_call(direct, name, "scripted/gold", line=BadLine(seed)))
    claims = get_scenario(name).nl_assertions
    verdicts = tools.judged(claims, *tools.histories(call.messages))
    broken = [claim for claim, holds in zip(claims, verdicts, strict=True) if not holds]
    assert not any(EVIDENCE[claim].never and not EVIDENCE[claim].said for claim in broken)
    assert not any(EVIDENCE[claim].called for claim in broken)


@given(
    messages=st.lists(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["system", "user", "assistant"]), "content": st.text()}
        ),
        min_size=1,
    ),
    name=st.sampled_from(NAMES),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_conversation_gets_an_answer(catalog, messages, name):
    conversation, plan = parse(messages), catalog.get(name)
    assert caller(plan, conversation).text.strip()
    for agent in AGENTS.keys() - {"scripted/silent", "scripted/crash"}:
        reply = AGENTS[agent](plan, conversation)
        assert reply.text or reply.call


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(
                st.sampled_from(["role", "content", "tool_calls", "function", "type", "text"]),
                inner,
            )
        ),
    )
)
def test_malformed_messages_are_refused_and_never_crash(messages):
    with contextlib.suppress(MalformedMessages):
        assert parse(messages).entries is not None


async def positions(direct, tools, name):
    """The agent's messages before each of its responses in a call of gold."""
    call = await tools.hold_call(direct, name, "scripted/gold")
    at = [i for i, m in enumerate(call.messages) if m["role"] == "assistant"]
    return [call.messages[:i] for i in at], [call.messages[i] for i in at]


@pytest.mark.parametrize("name", ["tau2_airline__7", "tau2_airline__13", "tau2_airline__41"])
async def test_content_as_parts_is_the_same_conversation(direct, tools, name):
    for before, answer in zip(*await positions(direct, tools, name), strict=True):
        parts = copy.deepcopy(before)
        for message in parts:
            message["content"] = [{"type": "text", "text": message["content"] or ""}]
        again = await direct(
            {"model": "scripted/gold", "messages": parts}, tools.headers_of(name, "agent")
        )
        said = (again["content"] or "", [c["function"] for c in again.get("tool_calls", ())])
        first = (answer["content"] or "", [c["function"] for c in answer.get("tool_calls", ())])
        assert said == first


SYSTEM = {"role": "system", "content": "policy"}
HELLO = {"role": "user", "content": "Hello"}
HELLO_AGENT = {"role": "assistant", "content": GREETING}
REASON = {"role": "user", "content": "i want to change something"}


def gold(catalog, number, *messages):
    plan = catalog.get(f"tau2_airline__{number}")
    return AGENTS["scripted/gold"](plan, parse(list(messages)))


def looked_up(catalog, number):
    """A call of gold up to where its lookups are done."""
    messages = [SYSTEM, HELLO, HELLO_AGENT, REASON]
    for at, (name, arguments) in enumerate(catalog.get(f"tau2_airline__{number}").before):
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": f"c{at}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{at}", "content": "{}"})
    return messages


def test_the_connection_stimulus_is_no_turn_of_the_caller(catalog):
    assert gold(catalog, 11, SYSTEM, HELLO).text == GREETING
    assert gold(catalog, 11, SYSTEM).text == GREETING
    assert gold(catalog, 11, SYSTEM, {"role": "user", "content": "Hello.\nHello?"}).text == GREETING
    merged = {"role": "user", "content": "Hello\nI want to remove a passenger"}
    assert gold(catalog, 11, SYSTEM, merged).call == (
        "get_user_details",
        {"user_id": "james_patel_9828"},
    )
    later = {"role": "user", "content": "hello"}
    assert without_stimulus(parse([HELLO, HELLO_AGENT, later])).texts("user") == [(1, "hello")]


def test_an_offer_that_was_cut_off_is_made_again(catalog):
    before = looked_up(catalog, 11)
    offer = gold(catalog, 11, *before).text
    assert offer.endswith("Shall I go ahead?")
    cut = {"role": "assistant", "content": "I will change"}
    assert gold(catalog, 11, *before, cut, REASON).text == offer


def test_without_a_yes_it_asks_again_and_at_last_goes_on(catalog):
    messages = looked_up(catalog, 11)
    for _ in range(3):
        reply = gold(catalog, 11, *messages)
        assert "go ahead" in reply.text
        messages += [{"role": "assistant", "content": reply.text}]
        messages += [{"role": "user", "content": "No, do not go ahead, how much is it?"}]
    assert gold(catalog, 11, *messages).call[0] == "update_reservation_flights"


@pytest.mark.parametrize("yes", ["Yes, please go ahead.", "yes", "Yeah do it", "sure", "go ahead"])
def test_a_yes_is_understood(catalog, yes):
    messages = looked_up(catalog, 11)
    offer = {"role": "assistant", "content": gold(catalog, 11, *messages).text}
    reply = gold(catalog, 11, *messages, offer, {"role": "user", "content": yes})
    assert reply.call[0] == "update_reservation_flights"


def test_a_call_that_an_interruption_undid_is_made_again(catalog):
    messages = looked_up(catalog, 11)
    first = gold(catalog, 11, *messages[:-2]).call
    for lost in ("CANCELLED", "CANCELLED: this tool call was cancelled"):
        messages[-1] = {**messages[-1], "content": lost}
        assert gold(catalog, 11, *messages).call == first
    assert gold(catalog, 11, *messages[:-1]).call == first


def test_a_call_that_runs_is_waited_for(catalog):
    messages = looked_up(catalog, 11)
    messages[-1] = {**messages[-1], "content": "IN_PROGRESS"}
    assert gold(catalog, 11, *messages, REASON).text == WAIT


def test_a_read_that_fails_does_not_stop_gold(catalog):
    messages = looked_up(catalog, 11)
    for message in messages:
        if message["role"] == "tool":
            message["content"] = json.dumps({"status": "error", "message": "not found"})
    assert "go ahead" in gold(catalog, 11, *messages).text


def test_the_transfer_sentence_is_the_policy_s(catalog):
    messages = looked_up(catalog, 13)
    name, arguments = catalog.get("tau2_airline__13").transfer
    function = {"name": name, "arguments": json.dumps(arguments)}
    messages += [
        {"role": "assistant", "tool_calls": [{"id": "t", "function": function}]},
        {"role": "tool", "tool_call_id": "t", "content": "{}"},
    ]
    messages[0] = {"role": "system", "content": "then send the message 'WAIT. OVER TO US.' to them"}
    assert gold(catalog, 13, *messages).text == "Wait. Over to us."


def heard(catalog, number, *texts):
    """The caller's answer; `texts` alternate between agent and caller, the agent first."""
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return caller(catalog.get(f"tau2_airline__{number}"), parse([SYSTEM, *messages])).text


def test_the_caller_says_who_and_why_first(catalog):
    said = heard(catalog, 11, "Hello, how can I help you?")
    assert "James Patel" in said
    assert "james_patel_9828" in said
    assert "remove passenger" in said


@pytest.mark.parametrize(
    ("agent", "answer"),
    [
        ("I will cancel it. Shall I go ahead?", "Yes, please go ahead."),
        ("i will cancel it shall i go a head", "Yes, please go ahead."),
        ("Please confirm with yes or no", "Yes, please go ahead."),
        ("Is there anything else I can help you with?", "No, that is all. Thank you. Goodbye."),
        ("Done. Can I do any thing else?", "No, that is all. Thank you. Goodbye."),
        ("Thank you for calling. Good bye.", "Goodbye."),
        ("You are being transferred to a human agent.", "Okay, thank you."),
        (
            "May I have your user ID?",
            "Hello, my name is James Patel and my user ID is james_patel_9828.",
        ),
        (
            "What is the reservation number?",
            "I do not know the reservation number. Please look it up.",
        ),
    ],
)
def test_the_caller_answers_what_it_heard(catalog, agent, answer):
    first = heard(catalog, 11, "Hello")
    assert heard(catalog, 11, "Hello", first, agent) == answer


def test_the_caller_says_its_reason_again_when_it_was_cut_off(catalog):
    reason = catalog.get("tau2_airline__11").caller.reason
    assert heard(catalog, 11, "Hello", "Hello, my name is James", "How can I help?") == reason
    assert heard(catalog, 11, "Hello", heard(catalog, 11, "Hello"), "Tell me more") == reason
