import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tau2eval.scorer.v1 import record_pb2, scorer_pb2
from tau2eval_cli.calls import CallLimits
from tau2eval_cli.claims import Leases
from tau2eval_cli.holding import Patience
from tau2eval_cli.plan import RunOptions
from tau2eval_cli.results import RunResult
from tau2eval_cli.runner import Runner, RunPlace
from tau2eval_cli.scorer_client import ScorerClient
from tau2eval_cli.trials import Trial, Work, in_order
from tau2eval_common.client import open_channel

QUICK = Patience(
    capacity=60,
    reach=0.5,
    settle=0.3,
    look=0.05,
    first_pause=0.02,
    longest_pause=0.05,
    leases=Leases(length=1.0, renewal=0.1, retry=0.05),
)


class Notes:
    """A progress that notes what it is told."""

    def __init__(self) -> None:
        self.waits: list[tuple[str, str]] = []
        self.begun: set[str] = set()
        self.results: list[str] = []
        self.notices: list[str] = []

    def waiting(self, scenario, why) -> None:
        self.waits.append((scenario, why))

    def event(self, scenario, event) -> None:
        self.begun.add(scenario)

    def done(self, result) -> None:
        self.results.append(result.name)

    def left(self, label) -> None:
        self.waits.append((label, "left"))

    def notice(self, text) -> None:
        self.notices.append(text)


class RunsNames:
    """A runner that is told its scenarios when it runs, as the tests like it."""

    def __init__(self, line, tmp_path: Path, notes: Notes, patience: Patience, **options) -> None:
        self.runner: Runner | None = None
        self._line, self._folder, self._notes, self._patience = line, tmp_path, notes, patience
        self._address = options.pop("bridge_address", line.address)
        self._complete = options.pop("complete", None)
        self._place = options.pop("place", {})
        self._options = RunOptions(
            output_dir=tmp_path,
            bridge_address=self._address,
            scorer_address=line.address,
            **options,
        )

    def interrupt(self) -> None:
        assert self.runner is not None
        self.runner.interrupt()

    async def run(self, names: list[str]) -> RunResult:
        options = self._options
        settings = options.settings()
        plan = scorer_pb2.RunPlan(
            run_id="eval_1",
            scenarios=names,
            trials=options.trials,
            settings_json=json.dumps(settings),
        )
        async with (
            ScorerClient(self._line.address) as scorer,
            open_channel(self._address) as bridge,
        ):
            if "eval_1" not in self._line.scorer.plans:
                await scorer.create_run(plan)
            fields = {
                "work": [Work(trial) for trial in in_order(names, options.trials)],
                "local": False,
                **self._place,
            }
            place = RunPlace(plan=plan, folder=self._folder / "eval_1", settings=settings, **fields)
            self.runner = Runner(
                place, options, bridge, scorer, self._notes, self._patience, self._complete
            )
            return await self.runner.run()


@asynccontextmanager
async def runner(
    line, tmp_path: Path, notes: Notes, patience: Patience = QUICK, **options
) -> AsyncIterator[RunsNames]:
    yield RunsNames(line, tmp_path, notes, patience, **options)


async def run(line, tmp_path: Path, *names: str, notes: Notes | None = None, **options):
    async with runner(line, tmp_path, notes or Notes(), **options) as running:
        return await running.run(list(names))


async def test_scenarios_run_n_at_a_time_in_the_order_of_the_plan(line, tmp_path: Path) -> None:
    names = [f"demo__{number}" for number in range(6)]
    result = await run(line, tmp_path, *names, parallel=3)
    assert [scenario.name for scenario in result.trials] == names
    assert line.bridge.most_active == 3
    assert result.counts == {"passed": 6, "failed": 0, "not_run": 0}
    assert result.exit_code == 0
    assert line.scorer.finished == ["eval_1"]
    assert list(line.scorer.plans["eval_1"].scenarios) == names


async def test_the_request_carries_the_options(line, tmp_path: Path) -> None:
    await run(
        line,
        tmp_path,
        "demo__1",
        agent_model="a/b",
        user_model="c/d",
        agent_params='{"temperature": 0}',
        duration=60,
        min_agent_turns=3,
        modality="text",
        agent_url="127.0.0.1:9000",
        output_sample_rate=16000,
    )
    (request,) = line.bridge.requests
    assert request.agent_model.model == "a/b"
    assert json.loads(request.agent_model.parameters_json) == {"temperature": 0}
    assert request.user_model.model == "c/d"
    assert request.max_duration_seconds == 60
    assert request.min_agent_turns == 3
    assert request.modality == 2
    assert request.agent_address == "127.0.0.1:9000"
    assert request.recording_sample_rate_hz == 16000
    settings = json.loads(line.scorer.plans["eval_1"].settings_json)
    assert settings["agent_params"] == {"temperature": 0}
    assert settings["duration"] == 60


async def test_a_failed_agent_is_a_result(line, tmp_path: Path) -> None:
    line.bridge.behaviour["demo__2"] = "TIMEOUT"
    result = await run(line, tmp_path, "demo__1", "demo__2")
    assert result.counts == {"passed": 1, "failed": 1, "not_run": 0}
    assert result.exit_code == 0
    assert result.to_json()["scenarios"][1]["stop_reason"] == "timeout"


async def test_a_lost_agent_costs_its_scenario_alone_and_the_run_is_not_valid(
    line, tmp_path: Path
) -> None:
    line.bridge.behaviour["demo__2"] = "AGENT_LOST"
    result = await run(line, tmp_path, "demo__1", "demo__2", "demo__3")
    assert result.counts == {"passed": 2, "failed": 0, "not_run": 1}
    assert result.exit_code == 3
    lost = result.to_json()["scenarios"][1]
    assert (lost["outcome"], lost["kind"]) == ("not_run", "agent_lost")


async def test_a_full_bridge_is_waited_for(line, tmp_path: Path) -> None:
    line.bridge.behaviour["demo__1"] = "busy twice"
    notes = Notes()
    result = await run(line, tmp_path, "demo__1", notes=notes)
    assert line.bridge.tries["demo__1"] == 3
    assert result.counts["passed"] == 1
    assert ("demo__1", "no free call: 8 of 8 calls") in notes.waits
    attempts = {request.attempt_id for request in line.bridge.requests}
    assert len(attempts) == 1


async def test_no_call_begins_while_a_service_is_away(line, tmp_path: Path, until) -> None:
    complete, notes = asyncio.Event(), Notes()
    patient = Patience(reach=60, settle=0.3, first_pause=0.02, longest_pause=0.05)
    async with runner(line, tmp_path, notes, patient, complete=complete) as running:
        task = asyncio.create_task(running.run(["demo__1"]))
        await until(lambda: bool(notes.waits))
        assert notes.waits == [("demo__1", "a service is being started again")]
        assert not notes.results
        complete.set()
        result = await task
    assert notes.results == ["demo__1"]
    assert result.exit_code == 0


async def test_a_service_that_stays_away_is_not_waited_for_forever(line, tmp_path: Path) -> None:
    notes = Notes()
    async with runner(line, tmp_path, notes, complete=asyncio.Event()) as running:
        await running.run(["demo__1"])
    assert notes.results == ["demo__1"]


async def test_a_call_that_meets_the_beginning_of_a_drain_is_tried_again(
    line, tmp_path: Path
) -> None:
    line.bridge.behaviour["demo__1"] = "begins to drain"
    result = await run(line, tmp_path, "demo__1")
    assert result.counts["passed"] == 1
    assert line.bridge.tries["demo__1"] == 2


async def test_a_bridge_that_stays_full_is_not_waited_for_forever(line, tmp_path: Path) -> None:
    line.bridge.behaviour["demo__1"] = "always busy"
    patience = Patience(capacity=0.2, first_pause=0.02, longest_pause=0.05)
    result = await run(line, tmp_path, "demo__1", "demo__2", patience=patience)
    assert result.trials[0].verdict.not_run_kind == "harness_error"
    assert "no free call" in result.trials[0].verdict.explanation
    assert result.trials[1].outcome == "passed"


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("dies", "lost in mid-call"),
        ("ends early", "without a verdict"),
        ("refuses", "no such voice"),
        ("drains", "could not be reached"),
        ("goes silent", "sent nothing for"),
    ],
)
async def test_a_call_that_cannot_be_held_is_recorded_as_harness_error(
    line, tmp_path: Path, how: str, told: str
) -> None:
    line.bridge.behaviour["demo__1"] = how
    patience = Patience(**{**vars(QUICK), "limits": CallLimits(silence=0.5)})
    result = await run(line, tmp_path, "demo__1", "demo__2", patience=patience)
    assert result.counts == {"passed": 1, "failed": 0, "not_run": 1}
    assert result.exit_code == 3
    ((header, footer),) = line.scorer.records
    assert header.format_version == 1
    assert (header.run_id, header.scenario) == ("eval_1", "demo__1")
    # An id of its own: the bridge's record of the attempt may still come, and counts then.
    assert header.attempt_id == f"{line.bridge.requests[0].attempt_id}-lost"
    assert footer.stop_reason == record_pb2.STOP_REASON_HARNESS_ERROR
    assert told in footer.stop_detail
    # What began is never tried again blindly.
    if how not in ("drains",):
        assert line.bridge.tries["demo__1"] == 1


async def test_an_unreachable_bridge(line, tmp_path: Path) -> None:
    result = await run(line, tmp_path, "demo__1", "demo__2", bridge_address="127.0.0.1:1")
    assert result.counts == {"passed": 0, "failed": 0, "not_run": 2}
    assert {footer.stop_reason for _, footer in line.scorer.records} == {
        record_pb2.STOP_REASON_HARNESS_ERROR
    }


async def test_a_bridge_that_is_gone_is_waited_for_once(line, tmp_path: Path) -> None:
    notes = Notes()
    result = await run(
        line, tmp_path, "demo__1", "demo__2", "demo__3", notes=notes, bridge_address="127.0.0.1:1"
    )
    assert result.counts["not_run"] == 3
    assert {scenario for scenario, _ in notes.waits} == {"demo__1"}


async def test_a_scorer_that_takes_no_record_is_told_and_the_run_goes_on(
    line, tmp_path: Path
) -> None:
    line.bridge.behaviour["demo__1"] = "dies"
    line.scorer.refuse_records = True
    notes = Notes()
    result = await run(line, tmp_path, "demo__1", "demo__2", notes=notes)
    assert result.trials[0].verdict.not_run_kind == "harness_error"
    assert not result.trials[0].stored
    assert "not in the run's store" in notes.notices[0]
    assert result.exit_code == 3


async def test_artifacts_of_a_foreign_scorer_are_fetched(line, tmp_path: Path) -> None:
    line.scorer.artifacts[""] = [("all_summary.txt", [b"sum", b"mary"])]
    await run(line, tmp_path, "demo__1")
    assert (tmp_path / "eval_1" / "demo__1" / "metrics.json").read_text() == '{"a": 1}'
    assert (tmp_path / "eval_1" / "all_summary.txt").read_text() == "summary"


@pytest.mark.parametrize("path", ["../outside", "/etc/outside", "a/../../b", "", "a\\b"])
async def test_an_artifact_never_leaves_its_folder(line, tmp_path: Path, path: str) -> None:
    line.scorer.artifacts["demo__1"] = [(path, [b"x"])]
    result = await run(line, tmp_path / "runs", "demo__1")
    assert re.search("refused", result.problems[0])
    assert not [name for _, _, names in os.walk(tmp_path) for name in names]


async def test_an_interrupt_ends_calls_in_order_and_keeps_what_is_done(
    line, tmp_path: Path, until
) -> None:
    line.bridge.behaviour |= {"demo__2": "hangs", "demo__3": "hangs and loses the record"}
    notes = Notes()
    async with runner(line, tmp_path, notes, parallel=2) as running:
        task = asyncio.ensure_future(
            running.run(["demo__1", "demo__2", "demo__3", "demo__4", "demo__5"])
        )
        await until(lambda: line.bridge.active == 2 and {"demo__2", "demo__3"} <= notes.begun)
        running.interrupt()
        result = await asyncio.wait_for(task, 30)
    outcomes = {scenario.name: scenario.verdict for scenario in result.trials}
    assert outcomes["demo__1"].outcome == 1
    assert outcomes["demo__2"].not_run_kind == "cancelled"
    assert outcomes["demo__3"].not_run_kind == "cancelled"
    assert result.not_started == [Trial("demo__4"), Trial("demo__5")]
    assert result.exit_code == 130
    assert line.scorer.finished == ["eval_1"]
    # The bridge recorded one of them; the other record is the command's own.
    assert [header.scenario for header, _ in line.scorer.records] == ["demo__3"]


async def test_an_interrupt_while_waiting_for_a_free_call(line, tmp_path: Path, until) -> None:
    line.bridge.behaviour["demo__1"] = "always busy"
    async with runner(line, tmp_path, Notes()) as running:
        task = asyncio.ensure_future(running.run(["demo__1"]))
        await until(lambda: line.bridge.tries["demo__1"] > 1)
        running.interrupt()
        result = await asyncio.wait_for(task, 30)
    assert result.not_started == [Trial("demo__1")]
    assert line.scorer.records == []
