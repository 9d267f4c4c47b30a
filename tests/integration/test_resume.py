"""A run that was killed at any point and resumed ends as one that was not."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

SCENARIOS = (
    "tau2_airline__1",
    "tau2_airline__9",
    "tau2_airline__11",
    "tau2_airline__13",
    "tau2_airline__14",
)
TRIALS = 2
PLAN = (
    *("--scenarios", *SCENARIOS),
    *("--trials", str(TRIALS), "--modality", "text", "--parallel", "2"),
)
PLACES = {(name, trial) for name in SCENARIOS for trial in range(TRIALS)}


def outcomes(result: dict[str, Any]) -> dict[tuple[str, int], tuple[str, Any]]:
    """Maps each scenario and trial to its outcome and the signals behind it."""
    return {
        (entry["name"], entry["trial"]): (
            entry["outcome"],
            {bucket: sorted(names) for bucket, names in entry["success_breakdown"].items()},
        )
        for entry in result["scenarios"]
    }


def wait_for_file(pattern: str, folder: Path, seconds: float = 120) -> None:
    """Waits until a file below a folder is there."""
    deadline = time.monotonic() + seconds
    while not any(folder.glob(pattern)):
        assert time.monotonic() < deadline, f"no {pattern} in {folder}"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory, run_once) -> dict[tuple[str, int], Any]:
    """Outcomes of the same plan, held in one go."""
    done = run_once(tmp_path_factory.mktemp("unbroken") / "runs", *PLAN)
    assert done.code == 0, done.stderr
    found = outcomes(done.result)
    assert set(found) == PLACES
    return found


def attempts_of(folder: Path, run_id: str, command: Callable[..., str]) -> list[dict[str, Any]]:
    """Lists every attempt of a run."""
    return json.loads(command("attempts", run_id, "--json", "--output-dir", str(folder)))[
        "attempts"
    ]


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("*/run_args.json", id="as-soon-as-the-run-is-known"),
        pytest.param("*/tau2_airline__*/trial_0/metrics.json", id="after-the-first-verdict"),
        pytest.param("*/tau2_airline__1*/trial_1/metrics.json", id="in-the-second-trials"),
        pytest.param("*/tau2_airline__14/trial_1/metrics.json", id="at-the-last-verdict"),
    ],
)
def test_killed_and_resumed(
    point: str, tmp_path: Path, unbroken, start_run, run_once, command
) -> None:
    folder = tmp_path / "runs"
    run_id = "killed"
    run = start_run("--run-id", run_id, *PLAN)
    children = psutil.Process(run.process.pid)
    wait_for_file(point, folder)
    services = children.children(recursive=True)
    run.process.send_signal(signal.SIGKILL)
    run.process.wait(30)
    # What it started must not go on without it.
    _, alive = psutil.wait_procs(services, timeout=60)
    assert not alive

    resumed = run_once(folder, "--resume", run_id)
    assert resumed.code == 0, resumed.stderr
    assert outcomes(resumed.result) == unbroken

    attempts = attempts_of(folder, run_id, command)
    scored = Counter(
        (entry["scenario"], entry["trial"])
        for entry in attempts
        if entry["outcome"] in ("passed", "failed")
    )
    counting = Counter((entry["scenario"], entry["trial"]) for entry in attempts if entry["counts"])
    assert counting == dict.fromkeys(PLACES, 1)
    assert scored == dict.fromkeys(PLACES, 1), "nothing is scored twice"


def test_a_resume_changes_nothing_when_nothing_is_left(tmp_path, run_once, command) -> None:
    folder = tmp_path / "runs"
    done = run_once(folder, "--run-id", "whole", *PLAN)
    before = attempts_of(folder, "whole", command)
    again = run_once(folder, "--resume", "whole")
    assert again.code == 0, again.stderr
    assert outcomes(again.result) == outcomes(done.result)
    assert attempts_of(folder, "whole", command) == before


def test_changed_settings_are_refused_and_shown(tmp_path, run_once, start_run, command) -> None:
    folder = tmp_path / "runs"
    run = start_run("--run-id", "mixed", *PLAN)
    wait_for_file("*/tau2_airline__*/trial_0/metrics.json", folder)
    run.process.send_signal(signal.SIGINT)
    assert run.finish().code == 130

    refused = run_once(folder, "--resume", "mixed", "--min-agent-turns", "3")
    assert refused.code == 2
    assert "min_agent_turns" in refused.stderr

    mixed = run_once(folder, "--resume", "mixed", "--min-agent-turns", "3", "--allow-mixed")
    assert mixed.code == 0, mixed.stderr
    summary = (folder / "mixed" / "all_summary.txt").read_text()
    assert "min_agent_turns" in summary


def test_two_runners_of_one_run_never_hold_the_same_trial(text_stack, command) -> None:
    first = text_stack.start_run("--run-id", "shared", *PLAN)
    wait_for_file("shared/run_args.json", text_stack.output_dir)
    second = text_stack.start_run("--resume", "shared")
    one, two = first.finish(), second.finish()
    assert one.code == two.code == 0, one.stderr + two.stderr
    assert set(outcomes(one.result)) == set(outcomes(two.result)) == PLACES
    listed = json.loads(
        command(
            *("attempts", "shared", "--json"),
            *("--scorer-address", text_stack.services["scorer"]["grpc"]),
        )
    )["attempts"]
    assert Counter((entry["scenario"], entry["trial"]) for entry in listed) == dict.fromkeys(
        PLACES, 1
    )


def test_a_killed_command_leaves_no_process(start_run, tmp_path: Path) -> None:
    run = start_run("--run-id", "orphans", *PLAN)
    parent = psutil.Process(run.process.pid)
    wait_for_file("*/run_args.json", tmp_path / "runs")
    services = parent.children(recursive=True)
    assert len(services) >= 6
    os.kill(run.process.pid, signal.SIGKILL)
    run.process.wait(30)
    _, alive = psutil.wait_procs(services, timeout=60)
    assert [process.cmdline() for process in alive] == []
