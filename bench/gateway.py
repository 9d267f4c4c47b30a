"""Measures the gateway against the bare mock upstream and LiteLLM's proxy, side by side.

    make bench-gateway                                        everything, about 15 minutes
    .venv/bin/python bench/gateway.py --quick                 the same in 3 minutes, for a look
    .venv/bin/python bench/gateway.py side-by-side memory     some parts

Parts: `side-by-side` (latency, rate, memory of each), `memory` (100,000 requests through our
gateway), `servers` (minimal pass-throughs on three servers and two clients, for docs/adr/0006).
All servers of a part run at once and are measured by turns, in an order that changes with every
round, so that a busy machine hurts all alike. Every figure is the median of its rounds; added
latency is the median of the rounds' differences to the mock without a gateway; CPU time is a
server's own for one request, in its least disturbed round.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import platform
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gateway_processes import BENCH, Running, Stage, load, wait_until, wrk

CONCURRENCY = (1, 16, 64)
DIRECT = "direct"
OURS = "tau2-eval"
LITELLM = "litellm"
THROUGH = [
    (server, client, loop)
    for server in ("aiohttp", "starlette", "granian")
    for client in ("aiohttp", "httpx")
    for loop in ("asyncio", "uvloop")
]


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
        rounds: Turns of every server at every load.
        seconds: Of one turn.
        step: Requests between two looks at memory; ten steps are made.
    """

    rounds: int
    seconds: float
    step: int


WHOLE = Size(rounds=5, seconds=3.0, step=10_000)
QUICK = Size(rounds=1, seconds=1.0, step=1_000)
THROUGH_SECONDS = 1.5


def side_by_side(stage: Stage, size: Size) -> dict[str, Any]:
    """Direct mock, our gateway and LiteLLM's proxy."""
    mock = stage.mock()
    servers = {DIRECT: mock, OURS: stage.gateway(mock), LITELLM: stage.litellm(mock)}
    idle = {name: round(server.megabytes(), 1) for name, server in servers.items()}
    rounds = take_turns(servers, size)
    memory = {
        name: {"idle_mb": idle[name], "after_mb": round(server.megabytes(), 1)}
        for name, server in servers.items()
        if name != DIRECT
    }
    figures: dict[str, Any] = {"loads": summary(rounds), "memory": memory}
    sent = sum(turn["requests"] for turn in rounds[OURS]) + WARM_REQUESTS * 2
    figures["wrk_per_second_at_16"] = {
        name: wrk(stage.folder, server.port, 16, size.seconds) for name, server in servers.items()
    }
    by_wrk = figures["wrk_per_second_at_16"][OURS] is not None
    servers[OURS].stop()
    figures["ledger_rows"] = check_ledger(stage, OURS, sent, exact=not by_wrk)
    return figures


def servers(stage: Stage, size: Size) -> dict[str, Any]:
    """Minimal pass-throughs; they are many, so that each turn is shorter."""
    size = replace(size, rounds=min(3, size.rounds), seconds=min(THROUGH_SECONDS, size.seconds))
    mock = stage.mock()
    running = {DIRECT: mock}
    for kind in THROUGH:
        running[" / ".join(kind)] = stage.through(mock, *kind)
    return {"loads": summary(take_turns(running, size))}


def memory(stage: Stage, size: Size) -> dict[str, Any]:
    """Resident memory of our gateway over ten steps of requests, half of them streams."""
    gateway = stage.gateway(stage.mock(), "memory")
    taken = [round(gateway.megabytes(), 2)]
    begun = time.perf_counter()
    for at in range(10):
        for stream in (False, True):
            load(gateway.port, concurrency=16, stream=stream, seconds=600, requests=size.step / 2)
        taken.append(round(gateway.megabytes(), 2))
        say(f"memory: {(at + 1) * size.step} requests, {taken[-1]:.1f} MB")
    seconds = time.perf_counter() - begun
    gateway.stop()
    late = taken[3:]
    slope = statistics.linear_regression(range(len(late)), late).slope
    return {
        "requests": 10 * size.step,
        "requests_between_looks": size.step,
        "resident_mb": taken,
        "slope_after_the_third_look_kb_per_1000_requests": round(slope * 1e6 / size.step, 2),
        "seconds": round(seconds, 1),
        "ledger_rows": check_ledger(stage, "memory", 10 * size.step, exact=True),
    }


WARM_REQUESTS = 50


def take_turns(servers: dict[str, Running], size: Size) -> dict[str, list[dict[str, Any]]]:
    """Measures every server at every load in every round, in changing order."""
    order = random.Random(5)
    for server in servers.values():
        for stream in (False, True):
            load(server.port, concurrency=8, stream=stream, seconds=60, requests=WARM_REQUESTS)
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in servers}
    for at, stream, concurrency in itertools.product(
        range(size.rounds), (False, True), CONCURRENCY
    ):
        names = list(servers)
        order.shuffle(names)
        for name in names:
            server = servers[name]
            before = server.cpu_seconds()
            taken = load(server.port, concurrency=concurrency, stream=stream, seconds=size.seconds)
            taken["cpu"] = (server.cpu_seconds() - before) / taken["requests"]
            turns[name].append({"stream": stream, "concurrency": concurrency, **taken})
        kind = "stream" if stream else "plain"
        rates = ", ".join(f"{name} {turns[name][-1]['per_second']:.0f}/s" for name in servers)
        say(f"round {at + 1}, {kind}, {concurrency} at once: {rates}")
    return turns


def summary(turns: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Returns medians over rounds by load and server; latencies in milliseconds."""
    rows = []
    for stream, concurrency in itertools.product((False, True), CONCURRENCY):
        rounds = {
            name: [
                turn
                for turn in taken
                if turn["stream"] is stream and turn["concurrency"] == concurrency
            ]
            for name, taken in turns.items()
        }
        for name, taken in rounds.items():
            row: dict[str, Any] = {
                "kind": "stream" if stream else "plain",
                "concurrency": concurrency,
                "server": name,
                "requests": sum(turn["requests"] for turn in taken),
                "per_second": round(statistics.median(turn["per_second"] for turn in taken), 1),
                # The least, not the median: what disturbs can only add to it.
                "cpu_ms": round(min(turn["cpu"] for turn in taken) * 1000, 3),
            }
            for key in ("p50", "p99", "first_byte_p50", "first_byte_p99"):
                if key in taken[0]:
                    row[f"{key}_ms"] = median_ms(turn[key] for turn in taken)
                    if name != DIRECT:
                        row[f"added_{key}_ms"] = median_ms(
                            turn[key] - bare[key]
                            for turn, bare in zip(taken, rounds[DIRECT], strict=True)
                        )
            rows.append(row)
    return rows


def median_ms(seconds: Any) -> float:
    return round(statistics.median(seconds) * 1000, 3)


def check_ledger(stage: Stage, name: str, requests: int, *, exact: bool) -> int:
    """Counts the rows of a gateway that has ended.

    Raises:
        SystemExit: Calls have no row; the figures would be those of another gateway.
    """
    path = stage.data_dir(name) / "gateway.sqlite3"
    wait_until(path.exists, 5)
    connection = sqlite3.connect(path)
    try:
        (rows,) = connection.execute(
            "SELECT COUNT(*) FROM gateway_calls WHERE status = 'ok' AND cost_usd > 0"
        ).fetchone()
    finally:
        connection.close()
    if rows < requests or (exact and rows != requests):
        raise SystemExit(f"{requests} calls were made and {rows} are in the ledger")
    return int(rows)


def goals(figures: dict[str, Any]) -> dict[str, Any]:
    """Holds the figures against the goals of issue 5."""
    found: dict[str, Any] = {}
    if part := figures.get("side-by-side"):
        at = {(row["kind"], row["concurrency"], row["server"]): row for row in part["loads"]}
        ours = at["plain", 1, OURS]
        found["added_p50_ms_under_1"] = ours["added_p50_ms"]
        found["added_p99_ms_under_5"] = ours["added_p99_ms"]
        found["times_litellm_at_16_at_least_25"] = round(
            at["plain", 16, OURS]["per_second"] / at["plain", 16, LITELLM]["per_second"], 1
        )
    return found


def table(part: dict[str, Any]) -> str:
    """Returns a part's loads as a Markdown table."""
    lines = [
        "| answer | at once | server | requests/s | CPU ms | p50 ms | p99 ms | added p50 "
        "| added p99 | first byte p50 | p99 |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in part["loads"]:
        cells = [row["kind"], row["concurrency"], row["server"], f"{row['per_second']:,.0f}"]
        cells.append(f"{row['cpu_ms']:.3f}")
        for key in ("p50", "p99", "added_p50", "added_p99", "first_byte_p50", "first_byte_p99"):
            value = row.get(f"{key}_ms")
            cells.append("" if value is None else f"{value:.2f}")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


PARTS = {"side-by-side": side_by_side, "memory": memory, "servers": servers}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--quick", action="store_true", help="for a look; keeps nothing")
    asked = parser.parse_args()
    size = QUICK if asked.quick else WHOLE
    load_before = os.getloadavg()[0]
    for name in asked.parts or PARTS:
        with tempfile.TemporaryDirectory() as folder, Stage(Path(folder)) as stage:
            figures = {name: PARTS[name](stage, size)}
        report = {
            "bench": f"gateway {name}",
            "command": f"bench/gateway.py {name}{' --quick' if asked.quick else ''}",
            "date": datetime.date.today().isoformat(),
            "machine": {
                "system": f"{platform.system()} {platform.machine()}",
                "cpus": os.cpu_count(),
                "python": platform.python_version(),
                "load_before": round(load_before, 2),
            },
            "goals": goals(figures),
            "figures": figures[name],
        }
        if not asked.quick:
            path = BENCH / "results" / f"gateway-{name}.json"
            path.write_text(json.dumps(report, indent=2) + "\n")
        if "loads" in figures[name]:
            print(table(figures[name]))
            figures[name] = {k: v for k, v in figures[name].items() if k != "loads"}
        print(json.dumps({"goals": report["goals"], **figures[name]}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
