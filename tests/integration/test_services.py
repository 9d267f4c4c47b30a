"""Health, reflection and the HTTP API of the running services."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

SERVICES = {
    "gateway": "tau2eval.gateway.v1.ChatService",
    "agent-bot": "tau2eval.voice.v1.VoiceBotService",
    "user-bot": "tau2eval.voice.v1.VoiceBotService",
    "bridge": "tau2eval.bridge.v1.BridgeService",
    "scorer": "tau2eval.scorer.v1.RunService",
}


@pytest.mark.parametrize("name", SERVICES)
def test_health_and_reflection_answer(text_stack, name: str) -> None:
    with grpc.insecure_channel(text_stack.services[name]["grpc"]) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", SERVICES[name]):
            answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=20)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (response,) = stub.ServerReflectionInfo(iter([request]), timeout=20)
        listed = {service.name for service in response.list_services_response.service}
        assert {SERVICES[name], "grpc.health.v1.Health"} <= listed


def test_every_service_listens_on_this_machine_alone(text_stack) -> None:
    addresses = [
        address
        for service in text_stack.services.values()
        for kind, address in service.items()
        if kind in ("grpc", "http")
    ]
    assert len(addresses) == 8
    assert all(address.startswith("127.0.0.1:") for address in addresses)


def test_the_gateway_lists_the_scripted_models_over_http(text_stack) -> None:
    from tau2eval_scripted.models import EXPECTED_OUTCOMES

    url = f"http://{text_stack.services['gateway']['http']}/v1/models"
    with urllib.request.urlopen(url, timeout=20) as response:
        listed = {model["id"] for model in json.load(response)["data"]}
    assert set(EXPECTED_OUTCOMES) <= listed


def test_up_writes_addresses_and_ends_everything_in_order(make_stack) -> None:
    stack = make_stack()
    lines = dict(line.split("=", 1) for line in stack.env_file.read_text().split())
    assert lines["TAU2EVAL_BRIDGE_ADDRESS"] == stack.services["bridge"]["grpc"]
    assert lines["TAU2EVAL_SCORER_ADDRESS"] == stack.services["scorer"]["grpc"]
    assert lines["TAU2EVAL_GATEWAY_HTTP_ADDRESS"] == stack.services["gateway"]["http"]
    children = psutil.Process(stack.process.pid).children()
    assert {child.pid for child in children} == {
        service["pid"] for service in stack.services.values()
    }
    assert stack.stop() == 0
    assert not any(child.is_running() for child in children)
    assert not stack.env_file.exists()
    for name in stack.services:
        log = (stack.output_dir / "logs" / f"{name}.log").read_text()
        assert "Traceback" not in log


def test_an_agent_of_the_persons_own_takes_the_place_of_ours(text_stack, start_run) -> None:
    target = text_stack.services["agent-bot"]["grpc"]
    run = start_run(
        *("--modality", "text", "--agent-url", target, "--scenarios", "tau2_airline__11"),
        *("--parallel", "1"),
    )
    run.stderr.wait_for("tau2_airline__11 started")
    done = run.finish()
    assert done.scenario("tau2_airline__11")["outcome"] == "passed", done.stderr
    logs = Path(done.result["output_dir"]) / "logs"
    assert {log.stem for log in logs.iterdir()} == {
        *("bridge", "gateway", "scorer", "scripted-models", "user-bot")
    }


def test_serve_runs_one_service_in_the_foreground(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tau2eval_cli", "serve", "scorer", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TAU2EVAL_SCORER_ARTIFACTS_DIR": str(tmp_path)},
    )
    try:
        assert process.stdout is not None
        line = json.loads(process.stdout.readline())
        assert (line["event"], line["service"]) == ("listening", "scorer")
        assert psutil.Process(process.pid).cmdline()[-1] == "tau2eval_scorer"
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
