"""Whole calls in text modality: seconds each, the same services, contracts and record."""

from __future__ import annotations

import json

import grpc
import pytest

from tau2eval.gateway.v1 import gateway_pb2, gateway_pb2_grpc

DEMO = ("tau2_airline__1", "tau2_airline__11", "tau2_airline__14", "tau2_airline__41")
JUDGED = ("tau2_airline__1", "tau2_airline__41")
AGENTS = (
    "scripted/gold",
    "scripted/slow",
    "scripted/do-nothing",
    "scripted/refuse-all",
    "scripted/liar",
    "scripted/parrot",
    "scripted/transfer-at-once",
    "scripted/silent",
    "scripted/rogue-write",
    "scripted/never-hangs-up",
    "scripted/crash",
)


@pytest.fixture(scope="module")
def demo(text_stack):
    return text_stack.run("--modality", "text", "--parallel", "4", "--scenarios", *DEMO)


def test_the_demo_passes(demo) -> None:
    assert demo.code == 0, demo.stderr
    assert demo.result["counts"] == {"passed": 4, "failed": 0, "not_run": 0}
    for name in DEMO:
        entry = demo.scenario(name)
        signals = {"DB_STATE_MATCH", "CLEAN_EXIT"} | ({"NL_ASSERTION"} if name in JUDGED else set())
        assert signals == set(entry["success_breakdown"]["passed"])
        assert entry["stop_reason"] in ("agent_exit", "transfer")


def test_two_of_its_scenarios_write(demo) -> None:
    from tau2eval_airline import get_scenario

    assert sum(get_scenario(name).gold_mutates for name in DEMO) == 2


def test_its_artifacts_are_whole(demo) -> None:
    for name in DEMO:
        folder = demo.folder(name)
        for file in (
            "metrics.json",
            "conversation_log.txt",
            "conversation_log.seglst.json",
            "events.jsonl",
            "scenario_config/agent_prompt.txt",
            "scenario_config/reference_answer.json",
            "bot_logs_agent/llm_context.json",
            "bot_logs_user/llm_context.json",
        ):
            assert (folder / file).stat().st_size > 0, file
        metrics = demo.metrics(name)
        assert metrics["db_state_match"] is True
        assert metrics["total_turns"] >= 4
        assert json.loads((folder / "bot_logs_agent/llm_context.json").read_text())
    assert (folder.parent / "all_summary.txt").stat().st_size > 0


def test_every_model_call_went_through_the_gateway(text_stack, demo) -> None:
    request = gateway_pb2.ListRunSpendRequest(run_id=demo.result["run_id"])
    with grpc.insecure_channel(text_stack.services["gateway"]["grpc"]) as channel:
        rows = gateway_pb2_grpc.SpendServiceStub(channel).ListRunSpend(request, timeout=20).rows
    calls = {(row.scenario, row.role): row.calls for row in rows}
    speaking = {(name, role) for name in DEMO for role in ("agent", "user")}
    assert set(calls) == speaking | {(name, "judge") for name in JUDGED}
    for name in DEMO:
        usage = demo.metrics(name)["token_usage"]
        assert calls[name, "agent"] >= usage["agent"]["n_calls"] > 0
        assert calls[name, "user"] >= usage["user"]["n_calls"] > 0
    for name in JUDGED:
        assert calls[name, "judge"] == demo.metrics(name)["token_usage"]["judge"]["n_calls"] == 1


@pytest.mark.parametrize("agent", AGENTS)
def test_every_scripted_agent_ends_as_its_row_says(
    text_stack, expected, observed, agent: str
) -> None:
    names = ["tau2_airline__1", "tau2_airline__11", "tau2_airline__13"]
    limit = ["--duration", "60"] if agent == "scripted/never-hangs-up" else []
    done = text_stack.run(
        *("--modality", "text", "--agent-model", agent, "--parallel", "3", *limit),
        *("--scenarios", *names),
    )
    found = {name: observed(done.scenario(name)) for name in names}
    assert found == {name: expected(agent, name) for name in names}
    not_run = any(entry["outcome"] == "not_run" for entry in found.values())
    assert done.code == (3 if not_run else 0)


def test_no_scripted_model_is_left_out() -> None:
    from tau2eval_scripted.models import EXPECTED_OUTCOMES

    assert {name for name, row in EXPECTED_OUTCOMES.items() if row.role == "agent"} == set(AGENTS)


def test_without_a_judge_an_inactive_agent_passes_nothing_and_fails_no_assertion(
    text_stack,
) -> None:
    done = text_stack.run(
        *("--modality", "text", "--agent-model", "scripted/do-nothing", "--no-judge"),
        *("--scenarios", "tau2_airline__1"),
    )
    entry = done.scenario("tau2_airline__1")
    assert (entry["outcome"], entry["kind"]) == ("not_run", "judge_off")
    assert set(entry["success_breakdown"]["passed"]) == {"DB_STATE_MATCH", "CLEAN_EXIT"}
    assert entry["success_breakdown"]["failed"] == []
    assert done.code == 3


def test_a_model_that_the_gateway_does_not_know(text_stack) -> None:
    done = text_stack.run(
        *("--modality", "text", "--agent-model", "scripted/no-such-model"),
        *("--scenarios", "tau2_airline__1"),
    )
    assert done.scenario("tau2_airline__1")["outcome"] != "passed"
    assert done.scenario("tau2_airline__1")["stop_reason"] in ("agent_error", "gateway_error")
