"""Pure parts: request bytes, events, redaction, usage."""

import itertools
import json

import grpc
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_gateway.errors import provider_error
from tau2eval_gateway.prices import Prices
from tau2eval_gateway.redaction import Redactor
from tau2eval_gateway.requests import body_for_model, format_cost, parse_chat_request
from tau2eval_gateway.sse import SseSplitter
from tau2eval_gateway.usage import Usage, estimate, read_usage

TEXT = st.text(st.characters(exclude_categories=("Cs",)))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)


@given(
    extra=st.dictionaries(TEXT | st.just("model"), JSON, max_size=4),
    indent=st.sampled_from([None, 1]),
    ascii_only=st.booleans(),
)
def test_only_the_model_changes(extra, indent, ascii_only):
    body = {**extra, "model": 'asked/é"x'[:6], "messages": [{"model": "asked", **extra}]}
    body.pop("stream", None)
    raw = json.dumps(body, indent=indent, ensure_ascii=ascii_only).encode()
    request = parse_chat_request(raw, 10**7)
    changed = body_for_model(request, 'other"model')
    assert json.loads(changed) == {**body, "model": 'other"model'}
    quoted = json.dumps("asked/").encode()
    assert changed.replace(b'"other\\"model"', quoted, 1) in (raw, raw.replace(quoted, quoted))
    assert body_for_model(request, request.model) is request.raw


def test_a_repeated_key_is_changed_everywhere():
    raw = b'{"model":"a","messages":[{}],"mod\\u0065l":"b"}'
    request = parse_chat_request(raw, 1000)
    assert request.model == "b"
    assert body_for_model(request, "c") == b'{"model":"c","messages":[{}],"mod\\u0065l":"c"}'


EVENTS = st.lists(
    st.sampled_from(
        [
            b"data: a\n\n", b"data:b\r\n\r\n", b": note\n\n", b"event: x\ndata: c\ndata: d\n\n",
            b"data: e\r\r", b"\n\n",
        ]
    )
)  # fmt: skip


@given(events=EVENTS, cuts=st.lists(st.integers(0, 200)), tail=st.sampled_from([b"", b"data: z"]))
def test_events_are_cut_at_their_ends_however_they_arrive(events, cuts, tail):
    whole = b"".join(events) + tail
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    splitter = SseSplitter()
    found = []
    for start, end in itertools.pairwise(places):
        found += splitter.feed(whole[start:end])
    rest = splitter.rest()
    found += [rest] if rest is not None else []
    joined = b"".join(event.raw for event in found)
    if rest is not None:
        assert joined == whole.rstrip(b"\r\n") + b"\n\n"
    else:
        assert whole.startswith(joined)
        assert not whole[len(joined) :].strip()
    once = SseSplitter()
    at_once = [event.data for event in once.feed(whole) if event.data is not None]
    last = once.rest()
    at_once += [last.data] if last is not None and last.data is not None else []
    assert [event.data for event in found if event.data is not None] == at_once


def test_redaction():
    redactor = Redactor({"X_API_KEY": "abcdefgh,ijklmnop", "PLAIN": "visible-word"})
    redactor.add("added-later")
    text = redactor.clean(
        "abcdefgh ijklmnop added-later visible-word sk-proj-12345 Bearer tok.en "
        "Incorrect API key provided: hello***9xyz."
    )
    assert "visible-word" in text
    for hidden in ("abcdefgh", "ijklmnop", "added-later", "sk-proj", "tok.en", "9xyz"):
        assert hidden not in text


@given(prompt=st.text(min_size=24, max_size=80), before=st.text(max_size=20))
def test_the_prompt_is_not_echoed(prompt, before):
    body = {"messages": [{"role": "user", "content": [{"type": "text", "text": prompt}]}]}
    assert prompt not in Redactor({}).clean(f"{before}{prompt}!", body)


def test_usage():
    usage = read_usage(
        {
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "cost": 0.5,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 3},
        }
    )
    assert usage == Usage(10, 5, 4, 0, 3, 0.5)
    assert read_usage({"prompt_tokens": 1}).cost_usd is None
    assert read_usage({"prompt_tokens": "x", "cost": "0.5"}) is None
    assert read_usage(None) is None
    assert read_usage({}) is None
    found = estimate({"messages": [{"content": "a" * 400}]}, 41)
    assert found.estimated
    assert found.completion_tokens == 11
    assert found.prompt_tokens > 100


def test_prices_bill_cached_tokens_once():
    prices = Prices(input=2.5e-6, output=15e-6, cache_read=0.25e-6)
    usage = Usage(prompt_tokens=262960, completion_tokens=1744, cached_tokens=257955)
    assert prices.cost(usage) == pytest.approx(0.0125125 + 0.06448875 + 0.02616)
    assert Prices(1.0, 2.0).cost(Usage(prompt_tokens=3, cached_tokens=9)) == 3.0


def test_format_cost():
    assert format_cost(0) == "0.0"
    assert format_cost(1e-7) == "0.0000001"
    assert format_cost(12.5) == "12.5"


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_proxys_page_says_nothing_about_the_request(status):
    for page in (b"<html><h1>Bad Request</h1></html>", b"", b'{"detail": "no"}'):
        assert provider_error(status, page, provider="p").code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    "message",
    [
        "Your credit balance is too low to access the API.",
        "API key expired. Please renew the API key.",
        "API key not valid. Please pass a valid API key.",
        "Invalid API key provided",
        "You have insufficient funds",
        "Your account has been suspended",
        "This organization has been disabled.",
        "You have reached your specified API usage limits.",
        "You exceeded your current quota, please check your plan and billing details.",
        "Your account is not active",
        "User location is not supported for the API use.",
    ],
)
def test_a_refused_account_is_no_refused_request(message):
    body = {"error": {"message": message, "type": "invalid_request_error"}}
    assert provider_error(400, body, provider="p").code is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 8192 tokens, you asked for 9000 tokens",
        "Invalid value for 'temperature'",
        "messages.3: tool_use ids were found without tool_result blocks",
        "Unsupported parameter: reasoning_effort",
        "Invalid value for messages[3].tool_calls[0].function.arguments: 'billing'",
    ],
)
def test_a_refused_request_stays_one(message):
    body = {"error": {"message": message, "type": "invalid_request_error"}}
    assert provider_error(400, body, provider="p").code is grpc.StatusCode.INVALID_ARGUMENT


@given(payload=st.binary(max_size=50) | JSON, status=st.integers(200, 599))
def test_any_error_answer_has_a_mapping(payload, status):
    raw = payload if isinstance(payload, bytes) else orjson.dumps(payload)
    for body in (raw, orjson.dumps({"error": json.loads(raw) if raw is not payload else None})):
        error = provider_error(status, body, provider="p")
        assert 400 <= error.http_status <= 599
        assert error.error_code
        assert error.message
        assert orjson.loads(error.body_json())["error"]["code"] == error.error_code
