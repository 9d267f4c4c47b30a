"""What lies on the disk: placing, spooling, stored records, the store, restarts."""

import asyncio
import dataclasses
import os

import pytest
import sqlalchemy as sa

from tau2eval_common.errors import InvalidInput
from tau2eval_scorer import core as core_module
from tau2eval_scorer import layout
from tau2eval_scorer.__main__ import main
from tau2eval_scorer.catalog import Catalog
from tau2eval_scorer.core import ScorerCore
from tau2eval_scorer.names import check_name
from tau2eval_scorer.record import RecordLimits, StopReason
from tau2eval_scorer.scoring import score
from tau2eval_scorer.settings import ScorerSettings, usage
from tau2eval_scorer.spool import INCOMING, Spool, read_record, remove_stale
from tau2eval_scorer.store import Plan


def folder_of(path, attempt_id):
    path.mkdir(parents=True)
    (path / "metrics.json").write_text(f'{{"attempt_id": "{attempt_id}"}}')


def attempt_in(path):
    return (path / "metrics.json").read_text().split('"')[3]


@pytest.mark.parametrize("trials", [1, 3])
@pytest.mark.parametrize("killed", ["before", "between", "after"])
def test_placing_can_be_repeated_after_a_kill(tmp_path, trials, killed):
    target = tmp_path / layout.scenario_path("s", 0, trials)
    old, new = (tmp_path / layout.attempt_path("s", 0, name) for name in ("old", "new"))
    folder_of(new, "new")
    folder_of(old if killed == "between" else target, "old")
    if killed == "after":
        assert layout.place(tmp_path, "s", 0, trials, "new")
    assert layout.place(tmp_path, "s", 0, trials, "new")
    assert attempt_in(target) == "new"
    assert attempt_in(old) == "old"
    assert not new.exists()
    assert not layout.place(tmp_path, "s", 0, trials, "gone")
    assert attempt_in(target) == "new"


def test_a_folder_of_unknown_origin_is_kept_aside(tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "mine.txt").write_text("mine")
    folder_of(tmp_path / layout.attempt_path("s", 0, "new"), "new")
    assert layout.place(tmp_path, "s", 0, 1, "new")
    (kept,) = (tmp_path / "attempts" / "s" / "trial_0").iterdir()
    assert (kept / "mine.txt").read_text() == "mine"


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    layout.replace_file(path, b"old")

    def fail(*_):
        raise OSError("killed")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="killed"):
        layout.replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "-a", ".a", "a" * 129, "a\n", "ä"])
def test_names_that_are_no_path_component_are_refused(name):
    with pytest.raises(InvalidInput):
        check_name("run_id", name)


def test_names():
    for name in ("a", "tau2_airline__11", "20260101-1.b", "a..b"):
        assert check_name("run_id", name) == name


async def test_a_stored_record_scores_the_same_again(tmp_path, builder):
    record = await builder.gold("tau2_airline__14")
    catalog = Catalog()
    with Spool(tmp_path, RecordLimits()) as spool:
        for part in record.parts():
            spool.feed(part)
        conversation = spool.finish()
        record_file = spool.folder / "record.pb"
        wav_bytes = (spool.folder / "conversation_log.wav").stat().st_size
        again = read_record(record_file, wav_bytes)
        record_file.write_bytes(record_file.read_bytes()[:-3])
        with pytest.raises(InvalidInput):
            read_record(record_file, wav_bytes)
    assert again == conversation
    with pytest.raises(dataclasses.FrozenInstanceError):
        conversation.turns[0].text = "other"
    assert conversation.audio_frames == 2000
    first, second = (score(c, catalog, "x") for c in (conversation, again))
    assert first.metrics == second.metrics
    assert first.composite.outcome == "passed"
    assert not list((tmp_path / INCOMING).iterdir())


async def test_the_record_keeps_no_secret(tmp_path, builder):
    record = await builder.gold()
    record.settings = {"api_key": "sk-hush", "agent_model": "m"}
    with Spool(tmp_path, RecordLimits()) as spool:
        for part in record.parts():
            spool.feed(part)
        spool.finish()
        assert b"sk-hush" not in (spool.folder / "record.pb").read_bytes()


async def test_a_text_conversation_has_no_recording(tmp_path, builder):
    record = await builder.gold()
    record.modality, record.audio_seconds = 2, 0
    with Spool(tmp_path, RecordLimits()) as spool:
        for part in record.parts():
            spool.feed(part)
        conversation = spool.finish()
        assert not (spool.folder / "conversation_log.wav").exists()
    assert conversation.header.modality == "text"


async def test_faults_of_a_bots_report_are_findings(tmp_path, builder):
    record = await builder.gold()
    record.agent.actions_json.append("[1]")
    record.agent.context_history_json = '{"a": NaN}'
    with Spool(tmp_path, RecordLimits()) as spool:
        for part in record.parts():
            spool.feed(part)
        conversation = spool.finish()
    assert len(conversation.report_faults) == 2
    scored = score(conversation, Catalog(), "x")
    assert scored.composite.outcome == "passed"
    assert scored.metrics["report_faults"] == list(conversation.report_faults)


@pytest.mark.parametrize(
    ("record_json", "table", "key", "sizes"),
    [
        ("{", "users", "x", []),
        ("[]", "users", "x", []),
        ("", "users", "x", []),
        ("{}", "nowhere", "x", []),
        ("{}", "reservations", "x", [3]),
        ('{"a": NaN}', "users", "x", []),
        ('{"a": 1}', "users", "x", []),
    ],
)
async def test_changed_records_that_do_not_fit_are_never_a_score(
    tmp_path, builder, record_json, table, key, sizes
):
    record = await builder.gold()
    record.agent.changed_records.add(
        table=table, key=key, record_json=record_json, payment_operation_sizes=sizes
    )
    with Spool(tmp_path, RecordLimits()) as spool:
        for part in record.parts():
            spool.feed(part)
        scored = score(spool.finish(), Catalog(), "x")
    assert (scored.composite.outcome, scored.composite.not_run_kind) == ("not_run", "harness_error")
    assert scored.metrics["db_state_match"] is None


async def test_a_lost_agents_actions_and_calls_come_from_its_events(tmp_path, builder):
    from tau2eval.voice.v1 import voice_pb2

    record = await builder.gold()
    record.agent = None
    usage = voice_pb2.Usage(model="m", prompt_tokens=7, cost_usd=float("nan"))
    record.events.append(type(record.events[0])(role=1, event=voice_pb2.Event(usage=usage)))
    with Spool(tmp_path, RecordLimits()) as spool:
        for part in record.parts():
            spool.feed(part)
        scored = score(spool.finish(), Catalog(), "x")
    # Not lost by its stop reason, so the missing hash is a failure.
    assert scored.conversation.stop_reason is StopReason.AGENT_EXIT
    assert scored.composite.breakdown.failed == ("DB_STATE_MATCH",)
    assert scored.metrics["is_action_match"] is True
    assert scored.metrics["token_usage"]["agent"]["prompt"] == 7
    assert scored.metrics["cost_usd"] is None


def test_leftovers_of_a_killed_process_are_removed_when_they_are_old(tmp_path):
    (tmp_path / INCOMING / "x").mkdir(parents=True)
    (tmp_path / INCOMING / "x" / "record.pb").write_bytes(b"1")
    assert remove_stale(tmp_path) == 0
    assert remove_stale(tmp_path, older_than_seconds=-1) == 1
    assert remove_stale(tmp_path / "none") == 0


async def stream(parts):
    for part in parts:
        yield part


async def test_a_restart_finishes_the_placing(tmp_path, builder):
    settings = ScorerSettings(artifacts_dir=tmp_path / "runs", port=0)
    core = ScorerCore(settings, Catalog())
    await core.start()
    plan = Plan("run-1", ("tau2_airline__11",), 1, {})
    await core.create_run(plan)
    record = await builder.gold()
    await core.submit(stream(record.parts()))
    await core.stop()
    # As if the process had died right after the verdict was committed.
    run_folder = tmp_path / "runs" / "run-1"
    place = run_folder / "tau2_airline__11"
    aside = run_folder / layout.attempt_path("tau2_airline__11", 0, "attempt-1")
    aside.parent.mkdir(parents=True, exist_ok=True)
    place.rename(aside)
    (run_folder / "all_metrics.json").unlink()
    engine = sa.create_engine(f"sqlite:///{settings.store_dir / 'runs.sqlite3'}")
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE attempts SET placed = 0"))
    engine.dispose()

    core = ScorerCore(settings, Catalog())
    await core.start()
    assert attempt_in_metrics(place) == "attempt-1"
    assert (run_folder / "all_metrics.json").is_file()
    await core.stop()


async def test_a_verdict_wakes_watchers_at_once(tmp_path, builder, monkeypatch):
    monkeypatch.setattr(core_module, "WATCH_POLL_SECONDS", 3600.0)
    core = ScorerCore(ScorerSettings(artifacts_dir=tmp_path / "runs", port=0), Catalog())
    await core.start()
    await core.create_run(Plan("run-1", ("tau2_airline__11",), 1, {}))
    watching = core.watch("run-1")
    first = asyncio.ensure_future(anext(watching))
    await core.runs()  # Meanwhile the watcher looks into the store and finds nothing.
    record = await builder.gold()
    await core.submit(stream(record.parts()))
    _, attempt = await asyncio.wait_for(first, 60)
    assert attempt.key.attempt_id == "attempt-1"
    ended = asyncio.ensure_future(anext(watching, None))
    await core.finish("run-1")
    assert await asyncio.wait_for(ended, 60) is None
    await core.stop()


def attempt_in_metrics(place):
    import json

    return json.loads((place / "metrics.json").read_text())["attempt_id"]


def test_help_names_every_setting(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for name in ScorerSettings.model_fields:
        assert f"TAU2EVAL_SCORER_{name.upper()} " in text
    lines = usage().splitlines()
    described = [
        lines[at + 1].strip() for at, line in enumerate(lines) if "TAU2EVAL_SCORER_" in line
    ]
    assert all(described)
    assert main(["extra"]) == 2


def test_a_missing_fixture_ends_the_start_with_2(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("EVAL_DATA_ROOT", str(tmp_path))
    monkeypatch.setenv("TAU2EVAL_SCORER_ARTIFACTS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("TAU2EVAL_SCORER_PORT", "0")
    assert main([]) == 2
    assert "tasks.json" in capsys.readouterr().err
