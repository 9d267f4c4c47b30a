"""Statements 22 and 42: what a caller writes reaches the upstream."""

from __future__ import annotations

import json

import openai
import orjson
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tau2eval_gateway.json_spans import member_spans
from tau2eval_gateway.model_list import Deployment
from tau2eval_gateway.requests import (
    append_messages,
    body_for_model,
    insert_message,
    parse_chat_request,
)

SPACE = st.text(" \t\r\n", max_size=3)


def escaped(text):
    """One way of writing a string: as it is, or with an escape for every character."""
    units = text.encode("utf-16-be")
    pairs = [units[at : at + 2].hex() for at in range(0, len(units), 2)]
    return st.sampled_from(
        [
            json.dumps(text, ensure_ascii=False),
            json.dumps(text),
            '"' + "".join(f"\\u{pair}" for pair in pairs) + '"',
        ]
    )


TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
NUMBERS = st.sampled_from(
    ["0", "-0", "1.50", "1e5", "1E+5", "123456789012345678901234567890", "0.1000", "-7.0e-3",
     "9" * 300]
)  # fmt: skip


@st.composite
def written(draw, value):
    """A value as JSON text with white space of its own."""
    if isinstance(value, str):
        return draw(escaped(value))
    if isinstance(value, list):
        items = [draw(SPACE) + draw(written(item)) + draw(SPACE) for item in value]
        return "[" + ",".join(items) + "]" if items else "[" + draw(SPACE) + "]"
    if isinstance(value, tuple):
        members = [
            draw(SPACE) + draw(escaped(name)) + draw(SPACE) + ":" + draw(SPACE)
            + draw(written(item)) + draw(SPACE)
            for name, item in value
        ]  # fmt: skip
        return "{" + ",".join(members) + "}" if members else "{" + draw(SPACE) + "}"
    return value.token


class Token:
    """A number or a literal, as written."""

    def __init__(self, token):
        self.token = token


VALUES = st.recursive(
    st.one_of(
        TEXTS,
        st.one_of(NUMBERS, st.sampled_from(["true", "false", "null"])).map(Token),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        # Members as pairs: the same key may come twice.
        st.lists(
            st.tuples(st.one_of(TEXTS, st.sampled_from(["model", "messages"])), inner), max_size=3
        ).map(tuple),
    ),
    max_leaves=8,
)


@st.composite
def bodies(draw):
    """Chat bodies as bytes, with all that JSON allows."""
    message = draw(st.lists(st.tuples(TEXTS, VALUES), max_size=2).map(tuple))
    members = draw(
        st.lists(
            st.tuples(
                TEXTS.filter(lambda name: name not in ("model", "messages", "stream")), VALUES
            ),
            max_size=4,
        )
    )
    given = [("model", draw(st.sampled_from(["ext/m", "ext/x"])))]
    given += [("messages", [message, (("content", draw(TEXTS)),)])]
    if draw(st.booleans()):
        given += [("model", "ext/other")]
    members = draw(st.permutations([*members, *given]))
    text = draw(SPACE) + draw(written(tuple(members))) + draw(SPACE)
    return text.encode()


def parsed(raw):
    return parse_chat_request(raw, 10_000_000)


@settings(max_examples=60)
@given(bodies())
def test_statement_22_every_byte_but_the_model_stays(raw):
    request = parsed(raw)
    assert body_for_model(request, request.model) is raw
    changed = body_for_model(request, "an other")
    spans = member_spans(raw, "model")
    assert spans
    kept, at = [], 0
    for start, end in spans:
        assert orjson.loads(raw[start:end]).startswith("ext/")
        kept.append(raw[at:start])
        at = end
    assert changed == b'"an other"'.join([*kept, raw[at:]])
    assert orjson.loads(changed) == {**request.body, "model": "an other"}


@settings(max_examples=60)
@given(bodies(), TEXTS)
def test_statement_22_what_flows_add_changes_nothing_before_it(raw, words):
    request = parsed(raw)
    note = {"role": "system", "content": words}
    added = append_messages(request, note)
    assert orjson.loads(added.raw) == added.body
    assert added.body["messages"] == [*request.body["messages"], note]
    common = next(
        (at for at, (a, b) in enumerate(zip(raw, added.raw, strict=False)) if a != b), len(raw)
    )
    assert common >= member_spans(raw, "messages")[-1][1] - 1
    inserted = insert_message(request, 1, note)
    assert orjson.loads(inserted.raw) == inserted.body
    first, *others = request.body["messages"]
    assert inserted.body["messages"] == [first, note, *others]


@given(st.binary(max_size=60))
def test_spans_never_loop_or_crash_on_other_bytes(raw):
    try:
        spans = member_spans(raw, "model")
    except (ValueError, orjson.JSONDecodeError):
        return
    assert all(0 < start < end <= len(raw) for start, end in spans)


@pytest.mark.parametrize("depth", [200, 900])
def test_statement_22_deep_and_large_values_are_not_rewritten(depth):
    deep = b"[" * depth + b"]" * depth
    raw = b'{"x":' + deep + b',"y":' + b"7" * 300 + b',"model" : "ext/m","messages":[{"c":1.10}]}'
    request = parsed(raw)
    assert body_for_model(request, "m") == raw.replace(b'"ext/m"', b'"m"')


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(raw=bodies())
async def test_statement_22_over_http(gateway, upstream, h, raw):
    for model in ("m", "x", "other"):
        upstream.replies[model] = upstream.answer(h.completion())
        upstream.replies[f"ext/{model}"] = upstream.answer(h.completion())
    upstream.bodies.clear()
    async with gateway.post(raw) as response:
        assert response.status == 200, await response.text()
    asked = orjson.loads(raw)["model"]
    assert upstream.bodies == [body_for_model(parsed(raw), asked.removeprefix("ext/"))]
    # The same bytes for a model without an alias.
    plain = raw.replace(b"ext/", b"scripted/")
    assume(orjson.loads(plain)["model"].startswith("scripted/"))
    name = orjson.loads(plain)["model"]
    upstream.replies[name] = upstream.answer(h.completion())
    async with gateway.post(plain) as response:
        assert response.status == 200, await response.text()
    assert upstream.bodies[1] == plain


@pytest.fixture
async def both(upstream, h, tmp_path):
    """The same upstream, once as it is and once by LiteLLM."""
    base = f"http://{upstream.address}/v1"
    deployments = [
        Deployment("direct", "openai/m", base),
        Deployment("lite", "hosted_vllm/m", base, "some-key"),
    ]
    async with h.gateway(tmp_path, deployments) as found:
        yield found


@pytest.fixture(params=["direct", "lite"])
def way(request):
    return request.param


async def client_sends(gateway, model, **more):
    """Asks with OpenAI's own client, which writes extra_body into the body."""
    async with openai.AsyncOpenAI(
        base_url=f"http://{gateway.http}/v1", api_key="any", max_retries=0, timeout=60
    ) as client:
        given = await client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "Hi"}], **more
        )
        if more.get("stream"):
            return [chunk async for chunk in given]
        return given


EFFORTS = [
    ({"reasoning_effort": "high"}, "high"),
    ({"extra_body": {"reasoning_effort": "xhigh"}}, "xhigh"),
    ({"reasoning_effort": "low", "extra_body": {"reasoning_effort": "high"}}, "high"),
    ({"extra_body": {"reasoning_effort": None}}, None),
    ({"extra_body": {"reasoning_effort": {"new": ["shape"]}}}, {"new": ["shape"]}),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("more", "effort"), EFFORTS)
async def test_statement_42_reasoning_effort(both, upstream, h, way, more, effort, stream):
    upstream.replies["m"] = (
        upstream.stream(h.chunk({"content": "a"}, "stop"))
        if stream
        else upstream.answer(h.completion())
    )
    await client_sends(both, way, **more, stream=stream)
    sent = json.loads(upstream.bodies[0])
    # LiteLLM writes no null; OpenAI's API reads null as not given.
    assert "reasoning_effort" in sent or (way == "lite" and effort is None)
    assert sent.get("reasoning_effort") == effort
    assert "extra_body" not in sent


async def test_statement_42_a_raw_member_extra_body(both, upstream, h, way):
    """No client of OpenAI's sends this name: see docs/gateway/http.md for what becomes of it."""
    upstream.replies["m"] = upstream.answer(h.completion())
    body = h.ask(
        way, reasoning_effort="low", zzz=1, extra_body={"reasoning_effort": "high", "y": 2}
    )
    async with both.post(body) as response:
        assert response.status == 200
    sent = json.loads(upstream.bodies[0])
    if way == "direct":
        # Byte for byte (statement 22): the upstream reads the member itself.
        assert sent == {**body, "model": "m"}
    else:
        assert "extra_body" not in sent
        assert (sent["reasoning_effort"], sent["y"], sent["zzz"]) == ("high", 2, 1)


SURFACE = {
    "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
    "tool_choice": {"type": "function", "function": {"name": "look"}},
    "parallel_tool_calls": True,
    "n": 2,
    "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
    "logprobs": True,
    "top_logprobs": 3,
    "logit_bias": {"5": -1},
    "seed": 4,
    "stop": ["a", "b"],
    "temperature": 0.25,
    "top_p": 0.5,
    "max_completion_tokens": 7,
    "presence_penalty": 0.5,
    "user": "u",
    "metadata": {"a": "b"},
    "store": False,
    "service_tier": "flex",
    "verbosity": "low",
    "prompt_cache_key": "k",
    "safety_identifier": "s",
    "future_member": {"deep": [1, None, {"x": 1.5}]},
    "api_base": "http://elsewhere.invalid/v1",
}


async def test_all_members_of_the_surface_reach_the_upstream(both, upstream, h, way):
    answer = h.completion()
    logprobs = {"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]}
    calls = [
        {"id": f"call_{at}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        for at in range(2)
    ]
    answer["choices"] = [
        {
            "index": at,
            "message": {"role": "assistant", "content": None, "tool_calls": calls},
            "finish_reason": "tool_calls",
            "logprobs": logprobs,
        }
        for at in range(2)
    ]
    upstream.replies["m"] = upstream.answer(answer)
    body = h.ask(way, **SURFACE)
    async with both.post(body) as response:
        assert response.status == 200, await response.text()
        got = await response.json()
    sent = json.loads(upstream.bodies[0])
    assert {name: sent.get(name) for name in SURFACE} == SURFACE
    assert [choice["message"]["tool_calls"] for choice in got["choices"]] == [calls, calls]
    assert [choice["finish_reason"] for choice in got["choices"]] == ["tool_calls"] * 2
    assert [choice["index"] for choice in got["choices"]] == [0, 1]
    for choice in got["choices"]:
        token = choice["logprobs"]["content"][0]
        assert (token["token"], token["logprob"]) == ("a", -0.5)
