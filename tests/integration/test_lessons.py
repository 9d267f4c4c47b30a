"""Lessons from a failed run, and lessons in a call, by the real command and processes."""

from __future__ import annotations

import json

import pytest

FAILED = ("tau2_airline__1", "tau2_airline__7")
OTHER = "tau2_airline__8"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    return tmp_path_factory.mktemp("lessons") / "runs"


@pytest.fixture(scope="module")
def failed(folder, run_once):
    """A run in which everything is answered wrongly."""
    return run_once(
        folder,
        *("--modality", "text", "--agent-model", "scripted/parrot", "--parallel", "2"),
        *("--scenarios", *FAILED),
    )


def test_a_failed_run_teaches_once(folder, failed, command) -> None:
    assert failed.result["counts"] == {"passed": 0, "failed": 2, "not_run": 0}
    run_id = failed.result["run_id"]
    at = ("--output-dir", str(folder))
    dry = json.loads(command("lessons", "learn", run_id, "--dry-run", "--json", *at))
    assert dry["counts"] == {"would_add": 2}
    learnt = json.loads(command("lessons", "learn", run_id, "--json", *at))
    assert learnt["counts"] == {"added": 2}
    assert "same scenarios" in learnt["warning"]
    kept = json.loads(command("lessons", "list", "--json", *at))
    assert [lesson["name"] for lesson in kept["lessons"]] == ["settle-cancel", "tell-cancel"]
    assert {lesson["scenario"] for lesson in kept["lessons"]} == set(FAILED)
    assert all(lesson["judged"] and lesson["run_id"] == run_id for lesson in kept["lessons"])
    again = json.loads(command("lessons", "learn", run_id, "--json", *at))
    assert again["counts"] == {"duplicate": 2}


def test_a_lesson_rides_in_a_call_and_the_record_names_it(tmp_path, command, run_once) -> None:
    at = ("--output-dir", str(tmp_path))
    command("lessons", "add", "book-once", "Book once.", "--trigger", "flight", *at)
    run = run_once(
        tmp_path,
        *("--modality", "text", "--agent-model", "marina/verify:scripted/gold"),
        *("--scenarios", OTHER),
    )
    assert run.code == 0, run.stderr
    flows = run.metrics(OTHER)["control_flow"] or []
    values = [call["values"] for call in flows if call["role"] == "agent"]
    assert values
    assert all("verify" in each and "lessons" in each for each in values)
    assert "book-once" in {each["lessons"] for each in values}


def test_lessons_are_kept_through_a_running_gateway(text_stack, command) -> None:
    at = ("--gateway-address", text_stack.services["gateway"]["grpc"])
    command("lessons", "add", "a-b", "Look it up.", "--trigger", "refund", "--json", *at)
    listed = json.loads(command("lessons", "list", "--json", *at))
    assert listed["mode"] == "armed"
    assert [lesson["name"] for lesson in listed["lessons"]] == ["a-b"]
    assert command("lessons", "remove", "a-b", *at) == "removed a-b\n"
