"""Lost processes, signals, and what they cost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tau2eval.bridge.v1 import bridge_pb2, bridge_pb2_grpc

# Calls of a few seconds each, so that there is a middle to act in.
THREE = ("tau2_airline__1", "tau2_airline__11", "tau2_airline__0")
SLOW = ("--modality", "text", "--agent-model", "scripted/slow")
PACE = {"TAU2EVAL_SCRIPTED_SLOW_SECONDS": "0.8"}


@pytest.mark.parametrize(
    ("service", "kind"), [("agent-bot", "agent_lost"), ("user-bot", "user_lost")]
)
def test_a_bot_killed_in_mid_call_costs_that_scenario_alone(
    start_run, find_pid, service: str, kind: str
) -> None:
    run = start_run(*SLOW, "--scenarios", *THREE, **PACE)
    run.stderr.wait_for(THREE[0], "agent:")
    os.kill(find_pid(run.process.pid, service), signal.SIGKILL)
    done = run.finish()
    lost = done.scenario(THREE[0])
    assert (lost["outcome"], lost["kind"]) == ("not_run", kind), done.stderr
    assert [done.scenario(name)["outcome"] for name in THREE[1:]] == ["passed", "passed"]
    assert done.code == 3
    assert f"{service} was ended by SIGKILL; starting it again (1 of 5)" in done.stderr
    assert f"{service} listens again" in done.stderr
    assert done.metrics(THREE[0])["not_run_kind"] == kind


def test_a_bridge_killed_in_mid_call_costs_that_scenario_alone(start_run, find_pid) -> None:
    run = start_run(*SLOW, "--scenarios", *THREE, **PACE)
    run.stderr.wait_for(THREE[0], "agent:")
    os.kill(find_pid(run.process.pid, "bridge"), signal.SIGKILL)
    done = run.finish()
    lost = done.scenario(THREE[0])
    assert (lost["outcome"], lost["kind"]) == ("not_run", "harness_error"), done.stderr
    assert [done.scenario(name)["outcome"] for name in THREE[1:]] == ["passed", "passed"]
    assert done.code == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_is_done_and_leaves_no_process(start_run, number) -> None:
    run = start_run(*SLOW, "--scenarios", *THREE, **PACE)
    run.stderr.wait_for(THREE[1], "agent:")
    children = psutil.Process(run.process.pid).children()
    assert len(children) == 6
    run.process.send_signal(number)
    done = run.finish(120)
    assert done.code == 130
    assert done.result["interrupted"] is True
    assert done.scenario(THREE[0])["outcome"] == "passed"
    cancelled = done.scenario(THREE[1])
    assert (cancelled["outcome"], cancelled["kind"]) == ("not_run", "cancelled")
    assert done.metrics(THREE[1])["stop_reason"] == "cancelled"
    assert done.metrics(THREE[1])["total_turns"] >= 1
    assert done.result["not_started"] == [THREE[2]]
    assert not any(child.is_running() for child in children)


def test_no_service_outlives_a_killed_run(start_run) -> None:
    run = start_run(*SLOW, "--scenarios", *THREE)
    run.stderr.wait_for(THREE[0], "agent:")
    children = psutil.Process(run.process.pid).children()
    run.process.kill()
    run.process.wait()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []


def test_sigterm_lets_the_call_end_and_takes_no_other(start_run, find_pid, tmp_path: Path) -> None:
    run = start_run(*SLOW, "--scenarios", THREE[0], **PACE)
    run.stderr.wait_for(THREE[0], "agent:")
    pid = find_pid(run.process.pid, "bridge")
    address = _grpc_address(pid)
    with grpc.insecure_channel(address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        watch = health.Watch(health_pb2.HealthCheckRequest(), timeout=60)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        os.kill(pid, signal.SIGTERM)
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        request = bridge_pb2.RunScenarioRequest(run_id="eval_x", scenario=THREE[1])
        with pytest.raises(grpc.RpcError) as refused:
            next(bridge_pb2_grpc.BridgeServiceStub(channel).RunScenario(request, timeout=20))
        # gRPC itself cancels a call that arrives while the server closes its listeners.
        assert refused.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    done = run.finish()
    assert done.scenario(THREE[0])["outcome"] == "passed", done.stderr
    assert done.code == 0


def _grpc_address(pid: int) -> str:
    (connection,) = (
        found
        for found in psutil.Process(pid).net_connections("tcp")
        if found.status == psutil.CONN_LISTEN
    )
    # gRPC shows 127.0.0.1 as ::ffff:127.0.0.1.
    return f"127.0.0.1:{connection.laddr.port}"
