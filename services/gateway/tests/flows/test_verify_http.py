"""marina/verify: as a caller sees it over HTTP and gRPC (statements 5 to 8 and 16 to 20)."""

import asyncio
import json

import pytest

from tau2eval.gateway.v1 import gateway_pb2
from tau2eval_gateway.model_list import Deployment

QUOTE = "please cancel order A1 only"
ASKED = [
    {"role": "system", "content": "Ask for confirmation before you cancel anything."},
    {"role": "user", "content": f"Hello, {QUOTE}, not A2."},
]
TOOLS = [{"type": "function", "function": {"name": "cancel_order", "parameters": {}}}]
APPROVE = json.dumps({"verdict": "approve", "note": "", "conflicts": []})
REVISE = json.dumps({"verdict": "revise", "note": "Be kind.", "conflicts": []})
VERIFY = "marina/verify:scripted/agent+scripted/checker"


def usage(cost=0.25, **more):
    return {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
        **({} if cost is None else {"cost": cost}),
        **more,
    }


def says(text=None, *orders, ids=("c1", "c2"), **more):
    message = {"role": "assistant", "content": text}
    if orders:
        message["tool_calls"] = [
            {
                "id": call_id,
                "type": "function",
                "function": {"name": "cancel_order", "arguments": json.dumps({"order": order})},
            }
            for order, call_id in zip(orders, ids, strict=False)
        ]
    finish = "tool_calls" if orders else "stop"
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "served-1",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": usage(),
        **more,
    }


def script(upstream, model, *answers):
    """Answers a model's calls in order; a pair is a status and an error body, None hangs."""
    waiting = list(answers)

    async def reply(request, body):
        answer = waiting.pop(0)
        if answer is None:
            await asyncio.sleep(60)
        if isinstance(answer, tuple):
            status, body, *headers = answer
            return await upstream.answer(body, status, *headers)(request, body)
        return await upstream.answer(answer)(request, body)

    upstream.replies[model] = reply


def request(model=VERIFY, **more):
    return {"model": model, "messages": ASKED, "tools": TOOLS, **more}


def sent(upstream):
    return [json.loads(raw) for raw in upstream.bodies]


@pytest.fixture
def configured(upstream, tmp_path, h):
    """Opens a gateway with other settings."""

    def open_gateway(seed=None, **settings):
        base = f"http://{upstream.address}/v1"
        deployments = [Deployment("scripted/*", "openai/scripted/*", base, own=True)]
        given = {"MARINA_OPEN_API": "true", **(seed or {})}
        return h.gateway(tmp_path / "other", deployments, seed=given, **settings)

    return open_gateway


# 5


async def test_statement_05_the_last_plus_names_the_checker(gateway, upstream):
    script(upstream, "scripted/a+b", says("Hi"))
    script(upstream, "scripted/checker", says(APPROVE))
    model = "marina/verify:scripted/a+b+scripted/checker"
    async with gateway.post(request(model)) as response:
        assert response.status == 200
    assert [body["model"] for body in sent(upstream)] == ["scripted/a+b", "scripted/checker"]


async def test_statement_05_the_setting_and_then_the_proposer_check(gateway, upstream, configured):
    script(upstream, "scripted/agent", says("Hi"), says(APPROVE), says("Hi"))
    script(upstream, "scripted/other", says(APPROVE))
    async with gateway.post(request("marina/verify:scripted/agent")) as response:
        assert response.headers["x-marina-verify"] == "approved"
    async with configured({"MARINA_VERIFY_CHECKER_MODEL": "scripted/other"}) as other:
        async with other.post(request("marina/verify:scripted/agent")) as response:
            assert response.headers["x-marina-verify"] == "approved"
    models = [body["model"] for body in sent(upstream)]
    assert models == ["scripted/agent"] * 3 + ["scripted/other"]


async def test_statement_05_an_unknown_checker_is_refused_before_anything_is_spent(
    gateway, upstream
):
    async with gateway.post(request("marina/verify:scripted/agent+nobody/here")) as response:
        assert response.status == 404
    assert upstream.bodies == []


# 6


@pytest.mark.parametrize("more", [{"stream": True}, {"n": 2}, {"stream": True, "n": 3}])
@pytest.mark.parametrize(
    "model", [VERIFY, f"marina/argcheck:{VERIFY}", f"marina/obligations:{VERIFY}"]
)
async def test_statement_06_stream_and_n_are_refused_without_a_call(gateway, upstream, model, more):
    async with gateway.post(request(model, **more)) as response:
        assert response.status == 400
        error = (await response.json())["error"]
    assert error["code"] == "unsupported_parameter"
    assert error["param"] in more
    assert upstream.bodies == []
    assert await gateway.rows() == []


@pytest.mark.parametrize("more", [{"n": 1}, {"n": None}, {"stream": False}, {"stream": None}])
async def test_statement_06_one_whole_choice_is_fine(gateway, upstream, more):
    script(upstream, "scripted/agent", says("Hi"))
    script(upstream, "scripted/checker", says(APPROVE))
    async with gateway.post(request(**more)) as response:
        assert response.status == 200


# 7


async def test_statement_07_approve_takes_two_calls_and_changes_nothing(gateway, upstream):
    draft = says("Now.", "A1", service_tier="x", usage=usage(0.5))
    script(upstream, "scripted/agent", draft)
    script(upstream, "scripted/checker", says(APPROVE))
    async with gateway.post(request(temperature=0.5, reasoning_effort="high")) as response:
        body = await response.json()
        assert response.headers["x-marina-verify"] == "approved"
        assert response.headers["x-marina-upstream-model"] == "scripted/agent"
        assert response.headers["x-marina-cost-usd"] == "0.75"
    added = {"model": VERIFY, "usage": body["usage"]}
    assert body == {**draft, **added}
    proposed, checked = sent(upstream)
    assert proposed == request("scripted/agent", temperature=0.5, reasoning_effort="high")
    assert set(checked) == {"model", "messages"}
    rows = await gateway.rows()
    assert [(r["role"], r["arm"], r["model"]) for r in rows] == [
        ("", "verify", "scripted/agent"),
        ("checker", "verify", "scripted/checker"),
    ]


# 8


async def test_statement_08_one_revision_by_default(gateway, upstream):
    script(upstream, "scripted/agent", says("Hi"), says("Good day"))
    script(upstream, "scripted/checker", says(REVISE))
    async with gateway.post(request()) as response:
        assert response.headers["x-marina-verify"] == "revised"
        assert (await response.json())["choices"][0]["message"]["content"] == "Good day"
    first, _, second = sent(upstream)
    assert second["messages"][:-1] == first["messages"] == ASKED
    assert second["messages"][-1]["role"] == "system"
    assert "Be kind." in second["messages"][-1]["content"]
    assert len(upstream.bodies) == 3


@pytest.mark.parametrize(
    ("rounds", "made", "verdict"), [("0", 0, "flagged"), ("-1", 0, "flagged"), ("7", 3, "revised")]
)
async def test_statement_08_the_setting_is_clamped(upstream, configured, rounds, made, verdict):
    script(upstream, "scripted/agent", *(says(f"draft {n}") for n in range(9)))
    script(upstream, "scripted/checker", *(says(REVISE) for _ in range(9)))
    async with configured({"MARINA_VERIFY_ROUNDS": rounds}) as gateway:
        async with gateway.post(request()) as response:
            assert response.headers["x-marina-verify"] == verdict
            body = await response.json()
    assert body["choices"][0]["message"]["content"] == f"draft {made}"
    assert len(upstream.bodies) == 1 + max(made, 1) + made


# 16


async def test_statement_16_a_held_write_costs_all_the_same(gateway, upstream):
    script(upstream, "scripted/agent", says(None, "A1"), says("All cancelled."))
    script(upstream, "scripted/checker", says(REVISE))
    async with gateway.post(request()) as response:
        body = await response.json()
        assert response.headers["x-marina-verify"] == "held-write"
        assert response.headers["x-marina-cost-usd"] == "0.75"
    assert body["choices"] == says(None, "A1")["choices"]
    assert body["usage"]["total_tokens"] == 45
    assert len(await gateway.rows()) == 3


# 17


@pytest.mark.parametrize(
    "review",
    [
        (503, {"error": {"message": "away"}}),
        (400, {"error": {"message": "too long", "code": "context_length_exceeded"}}),
        says("Looks good to me."),
        says('{"verdict": "revise"'),
    ],
)
async def test_statement_17_an_outage_returns_the_draft(gateway, upstream, review):
    script(upstream, "scripted/agent", says("Hi", "A1"))
    script(upstream, "scripted/checker", review, review, review)
    async with gateway.post(request()) as response:
        assert response.status == 200
        assert response.headers["x-marina-verify"] == "checker-unavailable"
        assert (await response.json())["choices"] == says("Hi", "A1")["choices"]


async def test_statement_17_a_checker_that_hangs_costs_no_draft(upstream, configured):
    script(upstream, "scripted/agent", says("Hi"))
    script(upstream, "scripted/checker", None)
    async with configured(helper_timeout_seconds=0.2) as gateway:
        async with gateway.post(request()) as response:
            assert response.headers["x-marina-verify"] == "checker-unavailable"
            assert (await response.json())["choices"] == says("Hi")["choices"]


# 18


async def test_statement_18_a_failed_revision_returns_the_draft(gateway, upstream):
    failed = (500, {"error": {"message": "away"}})
    script(upstream, "scripted/agent", says("Hi"), failed, failed, failed)
    script(upstream, "scripted/checker", says(REVISE))
    async with gateway.post(request()) as response:
        assert response.status == 200
        assert response.headers["x-marina-verify"] == "revision-failed"
        assert (await response.json())["choices"] == says("Hi")["choices"]


async def test_statement_18_a_revision_that_hangs_costs_no_draft(upstream, configured):
    script(upstream, "scripted/agent", says("Hi"), None)
    script(upstream, "scripted/checker", says(REVISE))
    async with configured(total_timeout_seconds=2.0) as gateway:
        async with gateway.post(request()) as response:
            assert response.status == 200
            assert response.headers["x-marina-verify"] == "revision-failed"
            assert (await response.json())["choices"] == says("Hi")["choices"]


async def test_statement_18_a_failed_proposer_keeps_its_status_and_body(gateway, upstream):
    body = {"error": {"message": "slow down", "type": "t", "code": "rate_limited", "param": None}}
    script(upstream, "scripted/agent", *[(429, body, {"Retry-After": "7"})] * 5)
    async with gateway.post(request()) as response:
        assert response.status == 429
        assert response.headers["Retry-After"] == "7"
        assert "x-marina-verify" not in response.headers
        error = (await response.json())["error"]
    assert error["message"] == "slow down"
    assert error["code"] == "rate_limited"
    assert {sent_body["model"] for sent_body in sent(upstream)} == {"scripted/agent"}


# 19


async def test_statement_19_usage_and_cost_add_up(gateway, upstream):
    script(upstream, "scripted/agent", says("Hi"), says("Ho"))
    script(upstream, "scripted/checker", says(REVISE))
    async with gateway.post(request()) as response:
        assert response.headers["x-marina-cost-usd"] == "0.75"
        assert (await response.json())["usage"] == {
            "prompt_tokens": 30,
            "completion_tokens": 15,
            "total_tokens": 45,
            "prompt_tokens_details": {"cached_tokens": 12},
            "completion_tokens_details": {"reasoning_tokens": 6},
            "cost": 0.75,
        }


@pytest.mark.parametrize("unpriced", ["scripted/agent", "scripted/checker"])
async def test_statement_19_an_unknown_cost_is_not_nothing(gateway, upstream, unpriced):
    answers = {"scripted/agent": "Hi", "scripted/checker": APPROVE}
    for model, text in answers.items():
        given = usage(None if model == unpriced else 0.25)
        script(upstream, model, says(text, usage=given))
    async with gateway.post(request()) as response:
        assert response.headers["x-marina-verify"] == "approved"
        assert "x-marina-cost-usd" not in response.headers
        body = await response.json()
    assert "cost" not in body["usage"]
    assert body["usage"]["total_tokens"] == 30
    assert sorted(str(row["cost_usd"]) for row in await gateway.rows()) == ["0.25", "None"]


# 20


async def test_statement_20_what_the_caller_sees_fits_what_it_asked(gateway, upstream):
    draft = says("Now.", "A1", "A2")
    revision = says("Yes.", "A1", "A2", ids=("same", "same"))
    revision["choices"][0]["finish_reason"] = "stop"
    script(upstream, "scripted/agent", draft, revision)
    script(upstream, "scripted/checker", says(REVISE))
    async with gateway.post(request()) as response:
        body = await response.json()
        assert response.headers["x-marina-verify"] == "revised"
    assert body["model"] == VERIFY
    (choice,) = body["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert [call["id"] for call in choice["message"]["tool_calls"]] == ["c1", "c2"]
    assert choice["message"]["content"] == "Yes."


async def test_statement_20_grpc_shows_the_same(gateway, upstream):
    script(upstream, "scripted/agent", says("Hi"), says("Good day"))
    script(upstream, "scripted/checker", says(REVISE))
    asked = gateway_pb2.ChatCompletionRequest(body_json=json.dumps(request()).encode())
    response = await gateway.chat.ChatCompletion(asked, timeout=20)
    body = json.loads(response.body_json)
    assert body["model"] == VERIFY
    assert body["choices"][0]["message"]["content"] == "Good day"
    assert response.metadata.headers["x-marina-verify"] == "revised"
    assert response.metadata.cost_usd == 0.75


# Beside other flows


async def test_a_check_around_verify_hides_no_note_from_the_gate(gateway, upstream):
    """The note of an outer argument check names an id; that does not make it known."""
    judged = json.dumps(
        {"calls": [{"call": 0, "supported": False, "values": ["A7"], "why": "nobody said it"}]}
    )
    change = {"call": "c1", "argument": "order", "action": "modify", "quote": QUOTE}
    wrong = json.dumps({"verdict": "revise", "note": "Use A7.", "conflicts": [change]})

    script(
        upstream,
        "scripted/agent",
        says(None, "A7"),
        says(APPROVE),
        says(judged),
        says(None, "A1"),
        says(wrong),
        says(None, "A7"),
    )
    async with gateway.post(request("marina/argcheck:marina/verify:scripted/agent")) as response:
        body = await response.json()
        assert response.status == 200
        headers = response.headers
    roles = [body["messages"][0]["content"].split("\n")[0][:30] for body in sent(upstream)]
    assert "flagged=1" in headers["x-marina-argcheck"], roles
    assert headers["x-marina-verify"] == "held-write"
    arguments = body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"order": "A1"}
    assert body["usage"]["total_tokens"] == 90
    assert headers["x-marina-cost-usd"] == "1.5"
