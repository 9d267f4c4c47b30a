"""MARINA_DAILY_SPEND_CAP_USD: what callers see, and what is never asked of an upstream."""

import asyncio
import json
from contextlib import AsyncExitStack

import grpc
import pytest
from aiohttp import web
from sqlalchemy.exc import OperationalError

from tau2eval.gateway.v1 import gateway_pb2
from tau2eval_common.errors import error_info
from tau2eval_gateway.estimates import CostEstimates
from tau2eval_gateway.ledger import Ledger
from tau2eval_gateway.ledger_store import LedgerStore
from tau2eval_gateway.model_list import Deployment
from tau2eval_gateway.prices import Prices
from tau2eval_gateway.requests import CallContext, parse_chat_request
from tau2eval_gateway.reservation import Reservations
from tau2eval_gateway.routes import Route
from tau2eval_gateway.upstreams.base import UpstreamCall

# Only the output costs: a dollar a token, so that max_tokens is what a call reserves.
PRICES = Prices(0.0, 1.0)


def deployments(upstream, prices=PRICES):
    return [Deployment("ext/*", "openai/*", f"http://{upstream.address}/v1", prices=prices)]


def capped(cap, **more):
    return {"MARINA_OPEN_API": "true", "MARINA_DAILY_SPEND_CAP_USD": str(cap), **more}


def usage(tokens, **more):
    return {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": tokens + 1, **more}


@pytest.fixture
def held(upstream, h):
    """An upstream that answers when it is let, and costs 1 dollar then."""
    free = asyncio.Event()

    async def reply(request, body):
        await free.wait()
        return web.json_response(h.completion(usage=usage(1)))

    upstream.replies["x"] = reply
    return free


async def post(gateway, body, **options):
    async with gateway.post(body, **options) as response:
        return response.status, await response.json(), dict(response.headers)


@pytest.mark.parametrize("gateways", [1, 3])
async def test_parallel_requests_cannot_pass_the_cap_together(
    upstream, h, tmp_path, held, database_url, gateways
):
    """As in BerriAI/litellm#34732, where all were admitted on a budget for one."""
    seed = capped(7, DATABASE_URL=database_url)
    async with AsyncExitStack() as stack:
        running = [
            await stack.enter_async_context(
                h.gateway(tmp_path / str(at), deployments(upstream), seed=seed)
            )
            for at in range(gateways)
        ]
        body = h.ask("ext/x", max_tokens=2)
        asked = [
            asyncio.create_task(post(running[at % gateways], body)) for at in range(10 * gateways)
        ]
        refused = 10 * gateways - 3
        async with asyncio.timeout(60):
            while sum(task.done() for task in asked) < refused:
                await asyncio.sleep(0.01)
        assert len(upstream.bodies) == 3
        held.set()
        results = await asyncio.gather(*asked)
        assert sorted(status for status, _, _ in results) == [200] * 3 + [429] * refused
        error = next(answer for status, answer, _ in results if status == 429)["error"]
        assert (error["code"], error["type"]) == ("spend_cap_reached", "insufficient_quota")
        assert "MARINA_DAILY_SPEND_CAP_USD is 7" in error["message"]
        assert error["param"] is None
        rows = [row for one in running[:1] for row in await one.rows()]
        for one in running[1:]:
            await one.service._ledger.flush()
        today = await running[0].service._ledger.today()
        assert (today.counted_usd, today.reserved_usd) == (3.0, 0.0)
        assert all(row["counted_usd"] == 1.0 for row in rows)


async def test_the_real_cost_takes_the_place_of_the_worst_case(upstream, h, tmp_path):
    upstream.replies["x"] = upstream.answer(h.completion(usage=usage(1)))
    async with h.gateway(tmp_path, deployments(upstream), seed=capped(10)) as gateway:
        body = h.ask("ext/x", max_tokens=4)
        # 4 are reserved each time and 1 is spent, so the seventh ends at 7 and the eighth may not.
        statuses = [(await post(gateway, body))[0] for _ in range(9)]
        assert statuses == [200] * 7 + [429] * 2
        _, answer, headers = await post(gateway, body)
        assert "too small for this call" in answer["error"]["message"]
        assert 1 <= int(headers["Retry-After"]) <= 86_400
        assert (await post(gateway, h.ask("ext/x", max_tokens=3)))[0] == 200
        assert len(upstream.bodies) == 8


async def test_failed_calls_give_their_place_back(upstream, h, tmp_path):
    upstream.replies["x"] = upstream.answer(h.error_body("no"), status=400)
    upstream.replies["y"] = upstream.answer(h.completion(usage=usage(5)))
    async with h.gateway(tmp_path, deployments(upstream), seed=capped(5)) as gateway:
        for _ in range(3):
            assert (await post(gateway, h.ask("ext/x", max_tokens=5)))[0] == 400
        assert (await post(gateway, h.ask("ext/y", max_tokens=5)))[0] == 200
        assert (await post(gateway, h.ask("ext/y", max_tokens=1)))[0] == 429
        rows = await gateway.rows()
        assert [row["counted_usd"] for row in rows] == [0.0, 0.0, 0.0, 5.0]


@pytest.mark.parametrize("stream", [False, True])
async def test_over_grpc(upstream, h, tmp_path, stream):
    async with h.gateway(tmp_path, deployments(upstream), seed=capped(1)) as gateway:
        body = json.dumps(h.ask("ext/x", max_tokens=2)).encode()

        async def ask():
            if not stream:
                request = gateway_pb2.ChatCompletionRequest(body_json=body)
                return await gateway.chat.ChatCompletion(request, timeout=20)
            request = gateway_pb2.StreamChatCompletionRequest(body_json=body)
            return [part async for part in gateway.chat.StreamChatCompletion(request, timeout=20)]

        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ask()
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        info = error_info(caught.value)
        assert info.reason == "SPEND_CAP_REACHED"
        assert info.metadata["http_status"] == "429"
        assert upstream.bodies == []
        spend = await gateway.spend.ListDailySpend(gateway_pb2.ListDailySpendRequest(), timeout=20)
        assert (spend.cap_usd, spend.spent_today_usd, spend.reserved_usd) == (1.0, 0.0, 0.0)
        assert await gateway.rows() == []


async def test_spend_tells_what_is_reserved(upstream, h, tmp_path, held):
    async with h.gateway(tmp_path, deployments(upstream), seed=capped(5)) as gateway:
        task = asyncio.create_task(post(gateway, h.ask("ext/x", max_tokens=2)))
        await asyncio.wait_for(upstream.arrived.wait(), 10)
        request = gateway_pb2.ListDailySpendRequest()
        spend = await gateway.spend.ListDailySpend(request, timeout=20)
        assert (spend.spent_today_usd, spend.reserved_usd) == (0.0, 2.0)
        held.set()
        assert (await task)[0] == 200
        spend = await gateway.spend.ListDailySpend(request, timeout=20)
        assert (spend.spent_today_usd, spend.reserved_usd) == (1.0, 0.0)
        (row,) = spend.rows
        assert (row.cost_usd, row.calls_without_cost, row.calls_estimated) == (1.0, 0, 0)


async def test_a_stream_that_is_left_counts_by_an_estimate(upstream, h, tmp_path):
    """As in BerriAI/litellm#33736, where it got no row at all."""
    upstream.replies["x"] = upstream.stream(h.chunk({"content": "a" * 16}), h.chunk({}),
                                            pause_after=1)  # fmt: skip
    async with h.gateway(tmp_path, deployments(upstream), seed=capped(10)) as gateway:
        async with gateway.post(h.ask("ext/x", stream=True, max_tokens=8)) as response:
            await response.content.readany()
            response.close()
        row = await gateway.first_row()
        assert (row["status"], row["estimated"]) == ("cancelled", True)
        assert (row["completion_tokens"], row["cost_usd"], row["counted_usd"]) == (4, 4.0, 4.0)
        today = await gateway.service._ledger.today()
        assert (today.counted_usd, today.reserved_usd) == (4.0, 0.0)
        assert (await post(gateway, h.ask("ext/x", max_tokens=7)))[0] == 429


async def test_a_stream_without_usage_counts_by_an_estimate(upstream, h, tmp_path):
    """As in BerriAI/litellm#35290, where it was not billed; its bytes stay the caller's."""
    upstream.replies["x"] = upstream.stream(h.chunk({"content": "a" * 16}), h.chunk({}, "stop"))
    async with h.gateway(tmp_path, deployments(upstream), seed=capped(10)) as gateway:
        body = json.dumps(h.ask("ext/x", stream=True, max_tokens=8)).encode()
        async with gateway.post(body, headers={"Content-Type": "application/json"}) as response:
            assert b"[DONE]" in await response.read()
        assert upstream.bodies == [body.replace(b"ext/x", b"x")]
        (row,) = await gateway.rows()
        assert (row["status"], row["estimated"], row["cost_usd"]) == ("ok", True, 4.0)
        request = gateway_pb2.ListDailySpendRequest()
        (item,) = (await gateway.spend.ListDailySpend(request, timeout=20)).rows
        assert (item.calls_estimated, item.cost_estimated_usd, item.cost_usd) == (1, 4.0, 4.0)


async def test_an_unpriced_model_does_not_make_the_cap_meaningless(upstream, h, tmp_path):
    answer = h.completion()
    answer["usage"] = usage(3)
    upstream.replies["x"] = upstream.answer(answer)
    async with h.gateway(
        tmp_path, deployments(upstream, None), seed=capped(1), unpriced_call_usd=0.4
    ) as gateway:
        statuses = [(await post(gateway, h.ask("ext/x")))[0] for _ in range(4)]
        assert statuses == [200, 200, 429, 429]
        rows = await gateway.rows()
        assert [(row["cost_usd"], row["counted_usd"]) for row in rows] == [(None, 0.4)] * 2
        spend = await gateway.spend.ListDailySpend(gateway_pb2.ListDailySpendRequest(), timeout=20)
        assert spend.spent_today_usd == pytest.approx(0.8)
        assert (spend.rows[0].cost_usd, spend.rows[0].calls_without_cost) == (0.0, 2)


async def test_every_call_of_a_control_flow_reserves_for_itself(upstream, h, tmp_path):
    """The checker finds no place under the cap: the draft is there already, and is kept."""
    upstream.replies["a"] = upstream.answer(h.completion("draft", usage=usage(2)))
    upstream.replies["b"] = upstream.answer(h.completion("{}", usage=usage(2)))
    async with h.gateway(
        tmp_path, deployments(upstream), seed=capped(8), reserve_output_tokens=7
    ) as gateway:
        status, answer, headers = await post(gateway, h.ask("marina/verify:ext/a+ext/b"))
        assert status == 200, answer
        assert answer["choices"][0]["message"]["content"] == "draft"
        assert headers["x-marina-verify"] == "checker-unavailable"
        assert len(upstream.bodies) == 1
        status, answer, _ = await post(gateway, h.ask("marina/verify:ext/a+ext/b"))
        assert (status, answer["error"]["code"]) == (429, "spend_cap_reached")
        assert len(upstream.bodies) == 1


async def test_a_cap_without_a_ledger_is_kept_by_refusing(upstream, h, tmp_path, monkeypatch):
    upstream.replies["x"] = upstream.answer(h.completion(usage=usage(1)))

    async def away(*_):
        raise OperationalError("select", {}, Exception("disk I/O error"))

    async with h.gateway(tmp_path, deployments(upstream), seed=capped(5)) as gateway:
        with monkeypatch.context() as broken:
            broken.setattr(LedgerStore, "reserve", away)
            status, answer, headers = await post(gateway, h.ask("ext/x", max_tokens=1))
            assert (status, answer["error"]["code"]) == (503, "ledger_unavailable")
            assert headers["Retry-After"] == "5"
            request = gateway_pb2.ChatCompletionRequest(
                body_json=json.dumps(h.ask("ext/x", max_tokens=1)).encode()
            )
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await gateway.chat.ChatCompletion(request, timeout=20)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert upstream.bodies == []
        assert (await post(gateway, h.ask("ext/x", max_tokens=1)))[0] == 200


async def test_without_a_cap_nothing_is_asked_of_the_database(upstream, h, tmp_path, monkeypatch):
    upstream.replies["x"] = upstream.answer(h.completion(usage=usage(1)))

    async def never(*_):
        raise AssertionError("a reservation without a cap")

    monkeypatch.setattr(LedgerStore, "reserve", never)
    async with h.gateway(tmp_path, deployments(upstream)) as gateway:
        assert (await post(gateway, h.ask("ext/x")))[0] == 200
        spend = await gateway.spend.ListDailySpend(gateway_pb2.ListDailySpendRequest(), timeout=20)
        assert not spend.HasField("cap_usd")
        assert spend.spent_today_usd == 1.0


async def test_a_restarted_gateway_knows_what_models_cost(upstream, h, tmp_path):
    answer = h.completion()
    answer["usage"] = usage(1, cost=0.75)
    upstream.replies["x"] = upstream.answer(answer)
    for wanted in (200, 429):
        async with h.gateway(
            tmp_path, deployments(upstream, None), seed=capped(1), unpriced_call_usd=0.1
        ) as gateway:
            assert (await post(gateway, h.ask("ext/x")))[0] == wanted


async def test_a_cap_of_nothing_lets_what_is_free(upstream, h, tmp_path):
    upstream.replies["x"] = upstream.answer(h.completion())
    async with h.gateway(
        tmp_path, deployments(upstream, Prices(0.0, 0.0)), seed=capped(0)
    ) as gateway:
        assert (await post(gateway, h.ask("ext/x")))[0] == 200
    async with h.gateway(tmp_path, deployments(upstream), seed=capped(0)) as gateway:
        assert (await post(gateway, h.ask("ext/x")))[0] == 429


class Priced:
    def price(self, call, usage):
        return float(usage.completion_tokens)


def make_call(tokens):
    raw = json.dumps({"model": "m", "messages": [{}], "max_tokens": tokens}).encode()
    return UpstreamCall(
        Route(Deployment("m", "openai/m"), "openai/m"), parse_chat_request(raw, 1000), 1.0, 600.0
    )


@pytest.fixture
async def ledger(tmp_path):
    found = Ledger("", tmp_path)
    await found.start()
    yield found
    await found.stop()


class Clock:
    # 2026-01-31 23:59:00 UTC.
    now = 1769903940.0

    def __call__(self):
        return self.now


async def test_the_day_ends_at_midnight_utc(ledger, row):
    from tau2eval_gateway.call import CallRecord, Spend

    clock = Clock()
    estimates = CostEstimates(output_tokens=1, unpriced_usd=0.0)
    reservations = Reservations(ledger, estimates, 5.0, clock)
    call = make_call(5)
    before = await reservations.reserve(call, Priced())
    with pytest.raises(Exception, match="in progress") as caught:
        await reservations.reserve(make_call(1), Priced())
    assert caught.value.retry_after == "1"
    clock.now += 61
    after = await reservations.reserve(make_call(5), Priced())
    # The call of yesterday ends today, and is booked on its own day.
    record = CallRecord(
        call,
        Priced(),
        CallContext(request_id="q"),
        "k",
        Spend(ledger, estimates, before),
        lambda: None,
    )
    record.take_answer({"usage": {"prompt_tokens": 1, "completion_tokens": 4}})
    record.succeed()
    (found,) = await ledger.rows()
    assert (found["day"], found["call_id"]) == ("2026-01-31", before.call_id)
    assert (await ledger.store.standing("2026-01-31", clock.now)).counted_usd == 4.0
    today = await ledger.store.standing("2026-02-01", clock.now)
    assert (today.counted_usd, today.reserved_usd) == (0.0, 5.0)
    reservations.release(after)
    await ledger.flush()
    assert (await ledger.store.standing("2026-02-01", clock.now)).reserved_usd == 0.0
    clock.now -= 61
    with pytest.raises(Exception, match="too small") as caught:
        await reservations.reserve(make_call(2), Priced())
    assert caught.value.retry_after == "60"


async def test_a_caller_that_leaves_while_it_waits_keeps_no_place(ledger, monkeypatch):
    reserve, entered, go = LedgerStore.reserve, asyncio.Event(), asyncio.Event()

    async def slow(*arguments):
        entered.set()
        await go.wait()
        return await reserve(*arguments)

    monkeypatch.setattr(LedgerStore, "reserve", slow)
    reservations = Reservations(ledger, CostEstimates(output_tokens=1, unpriced_usd=0.0), 5.0)
    asked = [asyncio.create_task(reservations.reserve(make_call(2), Priced())) for _ in range(4)]
    await entered.wait()
    for task in asked[1:]:
        task.cancel()
    await asyncio.gather(*asked[1:], return_exceptions=True)
    go.set()
    await asked[0]
    await reservations.stop()
    await ledger.flush()
    assert (await ledger.today()).reserved_usd == 2.0


async def test_calls_that_ask_together_share_a_transaction(ledger, monkeypatch):
    reserve, batches = LedgerStore.reserve, []

    async def counting(store, wanted, *rest):
        batches.append(len(wanted))
        return await reserve(store, wanted, *rest)

    monkeypatch.setattr(LedgerStore, "reserve", counting)
    reservations = Reservations(ledger, CostEstimates(output_tokens=1, unpriced_usd=0.0), 500.0)
    await asyncio.gather(*(reservations.reserve(make_call(2), Priced()) for _ in range(64)))
    assert sum(batches) == 64
    assert len(batches) <= 3
    assert (await ledger.today()).reserved_usd == 128.0
