"""Interleaved conversations and replays, through the flow, in memory and in Redis (29)."""

import asyncio
import json
import random

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis_server import RedisServer
from test_statement_22_30_obligations import POLICY, request_of, section

from tau2eval_gateway.flows.base import FlowContext, Reply
from tau2eval_gateway.flows.obligations import ObligationsFlow
from tau2eval_gateway.flows.state import MemoryStateStore, open_state


def reply(message):
    body = {"choices": [{"index": 0, "message": message}]}
    return Reply(orjson.dumps(body), body, "up")


class Rules:
    """Helpers that answer by rule: every word is a request, and every draft leaves it owed."""

    def __init__(self, stores, flows):
        self.stores, self.flows = stores, flows
        self.reads = []

    async def ask(self, messages, session="", replica=0):
        """Returns what the note named, and what the nudge did."""
        request = request_of(messages)
        context = FlowContext("marina/obligations:m", "m", "key", session, None, None)
        asked = []

        async def consult(role, model, body):
            await asyncio.sleep(0)
            if "obligations-read" in body["messages"][0]["content"]:
                new = [one for one in section(body, "conversation") if one.get("new")]
                self.reads += [one["text"] for one in new]
                items = [
                    {"request": one["text"], "tools": ["cancel_booking"], "message": one["message"]}
                    for one in new
                ]
                answer = {"obligations": items}
            else:
                found = section(body, "open")
                answer = {"open": [{"id": one["id"], "status": "owed"} for one in found]}
            return reply({"role": "assistant", "content": json.dumps(answer)})

        async def inner(asked_for):
            asked.append(asked_for)
            return reply({"role": "assistant", "content": f"ok {len(asked)}"})

        store = self.stores[replica]
        context.consult = consult
        state = await open_state(store, "obligations", "key", session, request)

        async def opened(flow, _):
            return state

        context.open_state = opened
        answer = await self.flows[replica].complete(request, inner, context)
        counters = context.tally("obligations").counters
        return answer.message["content"], counters["open"], counters["nudged"]


def conversation(words):
    """Requests of a conversation: after each word of the user, the reply that was returned."""
    messages = [POLICY]
    for number, word in enumerate(words):
        messages = [*messages, {"role": "user", "content": f"{word}{number}"}]
        yield messages
        # Every new request was nudged about, so the second reply came.
        messages = [*messages, {"role": "assistant", "content": "ok 2"}]


async def check(rules, said, order, sessions, replicas=1):
    requests = [list(conversation(words)) for words in said]
    at = [0] * len(said)
    for turn, number in enumerate(order):
        index = at[number] % len(requests[number])
        at[number] += 1
        found = await rules.ask(requests[number][index], sessions[number], turn % replicas)
        # In every conversation each new request has its own nudge, also when it is sent again.
        assert found == ("ok 2", index + 1, 1)


words = st.lists(st.sampled_from("ab"), min_size=1, max_size=7)


@settings(max_examples=60, deadline=None)
@given(st.lists(words, min_size=1, max_size=3), st.booleans(), st.data())
def test_statement_29_nudges_in_any_interleaving(said, in_sessions, data):
    # Some requests are sent again after the last one: whole conversations start over.
    order = data.draw(
        st.permutations([n for n, one in enumerate(said) for _ in range(len(one) + 2)])
    )
    sessions = [f"s{n}" if in_sessions else "" for n in range(len(said))]
    rules = Rules([MemoryStateStore()], [ObligationsFlow()])
    asyncio.run(check(rules, said, order, sessions))
    if not in_sessions:
        # Each message of each history was read once.
        histories = {tuple(one[: n + 1]) for one in said for n in range(len(one))}
        assert len(rules.reads) == len(histories)


@pytest.mark.parametrize("seed", range(4))
async def test_statement_29_two_gateways_on_one_redis_in_any_order(tmp_path, seed):
    server = RedisServer(tmp_path)
    server.start()
    stores = [server.store(), server.store()]
    try:
        draw = random.Random(seed)
        said = [draw.choices("ab", k=6) for _ in range(3)]
        order = [n for n in range(3) for _ in range(8)]
        draw.shuffle(order)
        rules = Rules(stores, [ObligationsFlow(), ObligationsFlow()])
        await check(rules, said, order, [""] * 3, replicas=2)
        histories = {tuple(one[: n + 1]) for one in said for n in range(len(one))}
        assert len(rules.reads) == len(histories)
    finally:
        for store in stores:
            await store.aclose()
        server.stop()
