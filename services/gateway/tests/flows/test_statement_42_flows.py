"""Statements 22 and 42 behind control flows: calls for an answer keep the caller's members."""

from __future__ import annotations

import json
from typing import Any

import pytest
from argcheck_fakes import TOOLS, calls, says

ASKED = "Please cancel order ORD-77"
ANSWERS = {
    "verify-review": {"verdict": "revise", "note": "Be kind.", "conflicts": []},
    "obligations-read": {
        "obligations": [{"request": "cancel", "tools": ["cancel_order"], "identifiers": ["ORD-77"]}]
    },
    "obligations-judge": {"open": [{"id": 1, "status": "owed"}]},
    "argcheck-judge": {"calls": [{"call": 0, "supported": False, "values": ["ORD-99"]}]},
}
MADE_UP = calls(("cancel_order", {"order_id": "ORD-99"}))
DRAFTS = {
    "marina/verify:": [says("Wait."), says("Please wait.")],
    "marina/obligations:": [says("It is done."), says("It is not done.")],
    "marina/argcheck:": [MADE_UP, says("Which one?")],
    "marina/obligations:marina/argcheck:": [MADE_UP, says("It is done."), says("Sorry.")],
    "marina/argcheck:marina/verify:": [says("Wait."), says("Please wait.")],
}
# What no parser keeps: white space, escapes, long numbers, members that nobody knows.
BODY = rb"""{ "reasoning_effort":"high", "model":"%b" ,"zz" : 1.50,
  "big": 123456789012345678901234567890, "messages": [ {"role":"user","content":"%b \u00e9"} ],
  "tools":%b, "verbosity": "low" }"""


@pytest.mark.parametrize("prefix", DRAFTS)
async def test_statement_42_drafts_and_retries_keep_the_callers_members(
    gateway: Any, upstream: Any, h: Any, prefix: str
) -> None:
    drafts = list(DRAFTS[prefix])
    asked: list[bytes] = []
    helped: list[dict[str, Any]] = []

    async def answer(request: Any, body: dict[str, Any]) -> Any:
        first = body["messages"][0]["content"]
        task = first.partition("]")[0].removeprefix("[tau2-eval:") if first[0] == "[" else ""
        if task:
            helped.append(body)
            message = says(json.dumps(ANSWERS[task]))
        else:
            asked.append(upstream.bodies[-1])
            message = drafts.pop(0)
        whole = h.completion()
        whole["choices"][0]["message"] = message
        return await upstream.answer(whole)(request, body)

    upstream.replies["agent"] = answer

    def written(model: str) -> bytes:
        return BODY % (model.encode(), ASKED.encode(), json.dumps(TOOLS).encode())

    async with gateway.post(written(f"{prefix}ext/agent")) as response:
        assert response.status == 200, await response.text()
    assert drafts == [], "the flow asked again"
    # All but what stands at the end of `messages` is the caller's, byte for byte.
    start, end = written("agent").split(b"],\n")
    for sent in asked:
        assert sent.startswith(start)
        assert sent.endswith(b"],\n" + end)
        assert json.loads(sent)["reasoning_effort"] == "high"
    assert len(asked[-1]) > len(asked[0])
    for body in helped:
        assert body.keys() == {"model", "messages"}, "a helper may know none of them"
