"""The gateway as a process against its published OpenAPI document: no 5xx, no hang, no surprise."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import load_all_checks
from schemathesis.generation import GenerationMode

load_all_checks()

KEY = "a-contract-test-key"
ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "gateway" / "openapi.json"


class _Upstream(BaseHTTPRequestHandler):
    """Answers any chat body with two words, whole or streamed."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
        if body.get("stream"):
            kind = "text/event-stream"
            chunk = {"choices": [{**choice, "delta": {"content": "Yes."}}]}
            data = b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n"
        else:
            kind = "application/json"
            message = {"role": "assistant", "content": "Yes."}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "cost": 0.001}
            answer = {"choices": [{**choice, "message": message}], "usage": usage}
            data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway process in front of the upstream, which serves every plain model id."""
    folder = tmp_path_factory.mktemp("gateway")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    models = folder / "models.yaml"
    models.write_text(
        "model_list:\n"
        "  - model_name: '*'\n"
        "    litellm_params:\n"
        "      model: openai/*\n"
        f"      api_base: http://127.0.0.1:{server.server_address[1]}/v1\n"
    )
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("TAU2EVAL_", "MARINA_"))}
    environ.pop("DATABASE_URL", None)
    environ |= {
        "TAU2EVAL_GATEWAY_PORT": "0",
        "TAU2EVAL_GATEWAY_HTTP_PORT": "0",
        "TAU2EVAL_GATEWAY_DATA_DIR": str(folder),
        "TAU2EVAL_GATEWAY_EXIT_WITH_PARENT": "true",
        "TAU2EVAL_GATEWAY_MODEL_CONFIG": str(models),
        "MODEL_API_KEYS": KEY,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tau2eval_gateway"],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["http"]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        server.shutdown()
        server.server_close()


def _schema(modes: list[GenerationMode]) -> Any:
    schema = schemathesis.openapi.from_path(DOCUMENT)
    schema.config.generation.update(modes=modes)
    return schema


positive = _schema([GenerationMode.POSITIVE])
# The other routes take nothing that could be wrong.
negative = _schema([GenerationMode.NEGATIVE]).include(path="/v1/chat/completions")


def test_the_committed_document_is_the_served_one(address: str) -> None:
    import urllib.request

    with urllib.request.urlopen(f"http://{address}/v1/openapi.json", timeout=20) as response:
        assert response.read() == DOCUMENT.read_bytes(), (
            "renew it: python -m tau2eval_gateway.openapi > docs/gateway/openapi.json"
        )


LIMITS = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@positive.parametrize()
@LIMITS
def test_what_the_document_allows(case: Any, address: str) -> None:
    case.headers["Authorization"] = f"Bearer {KEY}"
    response = case.call(base_url=f"http://{address}", timeout=20)
    case.validate_response(response)
    assert response.status_code < 500


@negative.parametrize()
@LIMITS
def test_what_the_document_does_not_allow(case: Any, address: str) -> None:
    case.headers["Authorization"] = f"Bearer {KEY}"
    response = case.call(base_url=f"http://{address}", timeout=20)
    case.validate_response(response)
    assert response.status_code < 500
