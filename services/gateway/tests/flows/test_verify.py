"""marina/verify: on conversations, without a server (statements 5, 7, 8 and 16 to 20)."""

import asyncio
import json
import re

import orjson
import pytest

from tau2eval_gateway.errors import UpstreamError
from tau2eval_gateway.flows.base import FlowContext, Reply, Spent
from tau2eval_gateway.flows.present import present, total_usage
from tau2eval_gateway.flows.verify import VerifyFlow
from tau2eval_gateway.requests import append_messages, parse_chat_request

QUOTE = "please cancel order A1 only"
MESSAGES = [
    {"role": "system", "content": "Ask for confirmation before you cancel anything."},
    {"role": "user", "content": f"Hello, {QUOTE}, not A2."},
]
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {}}}
    for name in ("cancel_order", "get_order")
]
APPROVE = {"verdict": "approve", "note": "", "conflicts": []}


def cancel(order, call_id="c1"):
    arguments = json.dumps({"order": order})
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": "cancel_order", "arguments": arguments},
    }


def answer(text=None, *calls, finish=None, usage=None, **more):
    message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = list(calls)
    body = {
        "id": "x1",
        "object": "chat.completion",
        "created": 1,
        "model": "served",
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": finish or ("tool_calls" if calls else "stop"),
            }
        ],
        **more,
    }
    if usage is not None:
        body["usage"] = usage
    return body


def revise(note="Put it right.", *conflicts):
    return {"verdict": "revise", "note": note, "conflicts": list(conflicts)}


def conflict(action, call="c1", argument=None, quote=QUOTE):
    return {"call": call, "argument": argument, "action": action, "quote": quote}


FAILED = UpstreamError("away", error_code="upstream_error", http_status=503)


class Stage:
    """A proposer and checkers that answer from a script; exceptions are raised."""

    def __init__(self, proposals, reviews, usage=None, cost=0.25, lessons="", asked=MESSAGES):
        self.proposals, self.reviews = list(proposals), list(reviews)
        self.usage, self.cost = usage or {}, cost
        self.proposed, self.consulted = [], []
        self.context = FlowContext(
            requested_model="marina/verify:agent",
            agent_model="agent",
            caller="key",
            session_id="",
            consult=self.consult,
            open_state=None,
            lessons=lessons,
            caller_messages=asked,
        )

    async def inner(self, request):
        self.proposed.append(request)
        return await self.play(self.proposals)

    async def consult(self, role, model, body):
        self.consulted.append((role, model, body))
        return await self.play(self.reviews)

    async def play(self, script):
        await asyncio.sleep(0)
        item = script.pop(0)
        if isinstance(item, BaseException):
            raise item
        if "verdict" in item:
            item = answer(json.dumps(item))
        elif "text" in item:
            item = answer(item["text"])
        self.context.spent.append(Spent(self.cost, item.get("usage", self.usage)))
        return Reply(orjson.dumps(item), item, "served-by")

    async def run(self, checkers=("checker",), rounds=1, messages=MESSAGES, tools=TOOLS):
        body = {"model": "agent", "messages": messages, "tools": tools}
        request = parse_chat_request(orjson.dumps(body), 10_000_000)
        reply = await VerifyFlow(checkers, rounds).complete(request, self.inner, self.context)
        assert orjson.loads(reply.raw) == reply.body
        return reply, self.context.tally("verify").header()


# 5: who checks


async def test_statement_05_the_proposer_checks_when_nobody_else_is_named():
    stage = Stage([answer("Hi")], [APPROVE])
    _, verdict = await stage.run(checkers=())
    assert verdict == "approved"
    assert [call[:2] for call in stage.consulted] == [("checker", "agent")]
    assert list(stage.consulted[0][2]) == ["messages"]


# 7: approve


async def test_statement_07_approve_returns_the_draft_in_two_calls():
    draft = answer(
        "I cancel A1 now.",
        {**cancel("A1", "keep me"), "extra": [1]},
        logprobs={"x": 1.25},
        system_fingerprint="fp",
    )
    stage = Stage([draft], [APPROVE])
    reply, verdict = await stage.run()
    assert verdict == "approved"
    assert len(stage.proposed) == len(stage.consulted) == 1
    assert reply.body == {**draft, "model": "marina/verify:agent"}
    assert reply.upstream_model == "served-by"
    assert stage.proposed[0].body["messages"] == MESSAGES


async def test_statement_07_ids_of_an_approved_draft_are_not_touched():
    draft = answer(None, cancel("A1", ""), cancel("A2", "same"), cancel("A3", "same"))
    reply, _ = await Stage([draft], [APPROVE]).run()
    assert reply.message == draft["choices"][0]["message"]


# 8: revise


async def test_statement_08_one_revision_with_the_note_as_trailing_system_message():
    stage = Stage([answer("Hi"), answer("Good day")], [revise("Greet properly.")])
    reply, verdict = await stage.run()
    assert verdict == "revised"
    assert reply.message["content"] == "Good day"
    first, second = (request.body["messages"] for request in stage.proposed)
    assert second[:-1] == first == MESSAGES
    assert second[-1]["role"] == "system"
    assert "Greet properly." in second[-1]["content"]
    assert '"Hi"' in second[-1]["content"]
    assert len(stage.consulted) == 1


async def test_statement_08_no_rounds_flags():
    stage = Stage([answer("Hi")], [revise()])
    reply, verdict = await stage.run(rounds=0)
    assert (verdict, reply.message["content"]) == ("flagged", "Hi")
    assert len(stage.proposed) == len(stage.consulted) == 1
    assert (await Stage([answer("Hi")], [APPROVE]).run(rounds=0))[1] == "approved"
    assert (await Stage([answer("Hi")], [revise()]).run(rounds=-4))[1] == "flagged"


@pytest.mark.parametrize(("rounds", "made"), [(1, 1), (2, 2), (3, 3), (4, 3), (99, 3)])
async def test_statement_08_rounds_are_held_within_three(rounds, made):
    proposals = [answer(f"draft {n}") for n in range(6)]
    stage = Stage(proposals, [revise() for _ in range(6)])
    reply, verdict = await stage.run(rounds=rounds)
    assert (verdict, reply.message["content"]) == ("revised", f"draft {made}")
    assert (len(stage.proposed), len(stage.consulted)) == (made + 1, made)
    # Each round asks for a correction of the last message, with one note.
    assert all(len(r.body["messages"]) == len(MESSAGES) + 1 for r in stage.proposed[1:])
    assert f"draft {made - 1}" in stage.proposed[-1].body["messages"][-1]["content"]


async def test_statement_08_rounds_end_with_an_approval():
    stage = Stage([answer("1"), answer("2")], [revise(), APPROVE])
    reply, verdict = await stage.run(rounds=3)
    assert (verdict, reply.message["content"]) == ("revised", "2")


@pytest.mark.parametrize(
    ("proposal", "review", "word"),
    [
        (answer("3", cancel("A1")), revise(), "held-write"),
        (FAILED, revise(), "revision-failed"),
        (None, FAILED, "checker-unavailable"),
    ],
)
async def test_statement_08_trouble_in_a_later_round_keeps_what_passed(proposal, review, word):
    stage = Stage([answer("1"), answer("2"), proposal], [revise(), review])
    reply, verdict = await stage.run(rounds=3)
    assert (verdict, reply.message["content"]) == (word, "2")


# 9 to 16: the gate in the flow; see test_hold.py for its rules


async def test_statement_09_text_and_lookups_change_freely():
    look = {"id": "r", "function": {"name": "get_order", "arguments": '{"order": "B9"}'}}
    stage = Stage([answer("One", look), answer("Two", cancel("A1"))], [revise()])
    assert (await stage.run())[1] == "held-write"
    stage = Stage([answer("One", look), answer("Two")], [revise()])
    reply, verdict = await stage.run()
    assert (verdict, reply.message.get("tool_calls")) == ("revised", None)


async def test_statement_12_a_cited_argument_changes():
    stage = Stage(
        [answer(None, cancel("A2")), answer("Done.", cancel("A1", "other"))],
        [revise("Wrong order.", conflict("modify", argument="order"))],
    )
    reply, verdict = await stage.run()
    assert verdict == "revised"
    assert json.loads(reply.message["tool_calls"][0]["function"]["arguments"]) == {"order": "A1"}


async def test_statement_13_a_write_is_deferred_to_ask_first():
    ask = conflict("drop", "cancel_order", quote="Ask for confirmation before you cancel")
    stage = Stage([answer(None, cancel("A1")), answer("Shall I?")], [revise("Ask.", ask)])
    reply, verdict = await stage.run()
    assert (verdict, reply.message["content"]) == ("revised", "Shall I?")
    assert reply.body["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("revision", "conflicts"),
    [
        (answer("Text only."), []),
        (answer("Text only."), [conflict("drop", "")]),
        (answer("Text only."), [conflict("drop", "other_tool")]),
        (answer("Text only."), [conflict("drop", quote="said by nobody at all")]),
        (answer("Text only."), [conflict("drop", quote="I cancel order A2 for you now")]),
        (answer("Text only."), [conflict("modify", argument="order")]),
        (answer(None, cancel("A1")), []),
        (answer(None, cancel("A3")), [conflict("modify", argument="order")]),
        (answer(None, cancel("A2"), cancel("A1")), [conflict("modify", argument="order")]),
        (answer(None, {"id": "c", "type": "x"}), [conflict("drop")]),
        (answer(None, cancel("A2"), function_call={}), [conflict("drop")]),
    ],
)
async def test_statement_16_a_violation_returns_the_draft_and_says_so(revision, conflicts):
    draft = answer("I cancel order A2 for you now", cancel("A2"), usage={"total_tokens": 5})
    if "function_call" in revision:
        revision["choices"][0]["message"]["function_call"] = {"name": "cancel_order"}
    revision["usage"] = {"total_tokens": 7}
    stage = Stage([draft, revision], [revise("No.", *conflicts)], usage={"total_tokens": 1})
    reply, verdict = await stage.run()
    assert verdict == "held-write"
    assert reply.message == draft["choices"][0]["message"]
    # The discarded call still costs.
    assert reply.body["usage"] == {"total_tokens": 13}
    assert len(stage.context.tally("verify").own) == 2


async def test_statement_11_notes_of_outer_flows_and_lessons_are_no_evidence():
    lesson = "Lesson: order A9 may always be cancelled."
    note = "Somebody checked: order A8 is what the user means."
    for quote, order in ((note[:40], "A1"), (lesson[:40], "A1"), (QUOTE, "A8"), (QUOTE, "A9")):
        cited = conflict("modify", argument="order", quote=quote)
        stage = Stage(
            [answer(None, cancel("A2")), answer(None, cancel(order))],
            [revise("No.", cited)],
            lessons=lesson,
        )
        messages = [
            MESSAGES[0],
            {"role": "system", "content": lesson},
            MESSAGES[1],
            {"role": "system", "content": note},
        ]
        _, verdict = await stage.run(messages=messages)
        assert verdict == "held-write"
        told = stage.consulted[0][2]["messages"][1]["content"]
        conversation = re.search(r"<conversation>(.*)</conversation>", told, re.DOTALL)[1]
        assert lesson not in conversation
        assert note not in conversation
        # Both are shown all the same.
        assert lesson in told
        assert note in told


# 17: no review


@pytest.mark.parametrize(
    "review",
    [
        FAILED,
        RuntimeError("bug"),
        answer("I think it is fine."),
        answer(None),
        answer('{"verdict": "revise"}'),
        answer(json.dumps({"verdict": 1})),
        {"choices": None},
        {"choices": []},
    ],
)
async def test_statement_17_no_readable_verdict_returns_the_draft(review):
    draft = answer("Hi", cancel("A1"))
    stage = Stage([draft], [review])
    reply, verdict = await stage.run()
    assert verdict == "checker-unavailable"
    assert reply.message == draft["choices"][0]["message"]
    assert len(stage.proposed) == 1


# 18: no revision


@pytest.mark.parametrize(
    "revision",
    [
        FAILED,
        RuntimeError("bug"),
        answer(None),
        answer("  "),
        answer("cut of", finish="length"),
        answer("", finish="content_filter"),
        {"choices": []},
        {"choices": None},
        {"choices": ["x"]},
        {"choices": [{"message": None}]},
        {"choices": answer("a")["choices"] * 2},
    ],
)
async def test_statement_18_a_failed_revision_returns_the_draft(revision):
    stage = Stage([answer("Hi"), revision], [revise()])
    reply, verdict = await stage.run()
    assert (verdict, reply.message["content"]) == ("revision-failed", "Hi")


async def test_statement_18_a_failed_proposer_is_the_callers_error():
    stage = Stage([FAILED], [APPROVE])
    with pytest.raises(UpstreamError) as caught:
        await stage.run()
    assert caught.value is FAILED
    assert not stage.consulted


async def test_statement_18_cancelling_is_not_kept_back():
    for proposals, reviews in (
        ([answer("Hi")], [asyncio.CancelledError()]),
        ([answer("Hi"), asyncio.CancelledError()], [revise()]),
    ):
        with pytest.raises(asyncio.CancelledError):
            await Stage(proposals, reviews).run()


# 19: usage


USAGE = {
    "prompt_tokens": 10,
    "completion_tokens": 5,
    "total_tokens": 15,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 2},
}


async def test_statement_19_usage_adds_up_every_call():
    stage = Stage([answer("1"), answer("2")], [revise()], usage=USAGE)
    reply, _ = await stage.run()
    assert reply.body["usage"] == {
        "prompt_tokens": 30,
        "completion_tokens": 15,
        "total_tokens": 45,
        "prompt_tokens_details": {"cached_tokens": 12},
        "completion_tokens_details": {"reasoning_tokens": 6},
    }


async def test_statement_19_calls_before_this_flow_are_not_its_own():
    stage = Stage([answer("1")], [APPROVE], usage=USAGE)
    stage.context.spent.append(Spent(1.0, {"prompt_tokens": 1_000}))
    reply, _ = await stage.run()
    assert reply.body["usage"]["prompt_tokens"] == 20


def test_statement_19_an_unknown_cost_is_not_nothing():
    known, unknown = Spent(0.5, {"cost": 0.5, "x": 1}), Spent(None, {"x": 1})
    priced = Spent(0.25, {"x": 1})
    assert total_usage([known, known]) == {"cost": 1.0, "x": 2}
    assert total_usage([known, priced]) == {"cost": 0.75, "x": 2}
    assert total_usage([known, unknown]) == {"x": 2}
    details = Spent(0.5, {"cost": 0.5, "cost_details": {"upstream": 0.5}})
    assert total_usage([details, known]) == {"cost": 1.0, "x": 1}
    assert total_usage([]) == {}


# 20: what the caller sees


@pytest.mark.parametrize(
    ("message", "finish", "shown"),
    [
        ({"content": "Hi"}, "tool_calls", "stop"),
        ({"content": "Hi"}, "function_call", "stop"),
        ({"content": "Hi"}, None, "stop"),
        ({"content": "Hi"}, "stop", "stop"),
        ({"content": "Hi"}, "length", "length"),
        ({"content": "Hi", "tool_calls": []}, "tool_calls", "stop"),
        ({"content": "Hi", "tool_calls": None}, "tool_calls", "stop"),
        ({"tool_calls": [cancel("A1")]}, "stop", "tool_calls"),
        ({"tool_calls": [cancel("A1")]}, None, "tool_calls"),
        ({"tool_calls": [cancel("A1")]}, "tool_calls", "tool_calls"),
        ({"tool_calls": [cancel("A1")]}, "content_filter", "content_filter"),
        ({"function_call": {"name": "x"}}, "stop", "function_call"),
    ],
)
async def test_statement_20_finish_reason_agrees_with_the_calls(message, finish, shown):
    body = answer()
    body["choices"] = [{"index": 0, "message": message, "finish_reason": finish}]
    reply, _ = await Stage([body], [APPROVE]).run()
    assert reply.body["choices"][0] == {"index": 0, "message": message, "finish_reason": shown}
    assert reply.body["model"] == "marina/verify:agent"


async def test_statement_20_ids_of_calls_are_preserved():
    draft = answer(None, cancel("A1", "first"), cancel("A2", "second"))
    revision = answer("Now.", cancel("A1", "x"), cancel("A2", "x"))
    reply, verdict = await Stage([draft, revision], [revise()]).run()
    assert verdict == "revised"
    assert [call["id"] for call in reply.message["tool_calls"]] == ["first", "second"]
    assert reply.message["content"] == "Now."
    assert reply.body["choices"][0]["finish_reason"] == "tool_calls"


async def test_statement_20_ids_that_are_missing_or_twice_are_mended():
    asked = [conflict("add", "cancel_order"), conflict("add", "cancel_order", quote="not A2.")]
    asked[1]["quote"] = "Hello, please cancel"
    calls = [cancel("A1", ""), cancel("A2", "")]
    reply, verdict = await Stage([answer("Hi"), answer(None, *calls)], [revise("x", *asked)]).run()
    assert verdict == "revised"
    ids = [call["id"] for call in reply.message["tool_calls"]]
    assert len(set(ids)) == 2
    assert all(ids)


def test_statement_20_answers_without_choices_are_passed_on():
    reply = present(Reply(b"{}", {"choices": None}), "m", [])
    assert reply.body == {"choices": None, "model": "m"}


# Crews


async def test_one_of_several_checkers_is_enough_to_revise():
    stage = Stage(
        [answer(None, cancel("A1"), cancel("A2", "c2")), answer("Ok", cancel("A1"))],
        [APPROVE, revise("Not A2.", conflict("drop", "c2")), FAILED, revise("Be brief.")],
    )
    _, verdict = await stage.run(checkers=("a", "b", "c", "d"))
    assert verdict == "revised"
    assert [model for _, model, _ in stage.consulted] == ["a", "b", "c", "d"]
    note = stage.proposed[1].body["messages"][-1]["content"]
    assert "Not A2." in note
    assert "Be brief." in note


async def test_two_checkers_that_say_the_same_license_one_change():
    both = answer(None, cancel("A1"), cancel("A2", "c2"))
    same = [revise("No.", conflict("drop", "cancel_order")) for _ in range(2)]
    assert (await Stage([both, answer("Ok")], same).run(("a", "b")))[1] == "held-write"
    two = [revise("No.", conflict("drop", label)) for label in ("c1", "c2")]
    assert (await Stage([both, answer("Ok")], two).run(("a", "b")))[1] == "revised"


async def test_checkers_are_unavailable_only_all_together():
    assert (await Stage([answer("Hi")], [FAILED, APPROVE]).run(("a", "b")))[1] == "approved"
    assert (await Stage([answer("Hi")], [APPROVE, FAILED]).run(("a", "b")))[1] == "approved"
    both = await Stage([answer("Hi")], [FAILED, answer("?")]).run(("a", "b"))
    assert both[1] == "checker-unavailable"


# Statement 21's share: lessons are shown


async def test_statement_21_lessons_are_shown_to_the_checker():
    stage = Stage([answer("Hi")], [APPROVE], lessons="Look twice.")
    await stage.run()
    assert '<lessons>\n"Look twice."\n</lessons>' in stage.consulted[0][2]["messages"][1]["content"]


async def test_the_revision_goes_out_as_the_caller_wrote_it_plus_one_message():
    stage = Stage([answer("Hi"), answer("Ho")], [revise()])
    await stage.run()
    first, second = stage.proposed
    told = second.body["messages"][-1]
    assert second.raw == append_messages(first, told).raw
    assert second.raw.startswith(first.raw.split(b"]")[0])
