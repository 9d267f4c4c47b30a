"""What of a provider's error reaches the caller."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_gateway.errors import GatewayError, Retry, provider_error
from tau2eval_gateway.redaction import Redactor

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=200)


async def test_the_members_of_a_providers_error_are_kept(gateway, upstream, h):
    prompt = "My secret reservation is under the name of Somebody Important."
    error = {
        "message": "Provider returned error",
        "type": "provider_type",
        "code": "some_code",
        "param": "messages[0]",
        "metadata": {"provider_name": "P", "raw": f"very-secret-value: {prompt}", "at": [1, None]},
    }
    upstream.replies["x"] = upstream.answer({"error": error}, 400, {"Retry-After": "3"})
    body = {"model": "ext/x", "messages": [{"role": "user", "content": prompt}]}
    async with gateway.post(body) as response:
        assert response.status == 400
        got = (await response.json())["error"]
    assert {name: got[name] for name in ("message", "type", "code", "param")} == {
        name: error[name] for name in ("message", "type", "code", "param")
    }
    assert got["metadata"]["provider_name"] == "P"
    assert got["metadata"]["at"] == [1, None]
    text = json.dumps(got)
    assert "very-secret-value" not in text
    assert "Somebody Important" not in text


@pytest.mark.parametrize(
    ("status", "body", "seen", "code"),
    [
        (402, {"error": {"message": "pay", "code": "billing"}}, 402, "billing"),
        (409, {"error": {"message": "busy", "code": "conflict"}}, 409, "conflict"),
        (418, {"error": {"message": "tea"}}, 418, "upstream_error"),
        (504, {"error": {"message": "late"}}, 504, "upstream_timeout"),
        (529, {"error": {"message": "full", "type": "overloaded_error"}}, 529, "upstream_error"),
        (400, [{"error": {"message": "listed", "code": "odd"}}], 400, "odd"),
        (400, {"object": "error", "message": "flat", "code": 40301}, 400, "40301"),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, 502,
         "upstream_invalid_response"),
        (400, {"error": "a text"}, 400, "invalid_request_error"),
        (418, {"error": {"message": "x" * 5000, "code": "c" * 5000}}, 418, "c" * 100),
    ],
)  # fmt: skip
async def test_status_and_code(gateway, upstream, h, status, body, seen, code):
    upstream.replies["x"] = upstream.answer(body, status)
    async with gateway.post(h.ask("ext/x")) as response:
        assert response.status == seen
        error = (await response.json())["error"]
    assert error["code"] == code
    assert len(error["message"]) <= 1000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
MEMBERS = st.sampled_from(["message", "code", "type", "param", "metadata", "error"])


@given(
    status=st.sampled_from([200, 400, 401, 404, 413, 422, 429, 499, 500, 503, 529, 700, 999]),
    payload=st.binary(max_size=50)
    | st.dictionaries(MEMBERS, JSON).map(lambda error: json.dumps({"error": error}).encode())
    | JSON.map(lambda value: json.dumps(value).encode()),
)
def test_every_payload_becomes_an_error_that_can_be_sent(status, payload):
    error = provider_error(status, payload, provider="p")
    assert isinstance(error, GatewayError)
    assert 400 <= error.http_status <= 599
    body = json.loads(error.body_json())["error"]
    assert body["message"] == error.message
    assert isinstance(body["code"], str)
    assert body["code"]
    assert isinstance(body["type"], str)
    assert body["param"] is None or isinstance(body["param"], str)
    assert (error.retry is not Retry.NO) <= (status in (429, 503, 529))
    assert Redactor({}).clean_all(error.details, {"messages": [{"content": "x" * 40}]}) is not None


@given(
    prompt=st.text("ab cd", min_size=24, max_size=120),
    before=st.text("xyz ", max_size=40),
    after=st.text("xyz ", max_size=40),
    start=st.integers(0, 100),
)
def test_no_long_echo_of_the_prompt_is_left(prompt, before, after, start):
    echo = prompt[min(start, len(prompt) - 24) :]
    text = Redactor({}).clean(
        f"{before}<{echo}>{after}", {"messages": [{"content": f"The words: {prompt}."}]}
    )
    assert all(echo[at : at + 24] not in text for at in range(len(echo) - 23))
    assert text.startswith(before[:1])
