"""marina/argcheck: as a caller sees it, over HTTP, with an upstream that answers by a script."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web
from argcheck_fakes import TOOLS, calls, says, unsupported, user, verdict

BAD = calls(("cancel_order", {"order_id": "ORD-99"}))
GOOD = calls(("cancel_order", {"order_id": "ORD-77"}))
NO = verdict(unsupported(0, "ORD-99"))
HELLO = user("Cancel order ORD-77 please")


class Script:
    """Answers agent calls in order, and helper calls by their task."""

    def __init__(self, upstream: Any, *drafts: Any, **helpers: Any) -> None:
        self.drafts = list(drafts)
        self.helpers = {name.replace("_", "-"): list(texts) for name, texts in helpers.items()}
        self.agent: list[dict[str, Any]] = []
        self.tasks: list[tuple[str, str]] = []
        upstream.replies["ext/agent"] = upstream.replies["agent"] = self.answer
        upstream.replies["judge"] = self.answer

    async def answer(self, _: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        first = body["messages"][0]["content"]
        if isinstance(first, str) and first.startswith("[tau2-eval:"):
            task = first[len("[tau2-eval:") :].partition("]")[0]
            self.tasks.append((task, body["model"]))
            answer = self.helpers[task].pop(0)
            return self._reply(says(answer) if isinstance(answer, str) else answer, 0.25)
        self.agent.append(body)
        return self._reply(self.drafts.pop(0), 1.0)

    def _reply(self, message: Any, cost: float) -> web.Response:
        if isinstance(message, int):
            return web.json_response({"error": {"message": "away"}}, status=message)
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        return web.json_response(
            {
                "id": "c1",
                "object": "chat.completion",
                "created": 1,
                "model": "served-1",
                "choices": [{"index": 0, "message": message, "finish_reason": finish}],
                "usage": {
                    "prompt_tokens": 10,
                    "completion_tokens": 2,
                    "total_tokens": 12,
                    "cost": cost,
                },
            }
        )


def ask(model: str, *messages: Any, **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": list(messages or (HELLO,)), "tools": TOOLS, **more}


async def post(gateway: Any, body: Any, **headers: str) -> tuple[int, dict[str, Any], Any]:
    async with gateway.post(body, headers=headers) as response:
        return response.status, await response.json(), response.headers


def called(body: dict[str, Any]) -> Any:
    return body["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]


async def test_statement_34_no_extra_call_over_http(gateway: Any, upstream: Any) -> None:
    script = Script(upstream, GOOD)
    status, body, headers = await post(gateway, ask("marina/argcheck:ext/agent"))
    assert status == 200
    assert headers["x-marina-argcheck"] == "writes=1 flagged=0"
    assert float(headers["x-marina-argcheck-cost-usd"]) == 0
    assert float(headers["x-marina-cost-usd"]) == 1.0
    assert body["choices"][0]["message"] == GOOD
    assert (len(script.agent), len(script.tasks)) == (1, 0)


async def test_statement_35_one_judgement_and_one_retry_over_http(
    gateway: Any, upstream: Any
) -> None:
    script = Script(upstream, BAD, GOOD, argcheck_judge=[NO])
    status, body, headers = await post(gateway, ask("marina/argcheck:ext/agent"))
    assert status == 200
    assert json.loads(called(body)) == {"order_id": "ORD-77"}
    counters = "writes=1 flagged=1 judged=1 unsupported=1 retried=1"
    assert headers["x-marina-argcheck"] == counters
    assert float(headers["x-marina-argcheck-cost-usd"]) == pytest.approx(1.25)
    assert float(headers["x-marina-cost-usd"]) == pytest.approx(2.25)
    assert body["choices"][0]["message"] == GOOD, "the second reply as the model wrote it"
    assert script.tasks == [("argcheck-judge", script.agent[0]["model"])]
    note = script.agent[1]["messages"][-1]
    assert note["role"] == "system"
    assert "ORD-99" in note["content"]
    assert "ORD-77" not in note["content"]
    roles = [row["role"] for row in await gateway.rows()]
    assert roles.count("checker") == 1
    assert len(roles) == 3


async def test_statement_36_the_same_call_passes_over_http(gateway: Any, upstream: Any) -> None:
    script = Script(upstream, BAD, says("Which one?"), BAD, argcheck_judge=[NO])
    await post(gateway, ask("marina/argcheck:ext/agent"))
    messages = (HELLO, says("Which one?"), user("The other one"))
    _, body, headers = await post(gateway, ask("marina/argcheck:ext/agent", *messages))
    assert headers["x-marina-argcheck"] == "writes=1 flagged=1 reissued=1"
    assert called(body) == BAD["tool_calls"][0]["function"]["arguments"]
    assert len(script.tasks) == 1


@pytest.mark.parametrize("answer", [503, "no JSON at all"])
async def test_statement_37_a_judge_that_fails_passes_over_http(
    gateway: Any, upstream: Any, answer: Any
) -> None:
    # A provider that is away may be asked more than once.
    Script(upstream, BAD, argcheck_judge=[answer] * 9)
    status, body, headers = await post(gateway, ask("marina/argcheck:ext/agent"))
    assert status == 200
    assert called(body) == BAD["tool_calls"][0]["function"]["arguments"]
    assert "judge-un" in headers["x-marina-argcheck"]


async def test_statement_37_streams_pass_with_a_header_over_http(
    gateway: Any, upstream: Any, h: Any
) -> None:
    upstream.replies["agent"] = upstream.stream(h.chunk({"role": "assistant", "content": "Hi"}))
    request = ask("marina/argcheck:ext/agent", stream=True)
    async with gateway.post(request) as response:
        assert response.status == 200
        assert response.headers["x-marina-argcheck"] == "streamed=1"
        assert "Hi" in (await response.text())
    sent = json.loads(upstream.bodies[0])
    assert sent["messages"] == request["messages"]


ORDERS = ("marina/obligations:marina/argcheck:", "marina/argcheck:marina/obligations:")


@pytest.mark.parametrize("prefix", ORDERS)
async def test_statement_39_both_headers_survive_a_retry_over_http(
    gateway: Any, upstream: Any, prefix: str
) -> None:
    owed = {"request": "cancel ORD-77", "tools": ["cancel_order"], "identifiers": ["ORD-77"]}
    script = Script(
        upstream,
        BAD,
        says("Done, it is cancelled."),
        GOOD,
        argcheck_judge=[NO],
        obligations_read=[json.dumps({"obligations": [owed]})],
        obligations_judge=[json.dumps({"open": [{"id": 1, "status": "owed", "why": "x"}]})] * 2,
    )
    status, body, headers = await post(gateway, ask(f"{prefix}ext/agent"))
    assert status == 200
    assert json.loads(called(body)) == {"order_id": "ORD-77"}
    assert "retried=1" in headers["x-marina-argcheck"]
    assert "judged=1" in headers["x-marina-argcheck"]
    assert headers["x-marina-obligations"] not in ("", "0")
    for name in ("x-marina-argcheck-cost-usd", "x-marina-obligations-cost-usd"):
        assert float(headers[name]) > 0
    rows = await gateway.rows()
    assert float(headers["x-marina-cost-usd"]) == pytest.approx(
        sum(row["cost_usd"] for row in rows)
    )
    assert {row["arm"] for row in rows} == {"obligations+argcheck"}
    assert len(script.agent) == 3


@pytest.mark.parametrize("prefix", ["marina/argcheck:", *ORDERS])
async def test_statement_39_n_is_refused_over_http(
    gateway: Any, upstream: Any, prefix: str
) -> None:
    status, body, _ = await post(gateway, ask(f"{prefix}ext/agent", n=2))
    assert status == 400
    assert body["error"]["code"] == "unsupported_parameter"
    assert upstream.bodies == []
