"""Artifacts in a folder, in memory by fsspec, and in a real S3-compatible server."""

import json
import uuid

import pytest

from tau2eval.scorer.v1 import record_pb2
from tau2eval_common.errors import Unavailable
from tau2eval_scorer.judge import JudgeSettings
from tau2eval_scorer.spool import INCOMING
from tau2eval_scorer.storage import Place, open_artifacts
from tau2eval_scorer.store import AttemptKey, Plan, Scoring

WRITES = "tau2_airline__11"
SAYS = "tau2_airline__1"


async def stream(parts):
    for part in parts:
        yield part


def content(artifacts, files):
    result = {}
    for file in files:
        with artifacts.open_file(file) as opened:
            result[file.path] = opened.read()
        assert len(result[file.path]) == file.size
    return result


@pytest.fixture(params=["folder", "memory", "s3"])
def artifacts_url(request):
    if request.param == "folder":
        return ""
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}/x"
    return request.getfixturevalue("bucket")


@pytest.fixture
def artifacts(artifacts_url, tmp_path):
    found = open_artifacts(artifacts_url, tmp_path / "runs")
    found.check()
    return found


def staged(path, **files):
    for name, text in files.items():
        file = path / name.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return path


def place(attempt_id="a", counts=False, trials=1):
    return Place("r", "s", 0, trials, attempt_id, counts)


@pytest.mark.parametrize("trials", [1, 2])
def test_attempts_are_found_by_what_they_are(artifacts, tmp_path, trials):
    def files_of(name):
        return {
            "metrics_dot_json": json.dumps({"attempt_id": name}),
            "record_dot_pb": f"record of {name}",
            "bot_logs_agent__llm_context_dot_json": "null",
        }

    for name in ("a", "b"):
        aside = place(name, trials=trials)
        assert not artifacts.attempt_files(aside)
        # What a killed process left of it is replaced.
        artifacts.adopt(staged(tmp_path / "broken", **{"metrics_dot_json": "{"}), aside)
        artifacts.adopt(staged(tmp_path / name, **files_of(name)), aside)
        counting = place(name, True, trials)
        assert artifacts.place(counting)
        assert artifacts.place(counting)
        found = content(artifacts, artifacts.attempt_files(counting))
        folder = "s" if trials == 1 else "s/trial_0"
        assert found == {
            f"{folder}/metrics.json": json.dumps({"attempt_id": name}).encode(),
            f"{folder}/record.pb": f"record of {name}".encode(),
            f"{folder}/bot_logs_agent/llm_context.json": b"null",
        }
    # The first one made room, and is still whole.
    old = content(artifacts, artifacts.attempt_files(place("a", trials=trials)))
    assert old["attempts/s/trial_0/a/record.pb"] == b"record of a"
    assert len(old) == 3
    assert not artifacts.place(place("none", True, trials))
    assert not artifacts.attempt_files(place("none", trials=trials))
    assert not artifacts.update(place("none", trials=trials), {"x": b"1"})

    assert artifacts.update(place("b", True, trials), {"scorings/1/x.json": b"1", "y": b"22"})
    assert artifacts.update(place("b", True, trials), {"scorings/1/x.json": b"3", "y": None})
    assert artifacts.update(place("b", True, trials), {"y": None})
    found = content(artifacts, artifacts.attempt_files(place("b", True, trials)))
    assert found[f"{folder}/scorings/1/x.json"] == b"3"
    assert len(found) == 4


def test_files_of_the_run_itself(artifacts):
    assert artifacts.run_file("r", "all_metrics.json") is None
    artifacts.write("r", "all_metrics.json", b"old and long")
    artifacts.write("r", "all_metrics.json", b"new")
    found = artifacts.run_file("r", "all_metrics.json")
    assert content(artifacts, [found]) == {"all_metrics.json": b"new"}
    artifacts.write("r", "empty", b"")
    assert content(artifacts, [artifacts.run_file("r", "empty")]) == {"empty": b""}
    assert artifacts.run_file("r", "") is None


def test_a_record_is_given_with_the_length_of_its_recording(artifacts, tmp_path):
    files = {
        "metrics_dot_json": '{"attempt_id": "a"}',
        "record_dot_pb": "the record",
        "conversation_log_dot_wav": "x" * 1000,
    }
    artifacts.adopt(staged(tmp_path / "a", **files), place())
    with artifacts.record(place()) as record:
        assert record.path.read_text() == "the record"
        assert record.wav_bytes == 1000
    with pytest.raises(FileNotFoundError):
        with artifacts.record(place("none")):
            pass
    incoming = tmp_path / "runs" / INCOMING
    assert not incoming.exists() or not list(incoming.iterdir())


async def test_a_whole_run(artifacts_url, open_core, builder, chat, tmp_path):
    """The same run, wherever its artifacts lie: read, scored again, set aside, and shown."""
    judge = JudgeSettings(model="fake/judge")
    async with open_core(artifacts_url=artifacts_url) as core:
        await core.create_run(Plan("run-1", (WRITES, SAYS), 1, {}, judge))
        lost = await builder.gold(WRITES, attempt_id="lost")
        lost.stop_reason = record_pb2.STOP_REASON_USER_LOST
        await core.submit(stream(lost.parts()))
        whole = await builder.gold(WRITES, attempt_id="whole")
        await core.submit(stream(whole.parts()))
        chat.broken = True
        await core.submit(stream((await builder.gold(SAYS)).parts()))
        chat.broken = False
        results = [r async for r in core.score("run-1", None, (), False)]
        assert [(r.attempt.outcome, r.problem) for r in results] == [("passed", "")] * 2
        # The recording's length was known without it.
        metrics = json.loads(results[0].attempt.metrics_json)
        assert metrics["recording_seconds"] == 0.25
        path, pages = await core.reports.write("run-1")
        assert (path, pages) == ("report.html", 4)
        await core.finish("run-1")
    # Another process finds all of it.
    async with open_core(artifacts_url=artifacts_url) as core:
        for scenario, attempt_id, whose, folder in (
            (WRITES, "", "whole", WRITES),
            (WRITES, "lost", "lost", f"attempts/{WRITES}/trial_0/lost"),
            (SAYS, "", "attempt-1", SAYS),
        ):
            files = await core.files.files("run-1", scenario, 0, attempt_id)
            found = {
                path.removeprefix(f"{folder}/"): data
                for path, data in content(core.artifacts, files).items()
            }
            assert {"record.pb", "conversation_log.wav", "report.html"} <= set(found)
            stored = await core.store.attempt(AttemptKey("run-1", scenario, 0, whose))
            assert json.loads(found["metrics.json"]) == json.loads(stored.metrics_json)
            if scenario == SAYS:
                before = json.loads(found["scorings/1/judge_result.json"])
                assert (before["status"], stored.scoring.number) == ("error", 2)
        own = content(core.artifacts, await core.files.files("run-1"))
        assert set(own) == {
            "run_args.json",
            "all_metrics.json",
            "all_summary.txt",
            "all_latencies.csv",
            "report.html",
        }
        assert json.loads(own["all_metrics.json"])["counts"]["passed"] == 2
        page = await core.reports.page("run-1", f"{SAYS}/report.html")
        assert b"<html" in page
    assert not list((tmp_path / "runs" / INCOMING).iterdir())


async def test_a_verdict_is_stored_after_its_record(open_core, builder, bucket, monkeypatch):
    """An object store that fails leaves no verdict, and the same record is taken later."""
    async with open_core(artifacts_url=bucket) as core:
        await core.create_run(Plan("run-1", (WRITES,), 1, {}))
        record = await builder.gold(WRITES)
        system = core.artifacts._system
        put, names = system.put_file, []

        def fail_at_the_record(local, key, *arguments, **options):
            names.append(key)
            if key.endswith("record.pb"):
                raise OSError("no space")
            return put(local, key, *arguments, **options)

        with monkeypatch.context() as patched:
            patched.setattr(system, "put_file", fail_at_the_record)
            with pytest.raises(Unavailable, match="artifacts"):
                await core.submit(stream(record.parts()))
        assert len(names) > 3
        assert await core.store.attempts("run-1") == []
    async with open_core(artifacts_url=bucket) as core:
        _, attempt = await core.submit(stream(record.parts()))
        assert (attempt.outcome, attempt.placed) == ("passed", True)


async def test_a_start_says_what_is_wrong_with_the_bucket(open_core, bucket, tmp_path, monkeypatch):
    with pytest.raises(OSError, match="AWS_"):
        async with open_core(artifacts_url="s3://there-is-no-such-bucket-here/x"):
            pass
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(OSError, match="cannot be used"):
        open_artifacts(bucket, tmp_path).check()


def test_scorings_without_a_judge_have_no_file():
    from tau2eval_scorer.run_files import _scoring_files

    files = _scoring_files(
        [
            Scoring("not_run", {}, '{"n": 1}', '{"status": "error"}', number=1),
            Scoring("passed", {}, '{"n": 2}', number=2),
        ]
    )
    assert files["judge_result.json"] is None
    assert json.loads(files["scorings/1/judge_result.json"]) == {"status": "error"}
    assert json.loads(files["metrics.json"]) == {"n": 2}
