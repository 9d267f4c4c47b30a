"""Whatever an upstream does: a true error or the whole answer, never a fragment that looks whole.

The kinds of the public failoverbench suite are among these, marked with its numbers (S01 to S16).
"""

from __future__ import annotations

import asyncio
import email.utils
import gzip
import itertools
import json
import time

import pytest

from tau2eval_gateway import sse
from tau2eval_gateway.model_list import Deployment

SHORT = {
    "first_byte_timeout_seconds": 0.4,
    "idle_timeout_seconds": 0.3,
    "total_timeout_seconds": 0.8,
}
"""Time-outs for the faults that last until one of them ends."""


@pytest.fixture
async def gateway(wire, h, tmp_path, request):
    name = getattr(request.node, "callspec", None) and request.node.callspec.params.get("name")
    hasty = name is not None and {FIRST, IDLE, TOTAL} & set(FAULTS[name][1:3])
    base = f"http://{wire.address}/v1"
    deployments = [Deployment("*", "openai/*", base)]
    async with h.gateway(tmp_path, deployments, **(SHORT if hasty else {})) as found:
        yield found


FAULTS = {}
"""By name: (script, outcome when streaming, outcome of a plain call, attempts)."""


def fault(name, streamed, plain, attempts=1):
    def keep(script):
        FAULTS[name] = (script, streamed, plain, attempts)
        return script

    return keep


WHOLE, TRUNCATED, BROKEN = "whole", "upstream_truncated", "upstream_connection_error"
FIRST, IDLE = "upstream_timeout_first_byte", "upstream_timeout_idle"
INVALID, TOTAL = "upstream_invalid_response", "upstream_timeout_total"
NEVER = None
"""The kind does not exist for this way of asking."""


def pieces(line):
    """The answer, cut: (what comes before the fault, the rest)."""
    from_start = KIT.answer(line.stream)
    cut = 41 if line.stream else 2
    return from_start[:cut], from_start[cut:]


class KIT:
    """Set by the fixture below; scripts are made before fixtures are."""

    answer = chunk = sse = None


@pytest.fixture(autouse=True)
def _kit(kit):
    KIT.answer, KIT.chunk, KIT.sse = kit.answer, kit.chunk, kit.sse


async def half(line):
    await line.head()
    for piece in pieces(line)[0]:
        await line.piece(piece)


@fault("slow first byte, in time", WHOLE, WHOLE)
async def slow_in_time(line):
    await asyncio.sleep(0.2)
    await line.whole()


@fault("S06 no response at all", FIRST, TOTAL)
async def silent(line):
    await line.gone()


@fault("S07 slow first token", FIRST, TOTAL)
async def slow_token(line):
    await line.head()
    await line.gone()


@fault("S09 stall in mid-answer", IDLE, TOTAL)
async def stall(line):
    await half(line)
    await line.gone()


@fault("comments for ever and no answer", TOTAL, NEVER)
async def comments_for_ever(line):
    await line.head()
    while True:
        await line.piece(b": still here\n\n")
        await asyncio.sleep(0.05)


@fault("S08 clean close after 40 of 60 tokens", TRUNCATED, INVALID)
async def clean_close(line):
    await half(line)
    await line.end()


@fault("clean close after 40 of 60 tokens, with [DONE]", TRUNCATED, NEVER)
async def false_done(line):
    await half(line)
    await line.piece(b"data: [DONE]\n\n")
    await line.end()


@fault("S08 connection closed after 40 of 60 tokens", BROKEN, BROKEN)
async def closed_half_way(line):
    await half(line)
    line.close()


@fault("body without length or chunks that ends half way", TRUNCATED, INVALID)
async def until_close(line):
    kind = "text/event-stream" if line.stream else "application/json"
    await line.send(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n".encode())
    await line.send(b"".join(pieces(line)[0]))
    line.close()


@fault("cut inside an event", TRUNCATED, INVALID)
async def cut_inside(line):
    await half(line)
    await line.piece(pieces(line)[1][0][:30])
    await line.end()


@fault("S05 reset before the head, new connection", BROKEN, BROKEN)
async def reset_first(line):
    line.reset()


@fault("reset after the head", BROKEN, BROKEN)
async def reset_after_head(line):
    await line.head()
    await asyncio.sleep(0.05)
    line.reset()


@fault("reset in mid-body", BROKEN, BROKEN)
async def reset_half_way(line):
    await half(line)
    await asyncio.sleep(0.05)
    line.reset()


@fault("closed without a byte", BROKEN, BROKEN)
async def closed_at_once(line):
    line.close()


@fault("S10 malformed chunk", INVALID, INVALID)
async def malformed(line):
    first, rest = pieces(line)
    await line.head()
    for piece in (*first, b'data: {"choices": [{"delta"\n\n', *rest):
        await line.piece(piece)
    await line.end()


@fault("a chunk that is no object", INVALID, INVALID)
async def no_object(line):
    await half(line)
    await line.piece(b"data: [1, 2]\n\n")
    await line.end()


@fault("choices that are no list", INVALID, INVALID)
async def no_list(line):
    await line.head()
    body = {"choices": {"0": "x"}}
    await line.piece(KIT.sse(body) if line.stream else json.dumps(body).encode())
    await line.end()


@fault("no choices at all", TRUNCATED, INVALID)
async def no_choices(line):
    await line.head()
    body = {"choices": []}
    await line.piece(KIT.sse(body) if line.stream else json.dumps(body).encode())
    await line.end()


@fault("bytes that are no UTF-8", INVALID, INVALID)
async def no_utf8(line):
    await half(line)
    await line.piece(b'data: {"choices": [{"delta": {"content": "\xff\xfe"}}]}\n\n')
    await line.end()


@fault("every byte on its own", WHOLE, WHOLE)
async def byte_by_byte(line):
    await line.head()
    whole = b"".join(KIT.answer(line.stream))
    # All of a short answer, and the places where it matters in a long one.
    at = whole.index("größer".encode()) - 150
    await line.piece(whole[:at])
    for byte in whole[at:]:
        await line.piece(bytes([byte]))
    await line.end()


@fault("cut inside a character", WHOLE, WHOLE)
async def inside_a_character(line):
    whole = b"".join(KIT.answer(line.stream))
    at = whole.index("ö".encode()) + 1
    await line.head()
    await line.piece(whole[:at])
    await asyncio.sleep(0.1)
    await line.piece(whole[at:])
    await line.end()


@fault("comments before, between and inside events", WHOLE, NEVER)
async def comments(line):
    await line.head()
    await line.piece(b": PROCESSING\n\n:\n\n\n\n")
    for event in KIT.answer(True):
        await line.piece(b": inside\n" + event + b": between\n\n:\n\n")
    await line.end()


@fault("CR LF and bare CR at the ends of lines", WHOLE, NEVER)
async def other_ends(line):
    ends = itertools.cycle([b"\r\n\r\n", b"\r\r", b"\n\n", b"\n\r\n"])
    await line.head()
    for event in KIT.answer(True):
        await line.piece(event.removesuffix(b"\n\n") + next(ends))
    await line.end()


@fault("S11 no [DONE]", WHOLE, NEVER)
async def no_done(line):
    await line.head()
    for event in KIT.answer(True)[:-1]:
        await line.piece(event)
    await line.end()


@fault("no [DONE], and no empty line behind the last event", WHOLE, NEVER)
async def no_last_line(line):
    await line.head()
    await line.piece(b"".join(KIT.answer(True)[:-1]).removesuffix(b"\n\n"))
    await line.end()


@fault("more after [DONE]", WHOLE, NEVER)
async def after_done(line):
    await line.head()
    for event in KIT.answer(True):
        await line.piece(event)
    await line.piece(KIT.sse(KIT.chunk({"content": "not for you"})))
    await line.end()


@fault("S01 429 with Retry-After in seconds, then fine", WHOLE, WHOLE, 2)
async def limited_once(line):
    if line.number > 1:
        return await line.whole()
    return await line.error("429 Too Many", {"error": {"message": "slow"}}, "Retry-After: 0.2")


@fault("S01 429 with Retry-After as a date, then fine", WHOLE, WHOLE, 2)
async def limited_until(line):
    if line.number > 1:
        return await line.whole()
    date = email.utils.formatdate(time.time() + 1, usegmt=True)
    return await line.error("429 Too Many", {"error": {"message": "slow"}}, f"Retry-After: {date}")


@fault("S02 429 without Retry-After", "rate_limit_exceeded", "rate_limit_exceeded")
async def limited(line):
    await line.error("429 Too Many", {"error": {"message": "slow", "code": None}})


@fault("429 that wants an hour", "tokens", "tokens")
async def limited_long(line):
    error = {"error": {"message": "slow", "code": "tokens"}}
    await line.error("429 Too Many", error, "Retry-After: 3600")


@fault("S03 500 with a page", "upstream_error", "upstream_error")
async def page(line):
    await line.error("500 Oh", b"<html><h1>Internal Server Error</h1></html>")


@fault("503 then fine", WHOLE, WHOLE, 2)
async def away_once(line):
    if line.number > 1:
        return await line.whole()
    return await line.error("503 Away", b"", "Retry-After: 0")


@fault("S04 503 always", "upstream_error", "upstream_error", 3)
async def away(line):
    await line.error("503 Away", {"error": {"message": "overloaded"}})


@fault("S12 the context is too long", "context_length_exceeded", "context_length_exceeded")
async def too_long(line):
    error = {"message": "too long", "type": "invalid_request_error", "param": "messages"}
    await line.error("400 Bad", {"error": {**error, "code": "context_length_exceeded"}})


@fault("S13 the content filter", "content_policy_violation", "content_policy_violation")
async def filtered(line):
    error = {"message": "not that", "code": "content_policy_violation"}
    await line.error("400 Bad", {"error": error})


@fault("empty 200", TRUNCATED, INVALID)
async def empty(line):
    await line.head(length=0)


@fault("200 with an error body", "quota", "quota")
async def error_in_200(line):
    body = json.dumps({"error": {"message": "no more", "code": "quota"}}).encode()
    await line.head(length=len(body), kind="application/json")
    await line.send(body)


@fault("an error as the first event", "overloaded", NEVER)
async def error_first(line):
    await line.head()
    await line.piece(b": wait\n\n" + KIT.sse({"error": {"message": "x", "code": "overloaded"}}))
    await line.end()


@fault("an error event in the stream", "overloaded", NEVER)
async def error_event(line):
    await half(line)
    await line.piece(KIT.sse({"error": {"message": "x", "code": "overloaded"}}))
    await line.piece(b"data: [DONE]\n\n")
    await line.end()


@fault("a length that is too long", BROKEN, BROKEN)
async def long_length(line):
    whole = b"".join(KIT.answer(line.stream))
    whole = whole if not line.stream else whole[: len(whole) // 2]
    await line.head(length=len(whole) + 1000)
    await line.send(whole)
    line.close()


@fault("a length that is too short", (TRUNCATED, BROKEN), (INVALID, BROKEN))
async def short_length(line):
    whole = b"".join(KIT.answer(line.stream))
    await line.head(length=len(whole) // 2)
    await line.send(whole)
    await line.gone()


@fault("text/plain", WHOLE, WHOLE)
async def plain_text(line):
    await line.head(kind="text/plain")
    for piece in KIT.answer(line.stream):
        await line.piece(piece)
    await line.end()


@fault("gzip that nobody asked for", WHOLE, WHOLE)
async def zipped(line):
    body = gzip.compress(b"".join(KIT.answer(line.stream)))
    await line.head("Content-Encoding: gzip", length=len(body))
    await line.send(body)


@fault("gzip that breaks off", (TRUNCATED, BROKEN), (INVALID, BROKEN))
async def half_zipped(line):
    body = gzip.compress(b"".join(KIT.answer(line.stream)))
    await line.head("Content-Encoding: gzip")
    await line.piece(body[: len(body) // 2])
    await line.end()


@fault("headers without end", BROKEN, BROKEN)
async def endless_headers(line):
    await line.send(b"HTTP/1.1 200 OK\r\n")
    for number in itertools.count():
        await line.send(f"X-More-{number}: {'y' * 200}\r\n".encode())


@fault("headers that trickle", FIRST, TOTAL)
async def trickle(line):
    for byte in itertools.chain(b"HTTP/1.1 200 OK\r\n", itertools.cycle(b"X-A: b\r\n")):
        await line.send(bytes([byte]))
        await asyncio.sleep(0.1)


@fault("no HTTP at all", BROKEN, BROKEN)
async def no_http(line):
    await line.send(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    await line.gone()


@fault("a hint before the answer", WHOLE, WHOLE)
async def early_hint(line):
    await line.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
    await line.whole()


@fault("a redirect", "upstream_error", "upstream_error")
async def redirect(line):
    await line.error("302 Found", b"", "Location: http://127.0.0.1:1/elsewhere")


@fault("an event without end", INVALID, NEVER)
async def huge_event(line):
    await half(line)
    await line.piece(b"data: " + b"a" * 300_000)
    await line.gone()


CASES = [
    pytest.param(name, stream, id=f"{name}, {'stream' if stream else 'plain'}")
    for name, (_, *expected, _) in FAULTS.items()
    for stream in (True, False)
    if expected[0 if stream else 1] is not NEVER
]


@pytest.mark.parametrize(("name", "stream"), CASES)
async def test_fault(gateway, wire, kit, ask, monkeypatch, name, stream):
    script, streamed, plain, attempts = FAULTS[name]
    expected = streamed if stream else plain
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 200_000)
    wire.scripts["m"] = script
    async with asyncio.timeout(30):
        outcome = await ask(gateway, "m", stream)
        codes = expected if isinstance(expected, tuple) else (expected,)
        if expected == WHOLE:
            assert outcome.whole, outcome
            assert outcome.text == kit.whole
            assert outcome.finish == "stop"
        else:
            assert outcome.code in codes, outcome
            assert not outcome.whole
            assert kit.whole.startswith(outcome.text)
            assert not outcome.done
        assert wire.attempts == ["m"] * attempts
        while len(rows := await gateway.rows()) < attempts:
            await asyncio.sleep(0.01)
        assert len(rows) == attempts
        last = max(rows, key=lambda row: row["time"])
        assert last["status"] == ("ok" if expected == WHOLE else outcome.code)
        # Nothing is left behind: the next call is served.
        after = await kit.raw(gateway, "healthy", stream)
        assert after.whole, after
        assert after.text == kit.whole
    assert gateway.service._core._calls == 0


async def test_the_providers_status_and_pause_reach_the_client(gateway, wire, ask):
    wire.scripts |= {"m": limited_long, "page": page, "long": too_long}
    outcome = await ask(gateway, "m", True)
    assert (outcome.status, outcome.headers["retry-after"]) == (429, "3600")
    assert (await ask(gateway, "page", False)).status == 500
    assert (await ask(gateway, "long", False)).status == 400


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_behind_an_answer_is_for_nobody(gateway, wire, kit, ask, stream):
    async def twice(line):
        await line.whole()
        await line.whole()

    async def other(line):
        await line.error("418 Teapot", {"error": {"message": "mine", "code": "right"}})

    wire.scripts |= {"m": twice, "other": other}
    assert (await ask(gateway, "m", stream)).whole
    # The second answer must not be taken for that of another caller.
    assert (await ask(gateway, "other", stream)).code == "right"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_kept_connection_serves_the_next_call(gateway, wire, ask, stream):
    for _ in range(4):
        assert (await ask(gateway, "m", stream)).whole
    assert len(wire.lines) == 1
