"""What a run's page shows, as plain values; the template only writes it down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tau2eval_scorer.report.scenario_page import why

MISSING = "missing"


def run_page(
    summary: Mapping[str, Any], arguments: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns everything that the template of a run's page needs.

    Args:
        summary: all_metrics.json.
        arguments: run_args.json.
    """
    rows = [_row(scenario) for scenario in summary["scenarios"]]
    rows += [_missing(entry) for entry in summary["missing"]]
    order = {task["scenario"]: at for at, task in enumerate(summary.get("tasks", ()))}
    rows.sort(key=lambda row: (order.get(row["name"], len(order)), row["trial"]))
    signals = [*summary["signals"]]
    failed = {name for row in rows for name in row["failed"]}
    return {
        "summary": summary,
        "settings": (arguments or {}).get("settings") or {},
        "rows": rows,
        "outcomes": [
            (name, summary["counts"][name])
            for name in ("passed", "failed", "not_run", MISSING)
            if summary["counts"][name]
        ],
        "failed_signals": [*(n for n in signals if n in failed), *sorted(failed - {*signals})],
        "stalled": {
            side: summary.get(f"{side}_stalled", [])
            for side in ("agent", "user")
            if summary.get(f"{side}_stalled")
        },
        "roles": [("Agent", "agent"), ("Caller", "user"), ("Judge", "judge")],
        "directions": [
            ("Agent heard the caller", "agent_heard_user"),
            ("Caller heard the agent", "user_heard_agent"),
        ],
    }


def _row(scenario: Mapping[str, Any]) -> dict[str, Any]:
    failed = list(scenario["success_breakdown"]["failed"])
    if scenario["insufficient_agent_turns"]:
        failed.append("MIN_AGENT_TURNS")
    return {
        "name": scenario["scenario_name"],
        "trial": scenario["trial"],
        "outcome": scenario["outcome"],
        "kind": scenario["not_run_kind"],
        "why": why(scenario),
        "failed": failed,
        "href": f"{scenario['scenario_directory']}/report.html",
        "duration": scenario["duration_seconds"],
        "turns": scenario["total_turns"],
        "latency": scenario["latency_stats"]["p50_ms"],
        "latency_p95": scenario["latency_stats"]["p95_ms"],
        "cost": scenario["cost_usd"],
        "assertions": (
            f"{scenario['nl_assertion_pass_count']} of {scenario['nl_assertion_total']}"
            if scenario.get("nl_assertion_total")
            else None
        ),
        "stop_reason": scenario["stop_reason"],
    }


def _missing(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": entry["scenario"],
        "trial": entry["trial"],
        "outcome": MISSING,
        "kind": None,
        "why": "No attempt has been stored.",
        "failed": [],
        "href": None,
        **dict.fromkeys(
            ("duration", "turns", "latency", "latency_p95", "cost", "assertions", "stop_reason")
        ),
    }
