"""A model of a provider: one environment variable and one flag, through LiteLLM, over real HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psutil
import pytest

KEY = "sk-planted-for-this-test-0123456789"
SCENARIO = "tau2_airline__11"  # It writes, so it needs no judge.


class Provider:
    """An OpenAI-compatible upstream that answers with text, then ends the call."""

    def __init__(self) -> None:
        self.requests: list[dict[str, object]] = []
        self.keys: set[str | None] = set()
        self.refuse_key = False
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                provider.requests.append(body)
                provider.keys.add(self.headers.get("authorization"))
                if provider.refuse_key:
                    self._send(401, {"error": {"message": f"Incorrect API key {KEY}"}})
                elif body.get("stream"):
                    self._stream(provider.answer(body))
                else:
                    message = {"role": "assistant", "content": "OK"}
                    self._send(200, _completion("chat.completion", "message", message))

            def _send(self, status: int, value: object) -> None:
                data = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def _stream(self, delta: dict[str, object]) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for part in (
                    _completion("chat.completion.chunk", "delta", delta, finish=None),
                    _completion("chat.completion.chunk", "delta", {}),
                ):
                    self.wfile.write(b"data: " + json.dumps(part).encode() + b"\n\n")
                self.wfile.write(b"data: [DONE]\n\n")

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.base = f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def answer(self, body: dict[str, object]) -> dict[str, object]:
        """Speaks three times and then hangs up; the caller only speaks."""
        messages = body["messages"]
        assert isinstance(messages, list)
        turns = sum(message["role"] == "assistant" for message in messages)
        if body.get("tools") and turns >= 2:
            call = {"name": "end_conversation", "arguments": "{}"}
            return {
                "role": "assistant",
                "content": "Goodbye.",
                "tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": call}],
            }
        return {"role": "assistant", "content": f"This is sentence number {turns + 1}."}


def _completion(
    kind: str, member: str, value: dict[str, object], finish: str | None = "stop"
) -> dict[str, object]:
    choice = {"index": 0, member: value, "finish_reason": finish}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    return {
        **{"id": "x", "object": kind, "created": 1, "model": "test-model"},
        "choices": [choice],
        **({"usage": usage} if finish else {}),
    }


@pytest.fixture
def provider() -> Iterator[Provider]:
    upstream = Provider()
    yield upstream
    upstream.server.shutdown()
    upstream.server.server_close()


MODELS = ("--agent-model", "openai/test-model", "--user-model", "openai/test-model")


def test_a_provider_key_reaches_the_provider_and_nothing_else(
    start_run, provider: Provider, tmp_path
) -> None:
    run = start_run(
        *("--modality", "text", *MODELS, "--agent-params", '{"temperature": 0.25}'),
        *("--scenarios", SCENARIO),
        OPENAI_API_KEY=KEY,
        OPENAI_API_BASE=provider.base,
    )
    run.stderr.wait_for(SCENARIO, "agent:")
    holders = {
        child.cmdline()[-1]
        for child in psutil.Process(run.process.pid).children()
        if KEY in child.environ().values()
    }
    done = run.finish()
    assert holders == {"tau2eval_gateway"}
    assert done.code == 0, done.stderr
    entry = done.scenario(SCENARIO)
    assert (entry["outcome"], entry["stop_reason"]) == ("failed", "agent_exit")
    assert provider.keys == {f"Bearer {KEY}"}
    agent = [body for body in provider.requests if body.get("tools")]
    assert agent
    assert all(body["temperature"] == 0.25 for body in agent)
    assert done.metrics(SCENARIO)["token_usage"]["agent"]["prompt"] >= 5
    for file in tmp_path.rglob("*"):
        assert not file.is_file() or KEY.encode() not in file.read_bytes(), file


def test_a_key_that_the_provider_refuses_costs_nothing(start_run, provider: Provider) -> None:
    provider.refuse_key = True
    run = start_run(
        *("--modality", "text", *MODELS, "--scenarios", SCENARIO),
        OPENAI_API_KEY=KEY,
        OPENAI_API_BASE=provider.base,
    )
    assert run.process.wait(120) == 2
    text = run.stderr.text()
    assert "OPENAI_API_KEY" in text
    assert KEY not in text
    assert run.stdout.text() == ""
