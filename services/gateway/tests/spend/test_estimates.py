"""What calls may cost at most, and what they count for when nobody knows."""

import json

import pytest

from tau2eval_gateway import estimates as module
from tau2eval_gateway.estimates import CostEstimates
from tau2eval_gateway.model_list import Deployment
from tau2eval_gateway.prices import Prices
from tau2eval_gateway.requests import parse_chat_request
from tau2eval_gateway.routes import Route
from tau2eval_gateway.upstreams.base import UpstreamCall


class Upstream:
    def __init__(self, prices):
        self._prices = prices

    def price(self, call, usage):
        return self._prices.cost(usage) if self._prices else None


def call(**more):
    raw = json.dumps({"model": "m", "messages": [{"content": "x" * 1000}], **more}).encode()
    return UpstreamCall(
        Route(Deployment("m", "m"), "m"), parse_chat_request(raw, 10**7), 1.0, 600.0
    )


OUTPUT = Upstream(Prices(0.0, 1.0))
INPUT = Upstream(Prices(1.0, 0.0))


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({}, 100),
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 9}, 9),
        ({"max_tokens": 7, "max_completion_tokens": 9}, 9),
        ({"max_tokens": 7, "n": 3}, 21),
        ({"n": 3}, 300),
        ({"n": 10**9}, 12_800),
        ({"max_tokens": None, "n": None}, 100),
        ({"max_tokens": "7"}, 100),
        ({"max_tokens": True, "n": True}, 100),
        ({"max_tokens": -5, "n": -1}, 100),
        ({"max_tokens": 0}, 100),
        ({"max_tokens": 7.0}, 7),
        ({"max_tokens": 1e300}, 2**53),
    ],
)
def test_the_longest_output(body, tokens):
    estimates = CostEstimates(output_tokens=100, unpriced_usd=0.5)
    assert estimates.worst_case(call(**body), OUTPUT) == tokens


def test_a_model_that_writes_more_than_the_default_is_known_by_it():
    estimates = CostEstimates(output_tokens=100, unpriced_usd=0.5)
    estimates.observe("m", 0.1, 900)
    estimates.observe("m", 0.1, 5)
    assert estimates.worst_case(call(), OUTPUT) == 900
    assert estimates.worst_case(call(max_tokens=3), OUTPUT) == 3


def test_the_prompt_counts_at_its_dearer_price():
    estimates = CostEstimates(output_tokens=1, unpriced_usd=0.5)
    one = call()
    assert estimates.worst_case(one, INPUT) == -(-len(one.request.raw) // 2)
    written = Upstream(Prices(1.0, 0.0, cache_read=0.1, cache_write=2.0))
    assert estimates.worst_case(one, written) == 2 * estimates.worst_case(one, INPUT)
    thought = Upstream(Prices(0.0, 1.0, reasoning=4.0))
    assert estimates.worst_case(one, thought) == 4.0


def test_a_model_without_a_price_counts_what_its_dearest_recent_call_cost():
    estimates = CostEstimates(output_tokens=1, unpriced_usd=0.5)
    assert estimates.worst_case(call(), Upstream(None)) == 0.5
    estimates.observe("m", 0.2, 10)
    estimates.observe("m", 0.9, 10)
    estimates.observe("other", 7.0, 10)
    assert estimates.worst_case(call(), Upstream(None)) == estimates.unknown("m") == 0.9
    for _ in range(50):
        estimates.observe("m", 0.1, 10)
    assert estimates.unknown("m") == 0.1
    estimates.observe("free", 0.0, 10)
    assert estimates.unknown("free") == 0.0


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "_MODELS", 3)
    estimates = CostEstimates(output_tokens=1, unpriced_usd=0.5)
    for number in range(10):
        estimates.observe(f"m{number}", 1.0, 1)
    assert len(estimates._seen) == 3
    assert (estimates.unknown("m0"), estimates.unknown("m9")) == (0.5, 1.0)
