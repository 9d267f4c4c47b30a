"""Further attempts: only where no upstream has begun to serve the call, each with its own row."""

from __future__ import annotations

import asyncio
import email.utils
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_gateway.errors import (
    GatewayError,
    Retry,
    TooMany,
    UpstreamError,
    provider_error,
    timeout_error,
)
from tau2eval_gateway.model_list import Deployment
from tau2eval_gateway.retries import first_answer, retry_after_seconds
from tau2eval_gateway.routes import Route, Router


def routes(count):
    return [
        Route(Deployment("m", f"openai/m{n}", "http://h/v1"), f"openai/m{n}") for n in range(count)
    ]


class Asked:
    """Attempts that fail as they are told to, then answer."""

    def __init__(self, *failures):
        self.failures = list(failures)
        self.models = []
        self.left = []
        self.pauses = []

    async def attempt(self, route, left):
        self.models.append(route.model.removeprefix("openai/"))
        self.left.append(left)
        if self.failures:
            raise self.failures.pop(0)
        return "answer"

    async def pause(self, seconds):
        self.pauses.append(seconds)

    async def run(self, deployments=1, retries=2, total=60.0):
        return await first_answer(
            routes(deployments),
            self.attempt,
            retries=retries,
            total_seconds=total,
            pause=self.pause,
        )


def unserved(**more):
    return UpstreamError("x", error_code="away", provider="p", retry=Retry.LATER, **more)


async def test_pauses_grow_on_one_deployment():
    asked = Asked(unserved(), unserved())
    assert await asked.run() == "answer"
    assert asked.models == ["m0", "m0", "m0"]
    first, second = asked.pauses
    assert 0.15 < first < 0.32
    assert 0.35 < second < 0.63


async def test_other_deployments_come_first_and_at_once():
    asked = Asked(unserved(), unserved())
    assert await asked.run(deployments=3) == "answer"
    assert asked.models == ["m0", "m1", "m2"]
    assert asked.pauses == []
    asked = Asked(unserved(retry_after="3"), unserved(retry_after="1"))
    assert await asked.run(deployments=2) == "answer"
    # Both have been asked: the one that is ready earlier is asked again, when it is.
    assert asked.models == ["m0", "m1", "m1"]
    assert 0.9 < asked.pauses[0] <= 1.0


@pytest.mark.parametrize(
    "failure",
    [
        UpstreamError("x", error_code="upstream_connection_error", provider="p"),
        timeout_error("first_byte", 1, "p"),
        timeout_error("total", 1, "p"),
        provider_error(500, b"", provider="p"),
        provider_error(502, b"", provider="p"),
        provider_error(504, b"", provider="p"),
        provider_error(400, b'{"error": {"message": "no"}}', provider="p"),
        provider_error(401, b'{"error": {"message": "no"}}', provider="p"),
        # The same words in a stream that has begun.
        provider_error(200, b'{"error": {"message": "no", "code": 503}}', provider="p"),
        provider_error(200, b'{"error": {"code": "rate_limit_exceeded"}}', provider="p"),
    ],
)
async def test_what_may_have_been_served_is_not_asked_for_again(failure):
    asked = Asked(failure)
    with pytest.raises(GatewayError) as caught:
        await asked.run(deployments=3)
    assert caught.value is failure
    assert asked.models == ["m0"]


async def test_a_limit_without_an_end_sends_the_call_elsewhere_only():
    limit = provider_error(429, b'{"error": {"message": "slow"}}', provider="p")
    asked = Asked(limit)
    assert await asked.run(deployments=2) == "answer"
    assert asked.models == ["m0", "m1"]
    again = Asked(limit, limit, limit)
    with pytest.raises(TooMany):
        await again.run(deployments=2, retries=5)
    assert again.models == ["m0", "m1"]


async def test_a_long_pause_is_the_callers():
    asked = Asked(unserved(retry_after="6"))
    with pytest.raises(UpstreamError) as caught:
        await asked.run()
    assert caught.value.retry_after == "6"
    assert asked.models == ["m0"]
    asked = Asked(unserved(retry_after="4"))
    with pytest.raises(UpstreamError):
        await asked.run(total=2.0)
    assert asked.pauses == []


async def test_our_own_limits_do_not_hide_the_first_failure():
    asked = Asked(unserved(), TooMany("full", error_code="too_many_calls"))
    with pytest.raises(UpstreamError) as caught:
        await asked.run()
    assert caught.value.error_code == "away"


async def test_zero_retries():
    asked = Asked(unserved())
    with pytest.raises(UpstreamError):
        await asked.run(deployments=3, retries=0)
    assert asked.models == ["m0"]


@given(
    failures=st.lists(
        st.builds(
            lambda retry, after, kind: kind(
                "x", error_code="e", provider="p", retry=retry, retry_after=after
            ),
            st.sampled_from(list(Retry)),
            st.sampled_from([None, "0", "1", "6", "nonsense", "-1"]),
            st.sampled_from([UpstreamError, TooMany]),
        ),
        max_size=12,
    ),
    deployments=st.integers(1, 4),
    retries=st.integers(0, 6),
)
def test_attempts_are_bounded_whatever_fails(failures, deployments, retries):
    asked = Asked(*failures)
    try:
        assert asyncio.run(asked.run(deployments, retries)) == "answer"
        given = None
    except GatewayError as error:
        given = error
    made = len(asked.models)
    assert made <= retries + 1
    assert made <= len(failures) + 1
    assert all(pause <= 20 for pause in asked.pauses)
    assert all(left <= 60.0 for left in asked.left)
    for failure in failures[: made - 1]:
        assert failure.retry is not Retry.NO
    if given is not None:
        assert given is failures[made - 1]


def test_retry_after():
    assert retry_after_seconds("3") == 3.0
    assert retry_after_seconds("0.5") == 0.5
    for nothing in (None, "", "soon", "-1", "nan", "inf", "1e999"):
        assert retry_after_seconds(nothing) is None
    date = email.utils.formatdate(time.time() + 100, usegmt=True)
    found = retry_after_seconds(date)
    assert found is not None
    assert 90 < found <= 101
    assert retry_after_seconds(email.utils.formatdate(0, usegmt=True)) == 0.0
    assert not math.isnan(retry_after_seconds("Wed, 21 Oct 2015 07:28:00 -0000") or 0.0)


def test_turns_rotate_and_name_all_others():
    router = Router([Deployment("m", f"openai/m{n}", "http://h/v1") for n in range(3)])
    firsts = [[route.model for route in router.find_all("m")] for _ in range(4)]
    assert firsts[0] == ["openai/m0", "openai/m1", "openai/m2"]
    assert firsts[1] == ["openai/m1", "openai/m2", "openai/m0"]
    assert firsts[3] == firsts[0]


@pytest.fixture
def two(wire):
    base = f"http://{wire.address}/v1"
    return [Deployment("m", "openai/first", base), Deployment("m", "openai/second", base)]


async def away(line):
    await line.error("503 Away", {"error": {"message": "overloaded"}})


async def statuses(gateway, count):
    async with asyncio.timeout(20):
        while len(rows := await gateway.rows()) < count:
            await asyncio.sleep(0.01)
    rows.sort(key=lambda row: row["time"])
    return [(row["model"], row["model_served"], row["status"]) for row in rows]


async def test_s16_failover_names_and_bills_the_model_that_answered(gateway_of, two, wire, ask):
    wire.scripts["first"] = away
    async with gateway_of(two) as gateway:
        outcome = await ask(gateway, "m", True)
        assert outcome.whole
        if outcome.headers:
            assert outcome.headers["x-marina-upstream-model"] == "second"
        rows = await gateway.rows()
        assert await statuses(gateway, 2) == [
            ("m", "first", "upstream_error"), ("m", "served", "ok")
        ]  # fmt: skip
        by_status = {row["status"]: row for row in rows}
        assert by_status["upstream_error"]["cost_usd"] in (None, 0.0)
        assert by_status["upstream_error"]["completion_tokens"] == 0
        assert by_status["ok"]["cost_usd"] == 0.001
        assert by_status["ok"]["request_id"] == by_status["upstream_error"]["request_id"]


async def test_s15_a_flapping_deployment_is_served_around_and_used_again(
    gateway_of, two, wire, kit
):
    async with gateway_of(two) as gateway:
        wire.scripts["first"] = away
        for _ in range(6):
            assert (await kit.raw(gateway, "m", False)).whole
        assert wire.attempts.count("second") == 6
        del wire.scripts["first"]
        wire.attempts.clear()
        for _ in range(6):
            assert (await kit.raw(gateway, "m", False)).whole
        assert wire.attempts.count("first") == 3
        assert len(wire.attempts) == 6


async def test_a_refused_connection_is_tried_elsewhere(gateway_of, wire, kit):
    gone = Deployment("m", "openai/first", "http://127.0.0.1:1/v1")
    there = Deployment("m", "openai/second", f"http://{wire.address}/v1")
    async with gateway_of([gone, there]) as gateway:
        for stream in (True, False):
            assert (await kit.raw(gateway, "m", stream)).whole
        found = await statuses(gateway, 3)
        assert [status for _, _, status in found].count("upstream_connection_error") == 1


async def test_a_refused_connection_is_tried_three_times(gateway_of, kit):
    async with gateway_of([Deployment("m", "openai/m", "http://127.0.0.1:1/v1")]) as gateway:
        outcome = await kit.raw(gateway, "m", False)
        assert (outcome.status, outcome.code) == (502, "upstream_connection_error")
        assert len(await statuses(gateway, 3)) == 3


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_kept_connection_that_closes_is_no_failure(gateway_of, wire, kit, end, stream):
    async def script(line):
        if line.requests == 1:
            await line.whole()
        elif end == "close":
            line.close()
        else:
            line.reset()

    wire.scripts["m"] = script
    async with gateway_of([Deployment("m", "openai/m", f"http://{wire.address}/v1")]) as gateway:
        assert (await kit.raw(gateway, "m", stream)).whole
        # The upstream takes the second request on the old line and hangs up without a word.
        assert (await kit.raw(gateway, "m", stream)).whole
        assert len(wire.lines) == 2
        found = await statuses(gateway, 3)
        assert [status for _, _, status in found] == ["ok", "upstream_connection_error", "ok"]


async def test_a_kept_connection_that_breaks_off_in_its_head_is_a_failure(gateway_of, wire, kit):
    async def script(line):
        if line.requests == 1:
            await line.whole()
        else:
            await line.send(b"HTTP/1.1 200 OK\r\nContent-Ty")
            await asyncio.sleep(0.05)
            line.close()

    wire.scripts["m"] = script
    async with gateway_of([Deployment("m", "openai/m", f"http://{wire.address}/v1")]) as gateway:
        assert (await kit.raw(gateway, "m", False)).whole
        assert (await kit.raw(gateway, "m", False)).code == "upstream_connection_error"
        assert len(wire.attempts) == 2


async def test_a_caller_that_leaves_during_a_pause_ends_the_attempts(gateway_of, wire, h):
    async def limited(line):
        await line.error("503 Away", b"", "Retry-After: 0.4")

    wire.scripts["m"] = limited
    async with gateway_of([Deployment("m", "openai/m", f"http://{wire.address}/v1")]) as gateway:
        task = asyncio.ensure_future(gateway.post(h.ask("m")).__aenter__())
        await statuses(gateway, 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.sleep(0.8)
        assert gateway.service._core._calls == 0
        assert len(wire.attempts) == 1


@pytest.fixture
def gateway_of(h, tmp_path):
    def make(deployments, **settings):
        return h.gateway(tmp_path, deployments, **settings)

    return make
