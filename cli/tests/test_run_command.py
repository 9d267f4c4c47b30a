import json
import os
import signal
from pathlib import Path

import pytest

from tau2eval_cli.plan import RunOptions, new_run_id


async def test_json_is_all_that_standard_output_holds(line, tmp_path: Path) -> None:
    line.bridge.behaviour["demo__2"] = "AGENT_STALLED"
    code, out, err = await line.cli(
        *("run", "--scenarios", "demo__1", "demo__2", "--parallel", "2", "--json"),
        *("--output-dir", str(tmp_path), *line.targets()),
    )
    result = json.loads(out)
    assert code == 0
    assert result["counts"] == {"passed": 1, "failed": 1, "not_run": 0}
    assert result["output_dir"] == str(tmp_path / result["run_id"])
    first, second = result["scenarios"]
    assert first == {
        "kept": False,
        "name": "demo__1",
        "scenario": "demo__1",
        "trial": 0,
        "outcome": "passed",
        "kind": None,
        "success_breakdown": {
            "passed": ["DB_STATE_MATCH", "CLEAN_EXIT"],
            "failed": [],
            "not_applicable": [],
            "excluded": ["ACTION_MATCH"],
        },
        "stop_reason": "agent_exit",
        "duration_seconds": 12.5,
        "fully_judged": True,
        "judge": None,
        "explanation": "",
        "attempt_id": first["attempt_id"],
        "scoring": 1,
        "artifacts_path": None,
    }
    assert second["stop_reason"] == "agent_stalled"
    assert "demo__1 started" in err
    assert "agent: How can I help?" in err


async def test_plain_lines_and_the_summary_without_a_terminal(line, tmp_path: Path) -> None:
    line.bridge.behaviour["demo__2"] = "TIMEOUT"
    code, out, _ = await line.cli(
        *("run", "--domain", "demo", "--output-dir", str(tmp_path), *line.targets())
    )
    assert code == 0
    assert "\x1b" not in out
    assert "10 of 10 done, 9 passed, 1 failed, 0 not run" in out
    assert "+DB_STATE_MATCH" in out
    assert "-CLEAN_EXIT" in out
    assert "not fully judged" in out
    assert f"artifacts: {tmp_path}" in out


async def test_not_run_exits_with_3(line, tmp_path: Path) -> None:
    line.bridge.behaviour["demo__1"] = "GATEWAY_ERROR"
    code, out, _ = await line.cli(
        *("run", "--scenarios", "demo__1", "--output-dir", str(tmp_path), *line.targets())
    )
    assert code == 3
    assert "not run (gateway_error)" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_first_signal_ends_calls_in_order(
    line, tmp_path: Path, number: signal.Signals
) -> None:
    line.bridge.behaviour["demo__2"] = "hangs"
    code, out, _ = await line.cli(
        *("run", "--scenarios", "demo__1", "demo__2", "demo__3", "--json"),
        *("--output-dir", str(tmp_path), *line.targets()),
        interrupt=number,
    )
    result = json.loads(out)
    assert code == 130
    assert result["interrupted"]
    assert result["counts"] == {"passed": 1, "failed": 0, "not_run": 1}
    assert result["scenarios"][1]["kind"] == "cancelled"
    assert result["not_started"] == ["demo__3"]
    assert line.scorer.finished == [result["run_id"]]


async def test_the_second_signal_ends_at_once_and_prints_what_is_known(
    line, tmp_path: Path
) -> None:
    line.bridge.behaviour["demo__2"] = "hangs and loses the record"
    code, out, _ = await line.cli(
        *("run", "--scenarios", "demo__1", "demo__2", "demo__3", "--json"),
        *("--output-dir", str(tmp_path), *line.targets()),
        interrupt=signal.SIGINT,
        times=2,
    )
    assert code == 130
    result = json.loads(out)
    assert result["interrupted"]
    assert [entry["name"] for entry in result["scenarios"]] == ["demo__1"]
    assert (result["cut_off"], result["not_started"]) == (["demo__2"], ["demo__3"])
    assert line.scorer.finished == []


async def test_addresses_come_from_the_environment_too(line, tmp_path: Path) -> None:
    code, out, _ = await line.cli(
        *("run", "--scenarios", "demo__1", "--json", "--output-dir", str(tmp_path)),
        env={
            **os.environ,
            "TAU2EVAL_BRIDGE_ADDRESS": line.address,
            "TAU2EVAL_SCORER_ADDRESS": line.address,
        },
    )
    assert code == 0
    assert json.loads(out)["counts"]["passed"] == 1


async def test_a_scenario_that_the_scorer_does_not_know(line, tmp_path: Path) -> None:
    code, _, err = await line.cli(
        *("run", "--scenarios", "demo__77", "--output-dir", str(tmp_path), *line.targets())
    )
    assert code == 2
    assert "Did you mean" in err
    assert line.scorer.plans == {}
    assert line.bridge.requests == []


async def test_a_scenario_that_is_named_twice_is_held_once_and_it_is_told(
    line, tmp_path: Path
) -> None:
    code, out, err = await line.cli(
        *("run", "--scenarios", "demo__1", "demo__2", "demo__1", "--json"),
        *("--output-dir", str(tmp_path), *line.targets()),
    )
    assert code == 0
    assert json.loads(out)["counts"]["passed"] == 2
    assert "named twice, held once: demo__1" in err


async def test_models_are_checked_where_the_gateway_of_running_services_is_known(
    line, chat, tmp_path: Path
) -> None:
    servicer, address = chat
    run = ("run", "--scenarios", "demo__1", "--output-dir", str(tmp_path), *line.targets())
    environ = {**os.environ, "TAU2EVAL_GATEWAY_ADDRESS": address}
    code, _, err = await line.cli(*run, "--agent-model", "scripted/golf", env=environ)
    assert code == 2
    assert "Did you mean scripted/gold" in err
    assert line.bridge.requests == []
    code, _, _ = await line.cli(*run, "--agent-model", "a/b", env=environ)
    assert code == 0
    (asked,) = servicer.requests
    assert asked.context.role == "agent"


@pytest.mark.parametrize("flag", ["--bridge-address", "--scorer-address", "--gateway-address"])
async def test_an_address_where_nothing_listens_is_wrong_use(
    line, tmp_path: Path, unused_tcp_port: int, flag: str
) -> None:
    gone = f"127.0.0.1:{unused_tcp_port}"
    code, _, err = await line.cli(
        *("run", "--scenarios", "demo__1", "--output-dir", str(tmp_path)),
        *(*line.targets(), flag, gone),
    )
    assert code == 2
    assert f"{flag}: nothing listens at {gone}" in err
    assert line.bridge.requests == []


async def test_an_output_folder_that_cannot_be_made_is_wrong_use(line, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "runs"
    code, _, err = await line.cli(
        *("run", "--scenarios", "demo__1", "--output-dir", str(folder), *line.targets())
    )
    assert code == 2
    assert f"--output-dir {folder} cannot be made" in err
    assert line.bridge.requests == []


async def test_a_setting_that_no_service_has_is_wrong_use(line, tmp_path: Path) -> None:
    code, out, err = await line.cli(
        *("run", "--scenarios", "tau2_airline__1", "--json", "--output-dir", str(tmp_path)),
        env={**os.environ, "TAU2EVAL_SCORER_NO_SUCH_SETTING": "1"},
    )
    assert code == 2
    assert out == ""
    assert "scorer ended with exit code 2" in err
    assert "TAU2EVAL_SCORER_NO_SUCH_SETTING" in err
    assert "Traceback" not in err.replace("(most recent call last)", "")


def test_run_ids_sort_by_time_and_differ() -> None:
    from datetime import UTC, datetime

    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    ids = {new_run_id(now) for _ in range(20)}
    assert len(ids) > 1
    assert all(run_id.startswith("eval_20260102_030405_") for run_id in ids)
    assert RunOptions().embedded
