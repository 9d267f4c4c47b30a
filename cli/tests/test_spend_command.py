"""The command `spend` against a gateway whose ledger holds what a test says."""

import json

import grpc
import pytest

from tau2eval.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from tau2eval_cli.spend import add_up, dollars
from tau2eval_common.errors import Unavailable, abort_with


def row(**more):
    values = {
        "day": "2026-01-31", "key_id": "k", "model": "m", "role": "agent", "run_id": "r1",
        "arm": "single", "calls": 1, "prompt_tokens": 100, "completion_tokens": 10,
        "cached_tokens": 40, "cache_write_tokens": 5, "reasoning_tokens": 3, "cost_usd": 0.5,
    }  # fmt: skip
    return gateway_pb2.SpendRow(**{**values, **more})


ROWS = [
    row(),
    row(role="judge", cost_usd=2.0, day="2026-02-01"),
    row(role="user", cost_usd=0.25, calls=3, calls_estimated=1, cost_estimated_usd=0.05),
    row(model="local", cost_usd=0.0, calls=2, calls_without_cost=2),
    row(model="mixed\x1b[2J", cost_usd=0.125, calls=4, calls_without_cost=1, run_id="eval_1"),
    row(model="free", cost_usd=0.0, run_id=""),
]


class Spend(gateway_pb2_grpc.SpendServiceServicer):
    def __init__(self):
        self.rows = ROWS
        self.cap = 5.0
        self.fault = None
        self.asked = []

    async def ListDailySpend(self, request, context):
        self.asked.append((request.from_day, request.to_day))
        if self.fault is not None:
            await abort_with(context, self.fault)
        return gateway_pb2.ListDailySpendResponse(
            rows=self.rows, cap_usd=self.cap, spent_today_usd=1.5, reserved_usd=0.25
        )

    async def ListRunSpend(self, request, context):
        self.asked.append(request.run_id)
        rows = [row(day="", scenario=name, run_id="") for name in ("b", "a", "b")]
        return gateway_pb2.ListRunSpendResponse(rows=rows)


@pytest.fixture
async def gateway():
    servicer = Spend()
    server = grpc.aio.server()
    gateway_pb2_grpc.add_SpendServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    servicer.address = f"127.0.0.1:{port}"
    yield servicer
    await server.stop(0)


async def as_json(line, gateway, *arguments):
    code, out, err = await line.cli("spend", "--gateway", gateway.address, "--json", *arguments)
    assert (code, err) == (0, "")
    return json.loads(out)


async def test_json(line, gateway):
    value = await as_json(line, gateway, "--from", "2026-01-01", "--to", "2026-02-01")
    assert gateway.asked == [("2026-01-01", "2026-02-01")]
    assert [item["model"] for item in value["rows"]] == ["m", "mixed\x1b[2J", "free", "local"]
    assert value["rows"][0] == {
        "model": "m", "calls": 5, "prompt_tokens": 300, "cached_tokens": 120,
        "cache_write_tokens": 15, "completion_tokens": 30, "reasoning_tokens": 9,
        "known_cost_usd": 2.75, "calls_without_cost": 0, "calls_estimated": 1,
        "cost_estimated_usd": 0.05, "cost_usd": 2.75,
    }  # fmt: skip
    by_model = {item["model"]: item for item in value["rows"]}
    # Unknown is null, never 0; what is free is 0.
    assert by_model["local"]["cost_usd"] is None
    assert by_model["mixed\x1b[2J"]["cost_usd"] is None
    assert by_model["mixed\x1b[2J"]["known_cost_usd"] == 0.125
    assert by_model["free"]["cost_usd"] == 0.0
    assert value["total"]["calls"] == 12
    assert value["total"]["cost_usd"] is None
    assert value["total"]["known_cost_usd"] == 2.875
    assert value["today"] == {"cap_usd": 5.0, "counted_usd": 1.5, "reserved_usd": 0.25}


async def test_table(line, gateway):
    code, out, _ = await line.cli("spend", "--gateway", gateway.address)
    assert code == 0
    lines = [text.split() for text in out.splitlines()]
    assert lines[0] == ["model", "calls", "read", "cached", "written", "wrote", "reasoning", "cost"]
    assert lines[1] == ["m", "5", "300", "120", "15", "30", "9", "~$2.7500"]
    assert lines[3] == ["free", "1", "100", "40", "5", "10", "3", "$0.0000"]
    assert lines[4] == ["local", "2", "100", "40", "5", "10", "3", "unknown"]
    assert lines[5] == ["total", "12", "600", "240", "30", "60", "18", ">=", "~$2.8750"]
    assert "3 of 12 calls have no known cost" in out
    assert "~ 1 calls are estimated, $0.0500 of the sum" in out
    assert (
        "today (UTC) $1.5000 of the cap of $5.0000, $0.2500 reserved by calls in progress, "
        "$3.2500 left" in out
    )
    assert "\x1b" not in out


async def test_groups_and_one_run(line, gateway):
    value = await as_json(line, gateway, "--by", "day", "--by", "role")
    assert [(item["day"], item["role"]) for item in value["rows"]] == [
        ("2026-01-31", "agent"),
        ("2026-01-31", "user"),
        ("2026-02-01", "judge"),
    ]
    value = await as_json(line, gateway, "--run", "eval_1", "--by", "arm")
    assert [(item["arm"], item["calls"]) for item in value["rows"]] == [("single", 4)]
    assert value["run"] == "eval_1"
    value = await as_json(line, gateway, "--run", "eval_1", "--by", "scenario")
    assert gateway.asked[-1] == "eval_1"
    assert [(item["scenario"], item["calls"]) for item in value["rows"]] == [("a", 1), ("b", 2)]


async def test_nothing_spent_and_no_cap(line, gateway):
    gateway.rows, gateway.cap = [], None
    code, out, _ = await line.cli("spend", "--gateway", gateway.address)
    assert code == 0
    assert out.splitlines() == [
        "no calls",
        "today (UTC) $1.5000; no daily cap (MARINA_DAILY_SPEND_CAP_USD)",
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--by", "colour"], "model, role, run, day, arm, key, scenario"),
        (["--by", "day", "--by", "day"], "twice"),
        (["--from", "2026-1-1"], "2026-01-31"),
        (["--to", "yesterday"], "2026-01-31"),
        (["--from", "2026-02-01", "--to", "2026-01-01"], "after"),
        (["--by", "scenario"], "needs --run"),
        (["--by", "scenario", "--by", "day", "--run", "eval_1"], "--by day"),
        (["--by", "scenario", "--from", "2026-01-01", "--run", "eval_1"], "--from"),
    ],
)
async def test_wrong_use(line, gateway, arguments, told):
    code, out, err = await line.cli("spend", "--gateway", gateway.address, *arguments)
    assert (code, out) == (2, "")
    assert told in err
    assert gateway.asked == []


async def test_gateways_that_cannot_be_asked(line, gateway, chat, tmp_path):
    gateway.fault = Unavailable("the spend ledger cannot be read", reason="LEDGER_UNAVAILABLE")
    code, out, err = await line.cli("spend", "--gateway", gateway.address, "--json")
    assert (code, out) == (3, "")
    assert "the spend ledger cannot be read" in err
    code, _, err = await line.cli("spend", "--gateway", "127.0.0.1:1")
    assert code == 2
    assert "nothing listens" in err
    code, _, err = await line.cli("spend", "--gateway", chat[1])
    assert code == 2
    assert "older version" in err
    code, _, err = await line.cli("spend", "--output-dir", str(tmp_path / "none"))
    assert code == 2
    assert "there is no folder" in err


@pytest.mark.parametrize(
    ("usd", "text"),
    [(0.0, "$0.0000"), (0.00004, "$0.00004"), (99.5, "$99.5000"), (1234.5, "$1,234.50")],
)
def test_dollars(usd, text):
    assert dollars(usd) == text


def test_the_dearest_come_first():
    found = add_up([row(model="a", cost_usd=1.0), row(model="b", cost_usd=3.0)], ["model"])
    assert [group for group, _ in found] == [("b",), ("a",)]
