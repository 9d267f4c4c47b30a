"""No key and no word of a conversation is in what a gateway writes, however its calls end."""

import asyncio
import json
import logging
import os
import sqlite3
import sys

import aiohttp
import pytest
from aiohttp import web

from tau2eval_gateway.content_log import ExceptionTextFilter, kinds_and_places

CALLER_KEY = "caller-canary-7f31"
OTHER_KEY = "stranger-canary-9c20"
PROVIDER_KEY = "provider-canary-55aa"
PROMPT = "prompt-canary-d0g5 says that the booking is to be cancelled"
ANSWER = "answer-canary-c4t5 has cancelled the booking that was asked for"
CANARIES = ("caller-canary", "stranger-canary", "provider-canary", "prompt-canary",
            "answer-canary", "argument-canary")  # fmt: skip

MODELS = """
model_list:
  - model_name: direct/*
    litellm_params: {{model: openai/*, api_base: "{base}", api_key: os.environ/DIRECT_KEY}}
  - model_name: lite/*
    litellm_params:
      {{model: hosted_vllm/*, api_base: "{base}", api_key: os.environ/DIRECT_KEY}}
  - model_name: gone
    litellm_params: {{model: openai/gone, api_base: "http://127.0.0.1:1/v1", api_key: {key}}}
"""


def messages(**more):
    call = {"id": "c", "type": "function",
            "function": {"name": "f", "arguments": '{"a": "argument-canary-1"}'}}  # fmt: skip
    return {
        "messages": [
            {"role": "system", "content": PROMPT},
            {"role": "user", "content": PROMPT},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": PROMPT},
        ],
        **more,
    }


def prepare(upstream, h):
    """Every way in which an upstream may repeat what it should not."""
    echo = f"you said {PROMPT} with the key {PROVIDER_KEY}; Bearer {CALLER_KEY}"
    upstream.replies["ok"] = upstream.answer(h.completion(ANSWER))
    upstream.replies["stream"] = upstream.stream(h.chunk({"content": ANSWER}), h.chunk({}, "stop"))
    upstream.replies["bad"] = upstream.answer(h.error_body(echo, echo[:40]), status=400)
    upstream.replies["denied"] = upstream.answer(h.error_body(echo), status=401)
    upstream.replies["broken"] = upstream.answer(h.error_body(echo), status=500)
    upstream.replies["limited"] = upstream.answer(
        h.error_body(echo), status=429, headers={"Retry-After": "99"}
    )
    upstream.replies["cut"] = upstream.stream(h.chunk({"content": ANSWER}), done=False)
    upstream.replies["garbled"] = upstream.stream(f"data: {ANSWER} {{\n\n".encode())
    upstream.replies["failing"] = upstream.stream(
        h.chunk({"content": ANSWER}), {"error": {"message": echo, "code": "x"}}
    )

    async def page(request, body):
        return web.Response(text=f"<html>{echo}</html>", status=200, content_type="text/html")

    upstream.replies["page"] = page


async def post_all(address, h):
    """Passing and failing calls of every kind; returns their statuses."""
    url = f"http://{address}/v1/chat/completions"
    keys = {"Authorization": f"Bearer {CALLER_KEY}"}
    statuses = []
    async with aiohttp.ClientSession() as session:

        async def post(body, headers):
            options = {"data": body} if isinstance(body, bytes) else {"json": body}
            async with session.post(url, headers=headers, **options) as response:
                await response.read()
                statuses.append(response.status)

        for path in ("direct", "lite"):
            for name in ("ok", "bad", "denied", "broken", "limited", "page"):
                await post(messages(model=f"{path}/{name}"), keys)
            for name in ("stream", "cut", "garbled", "failing", "bad", "broken"):
                await post(messages(model=f"{path}/{name}", stream=True), keys)
        await post(messages(model="gone"), keys)
        await post(messages(model="marina/verify:direct/ok+direct/broken"), keys)
        await post(messages(model=PROMPT), keys)
        await post(messages(model="direct/ok", stream=PROMPT), keys)
        await post(json.dumps(messages(model="direct/ok")).encode()[:-30], keys)
        await post(messages(model="direct/ok"), {"Authorization": f"Bearer {OTHER_KEY}"})
        await post(messages(model="direct/ok"), {"Authorization": f"Basic {OTHER_KEY}"})
        await post(messages(model="direct/ok"), {**keys, "x-tau2eval-trial": PROMPT})
        await post(messages(model="direct/ok"), {**keys, "x-tau2eval-role": OTHER_KEY.upper()})
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(post(messages(model="direct/slow"), keys), 0.5)
    return statuses


async def run_gateway(tmp_path, upstream, h, environ):
    """Runs a gateway as a process of its own and returns statuses and all that it wrote."""
    prepare(upstream, h)

    async def slow(request, body):
        await asyncio.sleep(30)

    upstream.replies["slow"] = slow
    config = tmp_path / "models.yaml"
    config.write_text(MODELS.format(base=f"http://{upstream.address}/v1", key=PROVIDER_KEY))
    clean = {k: v for k, v in os.environ.items() if not k.startswith("TAU2EVAL_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tau2eval_gateway"),
        env={
            **clean,
            "TAU2EVAL_GATEWAY_PORT": "0",
            "TAU2EVAL_GATEWAY_HTTP_PORT": "0",
            "TAU2EVAL_GATEWAY_LOG_LEVEL": "debug",
            "TAU2EVAL_GATEWAY_DATA_DIR": str(tmp_path / "data"),
            "TAU2EVAL_GATEWAY_MODEL_CONFIG": str(config),
            "TAU2EVAL_GATEWAY_HTTP_DRAIN_SECONDS": "1",
            "TAU2EVAL_GATEWAY_RETRIES": "0",
            "MODEL_API_KEYS": CALLER_KEY,
            "DIRECT_KEY": PROVIDER_KEY,
            **environ,
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    written = b""
    try:
        async with asyncio.timeout(120):
            address = ""
            while not address:
                line = await process.stdout.readline()
                assert line, (await process.stderr.read()).decode()
                written += line
                try:
                    address = json.loads(line).get("http", "")
                except (ValueError, AttributeError):
                    continue
            reading = asyncio.gather(process.stdout.read(), process.stderr.read())
            statuses = await post_all(address, h)
            process.terminate()
            out, err = await reading
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return statuses, (written + out + err).decode()


async def test_no_key_and_no_prompt_is_written_anywhere(tmp_path, upstream, h):
    statuses, text = await run_gateway(tmp_path, upstream, h, {})
    assert statuses.count(200) >= 8, statuses
    assert len(statuses) == 33
    assert "upstream_truncated" in text, text[-3000:]
    for canary in CANARIES:
        assert canary not in text, text[max(0, text.find(canary) - 300) :][:600]
    # Nor in the ledger and what lies beside it.
    database = sqlite3.connect(tmp_path / "data" / "gateway.sqlite3")
    (count,) = database.execute("SELECT COUNT(*) FROM gateway_calls").fetchone()
    database.close()
    assert count >= 25
    for path in (tmp_path / "data").rglob("*"):
        content = path.read_bytes()
        for canary in CANARIES:
            assert canary.encode() not in content, (path, canary)


async def test_content_may_be_switched_on_and_keys_never(tmp_path, upstream, h):
    _, text = await run_gateway(tmp_path, upstream, h, {"TAU2EVAL_GATEWAY_LOG_CONTENT": "true"})
    assert "prompt-canary" in text
    assert "answer-canary" in text
    for canary in ("caller-canary", "stranger-canary", "provider-canary"):
        assert canary not in text, text[max(0, text.find(canary) - 300) :][:600]


def test_exceptions_in_the_log_have_no_text():
    logger = logging.getLogger("log-content-test")
    records = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(handler.format(record))
    handler.addFilter(ExceptionTextFilter())
    logger.addHandler(handler)
    try:
        try:
            try:
                raise KeyError(PROMPT)
            except KeyError as cause:
                raise ValueError(f"{PROVIDER_KEY} in {PROMPT}") from cause
        except ValueError as error:
            logger.error("unexpected %s\nrepr: %r", "fault", error, exc_info=True)
            short = kinds_and_places(error)
    finally:
        logger.removeHandler(handler)
    assert short.endswith("ValueError")
    (text,) = records
    assert text.startswith("unexpected fault\n")
    assert "KeyError\nthen:\n" in text
    assert "test_log_content.py" in text
    assert "canary" not in text
