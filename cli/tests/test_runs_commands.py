import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tau2eval.scorer.v1 import record_pb2

EXIT = record_pb2.STOP_REASON_AGENT_EXIT


@pytest.fixture
def at(line, tmp_path: Path) -> list[str]:
    line.scorer.plan("eval_1", "demo__1", "demo__2", agent_model="scripted/gold")
    line.scorer.plan("eval_2", "demo__1", "demo__2", agent_model="a/b")
    return ["--output-dir", str(tmp_path), "--scorer-address", line.address]


async def test_runs_and_attempts(line, at) -> None:
    code, out, _ = await line.cli("runs", "--json", *at)
    assert code == 0
    assert [run["run_id"] for run in json.loads(out)["runs"]] == ["eval_1", "eval_2"]
    code, out, _ = await line.cli("runs", *at)
    assert code == 0
    assert "eval_2" in out
    assert "100.0%" in out
    line.scorer.judge("eval_1", "demo__1", "a", record_pb2.STOP_REASON_USER_LOST)
    line.scorer.judge("eval_1", "demo__1", "b", EXIT)
    code, out, _ = await line.cli("attempts", "eval_1", "--json", *at)
    found = json.loads(out)["attempts"]
    assert [(item["attempt_id"], item["counts"], item["outcome"]) for item in found] == [
        ("a", False, "not_run"),
        ("b", True, "passed"),
    ]
    code, out, _ = await line.cli("attempts", "eval_1", *at)
    assert "not run (user_lost)" in out


async def test_a_run_is_scored_again_by_its_own_judge(line, at) -> None:
    line.scorer.judge("eval_1", "demo__1", "a", EXIT)
    line.scorer.judge("eval_1", "demo__2", "b", EXIT, kind="judge_off")
    code, out, err = await line.cli("score", "eval_1", "--json", *at)
    assert code == 0, err
    (request,) = line.scorer.scored
    assert not request.HasField("judge")
    value = json.loads(out)
    assert value["conversations"] == 2
    assert [(item["before"], item["after"]) for item in value["changed"]] == [("not_run", "passed")]
    assert "2/2 demo__2: not_run -> passed" in err


async def test_another_judge_goes_over_the_plans(line, at) -> None:
    line.scorer.plans["eval_2"].judge.votes = 3
    line.scorer.judge("eval_2", "demo__1", "a", EXIT)
    code, _, _ = await line.cli(
        *("score", "eval_2", "--judge-model", "c/d", "--scenarios", "demo__1", "demo__2"),
        *("--only-unjudged", *at),
    )
    assert code == 0
    (request,) = line.scorer.scored
    assert (request.judge.model, request.judge.votes) == ("c/d", 3)
    assert list(request.scenarios) == ["demo__1", "demo__2"]
    assert request.only_unjudged


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("score", "eval_2", "--judge-model", "scripted/judge"), "scripted agents only"),
        (("score", "eval_1", "--judge-votes", "3"), "--judge-votes needs a judge"),
        (("score", "eval_1", "--scenarios", "demo__9"), "demo__9 is not in the plan"),
        (
            (
                "score",
                "eval_9",
            ),
            "tau2-eval runs",
        ),
        (("compare", "eval_1", "eval_9"), "tau2-eval runs"),
        (("compare", "x/eval_1", "y/eval_2"), "within one folder"),
        (("compare", "eval_1", "eval_2", "--samples", "5"), "--samples"),
        (("report", "eval_9"), "tau2-eval runs"),
        (("report", "eval_1", "--serve"), "serves its pages itself"),
        (("attempts", "eval_9"), "tau2-eval runs"),
    ],
)
async def test_wrong_use(line, at, arguments: tuple[str, ...], told: str) -> None:
    code, out, err = await line.cli(*arguments, *at)
    assert code == 2
    assert told in err
    assert out == ""


async def test_a_conversation_that_cannot_be_scored_makes_3(line, at) -> None:
    line.scorer.judge("eval_1", "demo__1", "a", EXIT)
    line.scorer.score_problem = "its record is gone"
    code, out, _ = await line.cli("score", "eval_1", "--json", *at)
    assert code == 3
    assert json.loads(out)["problems"][0]["problem"] == "its record is gone"


@pytest.mark.parametrize(
    ("comparison", "flags", "expected"),
    [
        ({"worse": True, "verdict": "worse"}, (), 0),
        ({"worse": True, "verdict": "worse"}, ("--fail-if-worse",), 1),
        ({"worse": False, "verdict": "better"}, ("--fail-if-worse",), 0),
        ({"worse": False, "verdict": "not_comparable"}, ("--fail-if-worse",), 3),
    ],
)
async def test_compare(line, at, comparison, flags, expected: int) -> None:
    line.scorer.comparison = comparison
    code, out, _ = await line.cli("compare", "eval_1", "eval_2", "--json", *flags, *at)
    assert code == expected
    assert json.loads(out) == comparison
    code, out, _ = await line.cli("compare", "eval_1", "eval_2", *at)
    assert (code, out) == (0, "a table\n")


async def test_a_report_of_a_scorer_elsewhere_is_fetched(line, at, tmp_path: Path) -> None:
    line.scorer.judge("eval_1", "demo__1", "a", EXIT)
    line.scorer.artifacts[""] = [("report.html", [b"<html>"])]
    code, out, _ = await line.cli("report", "eval_1", "--json", *at)
    assert code == 0
    value = json.loads(out)
    assert Path(value["path"]) == tmp_path / "eval_1" / "report.html"
    assert (tmp_path / "eval_1" / "report.html").read_text() == "<html>"
    assert value["url"].startswith("file:")
    assert (tmp_path / "eval_1" / "demo__1" / "metrics.json").exists()


async def test_a_folder_that_is_not_there(line, tmp_path: Path) -> None:
    for command in (("runs",), ("score", "x"), ("report", "x"), ("run", "--resume", "x")):
        code, _, err = await line.cli(*command, "--output-dir", str(tmp_path / "none"))
        assert code == 2
        assert "there is no folder of runs" in err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("command", "examples"),
    [
        ("run", "--resume nightly"),
        ("score", "--judge-votes 3"),
        ("compare", "--fail-if-worse --json"),
        ("report", "--serve"),
        ("runs", "nightly --json"),
        ("attempts", "tau2-eval attempts"),
    ],
)
async def test_help_teaches_with_examples_and_exit_codes(line, command, examples) -> None:
    code, out, _ = await line.cli(command, "--help")
    assert code == 0
    assert examples in out
    assert "Exit codes" in out


async def test_the_pages_of_a_real_scorer_are_served_until_ctrl_c(tmp_path: Path) -> None:
    import urllib.request

    from tau2eval_cli.session import ScorerTarget, open_session

    # A run of one planned scenario, of which nothing was held yet.
    async with open_session(ScorerTarget(tmp_path), print) as session:
        from tau2eval.scorer.v1 import scorer_pb2

        await session.scorer.create_run(
            scorer_pb2.RunPlan(run_id="eval_1", scenarios=["tau2_airline__1"], trials=1)
        )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tau2eval_cli", "report", "eval_1", "--serve", "--json"),
        *("--output-dir", str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(os.environ),
    )
    try:
        async with asyncio.timeout(60):
            assert process.stdout is not None
            value = json.loads(await process.stdout.readline())
            text = await asyncio.to_thread(
                lambda: urllib.request.urlopen(value["url"]).read().decode()
            )
            assert "eval_1" in text
            assert (tmp_path / "eval_1" / "report.html").exists()
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
