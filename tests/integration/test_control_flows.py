"""Runs whose agent is behind the gateway's control flows: the same outcomes, and a full record."""

from __future__ import annotations

import json

import grpc
import pytest

from tau2eval.gateway.v1 import gateway_pb2, gateway_pb2_grpc

# A refusal, two that write (one with figures to be told), a hand-over.
SCENARIOS = ("tau2_airline__1", "tau2_airline__11", "tau2_airline__13", "tau2_airline__14")
ARMS = {
    "marina/verify:scripted/gold": "verify",
    "marina/obligations:scripted/gold": "obligations",
    "marina/argcheck:scripted/gold": "argcheck",
    "marina/obligations:marina/argcheck:scripted/gold": "obligations+argcheck",
    "marina/argcheck:marina/verify:scripted/gold+scripted/checker": "argcheck+verify",
}
BAD_CHECKERS = ("strict", "outage", "babble")


def spend(stack, run_id):
    """The ledger's rows of a run."""
    with grpc.insecure_channel(stack.services["gateway"]["grpc"]) as channel:
        stub = gateway_pb2_grpc.SpendServiceStub(channel)
        rows = stub.ListDailySpend(gateway_pb2.ListDailySpendRequest(), timeout=20).rows
    return [row for row in rows if row.run_id == run_id]


def text_run(stack, model, *names):
    return stack.run(
        *("--modality", "text", "--parallel", "4", "--agent-model", model),
        *("--scenarios", *names),
    )


def flow_values(done, name):
    """What the flows did in each of the agent's model calls."""
    metrics = done.metrics(name)
    calls = metrics["token_usage"]["agent"]["n_calls"]
    entries = metrics["control_flow"]
    assert [entry["call"] for entry in entries] == list(range(1, calls + 1))
    assert {entry["role"] for entry in entries} == {"agent"}
    return [entry["values"] for entry in entries]


@pytest.fixture(scope="module")
def runs(text_stack):
    return {model: text_run(text_stack, model, *SCENARIOS) for model in ARMS}


@pytest.mark.parametrize("model", ARMS)
def test_gold_is_gold_behind_every_flow(runs, expected, observed, model) -> None:
    done = runs[model]
    assert done.code == 0, done.stderr
    found = {name: observed(done.scenario(name)) for name in SCENARIOS}
    assert found == {name: expected("scripted/gold", name) for name in SCENARIOS}


@pytest.mark.parametrize("model", ARMS)
def test_the_record_keeps_what_the_flows_did(runs, model) -> None:
    flows = ARMS[model].split("+")
    for name in SCENARIOS:
        values = flow_values(runs[model], name)
        assert all(set(flows) <= value.keys() for value in values)
        lines = (runs[model].folder(name) / "events.jsonl").read_text().splitlines()
        used = [
            event["data"]
            for event in map(json.loads, lines)
            if event["event"] == "usage" and event["role"] == "agent"
        ]
        assert len(used) == len(values)
        for data, value in zip(used, values, strict=True):
            kept = data["marina_headers"]
            assert (
                value.items() <= {k.removeprefix("x-marina-"): v for k, v in kept.items()}.items()
            )
            assert data["model"] == model
            # Scripts cost nothing, and a known cost is not an unknown one.
            assert data["cost_usd"] == 0.0
            assert kept["x-marina-cost-usd"] == "0.0"


@pytest.mark.parametrize("model", ARMS)
def test_the_ledger_has_the_arm(text_stack, runs, model) -> None:
    rows = spend(text_stack, runs[model].result["run_id"])
    arms = {row.role: row.arm for row in rows}
    helpers = set(arms) & {"checker", "ledger"}
    assert helpers
    assert {arms[role] for role in ("agent", *helpers)} == {ARMS[model]}
    assert arms["user"] == "single"


def test_verify_approves_each_message_of_gold(runs) -> None:
    for name in SCENARIOS:
        values = flow_values(runs["marina/verify:scripted/gold"], name)
        assert [value["verify"] for value in values] == ["approved"] * len(values)


def test_argcheck_sees_the_writes(runs) -> None:
    values = flow_values(runs["marina/argcheck:scripted/gold"], "tau2_airline__14")
    # A cancellation, a booking, and the end of the call, which no lookup is.
    writes = [value["argcheck"] for value in values if "writes=1" in value["argcheck"]]
    assert len(writes) == 3


@pytest.mark.parametrize("bad", BAD_CHECKERS)
def test_a_bad_checker_costs_gold_nothing(text_stack, expected, observed, bad) -> None:
    model = f"marina/verify:scripted/gold+scripted/checker-{bad}"
    names = SCENARIOS[:2]
    done = text_run(text_stack, model, *names)
    assert done.code == 0, done.stderr
    found = {name: observed(done.scenario(name)) for name in names}
    assert found == {name: expected("scripted/gold", name) for name in names}
    verdict = "revised" if bad == "strict" else "checker-unavailable"
    for name in names:
        assert {value["verify"] for value in flow_values(done, name)} == {verdict}


@pytest.mark.parametrize("agent", ["scripted/rogue-write", "scripted/liar", "scripted/crash"])
def test_a_flow_hides_no_faulty_agent(text_stack, expected, observed, agent) -> None:
    name = "tau2_airline__11"
    done = text_run(text_stack, f"marina/argcheck:marina/verify:{agent}", name)
    assert observed(done.scenario(name)) == expected(agent, name), done.stderr


@pytest.mark.voice
@pytest.mark.timeout(800)
def test_a_voice_call_goes_through_the_flows(voice_stack, expected, observed) -> None:
    model = "marina/obligations:marina/argcheck:scripted/gold"
    name = "tau2_airline__11"
    done = voice_stack.run("--agent-model", model, "--scenarios", name, seconds=700)
    assert observed(done.scenario(name)) == expected("scripted/gold", name), done.stderr
    values = flow_values(done, name)
    assert all({"obligations", "argcheck"} <= value.keys() for value in values)
    assert any("writes=1" in value["argcheck"] for value in values)
    rows = spend(voice_stack, done.result["run_id"])
    assert {row.arm for row in rows if row.role != "user"} == {"obligations+argcheck"}
