"""Bugs of other gateways that this one must not have: each as a test of its kind, on both paths.

The numbers are those of the public issues: Portkey#1797 and #1035, bifrost#6523, #7397 and #6537,
litellm#21041, litellm PR#39136. Those about spend are tested with the ledger.
"""

from __future__ import annotations

import json

import openai
import pytest

from tau2eval_gateway.labels import OTHER, ModelLabels
from tau2eval_gateway.model_list import Deployment
from tau2eval_gateway.routes import Router


@pytest.fixture(params=["direct", "lite"])
def way(request):
    return request.param


@pytest.fixture
async def gateway(upstream, h, tmp_path):
    base = f"http://{upstream.address}/v1"
    deployments = [
        Deployment("direct", "openai/m", base),
        Deployment("lite", "hosted_vllm/m", base, "some-key"),
    ]
    async with h.gateway(tmp_path, deployments) as found:
        yield found


async def chunks(gateway, h, way, **more):
    """Streams and returns the chunks, and whether [DONE] came."""
    async with gateway.post(h.ask(way, stream=True, **more)) as response:
        assert response.status == 200, await response.text()
        text = await response.text()
    lines = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    done = bool(lines) and lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines if line != "[DONE]"], done


async def test_a_stream_that_closes_after_40_of_60_tokens_is_an_error(gateway, upstream, h, way):
    words = [h.chunk({"content": f"word{number} "}) for number in range(40)]
    upstream.replies["m"] = upstream.stream(h.chunk({"role": "assistant"}), *words, done=False)
    found, done = await chunks(gateway, h, way)
    assert not done
    assert found[-1]["error"]["code"] == "upstream_truncated"
    reasons = [choice.get("finish_reason") for item in found for choice in item.get("choices", ())]
    assert not any(reasons)


async def test_comment_lines_are_no_events(gateway, upstream, h, way):
    upstream.replies["m"] = upstream.stream(
        b": PROCESSING\n\n",
        h.chunk({"role": "assistant", "content": "a"}),
        b": PROCESSING\n\n:\n\n",
        h.chunk({"content": "b"}, "stop"),
    )
    found, done = await chunks(gateway, h, way)
    assert done
    text = "".join(item["choices"][0]["delta"].get("content") or "" for item in found)
    assert text == "ab"


async def test_the_opening_chunk_and_null_finish_reasons_are_kept(gateway, upstream, h, way):
    upstream.replies["m"] = upstream.stream(
        h.chunk({"role": "assistant", "content": ""}),
        h.chunk({"content": "a"}),
        h.chunk({"content": "b"}),
        h.chunk({}, "stop"),
    )
    found, done = await chunks(gateway, h, way)
    assert done
    first = found[0]["choices"][0]
    assert first["delta"]["role"] == "assistant"
    assert not first["delta"].get("content")
    assert [choice["finish_reason"] for item in found for choice in item["choices"]] == [
        None, None, None, "stop"
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
async def test_reasoning_keeps_its_name(gateway, upstream, h, way, name):
    # LiteLLM has one name for both; see docs/gateway/http.md.
    kept = "reasoning_content" if way == "lite" else name
    upstream.replies["m"] = upstream.stream(
        h.chunk({"role": "assistant", "content": ""}),
        h.chunk({name: "hm"}),
        h.chunk({"content": "a"}),
        h.chunk({}, "stop"),
    )
    found, _ = await chunks(gateway, h, way)
    deltas = [choice["delta"] for item in found for choice in item["choices"]]
    assert "".join(delta.get(kept) or "" for delta in deltas) == "hm"
    answer = h.completion()
    answer["choices"][0]["message"][name] = "hm"
    upstream.replies["m"] = upstream.answer(answer)
    async with gateway.post(h.ask(way)) as response:
        message = (await response.json())["choices"][0]["message"]
    assert message[kept] == "hm"


def deltas_of_calls():
    def part(index, **function):
        named = {"id": f"call_{index}", "type": "function"} if "name" in function else {}
        return {"tool_calls": [{"index": index, **named, "function": function}]}

    return [
        {"role": "assistant", "content": None},
        part(0, name="look", arguments=""),
        part(1, name="look", arguments='{"b"'),
        part(0, arguments='{"a": '),
        part(1, arguments=": 2}"),
        part(0, arguments="1}"),
    ]


async def test_a_streamed_tool_call_ends_with_tool_calls(gateway, upstream, h, way):
    upstream.replies["m"] = upstream.stream(
        *(h.chunk(delta) for delta in deltas_of_calls()), h.chunk({}, "tool_calls")
    )
    found, done = await chunks(gateway, h, way, tools=[{"type": "function", "function": {}}])
    assert done
    reasons = [choice["finish_reason"] for item in found for choice in item["choices"]]
    assert [reason for reason in reasons if reason] == ["tool_calls"]
    calls = {}
    for item in found:
        for part in item["choices"][0]["delta"].get("tool_calls") or ():
            call = calls.setdefault(part["index"], ["", "", ""])
            call[0] += part.get("id") or ""
            call[1] += part["function"].get("name") or ""
            call[2] += part["function"].get("arguments") or ""
    assert calls == {0: ["call_0", "look", '{"a": 1}'], 1: ["call_1", "look", '{"b": 2}']}


@pytest.mark.parametrize("index", ["missing", "equal"])
async def test_whole_calls_without_an_index_of_their_own_stay_two(gateway, upstream, h, way, index):
    """Nothing is merged here; what the caller is sent holds both calls as they came."""
    parts = [
        {"id": f"call_{at}", "type": "function", "function": {"name": "look", "arguments": text}}
        for at, text in enumerate(['{"a": 1}', '{"b": 2}'])
    ]
    for part in parts:
        if index == "equal":
            part["index"] = 0
    upstream.replies["m"] = upstream.stream(
        h.chunk({"role": "assistant", "content": None}),
        *(h.chunk({"tool_calls": [part]}) for part in parts),
        h.chunk({}, "tool_calls"),
    )
    found, done = await chunks(gateway, h, way)
    assert done
    sent = [part for item in found for part in item["choices"][0]["delta"].get("tool_calls") or ()]
    assert [(part["id"], part["function"]["arguments"]) for part in sent] == [
        ("call_0", '{"a": 1}'), ("call_1", '{"b": 2}')
    ]  # fmt: skip


async def test_null_finish_reasons_of_a_plain_answer_are_kept(gateway, upstream, h):
    answer = h.completion()
    answer["choices"][0] |= {"finish_reason": None, "logprobs": None}
    answer["choices"][0]["message"]["refusal"] = None
    upstream.replies["m"] = upstream.answer(answer)
    async with gateway.post(h.ask("direct")) as response:
        assert await response.json() == answer


async def test_openais_client_reads_the_stream(gateway, upstream, h, way):
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    upstream.replies["m"] = upstream.stream(
        *(h.chunk(delta) for delta in deltas_of_calls()),
        h.chunk({}, "tool_calls"),
        {**h.chunk({}), "choices": [], "usage": usage},
    )
    async with openai.AsyncOpenAI(
        base_url=f"http://{gateway.http}/v1", api_key="any", max_retries=0, timeout=60
    ) as client:
        stream = await client.chat.completions.create(
            model=way,
            messages=[{"role": "user", "content": "x"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        found = [item async for item in stream]
    assert found[-1].usage is not None
    assert found[-1].usage.total_tokens == 5
    assert [item.choices[0].finish_reason for item in found if item.choices][-1] == "tool_calls"


def test_labels_of_models_are_bounded():
    router = Router(
        [
            Deployment("named", "openai/x", "http://h/v1"),
            Deployment("scripted/*", "openai/scripted/*", "http://h/v1"),
            Deployment("*", "*"),
        ]
    )
    labels = ModelLabels(router.names(), ["team"])
    assert labels.model("marina:team") == "marina:team"
    arms = {labels.arm(arm) for arm in ("single", "obligations+argcheck", "verify", "crew:team")}
    assert arms == {"single", "obligations+argcheck", "verify", "crew:team"}
    assert {labels.arm(f"mine-{number}") for number in range(100)} == {OTHER}
    assert labels.model("named") == "named"
    assert labels.model("marina/verify:named+named") == "named"
    assert labels.model("marina/obligations:marina/argcheck:named") == "named"
    junk = {labels.model(f"junk-{number}") for number in range(1000)}
    junk |= {labels.model(f"scripted/{number}") for number in range(1000)}
    junk |= {labels.model("marina:crew"), labels.model(""), labels.model("marina/verify:" * 50)}
    assert junk == {OTHER}
