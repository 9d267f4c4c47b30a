"""What control flows did: kept for each model call, in events, metrics and on the page."""

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau2eval.scorer.v1 import record_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_scorer.artifacts import attempt_files
from tau2eval_scorer.catalog import Catalog
from tau2eval_scorer.control_flow import MAX_VALUE_CHARS, MAX_VALUES, control_flow
from tau2eval_scorer.record import RecordReader, Role, TimedEvent
from tau2eval_scorer.report import MemoryFiles, render_scenario
from tau2eval_scorer.scoring import score

PLAIN = {"x-marina-upstream-model": "m", "x-marina-cost-usd": "0.1", "x-marina-session": "s"}


def used(seconds, headers, role=Role.AGENT, **more):
    return TimedEvent(seconds, role, "usage", {"marina_headers": headers, **more})


def test_plain_calls_count_but_have_no_entry():
    events = [
        used(1.0, PLAIN),
        used(1.5, {}, Role.USER),
        TimedEvent(1.7, Role.AGENT, "tool_call", {}),
        used(2.0, {**PLAIN, "x-marina-verify": "approved", "other": "x"}, cost_usd=0.25),
        used(3.0, {"x-marina-obligations": "open=1"}, Role.USER),
    ]
    assert control_flow(events) == [
        {"role": "agent", "call": 2, "time_seconds": 2.0, "cost_usd": 0.25,
         "values": {"verify": "approved"}},
        {"role": "user", "call": 2, "time_seconds": 3.0, "cost_usd": None,
         "values": {"obligations": "open=1"}},
    ]  # fmt: skip


@given(st.dictionaries(st.text() | st.just("x-marina-verify"), st.text(), max_size=40),
       st.none() | st.floats())  # fmt: skip
def test_whatever_a_bot_reports_stays_bounded(headers, cost):
    more = {f"x-marina-{at}": "y" * 9_999 for at in range(40)}
    for entry in control_flow([used(1.0, {**headers, **more}, cost_usd=cost)]):
        assert len(entry["values"]) <= MAX_VALUES
        assert all(len(value) <= MAX_VALUE_CHARS for value in entry["values"].values())
        assert entry["cost_usd"] is None or entry["cost_usd"] >= 0
        json.dumps(entry, allow_nan=False)


@pytest.mark.parametrize("headers", [None, [], "x-marina-verify"])
def test_headers_of_another_form_are_none(headers):
    assert control_flow([used(1.0, headers)]) == []


async def test_metrics_and_page_show_what_the_flows_did(builder, schema):
    call = await builder.gold()
    usage = voice_pb2.Usage(model="marina/verify:m", cost_usd=0.002)
    usage.marina_headers.update({**PLAIN, "x-marina-verify": "held-write <b>"})
    event = voice_pb2.Event(media_time_seconds=1.5, usage=usage)
    call.events.insert(
        0, record_pb2.TimedEvent(time_seconds=1.5, role=voice_pb2.ROLE_AGENT, event=event)
    )
    reader = RecordReader()
    for part in call.parts():
        reader.feed(part)
    files = attempt_files(score(reader.finish(), Catalog(), call.scenario, None))
    metrics = json.loads(files["metrics.json"])
    jsonschema.Draft202012Validator(schema).validate({**metrics, "scoring": 1})
    assert metrics["control_flow"] == [
        {"role": "agent", "call": 1, "time_seconds": 1.5, "cost_usd": 0.002,
         "values": {"verify": "held-write <b>"}}
    ]  # fmt: skip
    lines = [json.loads(line) for line in files["events.jsonl"].splitlines()]
    kept = next(line for line in lines if line["event"] == "usage")
    assert kept["data"]["marina_headers"] == dict(usage.marina_headers)
    page = render_scenario(MemoryFiles(files))
    assert "Control flow in 1 model call" in page
    assert "verify: held-write &lt;b&gt;" in page
    # A record of before has no such field, and no such table.
    del metrics["control_flow"]
    old = {**files, "metrics.json": json.dumps(metrics).encode()}
    assert "Control flow" not in render_scenario(MemoryFiles(old))


@pytest.fixture
def schema():
    path = Path(__file__).parents[3] / "docs" / "schemas" / "metrics.schema.json"
    return json.loads(path.read_text())
