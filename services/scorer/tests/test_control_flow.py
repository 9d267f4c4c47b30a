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
from tau2eval_scorer.control_flow import (
    MAX_COUNTS,
    MAX_VALUE_CHARS,
    MAX_VALUES,
    control_flow,
    control_flow_totals,
    unchecked_calls,
)
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


def test_totals_add_up_what_was_done_and_name_what_was_not():
    def call(role, **values):
        return {"role": role, "values": {name.replace("_", "-"): v for name, v in values.items()}}

    first = [
        call("agent", verify="approved", lessons="a,b"),
        call("agent", verify="checker-unavailable", lessons="0"),
        call("agent", verify="approved", lessons="observe:a"),
    ]
    second = [
        call("agent", argcheck="writes=2 flagged=1 judge-unavailable=1", argcheck_cost_usd="0.1"),
        call("agent", obligations="read=1 open=3 settled=2 failed=1"),
        call("user", obligations="0"),
        call("user", obligations="read=x =1 read=-1 read=1=1"),
    ]
    totals = control_flow_totals([{"control_flow": first}, {"control_flow": second}, {}])
    assert totals == {
        "agent": {
            "argcheck": {
                "calls": 1,
                "counts": {"flagged": 1, "judge-unavailable": 1, "writes": 2},
            },
            "lessons": {"calls": 3, "counts": {"a": 2, "b": 1}},
            "obligations": {"calls": 1, "counts": {"failed": 1, "read": 1}},
            "verify": {"calls": 3, "counts": {"approved": 2, "checker-unavailable": 1}},
        },
        "user": {"obligations": {"calls": 2, "counts": {}}},
    }
    assert unchecked_calls(totals) == {
        "agent argcheck": 1,
        "agent obligations": 1,
        "agent verify": 1,
    }
    assert control_flow_totals([{}]) == {}


@given(st.lists(st.text(max_size=20), max_size=200))
def test_totals_stay_bounded(words):
    calls = [{"role": "agent", "values": {"verify": word}} for word in words]
    totals = control_flow_totals([{"control_flow": calls}])
    for flow in totals.get("agent", {}).values():
        assert len(flow["counts"]) <= MAX_COUNTS
        assert flow["calls"] == len(words)


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
