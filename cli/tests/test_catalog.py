import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tau2eval_cli.errors import WrongUse
from tau2eval_cli.plan import choose_scenarios, make_folder

SEED = "4da8c3f8adaffe176a9daaa5f20658bb9b36cd945733ab8f9ecf2e8bcbaabcc8"


def cli(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tau2eval_cli", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **env},
    )


def test_gold_json_holds_the_published_figures() -> None:
    done = cli("gold", "--json")
    truth = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(truth) == [f"tau2_airline__{number}" for number in range(50)]
    assert all(
        set(entry) == {"seed_db_hash", "expected_db_hash", "reference_answer"}
        for entry in truth.values()
    )
    actions = [entry["reference_answer"]["actions"] for entry in truth.values()]
    assert {entry["seed_db_hash"] for entry in truth.values()} == {SEED}
    assert sum(bool(records) for records in actions) == 27
    assert sum(len(records) for records in actions) == 49
    assert sum(entry["expected_db_hash"] == SEED for entry in truth.values()) == 24
    assert (
        truth["tau2_airline__39"]["expected_db_hash"]
        == "a0787f6a5bb645deda9ba1dbdf3bc9b00bf7f69022c12969e199cacd6d011629"
    )


def test_show_json_has_exactly_its_keys() -> None:
    shown = json.loads(cli("show", "tau2_airline__11", "--json").stdout)
    assert list(shown) == [
        *("name", "domain", "tau2_id", "agent_prompt", "user_prompt", "tools", "max_duration"),
        *("success_signals", "nl_assertions"),
    ]
    assert (shown["name"], shown["domain"], shown["tau2_id"]) == (
        "tau2_airline__11",
        "tau2_airline",
        "11",
    )
    assert len(shown["tools"]) == 15
    assert "EndConversationTool" in shown["tools"]
    assert shown["max_duration"] == 900
    assert {"DB_STATE_MATCH", "CLEAN_EXIT"} <= set(shown["success_signals"])
    assert shown["nl_assertions"] is None


def test_scenarios_json_and_its_domain_filter() -> None:
    everything = json.loads(cli("scenarios", "--json").stdout)
    airline = json.loads(cli("scenarios", "--domain", "tau2_airline", "--json").stdout)
    assert everything == airline
    assert everything[7] == {"name": "tau2_airline__7", "domain": "tau2_airline", "tau2_id": "7"}


@pytest.mark.parametrize("command", ["scenarios", "gold"])
def test_readable_views(command: str) -> None:
    done = cli(command)
    assert done.returncode == 0
    assert "tau2_airline__49" in done.stdout
    assert "50 scenarios" in done.stdout


def test_readable_view_of_a_scenario() -> None:
    done = cli("show", "tau2_airline__11")
    assert done.returncode == 0
    assert "caller's prompt" in done.stdout
    assert "agent's prompt" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("show", "tau2_airlin__11"), "tau2_airline__11"),
        (("show", "11"), "tau2_airline__11"),
        (("gold", "--domain", "tau2_retail"), "there is tau2_airline"),
        (("scenarios", "--domain", "nothing"), "there is tau2_airline"),
        (("run", "--scenarios", "tau2_airline__1", "tau2_airline__99"), "Did you mean"),
        (("serve", "bridg"), "bridge"),
        (("serve", "bridge", "--http-port", "1"), "gateway"),
        (("run",), "--domain tau2_airline"),
        (("run", "--domain", "tau2_airline", "--scenarios", "tau2_airline__1"), "one of the two"),
        (("run", "--scenarios", "tau2_airline__1", "--parallel", "0"), "--parallel"),
        (("run", "--scenarios", "tau2_airline__1", "--agent-url", "ws://h:1"), "gRPC target"),
        (("run", "--scenarios", "tau2_airline__1", "--agent-url", "here"), "gRPC target"),
        (("run", "--scenarios", "tau2_airline__1", "--bridge-address", "h:1"), "--scorer-address"),
        (("run", "--scenarios", "tau2_airline__1", "--agent-params", "[1]"), "JSON object"),
        (("run", "--scenarios", "tau2_airline__1", "--agent-params", "{"), "not JSON"),
        (
            ("run", "--scenarios", "tau2_airline__1", "--user-params", '{"x": {"api_key": "s"}}'),
            "must not hold api_key",
        ),
        (
            ("run", "--scenarios", "tau2_airline__1", "--agent-params", '{"model": "m"}'),
            "cannot set model",
        ),
        (("up", "--env-file", "no/such/folder/env"), "no folder"),
        (("runn",), "run"),
    ],
)
def test_wrong_use_says_what_to_do_and_exits_with_2(arguments: tuple[str, ...], told: str) -> None:
    done = cli(*arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_setting_of_no_service_is_refused_before_anything_starts() -> None:
    done = cli("run", "--scenarios", "tau2_airline__1", TAU2EVAL_BRIGDE_STALL_SECONDS="3")
    assert done.returncode == 2
    assert "TAU2EVAL_BRIGDE_STALL_SECONDS" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("gold", "--json"),
        ("show", "tau2_airline__1"),
        ("run", "--scenarios", "tau2_airline__1"),
    ],
)
def test_a_missing_fixture_is_told_and_exits_with_2(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    done = cli(*arguments, EVAL_DATA_ROOT=str(tmp_path))
    assert done.returncode == 2
    assert "SHA-256" in done.stderr
    assert str(tmp_path) in done.stderr
    assert "Traceback" not in done.stderr


def test_help_imports_no_service_library() -> None:
    code = (
        "import sys; sys.argv = ['tau2-eval', 'run', '--help']\n"
        "from tau2eval_cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'grpc', 'numpy', 'orjson', 'tau2eval_airline', 'google.protobuf'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "--agent-model" in done.stdout


def test_version_and_the_teaching_help() -> None:
    assert cli("--version").stdout.startswith("tau2-eval ")
    assert "Examples" in cli("--help").stdout
    assert "Examples" in cli("run", "--help").stdout


@pytest.mark.parametrize("command", ["run", "score", "compare", "report", "runs", "attempts"])
def test_each_example_of_a_help_begins_a_line(command: str) -> None:
    lines = [line.strip() for line in cli(command, "--help").stdout.splitlines()]
    head = "Examples:" if command == "run" else "For example:"
    assert lines[lines.index(head) + 2].startswith(f"tau2-eval {command}")


def test_both_ways_of_naming_scenarios_are_one_too_many() -> None:
    with pytest.raises(WrongUse, match="one of the two"):
        choose_scenarios(["a__1"], ["a__1"], "a")


def test_an_output_folder_that_cannot_be_made_is_wrong_use(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WrongUse, match="cannot be made"):
        make_folder(tmp_path / "file" / "below")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
