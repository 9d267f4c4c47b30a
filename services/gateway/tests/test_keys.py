"""Keys and how often they may ask."""

import hmac
import json

import grpc
import pytest

from tau2eval.gateway.v1 import gateway_pb2
from tau2eval_common.errors import error_info
from tau2eval_gateway import keys as module
from tau2eval_gateway import limits
from tau2eval_gateway.errors import KeyRefused, TooMany
from tau2eval_gateway.keys import KeyRing
from tau2eval_gateway.limits import RateLimiter
from tau2eval_gateway.model_list import Deployment


def bearer(key):
    return f"Bearer {key}"


def test_white_space_and_empty_items_do_not_count():
    ring = KeyRing(" first ,, second\t,\n,with space ", False)
    ids = [ring.authenticate(bearer(key)) for key in ("first", "second", "with space")]
    assert len(set(ids)) == 3
    assert all(one.startswith("key_") and len(one) == 12 for one in ids)
    assert ring.authenticate("bearer   first ") == ids[0]
    for wrong in ("", "First", "first,", "firs", "first second", "withspace", ","):
        with pytest.raises(KeyRefused):
            ring.authenticate(bearer(wrong))
    for other in (None, "", "Basic first", "first", "Bearerfirst"):
        with pytest.raises(KeyRefused) as caught:
            ring.authenticate(other)
        assert caught.value.error_code == "missing_api_key"


@pytest.mark.parametrize("keys", ["", " ", ",", " , ,\t"])
def test_no_keys(keys):
    with pytest.raises(KeyRefused) as caught:
        KeyRing(keys, False).authenticate(bearer(""))
    assert caught.value.error_code == "no_keys_configured"
    assert KeyRing(keys, True).authenticate(None) == "open"


def test_keys_close_an_open_api():
    with pytest.raises(KeyRefused):
        KeyRing("k", True).authenticate(None)


@pytest.mark.parametrize(
    "header",
    [
        "schlüssel-☃",
        # As aiohttp reads bytes that are no UTF-8.
        "schlüssel".encode("latin-1").decode("utf-8", "surrogateescape"),
        b"\xff\xfe raw".decode("utf-8", "surrogateescape"),
    ],
)
def test_keys_may_hold_any_bytes(header):
    ring = KeyRing("schlüssel-☃,schlüssel," + b"\xff\xfe raw".decode("utf-8", "surrogateescape"),
                   False)  # fmt: skip
    assert ring.authenticate(bearer(header)).startswith("key_")
    with pytest.raises(KeyRefused):
        ring.authenticate(bearer(header + "x"))


def test_a_key_that_is_listed_twice_is_one():
    assert KeyRing("a,a", False).authenticate(bearer("a")) == KeyRing("a", False).authenticate(
        bearer("a")
    )


def test_every_key_is_compared_whichever_fits(monkeypatch):
    compared, compare = [], hmac.compare_digest

    def counting(one, other):
        compared.append(other)
        return compare(one, other)

    ring = KeyRing("a,b,c,d", False)
    monkeypatch.setattr(module.hmac, "compare_digest", counting)
    for key in ("a", "b", "c", "d"):
        compared.clear()
        ring.authenticate(bearer(key))
        assert len(set(compared)) == 4
    compared.clear()
    with pytest.raises(KeyRefused):
        ring.authenticate(bearer("e"))
    assert len(set(compared)) == 4


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_bucket_refills_evenly():
    clock = Clock()
    limiter = RateLimiter(6, clock)
    for _ in range(6):
        limiter.take("a")
    with pytest.raises(TooMany) as caught:
        limiter.take("a")
    assert caught.value.retry_after == "10"
    assert (caught.value.http_status, caught.value.error_code) == (429, "rate_limit_exceeded")
    limiter.take("b")
    clock.now += 9.9
    with pytest.raises(TooMany) as caught:
        limiter.take("a")
    assert caught.value.retry_after == "1"
    clock.now += 0.2
    limiter.take("a")
    with pytest.raises(TooMany):
        limiter.take("a")
    # A long silence gives no more than a minute's requests.
    clock.now += 10_000
    for _ in range(6):
        limiter.take("a")
    with pytest.raises(TooMany):
        limiter.take("a")


def test_without_a_limit_nothing_is_kept():
    limiter = RateLimiter(0)
    for _ in range(1000):
        limiter.take("a")
    assert not limiter._buckets


def test_the_limiter_forgets_the_key_that_is_silent(monkeypatch):
    monkeypatch.setattr(limits, "_MAX_KEYS", 2)
    limiter = RateLimiter(1, Clock())
    for key in ("a", "b", "c"):
        limiter.take(key)
    assert list(limiter._buckets) == ["b", "c"]
    with pytest.raises(TooMany):
        limiter.take("b")


async def test_the_limit_over_http_and_grpc(upstream, h, tmp_path):
    upstream.replies["x"] = upstream.answer(h.completion())
    base = f"http://{upstream.address}/v1"
    seed = {"MODEL_API_KEYS": "one, two"}
    async with h.gateway(
        tmp_path,
        [Deployment("ext/*", "openai/*", base)],
        seed=seed,
        rate_limit_per_minute=2,
        grpc_require_key=True,
    ) as gateway:
        for key, statuses in (("one", [200, 200, 429]), ("two", [200])):
            for status in statuses:
                async with gateway.post(
                    h.ask("ext/x"), headers={"Authorization": bearer(key)}
                ) as response:
                    assert response.status == status
                    body = await response.json()
        async with gateway.post(
            h.ask("ext/x"), headers={"Authorization": bearer("one")}
        ) as response:
            body = await response.json()
            assert 1 <= int(response.headers["Retry-After"]) <= 30
        assert body["error"]["code"] == "rate_limit_exceeded"
        assert "one" not in body["error"]["message"].split()
        assert len(upstream.bodies) == 3
        request = gateway_pb2.ChatCompletionRequest(body_json=json.dumps(h.ask("ext/x")).encode())
        await gateway.chat.ChatCompletion(
            request, metadata=[("authorization", bearer("two"))], timeout=20
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await gateway.chat.ChatCompletion(
                request, metadata=[("authorization", bearer("two"))], timeout=20
            )
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert error_info(caught.value).reason == "RATE_LIMIT_EXCEEDED"
        # Reading what was spent is no request for a model.
        spend = await gateway.spend.ListDailySpend(
            gateway_pb2.ListDailySpendRequest(),
            metadata=[("authorization", bearer("two"))],
            timeout=20,
        )
        assert sum(item.calls for item in spend.rows) == 4
        assert len({item.key_id for item in spend.rows}) == 2


async def test_a_control_flow_is_one_request(upstream, h, tmp_path):
    approve = json.dumps({"verdict": "approve", "note": "", "conflicts": []})
    upstream.replies["a"] = upstream.answer(h.completion())
    upstream.replies["b"] = upstream.answer(h.completion(approve))
    base = f"http://{upstream.address}/v1"
    async with h.gateway(
        tmp_path, [Deployment("ext/*", "openai/*", base)], rate_limit_per_minute=1
    ) as gateway:
        async with gateway.post(h.ask("marina/verify:ext/a+ext/b")) as response:
            assert response.status == 200, await response.text()
        assert len(upstream.bodies) == 2
        async with gateway.post(h.ask("ext/a")) as response:
            assert response.status == 429
