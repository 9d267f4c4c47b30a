"""Real files against docs/schemas, and the schemas against docs/metrics.md."""

import copy
import dataclasses
import json
import re
from pathlib import Path

import grpc
import jsonschema
import pytest

from tau2eval.scorer.v1 import record_pb2, scorer_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_airline import assertions_sha256
from tau2eval_scorer.artifacts import attempt_files
from tau2eval_scorer.catalog import Catalog
from tau2eval_scorer.compare import COMPARISON_VERSION, compare_runs
from tau2eval_scorer.jsonio import dump_json
from tau2eval_scorer.judge import (
    AssertionVerdict,
    JudgeResult,
    JudgeSettings,
    JudgeUsage,
    prompt_sha256,
)
from tau2eval_scorer.judge.result import JUDGE_RESULT_VERSION
from tau2eval_scorer.metrics import METRICS_VERSION
from tau2eval_scorer.record import RecordReader, StopReason
from tau2eval_scorer.scoring import score
from tau2eval_scorer.signals import Status
from tau2eval_scorer.store import Plan, Run
from tau2eval_scorer.summary import SUMMARY_VERSION, Row, summarize
from tau2eval_scorer.verdict import NOT_RUN_KINDS

DOCS = Path(__file__).resolve().parents[3] / "docs"
SCHEMAS = {
    path.name.removesuffix(".schema.json"): json.loads(path.read_text())
    for path in (DOCS / "schemas").glob("*.schema.json")
}
OF_ATTEMPT = ("metrics", "judge_result", "db_diff", "conversation_log.seglst")
REFUSAL = "tau2_airline__1"
BOOKING = "tau2_airline__11"
ROGUE = ("cancel_reservation", {"reservation_id": "EHGLP3"})


def check(name, value):
    jsonschema.Draft202012Validator(SCHEMAS[name]).validate(value)


def judgement(catalog, scenario, passed=True, status="judged"):
    if status in ("off", "not_needed"):
        return JudgeResult(status=status, assertions_sha256=assertions_sha256())
    settings = JudgeSettings(model="judge/x")
    asked = JudgeResult(
        status="error", error="it was cut off", model="judge/x", prompt_version=1,
        prompt_sha256=prompt_sha256(), assertions_sha256=assertions_sha256(), votes=1,
        system_prompt="s", user_content="u", settings=settings.to_dict(),
        usage=(JudgeUsage("x", 100, 10, 0, None), JudgeUsage("x", 100, 10, 5, 0.125)),
    )  # fmt: skip
    if status == "error":
        return asked
    verdicts = tuple(
        AssertionVerdict(
            at + 1, text, passed or at > 0, "r", "q" if at else "", at > 0 or None, (True,)
        )
        for at, text in enumerate(catalog.card(scenario).nl_assertions)
    )
    return dataclasses.replace(
        asked, status="judged", error="", score=0.5, reason="r", verdicts=verdicts, agreement=1.0
    )


async def cases(builder):
    """Yields (name of the case, record, keywords of its judgement)."""
    agent_lost = record_pb2.STOP_REASON_AGENT_LOST
    yield "passed", await builder.gold(BOOKING), None
    yield "failed", await builder.gold(BOOKING, calls=[]), None
    yield "rogue", await builder.gold(BOOKING, calls=[ROGUE]), None
    record = await builder.gold(BOOKING, stop_reason=agent_lost, stop_detail="it was gone")
    record.agent = None
    yield "agent_lost", record, None
    record = await builder.gold(BOOKING)
    record.agent.db_hash = ""
    yield "no_hash", record, None
    record = await builder.gold(BOOKING)
    record.agent.db_hash = "0" * 64
    record.agent.actions_json.append("{")
    yield "inconsistent", record, None
    yield "few_turns", await builder.gold(BOOKING, min_agent_turns=9), None
    yield (
        "text",
        await builder.gold(BOOKING, modality=voice_pb2.MODALITY_TEXT, audio_seconds=0),
        None,
    )
    for name in ("timeout", "agent_stalled", "user_lost", "cancelled", "transfer"):
        reason = record_pb2.StopReason.Value(f"STOP_REASON_{name.upper()}")
        yield name, await builder.gold(BOOKING, stop_reason=reason), None
    yield "judged", await builder.gold(REFUSAL), {}
    yield "judged_failed", await builder.gold(REFUSAL), {"passed": False}
    for status in ("error", "off", "not_needed"):
        yield f"judge_{status}", await builder.gold(REFUSAL), {"status": status}


@pytest.fixture
async def scored(builder):
    catalog = Catalog()
    found = {}
    async for name, record, judge in cases(builder):
        record.attempt_id = name.replace("_", "-")
        reader = RecordReader()
        for part in record.parts():
            reader.feed(part)
        conversation = reader.finish()
        about = judgement(
            catalog, record.scenario, **({"status": "not_needed"} if judge is None else judge)
        )
        result = score(conversation, catalog, record.scenario, about)
        # As submission.py numbers it.
        found[name] = dataclasses.replace(result, metrics={**result.metrics, "scoring": 1})
    return found


def rows(scored):
    return [Row(name, 0, result.verdict_dict(), result.metrics) for name, result in scored.items()]


def run(scored, trials=1):
    plan = Plan("run-1", tuple(scored), trials, {"agent_model": "x"})
    return Run(plan, "2026-01-01T00:00:00Z", "")


def test_schemas_are_schemas_of_todays_versions():
    assert set(SCHEMAS) == {*OF_ATTEMPT, "all_metrics", "run_args", "comparison"}
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    versions = {
        "metrics": ("metrics_version", METRICS_VERSION),
        "judge_result": ("judge_result_version", JUDGE_RESULT_VERSION),
        "all_metrics": ("summary_version", SUMMARY_VERSION),
        "comparison": ("comparison_version", COMPARISON_VERSION),
    }
    for name, (field, version) in versions.items():
        assert SCHEMAS[name]["properties"][field]["const"] == version
        assert SCHEMAS[name]["x-version"] == version


def test_names_in_the_schemas_are_those_of_the_code():
    properties = SCHEMAS["metrics"]["properties"]
    assert set(properties["stop_reason"]["enum"]) == {str(reason) for reason in StopReason}
    kinds = {*NOT_RUN_KINDS.values(), "judge_off", "judge_error", None}
    assert set(properties["not_run_kind"]["enum"]) == kinds
    statuses = properties["signals"]["additionalProperties"]["properties"]["status"]["enum"]
    assert set(statuses) == {str(status) for status in Status}


async def test_every_file_of_every_outcome_is_as_its_schema_says(scored):
    outcomes = {name: result.metrics["outcome"] for name, result in scored.items()}
    assert {outcomes[name] for name in ("passed", "judged", "transfer", "text")} == {"passed"}
    assert outcomes["judged_failed"] == outcomes["rogue"] == outcomes["few_turns"] == "failed"
    assert outcomes["judge_error"] == outcomes["judge_off"] == outcomes["inconsistent"] == "not_run"
    for result in scored.values():
        files = attempt_files(result)
        for name in OF_ATTEMPT:
            if name != "judge_result" or result.judgement.status != "not_needed":
                check(name, json.loads(files[f"{name}.json"]))
        check("judge_result", json.loads(dump_json(result.judgement.to_dict())))
    check("all_metrics", json.loads(dump_json(summarize(run(scored), rows(scored)))))


async def test_the_aggregates_of_all_outcomes(scored):
    summary = summarize(run(scored), rows(scored), rows({"x": scored["agent_lost"]}))
    check("all_metrics", json.loads(dump_json(summary)))
    check("all_metrics", json.loads(dump_json(summarize(run(scored, 3), []))))
    assert summary["judge"]["statuses"]["judged"] == 2
    total = len(Catalog().card(REFUSAL).nl_assertions)
    assertions = summary["nl_assertions"]
    assert (assertions["passed"], assertions["of"]) == (2 * total - 1, 2 * total)
    # Three calls without a score still say how their database ended.
    database = summary["signals"]["DB_STATE_MATCH"]
    held = [r for r in scored.values() if r.metrics["outcome"] != "not_run"]
    skipped = sum(r.metrics["insufficient_agent_turns"] for r in held)
    assert database["of"] == len(held) - skipped + 2


async def test_a_comparison_is_as_its_schema_says(scored):
    everything = rows(scored)
    turned = [*everything[5:], *everything[:2]]
    for first, second in ((everything, turned), (everything, []), ([], [])):
        result = compare_runs(run(scored), first, run(scored, 2), second, 100)
        check("comparison", json.loads(dump_json(result)))


async def test_what_the_service_writes_is_as_the_schemas_say(scorer, builder):
    async with scorer() as s:
        await s.create(scenarios=(BOOKING, REFUSAL), agent_model="x", api_key="k")
        await s.submit((await builder.gold(BOOKING)).parts())
        await s.submit((await builder.gold(REFUSAL, attempt_id="b")).parts())
        await s.finish()
        for name, content in (await s.artifacts()).items():
            if name.endswith(".json"):
                check(name.removesuffix(".json"), json.loads(content))
        seen = set()
        for scenario in (BOOKING, REFUSAL):
            for path, content in (await s.artifacts(scenario=scenario)).items():
                name = path.split("/")[-1].removesuffix(".json")
                if name in OF_ATTEMPT and path.count("/") == 1:
                    check(name, json.loads(content))
                    seen.add(name)
        assert seen == set(OF_ATTEMPT)
        await s.create("run-2", (BOOKING,), trials=2, agent_model="y")
        failed = await builder.gold(BOOKING, calls=[], run_id="run-2", trial=1)
        await s.submit(failed.parts())
        request = scorer_pb2.CompareRunsRequest(
            run_id_a="run-1", run_id_b="run-2", bootstrap_samples=200
        )
        answer = await s.runs.CompareRuns(request, timeout=30)
        comparison = json.loads(answer.comparison_json)
        check("comparison", comparison)
        assert comparison["bootstrap"]["samples"] == 200
        assert [item["scenario"] for item in comparison["flipped"]["worse"]] == [BOOKING]
        assert f"{BOOKING}: 1/1 -> 0/1" in answer.comparison_text
        request.bootstrap_samples = 5
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await s.runs.CompareRuns(request, timeout=30)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def objects(schema, path=""):
    """Yields every closed object of a schema with a path to it."""
    if isinstance(schema, dict):
        if schema.get("type") in ("object", ["object", "null"]) and "properties" in schema:
            yield path, schema
        for key, value in schema.items():
            yield from objects(value, f"{path}/{key}")
    elif isinstance(schema, list):
        for at, value in enumerate(schema):
            yield from objects(value, f"{path}/{at}")


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_schemas_are_strict(name):
    for path, schema in objects(SCHEMAS[name]):
        if path.endswith("/versions"):  # The bridge adds versions of its parts.
            continue
        assert schema["additionalProperties"] is False, path
        assert set(schema["required"]) == set(schema["properties"]), path


async def test_a_wrong_file_is_refused(scored):
    metrics = json.loads(dump_json(scored["judged"].metrics))
    for change in (
        {"metrics_version": METRICS_VERSION + 1}, {"more": 1}, {"outcome": "maybe"},
        {"judge_score": 1.5}, {"trial": -1}, {"stop_reason": "bored"}, {"latency_stats": None},
    ):  # fmt: skip
        with pytest.raises(jsonschema.ValidationError):
            check("metrics", {**metrics, **change})
    for field in metrics:
        less = copy.copy(metrics)
        del less[field]
        with pytest.raises(jsonschema.ValidationError):
            check("metrics", less)


def documented(title):
    """The names in the first column of the tables of one section of docs/metrics.md."""
    text = (DOCS / "metrics.md").read_text()
    section = text.split(f"\n## {title}\n")[1].split("\n## ")[0].split("\n### ")[0]
    cells = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
    names = [name.strip() for cell in cells for name in cell.split(",")]
    return [name for name in names if name not in ("field", "---")]


@pytest.mark.parametrize("name", ["metrics", "judge_result", "all_metrics", "comparison"])
def test_the_dictionary_names_every_field_and_no_other(name):
    names = documented(f"{name}.json")
    assert len(names) == len(set(names))
    assert set(names) == set(SCHEMAS[name]["properties"])
