"""Whatever upstreams answer and callers do: one row for each upstream call, and costs that agree.

Every request has a run id of its own, which our upstream is told, so that what it has seen can be
laid beside the ledger. TAU2EVAL_PROPERTY_REQUESTS makes more of them.
"""

import asyncio
import json
import os
import random
from collections import Counter

import aiohttp
import pytest

from tau2eval_gateway.model_list import Deployment
from tau2eval_gateway.prices import Prices

REQUESTS = int(os.environ.get("TAU2EVAL_PROPERTY_REQUESTS", "250"))
AT_ONCE = 16
FLOWS = [
    "", "marina/verify:", "marina/obligations:", "marina/argcheck:",
    "marina/obligations:marina/argcheck:", "marina/argcheck:marina/obligations:",
    "marina/argcheck:marina/verify:", "marina/verify:marina/argcheck:",
    "marina/obligations:marina/argcheck:marina/verify:",
    "marina/verify:marina/obligations:marina/argcheck:",
    "marina/argcheck:marina/verify:marina/obligations:",
]  # fmt: skip
ARMS = {"obligations": "obligations", "argcheck": "argcheck", "verify": "verify"}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("cancel_order", "get_order", "refund_order")
]
HELPER_ROLES = {
    "verify-review": "checker",
    "argcheck-judge": "checker",
    "obligations-read": "ledger",
    "obligations-judge": "ledger",
}


def tool_call(dice, at):
    arguments = dice.choice(
        [{"id": "A-123456"}, *[{"id": "made_up_77"}] * 6, {"id": 1.0, "x": None}, [], {"n": [1]}]
    )
    text = dice.choice([*[json.dumps(arguments)] * 8, "{", '{"id": "A", "id": "B"}'])
    name = dice.choice(["cancel_order", "get_order", "refund_order", "refund_order", ""])
    call = {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": text}}
    return dice.choice([*[call] * 12, {**call, "id": None}, {"id": "x"}, None])


def written(dice, task):
    """Returns what a model says: a helper mostly what it is asked for."""
    if task == "verify-review":
        conflict = {
            "call": dice.choice(["cancel_order", "c0", "draft-call-1"]),
            "argument": dice.choice(["id", None, "a[0]"]),
            "action": dice.choice(["modify", "drop", "add", "other"]),
            "quote": dice.choice(["cancel my order A-123456", "short", 7]),
        }
        answer = {
            "verdict": dice.choice(["approve", "revise", "revise", "revise", 3]),
            "note": dice.choice(["Fix it.", "", None]),
            "conflicts": dice.choice([[conflict], [conflict] * 3, [], None]),
        }
    elif task == "obligations-read":
        one = {"request": "cancel", "tools": ["cancel_order"], "identifiers": ["A-123456"]}
        answer = {"obligations": dice.choice([*[[one], [one, {**one, "request": "x"}]] * 4, [], 5])}
    elif task == "obligations-judge":
        answer = {
            "open": [{"id": n, "status": dice.choice(["owed", "owed", "done"])} for n in (1, 2)]
        }
    elif task == "argcheck-judge":
        answer = {
            "calls": [{"call": n, "supported": dice.choice([True, False, False])} for n in range(3)]
        }
    else:
        return dice.choice(["Done.", "I will.", "", "x" * 3000, None])
    text = json.dumps(answer)
    return dice.choice([*[text] * 6, f"So: {text}", "{" * 500, None, ""])


def message(dice, task):
    told = {"role": "assistant", "content": written(dice, task)}
    if not task and dice.random() < 0.5:
        told["tool_calls"] = [tool_call(dice, at) for at in range(dice.randrange(4))]
    if not task and dice.random() < 0.05:
        told["function_call"] = {"name": "cancel_order", "arguments": "{}"}
    return dice.choice([told] * 40 + [{}, None])


class Hostile:
    """Answers at random, and remembers whom."""

    def __init__(self, h, seed):
        self.h = h
        self.dice = random.Random(seed)
        self.seen = Counter()
        self.roles = {}

    async def __call__(self, request, body):
        dice, run = self.dice, request.headers["x-tau2eval-run"]
        self.seen[run] += 1
        system = body["messages"][0]
        first = system["content"] if system["role"] == "system" else ""
        task = first.partition("\n")[0].removeprefix("[tau2-eval:").rstrip("]")
        task = task if task in HELPER_ROLES else ""
        role = request.headers.get("x-tau2eval-role")
        self.roles.setdefault(run, []).append((role, HELPER_ROLES.get(task, "agent")))
        fate = dice.random()
        if fate < 0.08:
            return self.refusal(request)
        if fate < 0.16:
            await asyncio.sleep(dice.choice([0.3, 3.0]))
        elif fate < 0.40:
            await asyncio.sleep(dice.random() * 0.05)
        return self.answer(task)

    def refusal(self, request):
        kind = self.dice.choice(["cut", 400, 429, 500, 503, "text", "{", "null", "no choices"])
        if kind == "cut":
            request.transport.abort()
        if isinstance(kind, int):
            body = self.h.error_body("no")
            return aiohttp.web.json_response(body, status=kind, headers={"Retry-After": "0"})
        if kind == "no choices":
            return aiohttp.web.json_response({"choices": [], "usage": self.usage()})
        return aiohttp.web.Response(text=str(kind), content_type="application/json")

    def usage(self):
        dice = self.dice
        usage = {"prompt_tokens": dice.randrange(1, 5000), "completion_tokens": dice.randrange(500)}
        if dice.random() < 0.95:
            usage["cost"] = dice.choice([0, 0.25, 1e-7, 3, *[dice.random()] * 16, "4", -1, None])
        return usage

    def answer(self, task):
        dice = self.dice
        finish = dice.choice(["stop", "stop", "tool_calls", "length", None])
        choice = {"index": 0, "message": message(dice, task), "finish_reason": finish}
        body = {**self.h.completion(), "choices": dice.choice([[choice]] * 9 + [[choice] * 2])}
        body["usage"] = dice.choice([self.usage()] * 19 + [None])
        return aiohttp.web.json_response(body)


def conversation(dice, number):
    opening = f"Please cancel my order A-123456 now. ({number % 197})"
    said = [{"role": "system", "content": "Rules."}, {"role": "user", "content": opening}]
    if dice.random() < 0.2:
        call = {
            "id": "h", "type": "function",
            "function": {"name": "cancel_order", "arguments": '{"id": "A-123456"}'},
        }  # fmt: skip
        result = dice.choice(['{"status": "ok"}', "Error: no", ""])
        said += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "h", "content": result},
        ]
    return said


async def ask(gateway, dice, number, told):
    """Asks once; notes status and headers, or that the caller left."""
    flow, priced = dice.choice([*FLOWS, *FLOWS[2:4] * 3]), dice.choice(["priced", "bare"])
    model = f"{flow}{priced}/agent" + ("+bare/judge" if "verify" in flow and number % 2 else "")
    body = {
        "model": model,
        "messages": conversation(dice, number),
        **({"tools": TOOLS} if dice.random() < 0.9 else {}),
    }
    headers = {"x-tau2eval-run": f"r{number}", "x-tau2eval-role": "agent"}
    if dice.random() < 0.4:
        headers["x-marina-session"] = f"s{number % 97}"
    patience = dice.choice([10, 10, 10, 10, 0.02, 0.1])
    told[f"r{number}"] = {"flow": flow, "status": None}
    try:
        async with asyncio.timeout(patience), gateway.post(body, headers=headers) as response:
            given = await response.read()
            found = {"status": response.status, "headers": response.headers, "body": given}
            told[f"r{number}"].update(found)
    except TimeoutError:
        pass


def own_cost(found, flow):
    value = found["headers"].get(f"x-marina-{flow}-cost-usd")
    return None if value is None else float(value)


@pytest.mark.parametrize("cap", [None, "1000000"])
async def test_every_upstream_call_has_one_row_and_costs_agree(upstream, h, tmp_path, cap):
    seed = int(os.environ.get("TAU2EVAL_PROPERTY_SEED", "5"))
    hostile = Hostile(h, seed)
    upstream.replies = {"agent": hostile, "judge": hostile}
    base = f"http://{upstream.address}/v1"
    deployments = [
        Deployment("bare/*", "openai/*", base, own=True),
        Deployment("priced/*", "openai/*", base, own=True, prices=Prices(0.001, 0.002)),
    ]
    seeds = {"MARINA_OPEN_API": "true", **({"MARINA_DAILY_SPEND_CAP_USD": cap} if cap else {})}
    dice, told = random.Random(seed + 1), {}
    async with h.gateway(
        tmp_path, deployments, seed=seeds, total_timeout_seconds=2.0, helper_timeout_seconds=1.0
    ) as gateway:
        numbers = iter(range(REQUESTS))

        async def caller():
            for number in numbers:
                await ask(gateway, dice, number, told)

        await asyncio.gather(*(caller() for _ in range(AT_ONCE)))
        core = gateway.service._core
        async with asyncio.timeout(20):
            while core._calls:
                await asyncio.sleep(0.02)
        rows = {}
        for row in await gateway.rows():
            rows.setdefault(row["run_id"], []).append(row)
        today = await core.ledger.today()
    statuses = Counter(found["status"] for found in told.values())
    assert statuses[200] > REQUESTS / 3
    assert statuses[None] > REQUESTS / 50
    assert today.reserved_usd == 0
    for run, found in told.items():
        check_rows(found, rows.get(run, []), hostile.seen[run], hostile.roles.get(run, []))
        if found["status"] == 200:
            check_costs(found, rows[run])
        elif found["status"] is not None:
            assert json.loads(found["body"])["error"]["message"]
            assert found["status"] != 500 or rows[run][-1]["http_status"] == 500
    counted = sum(row["counted_usd"] for each in rows.values() for row in each)
    assert today.counted_usd == pytest.approx(counted)


def check_rows(found, rows, seen, roles):
    # A call that is given up before it is sent has a row and is not seen.
    unsent = sum(row["status"] == "cancelled" for row in rows) if found["status"] is None else 0
    assert seen <= len(rows) <= seen + unsent, (found, rows)
    arm = "+".join(ARMS[name] for name in ARMS if f"/{name}:" in found["flow"]) or "single"
    assert {row["arm"] for row in rows} <= {arm}
    assert all(told == expected for told, expected in roles)
    assert not Counter(told for told, _ in roles) - Counter(row["role"] for row in rows)
    assert len({row["call_id"] for row in rows}) == len(rows)


def check_costs(found, rows):
    total = found["headers"].get("x-marina-cost-usd")
    known = sum(row["cost_usd"] or 0 for row in rows)
    # Tokens of a call that failed are an estimate of what may be billed.
    unclear = [
        row
        for row in rows
        if (row["prompt_tokens"] if row["status"] != "ok" else row["cost_usd"] is None)
    ]
    assert (total is None) == bool(unclear), (found, rows)
    if total is None:
        return
    assert float(total) == pytest.approx(known, abs=1e-9)
    ledger = sum(row["cost_usd"] or 0 for row in rows if row["role"] == "ledger")
    checkers = sum(row["cost_usd"] or 0 for row in rows if row["role"] == "checker")
    for flow, own in (("obligations", ledger), ("argcheck", checkers)):
        cost = own_cost(found, flow)
        if f"/{flow}:" not in found["flow"]:
            assert cost is None
        elif flow == "obligations" or "verify" not in found["flow"]:
            assert cost is not None
            assert own - 1e-9 <= cost <= known + 1e-9
            told = found["headers"][f"x-marina-{flow}"]
            if "nudged=0" in told or (flow == "argcheck" and "retr" not in told):
                assert cost == pytest.approx(own, abs=1e-9), (found, rows)
            elif found["flow"] == f"marina/{flow}:" and "-failed" not in told:
                # Asked once more: all but the answer that the caller has.
                agent = [row for row in rows if row["role"] == "agent" and row["status"] == "ok"]
                last = max(agent, key=lambda row: row["time"])
                assert cost == pytest.approx(known - last["cost_usd"], abs=1e-9), (found, rows)
    if "verify" in found["flow"]:
        usage = json.loads(found["body"]).get("usage") or {}
        assert "cost" not in usage or usage["cost"] == pytest.approx(known)
