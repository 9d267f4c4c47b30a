"""marina/obligations: as a caller sees it over HTTP (statements 22 to 30)."""

import asyncio
import json

import pytest
from redis_server import PASSWORD, RedisServer

from tau2eval_gateway.model_list import Deployment

MODEL = "marina/obligations:scripted/agent"
LEDGER = "scripted/ledger"
ASKED = [
    {"role": "system", "content": "Help with bookings."},
    {"role": "user", "content": "Please cancel booking AB12."},
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "cancel_booking",
            "parameters": {"type": "object", "properties": {"booking_id": {"type": "string"}}},
        },
    }
]
WANTED = {
    "obligations": [
        {"request": "Cancel AB12", "tools": ["cancel_booking"], "identifiers": ["AB12"]}
    ]
}
NOTHING = {"obligations": []}


def judged(status):
    return {"open": [{"id": 1, "status": status}]}


def says(content, cost=0.25, **more):
    content = json.dumps(content) if isinstance(content, dict) else content
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "served-1",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": content},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4, "cost": cost},
        **more,
    }


def cancels():
    function = {"name": "cancel_booking", "arguments": '{"booking_id": "AB12"}'}
    answer = says(None)
    answer["choices"][0]["finish_reason"] = "tool_calls"
    answer["choices"][0]["message"]["tool_calls"] = [
        {"id": "c9", "type": "function", "function": function}
    ]
    return answer


class Scripts:
    """Answers the agent's and the ledger model's calls in order; a number is an error's status."""

    def __init__(self, upstream, h):
        self.upstream, self.h = upstream, h
        self.agent, self.ledger = [], []
        upstream.replies["scripted/agent"] = self._reply(self.agent)
        upstream.replies[LEDGER] = self._reply(self.ledger)

    def _reply(self, waiting):
        async def reply(request, body):
            answer = waiting.pop(0)
            if isinstance(answer, int):
                error = self.h.error_body("down")
                return await self.upstream.answer(error, answer)(request, body)
            return await self.upstream.answer(answer)(request, body)

        return reply

    def set(self, agent=(), ledger=()):
        self.agent[:], self.ledger[:] = (
            agent,
            [one if isinstance(one, int) else says(one, 0.01) for one in ledger],
        )
        self.upstream.bodies.clear()

    @property
    def sent(self):
        return [json.loads(raw) for raw in self.upstream.bodies]

    @property
    def models(self):
        return [body["model"].removeprefix("scripted/") for body in self.sent]


@pytest.fixture
def scripts(upstream, h):
    return Scripts(upstream, h)


@pytest.fixture
def opened(upstream, tmp_path, h):
    """Opens a gateway with the ledger model, and other settings."""

    def open_gateway(name="one", **settings):
        base = f"http://{upstream.address}/v1"
        deployments = [Deployment("scripted/*", "openai/scripted/*", base, own=True)]
        seed = {"MARINA_OPEN_API": "true", "MARINA_OBLIGATIONS_MODEL": LEDGER}
        return h.gateway(tmp_path / name, deployments, seed=seed, **settings)

    return open_gateway


async def ask(gateway, messages=ASKED, session="", model=MODEL, **more):
    body = {"model": model, "messages": messages, "tools": TOOLS, **more}
    headers = {"x-marina-session": session} if session else {}
    async with gateway.post(body, headers=headers) as response:
        assert response.status == 200, await response.text()
        return await response.read(), dict(response.headers)


def header(headers):
    return headers["x-marina-obligations"]


async def test_statement_22_without_the_prefix_no_byte_changes(opened, scripts, upstream):
    raw = b"""{ "model": "scripted/agent" , "messages":[{"role":"user","content":"\\u00e9"}],
      "tools": [ {"type":"function","function":{"name":"cancel_booking"}} ], "x": 1.0 }"""
    scripts.set([says("Hi")])
    async with opened() as gateway:
        async with gateway.post(raw) as response:
            assert response.status == 200
            assert not [name for name in response.headers if "obligations" in name.lower()]
    assert upstream.bodies == [raw]


async def test_statement_23_to_30_a_conversation(opened, scripts):
    async with opened() as gateway:
        scripts.set([says("It is cancelled."), cancels()], [WANTED, judged("owed")])
        body, headers = await ask(gateway)
        assert json.loads(body) == cancels()
        assert header(headers) == "read=1 open=1 settled=0 judged=1 nudged=1"
        # The reading, the judgement and the draft that was discarded; and all four.
        assert headers["x-marina-obligations-cost-usd"] == "0.27"
        assert headers["x-marina-cost-usd"] == "0.52"
        assert scripts.models == ["ledger", "agent", "ledger", "agent"]
        _, first, _, second = scripts.sent
        assert first["messages"][:-1] == ASKED
        assert "AB12" in first["messages"][-1]["content"]
        assert second["messages"][:-1] == first["messages"]
        assert '"It is cancelled."' in second["messages"][-1]["content"]
        rows = await gateway.rows()
        assert [(row["role"], row["arm"]) for row in rows] == [
            ("ledger", "obligations"),
            ("", "obligations"),
            ("ledger", "obligations"),
            ("", "obligations"),
        ]
        done = [
            *ASKED,
            cancels()["choices"][0]["message"],
            {"role": "tool", "tool_call_id": "c9", "content": '{"status": "cancelled"}'},
        ]
        scripts.set([says("Done.")])
        body, headers = await ask(gateway, done)
        assert json.loads(body)["choices"] == says("Done.")["choices"]
        assert header(headers) == "read=0 open=0 settled=1 judged=0 nudged=0"
        assert headers["x-marina-obligations-cost-usd"] == "0.0"
        assert scripts.sent[0]["messages"] == done


async def test_statement_25_the_bytes_before_the_note_are_the_callers(opened, scripts, upstream):
    part = b'{"type":"text", "text":"Cancel AB12","cache_control":{"type":"ephemeral"}}'
    before = b'{"messages" : [ {"role":"user", "content":[%s]}' % part
    after = b' ], "tools":%s,  "model":"%s"}'
    tools = json.dumps(TOOLS).encode()
    scripts.set([cancels()], [WANTED])
    async with opened() as gateway:
        async with gateway.post(before + after % (tools, MODEL.encode())) as response:
            assert response.status == 200
    sent = upstream.bodies[1]
    assert sent.startswith(before)
    assert sent.endswith(b'"tools":%s,  "model":"scripted/agent"}' % tools)
    note = json.loads(sent)["messages"][-1]
    assert (note["role"], "AB12" in note["content"]) == ("system", True)


@pytest.mark.parametrize("fault", [500, 429, "babble", "{}"])
async def test_statement_23_a_ledger_model_that_fails_blocks_nothing(opened, scripts, fault):
    # Two of them: the gateway may try a status of 500 or 429 again.
    scripts.set([says("Hi")], [fault] * 5)
    async with opened() as gateway:
        body, headers = await ask(gateway)
    assert json.loads(body)["choices"] == says("Hi")["choices"]
    assert header(headers) == "read=0 open=0 settled=0 judged=0 nudged=0 read-failed=1"
    assert scripts.sent[-1]["messages"] == ASKED


@pytest.mark.parametrize("fault", [500, "babble"])
async def test_statement_27_a_failed_judgement_or_retry_gives_the_draft(opened, scripts, fault):
    async with opened() as gateway:
        scripts.set([says("Sure.")], [WANTED] + [fault] * 5)
        body, headers = await ask(gateway)
        assert json.loads(body)["choices"] == says("Sure.")["choices"]
        assert "judge-failed=1" in header(headers)
        scripts.set([says("Sure."), 503, 503, 503, 503], [judged("owed")])
        body, headers = await ask(gateway)
        assert json.loads(body)["choices"] == says("Sure.")["choices"]
        assert "nudged=1 retry-failed=1" in header(headers)


async def test_statement_27_a_stream_gets_the_note_only(opened, scripts, upstream, h):
    events = [h.chunk({"role": "assistant", "content": "Sure."}), h.chunk({}, "stop")]
    upstream.replies["scripted/agent"] = upstream.stream(*events)
    scripts.ledger[:] = [says(WANTED, 0.01)]
    async with opened() as gateway:
        body, headers = await ask(gateway, stream=True)
        rows = await gateway.rows()
    assert [(row["role"], row["arm"], row["streamed"]) for row in rows] == [
        ("ledger", "obligations", False),
        ("", "obligations", True),
    ], "the arms of a stream"
    assert b"Sure." in body
    assert body.rstrip().endswith(b"[DONE]")
    assert header(headers) == "read=1 open=1 settled=0 judged=0 nudged=0"
    assert headers["x-marina-obligations-cost-usd"] == "0.01"
    assert "AB12" in scripts.sent[1]["messages"][-1]["content"]
    assert scripts.models == ["ledger", "agent"]


@pytest.mark.parametrize("sessions", [("", ""), ("s1", "s2")])
async def test_statement_29_two_conversations_with_one_opening(opened, scripts, sessions):
    async with opened() as gateway:
        for session in sessions:
            scripts.set([says("Sure?")], [WANTED, judged("waiting")])
            await ask(gateway, session=session)
        for session, word in zip(sessions, ("Yes", "Go on"), strict=True):
            sure = {"role": "assistant", "content": "Sure?"}
            longer = [*ASKED, sure, {"role": "user", "content": word}]
            for _ in range(2):  # And the same request again.
                scripts.set([says("Done."), cancels()], [NOTHING, judged("owed")])
                if _:
                    scripts.ledger.pop(0)
                body, headers = await ask(gateway, longer, session)
                assert json.loads(body)["choices"] == cancels()["choices"]
                assert "judged=1 nudged=1" in header(headers)


async def test_statement_29_parallel_requests_read_once(opened, scripts):
    scripts.set([cancels()] * 6, [WANTED])
    async with opened() as gateway:
        answers = await asyncio.gather(*(ask(gateway) for _ in range(6)))
    assert scripts.models.count("ledger") == 1
    assert sorted(header(headers)[:6] for _, headers in answers) == ["read=0"] * 5 + ["read=1"]


async def test_statement_28_two_gateways_share_one_redis_that_is_killed(
    opened, scripts, tmp_path, caplog
):
    server = RedisServer(tmp_path)
    server.start()
    sure = {"role": "assistant", "content": "Sure?"}
    longer = [*ASKED, sure, {"role": "user", "content": "Yes"}]
    later = [*longer, {"role": "assistant", "content": "So be it."}]
    later.append({"role": "user", "content": "Thanks"})
    try:
        async with opened(state_url=server.url) as one, opened("two", state_url=server.url) as two:
            scripts.set([says("Sure?")], [WANTED, judged("waiting")])
            await ask(one)
            scripts.set([says("Done."), says("So be it.")], [NOTHING, judged("owed")])
            _, headers = await ask(two, longer)
            assert header(headers) == "read=1 open=1 settled=0 judged=1 nudged=1"
            scripts.set([says("Bye.")], [NOTHING])
            _, headers = await ask(one, later)
            assert header(headers) == "read=1 open=1 settled=0 judged=0 nudged=0"
            server.stop()
            # No facts: all is read again, in one call, and the answer comes.
            scripts.set([cancels()], [WANTED])
            body, headers = await ask(two, later)
            assert json.loads(body)["choices"] == cancels()["choices"]
            assert header(headers).startswith("read=3 open=1")
            # What was found while it is away is kept in the process.
            scripts.set([cancels()])
            _, headers = await ask(two, later)
            assert header(headers).startswith("read=0 open=1")
    finally:
        server.stop()
    assert PASSWORD not in caplog.text
    assert "conversations go on without shared state" in caplog.text
