"""The aggregates of a run: all_metrics.json and all_latencies.csv."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tau2eval_scorer.accuracy import combine
from tau2eval_scorer.latency import latency_stats
from tau2eval_scorer.layout import scenario_path
from tau2eval_scorer.signals import ACTION_MATCH
from tau2eval_scorer.store import Run

SUMMARY_VERSION = 1


@dataclass(frozen=True)
class Row:
    """One counting verdict.

    Attributes:
        verdict: As the store keeps it.
        metrics: The content of its metrics.json.
    """

    scenario: str
    trial: int
    verdict: Mapping[str, Any]
    metrics: Mapping[str, Any]

    @property
    def outcome(self) -> str:
        """One of "passed", "failed" and "not_run"."""
        return str(self.verdict["outcome"])

    @property
    def scored(self) -> bool:
        """Whether it is a pass or a failure."""
        return self.outcome != "not_run"


def summarize(run: Run, rows: Sequence[Row]) -> dict[str, Any]:
    """Returns all_metrics.json as a dict; docs/metrics.md describes every field.

    Args:
        run: The run.
        rows: Its counting verdicts, at most one for each scenario and trial.
    """
    plan = run.plan
    order = {name: at for at, name in enumerate(plan.scenarios)}
    rows = sorted(rows, key=lambda row: (order.get(row.scenario, len(order)), row.trial))
    present = {(row.scenario, row.trial) for row in rows}
    missing = [
        (name, trial)
        for name in plan.scenarios
        for trial in range(plan.trials)
        if (name, trial) not in present
    ]
    scored = [row for row in rows if row.scored]
    return {
        "summary_version": SUMMARY_VERSION,
        "run_id": plan.run_id,
        "created_at": run.created_at,
        "finished_at": run.finished_at or None,
        "trials": plan.trials,
        "counts": {
            "planned": len(plan.scenarios) * plan.trials,
            "passed": sum(row.outcome == "passed" for row in rows),
            "failed": sum(row.outcome == "failed" for row in rows),
            "not_run": sum(row.outcome == "not_run" for row in rows),
            "missing": len(missing),
        },
        "not_run_kinds": dict(
            sorted(Counter(str(r.verdict["not_run_kind"]) for r in rows if not r.scored).items())
        ),
        "stop_reasons": dict(sorted(Counter(str(r.verdict["stop_reason"]) for r in rows).items())),
        "success_rate": _success_rate(rows),
        "success_rate_with_agent_faults_failed": _success_rate(rows, agent_faults=True),
        "signals": _signal_rates(rows),
        "insufficient_agent_turns": _names(
            row for row in scored if row.metrics["insufficient_agent_turns"]
        ),
        "not_fully_judged": sorted(
            {row.scenario for row in scored if not row.verdict["fully_judged"]},
            key=lambda name: order.get(name, len(order)),
        ),
        "agent_stalled": _names(
            row for row in rows if row.verdict["stop_reason"] == "agent_stalled"
        ),
        "user_stalled": _names(row for row in rows if row.verdict["stop_reason"] == "user_stalled"),
        "missing": [{"scenario": name, "trial": trial} for name, trial in missing],
        "latency_stats": latency_stats(_latencies(scored)),
        "token_usage": {side: _tokens(rows, side) for side in ("agent", "user")},
        "cost_usd": _cost(rows),
        "speech_accuracy": combine([row.metrics["speech_accuracy"] for row in scored]),
        "domains": _domains(rows),
        "scenarios": [_scenario(row) for row in rows],
    }


def latencies_csv(rows: Sequence[Row], trials: int) -> str:
    """Returns all_latencies.csv: Scenario, User_Transcript, Agent_Transcript, Latency_ms."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["Scenario", "User_Transcript", "Agent_Transcript", "Latency_ms"])
    for row in sorted(rows, key=lambda row: (row.scenario, row.trial)):
        for sample in row.metrics["latencies"]:
            writer.writerow(
                [
                    scenario_path(row.scenario, row.trial, trials),
                    " ".join(sample["user_transcript"].split()),
                    " ".join(sample["agent_transcript"].split()),
                    sample["latency_ms"],
                ]
            )
    return text.getvalue()


def rate(passed: int, of: int) -> dict[str, Any]:
    """Returns a rate with its denominator; the rate is null when there is nothing to count."""
    return {"passed": passed, "of": of, "rate": round(passed / of, 6) if of else None}


def _success_rate(rows: Sequence[Row], agent_faults: bool = False) -> dict[str, Any]:
    counted = [
        row for row in rows if row.scored or (agent_faults and row.metrics["caused_by_agent"])
    ]
    return rate(sum(row.outcome == "passed" for row in counted), len(counted))


def _signal_rates(rows: Sequence[Row]) -> dict[str, Any]:
    """Counts each signal where it applied; calls with too few agent turns say nothing."""
    passed: Counter[str] = Counter()
    applied: Counter[str] = Counter()
    for row in rows:
        if not row.scored or row.metrics["insufficient_agent_turns"]:
            continue
        for name, signal in row.metrics["signals"].items():
            if signal["status"] in ("passed", "failed"):
                applied[name] += 1
                passed[name] += signal["status"] == "passed"
    return {
        name: {**rate(passed[name], applied[name]), "gates": name != ACTION_MATCH}
        for name in sorted(applied)
    }


def _latencies(rows: Sequence[Row]) -> list[float]:
    return [sample["latency_ms"] for row in rows for sample in row.metrics["latencies"]]


def _tokens(rows: Sequence[Row], side: str) -> dict[str, Any]:
    usages = [row.metrics["token_usage"][side] for row in rows]
    costs = [usage["cost_usd"] for usage in usages if usage["cost_usd"] is not None]
    return {
        **{
            name: sum(usage[name] for usage in usages)
            for name in ("n_calls", "prompt", "completion", "cached", "unpriced_calls")
        },
        "cost_usd": round(sum(costs), 9) if costs else None,
    }


def _cost(rows: Sequence[Row]) -> float | None:
    costs = [row.metrics["cost_usd"] for row in rows if row.metrics["cost_usd"] is not None]
    return round(sum(costs), 9) if costs else None


def _domains(rows: Sequence[Row]) -> dict[str, Any]:
    names = sorted({str(row.metrics["domain"]) for row in rows})
    return {
        name: {
            "success_rate": _success_rate([r for r in rows if r.metrics["domain"] == name]),
            "not_run": sum(not r.scored for r in rows if r.metrics["domain"] == name),
        }
        for name in names
    }


def _names(rows: Any) -> list[dict[str, Any]]:
    return [{"scenario": row.scenario, "trial": row.trial} for row in rows]


def _scenario(row: Row) -> dict[str, Any]:
    metrics = row.metrics
    return {
        "scenario_name": row.scenario,
        "trial": row.trial,
        "attempt_id": metrics["attempt_id"],
        "scenario_directory": metrics["scenario_directory"],
        "outcome": row.outcome,
        "not_run_kind": row.verdict["not_run_kind"] or None,
        "is_successful": metrics["is_successful"],
        "success_breakdown": row.verdict["success_breakdown"],
        "fully_judged": row.verdict["fully_judged"],
        "insufficient_agent_turns": metrics["insufficient_agent_turns"],
        "stop_reason": row.verdict["stop_reason"],
        "duration_seconds": row.verdict["duration_seconds"],
        "total_turns": metrics["total_turns"],
        "latency_stats": metrics["latency_stats"],
        "token_usage": metrics["token_usage"],
        "cost_usd": metrics["cost_usd"],
        "speech_accuracy": metrics["speech_accuracy"],
        "db_state_match": metrics["db_state_match"],
        "db_state_match_how": metrics["db_state_match_how"],
        "is_action_match": metrics["is_action_match"],
        "explanation": row.verdict["explanation"],
    }
