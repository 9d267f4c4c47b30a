"""The frame around the flows: order, bounds, sums and the promise to keep a draft."""

import asyncio

import orjson
import pytest

from tau2eval_gateway.errors import GatewayError, Retry, TooMany, UpstreamError, timeout_error
from tau2eval_gateway.flows.base import Reply, Spent, Tally, sum_costs, sum_usage
from tau2eval_gateway.flows.ids import read_model_id
from tau2eval_gateway.flows.pipeline import Asked, FlowSettings, Pipeline
from tau2eval_gateway.flows.state import MemoryStateStore
from tau2eval_gateway.requests import CallContext, CallMetadata, append_messages, parse_chat_request


def asked_for(model, **more):
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}], **more}
    return parse_chat_request(orjson.dumps(body), 1_000_000)


def reply(text):
    body = {"choices": [{"message": {"role": "assistant", "content": text}}]}
    return Reply(orjson.dumps(body), body, "up")


class Upstream:
    """Answers in order; an exception among the answers is raised."""

    def __init__(self, *answers, cost=0.25):
        self.answers = list(answers)
        self.cost = cost
        self.calls = []

    async def __call__(self, request, context, key_id):
        self.calls.append((request, context, key_id))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if callable(answer):
            answer = await answer()
        metadata = CallMetadata("id", "up", self.cost)
        return Asked(reply(answer), Spent(self.cost), metadata)


class Doubling:
    """Asks twice, with a note the second time."""

    streams = True

    def __init__(self, name):
        self.name = name

    async def complete(self, request, inner, context):
        mark = context.mark()
        await inner(request)
        context.tally(self.name).own.extend(context.since(mark))
        context.tally(self.name).counters["retried"] += 1
        note = {"role": "system", "content": self.name}
        return await inner(append_messages(request, note))

    async def prepare(self, request, context):
        return append_messages(request, {"role": "system", "content": self.name})


class Failing(Doubling):
    """Fails before or after the draft."""

    def __init__(self, name, error, before=False):
        super().__init__(name)
        self.error, self.before = error, before

    async def complete(self, request, inner, context):
        if not self.before:
            await inner(request)
        raise self.error

    async def prepare(self, request, context):
        raise self.error


class Consulting(Doubling):
    """Asks a helper before the draft and after it."""

    async def complete(self, request, inner, context):
        body = {"messages": [{"role": "user", "content": "?"}]}
        await context.consult("ledger", "helper", body)
        answer = await inner(request)
        await context.consult("checker", "helper", body)
        return answer


def pipeline(ask, flow=Doubling, lessons=None, **settings):
    return Pipeline(
        ask, lambda name, plan: flow(name), MemoryStateStore(), lessons, FlowSettings(**settings)
    )


async def run(pipe, model="marina/obligations:marina/argcheck:m", context=None, **more):
    plan = read_model_id(model, {})
    context = context or CallContext("id", role="agent", session_id="s")
    return await pipe.complete(plan, asked_for(model, **more), context, "key_1")


async def test_outer_flows_go_around_inner_ones():
    ask = Upstream("1", "2", "3", "4")
    answer, context, headers = await run(pipeline(ask))
    assert answer.message["content"] == "4"
    notes = [[m["content"] for m in call[0].body["messages"][1:]] for call in ask.calls]
    assert notes == [[], ["argcheck"], ["obligations"], ["obligations", "argcheck"]]
    assert {call[0].model for call in ask.calls} == {"m"}
    assert {call[1].arm for call in ask.calls} == {"obligations+argcheck"}
    assert {call[1].role for call in ask.calls} == {"agent"}
    assert sum_costs(context.spent) == 1.0
    assert headers == {
        "x-marina-obligations": "retried=1",
        "x-marina-obligations-cost-usd": "0.5",
        "x-marina-argcheck": "retried=2",
        "x-marina-argcheck-cost-usd": "0.5",
    }


@pytest.mark.parametrize(
    ("error", "known"),
    [
        (timeout_error("total", 1.0, "openai"), False),
        (UpstreamError("x", error_code="upstream_truncated", provider="openai"), False),
        (UpstreamError("x", error_code="e", provider="openai", provider_status=500), True),
        (TooMany("x", error_code="spend_cap_reached"), True),
        (UpstreamError("x", error_code="e", provider="openai", retry=Retry.LATER), True),
    ],
)
async def test_a_call_that_failed_and_may_be_billed_makes_the_sum_unknown(error, known):
    ask = Upstream("draft", error)
    answer, context, _ = await run(pipeline(ask), "marina/argcheck:m")
    assert answer.message["content"] == "draft"
    assert (sum_costs(context.spent) is not None) is known


async def test_an_unknown_cost_is_not_a_number():
    ask = Upstream("1", "2", cost=None)
    _, context, headers = await run(pipeline(ask), "marina/argcheck:m")
    assert sum_costs(context.spent) is None
    assert headers == {"x-marina-argcheck": "retried=1"}


@pytest.mark.parametrize("error", [ValueError("x"), UpstreamError("x", error_code="e")])
async def test_a_flow_that_fails_after_the_draft_gives_the_draft(error, caplog):
    ask = Upstream("draft")
    answer, _, headers = await run(
        pipeline(ask, lambda name: Failing(name, error)), "marina/argcheck:m"
    )
    assert answer.message["content"] == "draft"
    assert headers["x-marina-argcheck"] == "failed=1"
    assert len(ask.calls) == 1


async def test_a_flow_that_breaks_before_the_draft_is_left_out():
    ask = Upstream("draft")
    flow = pipeline(ask, lambda name: Failing(name, KeyError("x"), before=True))
    answer, _, headers = await run(flow, "marina/verify:m")
    assert answer.message["content"] == "draft"
    assert headers == {"x-marina-verify": "checker-unavailable", "x-marina-lessons": "0"}


async def test_the_first_failure_is_the_callers():
    error = UpstreamError("down", error_code="upstream_error", http_status=503)
    ask = Upstream(error)
    with pytest.raises(GatewayError) as caught:
        await run(pipeline(ask))
    assert caught.value is error
    assert len(ask.calls) == 1


@pytest.mark.parametrize("count", [2, 0, True, "1", 1.5, []])
async def test_only_one_choice_and_nothing_spent(count):
    ask = Upstream()
    with pytest.raises(GatewayError) as caught:
        await run(pipeline(ask), n=count)
    assert (caught.value.error_code, caught.value.param) == ("unsupported_parameter", "n")
    assert ask.calls == []


@pytest.mark.parametrize("role", [None, 1, [], {}])
async def test_messages_without_a_role_cannot_be_read(role):
    ask = Upstream()
    body = {"model": "marina/argcheck:m", "messages": [{"role": role, "content": "Hi"}]}
    request = parse_chat_request(orjson.dumps(body), 1_000_000)
    with pytest.raises(GatewayError) as caught:
        await pipeline(ask).complete(
            read_model_id(request.model, {}), request, CallContext("id"), "k"
        )
    assert (caught.value.http_status, caught.value.param) == (400, "messages")
    assert ask.calls == []


@pytest.mark.parametrize("count", [None, 1])
async def test_one_choice_may_be_asked_for(count):
    answer, _, _ = await run(pipeline(Upstream("1", "2")), "marina/argcheck:m", n=count)
    assert answer.message["content"] == "2"


async def test_streams_are_prepared_from_the_outside_in():
    pipe = pipeline(Upstream())
    model = "marina/obligations:marina/argcheck:m"
    plan = read_model_id(model, {})
    request, _, headers = await pipe.prepare_stream(
        plan, asked_for(model, stream=True), CallContext("id"), "k"
    )
    assert [m["content"] for m in request.body["messages"][1:]] == ["obligations", "argcheck"]
    assert request.model == request.body["model"] == orjson.loads(request.raw)["model"] == "m"
    assert orjson.loads(request.raw) == request.body
    assert headers["x-marina-obligations"] == "0"


async def test_a_flow_that_breaks_while_a_stream_is_prepared_changes_nothing():
    pipe = pipeline(Upstream(), lambda name: Failing(name, ValueError("x")))
    plan = read_model_id("marina/argcheck:m", {})
    asked = asked_for("marina/argcheck:m", stream=True)
    request, _, headers = await pipe.prepare_stream(plan, asked, CallContext("id"), "k")
    assert request.body == {**asked.body, "model": "m"}
    assert headers["x-marina-argcheck"] == "failed=1"


async def test_flows_that_do_not_stream_refuse_before_anything_is_spent():
    ask = Upstream()

    class Whole(Consulting):
        streams = False

    plan = read_model_id("marina/obligations:marina/verify:m", {})
    with pytest.raises(GatewayError) as caught:
        await pipeline(ask, Whole).prepare_stream(
            plan, asked_for("marina/verify:m", stream=True), CallContext("id"), "k"
        )
    assert (caught.value.error_code, caught.value.param) == ("unsupported_parameter", "stream")
    assert ask.calls == []


async def test_helpers_have_their_role_and_less_than_the_callers_time():
    ask = Upstream("read", "draft", "judged")
    context = CallContext("id", role="agent", session_id="s", deadline_seconds=10.0, run_id="r")
    _, flow_context, _ = await run(
        pipeline(ask, Consulting, helper_seconds=3.0), "marina/argcheck:m", context
    )
    assert [call[1].role for call in ask.calls] == ["ledger", "agent", "checker"]
    assert {call[1].run_id for call in ask.calls} == {"r"}
    seconds = [call[1].deadline_seconds for call in ask.calls]
    assert seconds[0] <= 3.0
    assert 3.0 < seconds[1] <= 10.0
    assert seconds[2] <= 3.0
    assert len(flow_context.spent) == 3


async def test_a_helper_has_half_of_the_time_that_is_left():
    ask = Upstream("read", "draft", "judged")
    context = CallContext("id", deadline_seconds=10.0)
    await run(pipeline(ask, Consulting, helper_seconds=60.0), "marina/argcheck:m", context)
    seconds = [call[1].deadline_seconds for call in ask.calls]
    assert seconds[0] <= 5.0 < seconds[1]
    assert seconds[2] <= 5.0


async def test_no_time_is_left_for_a_check_after_a_late_draft():
    async def late():
        await asyncio.sleep(0.3)
        return "draft"

    ask = Upstream("read", late, "never asked")
    context = CallContext("id", deadline_seconds=0.5)
    answer, _, headers = await run(pipeline(ask, Consulting), "marina/argcheck:m", context)
    assert answer.message["content"] == "draft"
    assert headers["x-marina-argcheck"] == "failed=1"
    assert len(ask.calls) == 2


def test_sums_keep_details_and_unknown_costs():
    first = {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}, "x": None}
    second = {"prompt_tokens": 4, "completion_tokens_details": {"reasoning_tokens": 2}, "y": True}
    assert sum_usage([first, second]) == {
        "prompt_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    assert first["prompt_tokens_details"] == {"cached_tokens": 1}
    assert sum_costs([]) == 0.0
    assert sum_costs([Spent(0.5), Spent(0.0)]) == 0.5
    assert sum_costs([Spent(0.5), Spent(None)]) is None
    assert Tally().header() == "0"
