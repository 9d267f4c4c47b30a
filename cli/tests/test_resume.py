import asyncio
import json
import signal
from pathlib import Path

import pytest

from tau2eval.scorer.v1 import record_pb2, scorer_pb2
from tau2eval_cli.plan import RunOptions, locate_run

EXIT = record_pb2.STOP_REASON_AGENT_EXIT
LOST = record_pb2.STOP_REASON_USER_LOST


def begun(line, *names: str, trials: int = 1, judge: str = "", **options) -> None:
    """Makes a run that was begun with the default options, but for some."""
    settings = RunOptions(parallel=2, trials=trials, **options).settings()
    line.scorer.plan("eval_1", *names, trials=trials, judge=judge, **settings)


async def resume(line, tmp_path: Path, *more: str):
    return await line.cli(
        *("run", "--resume", "eval_1", "--json", "--output-dir", str(tmp_path)),
        *(*line.targets(), *more),
    )


async def test_what_has_a_score_is_kept_and_the_rest_is_held(line, tmp_path: Path) -> None:
    begun(line, "demo__1", "demo__2", trials=2, min_agent_turns=3)
    kept = line.scorer.judge("eval_1", "demo__1", "a", EXIT)
    line.scorer.judge("eval_1", "demo__2", "b", LOST)
    kept.artifacts_path = "demo__1/trial_0"
    code, out, err = await resume(line, tmp_path, "--parallel", "1")
    assert code == 0, err
    assert err.splitlines()[0] == "run eval_1"
    assert "resume of eval_1: 1 kept, 3 to hold" in err
    result = json.loads(out)
    assert result["resumed"]
    assert result["counts"]["passed"] == 4
    held = [(request.scenario, request.trial) for request in line.bridge.requests]
    # All scenarios' trial 0 before any trial 1.
    assert held == [("demo__2", 0), ("demo__1", 1), ("demo__2", 1)]
    assert {request.min_agent_turns for request in line.bridge.requests} == {3}
    assert result["scenarios"][0]["attempt_id"] == kept.attempt_id
    assert [entry["kept"] for entry in result["scenarios"]] == [True, False, False, False]
    assert len(line.scorer.resumes) == 1
    # Artifacts of what was held, of the run, and of what is kept and is not here yet.
    assert set(line.scorer.asked_artifacts) == {*held, ("", 0), ("demo__1", 0)}


async def test_changed_settings_are_refused_with_their_list(line, tmp_path: Path) -> None:
    begun(line, "demo__1")
    code, out, err = await resume(line, tmp_path, "--duration", "60", "--parallel", "4")
    assert code == 2
    assert out == ""
    assert "duration: null -> 60" in err
    assert "parallel" not in err
    assert line.scorer.resumes == []
    code, out, err = await resume(line, tmp_path, "--duration", "60", "--allow-mixed")
    assert code == 0, err
    (request,) = line.scorer.resumes
    assert request.allow_mixed
    assert json.loads(request.settings_json)["duration"] == 60
    assert line.bridge.requests[0].max_duration_seconds == 60


async def test_only_flags_that_were_given_override_the_plan(line, tmp_path: Path) -> None:
    begun(line, "demo__1", agent_model="a/b", modality="text", agent_params='{"temperature": 0}')
    code, _, err = await resume(line, tmp_path)
    assert code == 0, err
    (request,) = line.bridge.requests
    assert request.agent_model.model == "a/b"
    assert json.loads(request.agent_model.parameters_json) == {"temperature": 0}
    assert request.modality == 2


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--scenarios", "demo__1"), "leave --scenarios out"),
        (("--domain", "demo"), "leave --domain out"),
        (("--trials", "2"), "leave --trials out"),
        (("--run-id", "x"), "leave --run-id out"),
        (("--judge-model", "c/d"), "tau2-eval score eval_1 --judge-model c/d"),
    ],
)
async def test_what_a_resume_does_not_take(line, tmp_path: Path, flags, told: str) -> None:
    begun(line, "demo__1")
    code, _, err = await resume(line, tmp_path, *flags)
    assert code == 2
    assert told in err
    assert line.bridge.requests == []


@pytest.mark.parametrize("flag", ["--preview", "--allow-mixed"])
async def test_flags_of_a_resume_alone(line, tmp_path: Path, flag: str) -> None:
    code, _, err = await line.cli(
        *("run", "--scenarios", "demo__1", flag, "--output-dir", str(tmp_path), *line.targets())
    )
    assert code == 2
    assert f"{flag} belongs to --resume" in err


async def test_a_run_that_is_not_there(line, tmp_path: Path) -> None:
    code, _, err = await resume(line, tmp_path)
    assert code == 2
    assert "tau2-eval runs" in err


async def test_a_preview_changes_nothing(line, tmp_path: Path) -> None:
    begun(line, "demo__1", "demo__2", "demo__3")
    line.scorer.judge("eval_1", "demo__1", "a", EXIT)
    line.scorer.judge("eval_1", "demo__2", "b", EXIT, kind="judge_off")
    code, out, _ = await resume(line, tmp_path, "--preview", "--duration", "9")
    assert code == 0
    value = json.loads(out)
    assert value["counts"] == {"keep": 1, "run": 1, "judge": 0, "judge_off": 1}
    assert value["changes"] == [{"name": "duration", "before": None, "after": 9}]
    assert value["judge_command"] == "tau2-eval score eval_1 --judge-model MODEL"
    code, out, _ = await line.cli(
        *("run", "--resume", "eval_1", "--preview", "--output-dir", str(tmp_path)),
        *line.targets(),
    )
    assert code == 0
    assert "1 kept, 1 to hold, 1 waiting for a judge" in out
    assert line.bridge.requests == []
    assert line.scorer.resumes == []
    assert line.scorer.finished == []


async def test_what_lacks_only_its_judgement_is_judged_and_not_called_again(
    line, tmp_path: Path
) -> None:
    begun(line, "demo__1", "demo__2", judge="scripted/judge")
    line.scorer.judge("eval_1", "demo__1", "a", EXIT, kind="judge_error")
    code, out, err = await resume(line, tmp_path)
    assert code == 0, err
    (request,) = line.scorer.scored
    assert request.only_unjudged
    assert list(request.scenarios) == ["demo__1"]
    assert not request.HasField("judge")
    assert [item.scenario for item in line.bridge.requests] == ["demo__2"]
    assert json.loads(out)["scenarios"][0]["outcome"] == "passed"
    assert line.scorer.claims == {}


async def test_calls_that_wait_for_a_judge_are_named_with_the_command(line, tmp_path: Path) -> None:
    begun(line, "demo__1")
    line.scorer.judge("eval_1", "demo__1", "a", EXIT, kind="judge_off")
    code, out, err = await resume(line, tmp_path)
    assert code == 3
    assert "tau2-eval score eval_1 --judge-model MODEL" in err
    assert json.loads(out)["scenarios"][0]["kind"] == "judge_off"
    assert line.bridge.requests == []
    assert line.scorer.resumes == []


async def test_a_trial_of_another_runner_is_left_to_it(line, tmp_path: Path) -> None:
    begun(line, "demo__1", "demo__2")
    ends = asyncio.get_running_loop().time() + 60
    line.scorer.claims[("demo__1", 0)] = ("other", "box process 7", ends)
    running = asyncio.ensure_future(resume(line, tmp_path))
    async with asyncio.timeout(40):
        while not line.bridge.requests:
            await asyncio.sleep(0.02)
    line.scorer.judge("eval_1", "demo__1", "other", EXIT)
    code, out, err = await running
    assert code == 0, err
    assert "held by box process 7" in err
    assert [item.scenario for item in line.bridge.requests] == ["demo__2"]
    assert json.loads(out)["counts"]["passed"] == 2


async def test_the_trial_of_a_runner_that_was_killed_is_held_when_its_lease_ends(
    line, tmp_path: Path
) -> None:
    begun(line, "demo__1")
    place = ("demo__1", 0)
    line.scorer.claims[place] = ("dead", "box process 7", asyncio.get_running_loop().time() + 600)
    running = asyncio.ensure_future(resume(line, tmp_path))
    async with asyncio.timeout(40):
        while not line.scorer.claimed:
            await asyncio.sleep(0.02)
    assert line.bridge.requests == []
    line.scorer.claims[place] = ("dead", "box process 7", 0.0)
    code, _, err = await running
    assert code == 0, err
    assert "held by box process 7" in err
    assert len(line.bridge.requests) == 1


async def test_an_interrupted_runner_does_not_close_the_run_of_another(
    line, tmp_path: Path
) -> None:
    begun(line, "demo__1", "demo__2")
    ends = asyncio.get_running_loop().time() + 60
    line.scorer.claims[("demo__1", 0)] = ("other", "box process 7", ends)
    line.bridge.behaviour["demo__2"] = "hangs"
    code, out, err = await line.cli(
        *("run", "--resume", "eval_1", "--json", "--output-dir", str(tmp_path)),
        *line.targets(),
        interrupt=signal.SIGINT,
    )
    assert code == 130
    assert line.scorer.finished == []
    assert "another runner is still at work" in err
    assert json.loads(out)["not_started"] == ["demo__1"]


async def test_a_run_id_is_free_or_refused(line, tmp_path: Path) -> None:
    arguments = ("run", "--scenarios", "demo__1", "--run-id", "nightly")
    place = ("--output-dir", str(tmp_path), *line.targets())
    code, _, err = await line.cli(*arguments, "--json", *place)
    assert code == 0
    assert err.splitlines()[0] == "run nightly"
    code, _, err = await line.cli(*arguments, *place)
    assert code == 2
    assert "--resume nightly" in err
    code, _, err = await line.cli("run", "--scenarios", "demo__1", "--run-id", "a/b", *place)
    assert code == 2
    assert "--run-id" in err


def test_runs_are_named_by_id_or_by_folder(tmp_path: Path) -> None:
    (tmp_path / "runs" / "eval_1").mkdir(parents=True)
    assert locate_run("eval_1", tmp_path / "runs") == ("eval_1", tmp_path / "runs")
    named = locate_run(str(tmp_path / "runs" / "eval_1"), Path("elsewhere"))
    assert named == ("eval_1", tmp_path / "runs")
    assert locate_run("eval_2", tmp_path / "runs") == ("eval_2", tmp_path / "runs")


async def test_a_lost_claim_ends_the_call_and_leaves_it_to_the_other(line, tmp_path: Path) -> None:
    from .test_runner import Notes, runner

    line.bridge.behaviour["demo__1"] = "hangs"
    notes = Notes()
    async with runner(line, tmp_path, notes) as running:
        task = asyncio.ensure_future(running.run(["demo__1"]))
        async with asyncio.timeout(30):
            await line.bridge.on_the_line.wait()
            ends = asyncio.get_running_loop().time() + 60
            line.scorer.claims[("demo__1", 0)] = ("other", "box process 7", ends)
            while line.bridge.active:
                await asyncio.sleep(0.02)
            line.scorer.judge("eval_1", "demo__1", "other", EXIT)
            result = await task
    assert ("demo__1", "left") in notes.waits
    assert [(item.outcome, item.kept) for item in result.trials] == [("passed", True)]


async def test_a_run_that_another_runner_closed_is_opened_again(line, tmp_path: Path) -> None:
    from .test_runner import run

    line.scorer.plan("eval_1", "demo__1", **RunOptions().settings())
    line.scorer.closed.add("eval_1")
    result = await run(line, tmp_path, "demo__1")
    assert result.exit_code == 0
    assert len(line.scorer.resumes) == 1


async def test_a_loss_that_could_not_be_stored_is_stored_at_the_end(line, tmp_path: Path) -> None:
    from .test_runner import run

    line.bridge.behaviour["demo__1"] = "dies"
    line.scorer.refuse_records = True

    class Opens:
        """Lets the scorer take records again once the second scenario is done."""

        def __getattr__(self, name):
            return lambda *_: None

        def done(self, result) -> None:
            line.scorer.refuse_records = False

    result = await run(line, tmp_path, "demo__1", "demo__2", notes=Opens())
    assert result.problems == []
    assert all(item.stored for item in result.trials)
    assert [header.scenario for header, _ in line.scorer.records] == ["demo__1"]
    assert result.trials[0].verdict.outcome == scorer_pb2.OUTCOME_NOT_RUN
