"""The aggregates of a run: all_metrics.json and all_latencies.csv."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tau2eval_scorer.accuracy import combine
from tau2eval_scorer.control_flow import control_flow_totals, unchecked_calls
from tau2eval_scorer.jsonio import dump_line
from tau2eval_scorer.latency import latency_stats
from tau2eval_scorer.layout import scenario_path
from tau2eval_scorer.rates import (
    Row,
    TaskTally,
    assertion_rate,
    faulted_places,
    pass_hat_table,
    rate,
    short_of_trials,
    signal_rates,
    success_rate,
    tally,
)
from tau2eval_scorer.store import Run

SUMMARY_VERSION = 2
ROLES = ("agent", "user", "judge")
_TOKEN_COUNTS = ("n_calls", "prompt", "completion", "cached", "unpriced_calls")


def summarize(run: Run, rows: Sequence[Row], others: Sequence[Row] = ()) -> dict[str, Any]:
    """Returns all_metrics.json as a dict; docs/metrics.md describes every field.

    Args:
        run: The run.
        rows: Its counting verdicts, at most one for each scenario and trial.
        others: The verdicts of the attempts that do not count.
    """
    plan = run.plan
    order = {name: at for at, name in enumerate(plan.scenarios)}

    def in_order(items: Iterable[Row]) -> list[Row]:
        return sorted(items, key=lambda row: (order.get(row.scenario, len(order)), row.trial))

    rows, others = in_order(rows), in_order(others)
    present = {row.place for row in rows}
    missing = [
        (name, trial)
        for name in plan.scenarios
        for trial in range(plan.trials)
        if (name, trial) not in present
    ]
    scored = [row for row in rows if row.scored]
    faulted = faulted_places([*rows, *others])
    tasks = tally(plan.scenarios, plan.trials, rows, faulted)
    resumes = _resumes(run)
    summary: dict[str, Any] = {
        "summary_version": SUMMARY_VERSION,
        "run_id": plan.run_id,
        "created_at": run.created_at,
        "finished_at": run.finished_at or None,
        "trials": plan.trials,
        "resumes": resumes,
        "mixed_settings": any(resume["changes"] for resume in resumes),
        "counts": {
            "planned": len(plan.scenarios) * plan.trials,
            "passed": sum(row.passed for row in rows),
            "failed": sum(row.outcome == "failed" for row in rows),
            "not_run": sum(not row.scored for row in rows),
            "missing": len(missing),
        },
        "not_run_kinds": _not_run_kinds(tasks),
        "stop_reasons": dict(sorted(Counter(str(r.verdict["stop_reason"]) for r in rows).items())),
        "success_rate": success_rate(tasks),
        "success_rate_with_agent_faults_failed": success_rate(tasks, strict=True),
        "pass_hat": pass_hat_table(tasks, plan.trials),
        "short_of_trials": short_of_trials(tasks),
        "signals": signal_rates(rows, faulted),
        "nl_assertions": assertion_rate(rows),
        "judge": _judge(run, rows),
        "insufficient_agent_turns": _names(
            row for row in scored if row.metrics["insufficient_agent_turns"]
        ),
        "not_fully_judged": list(
            dict.fromkeys(row.scenario for row in scored if not row.verdict["fully_judged"])
        ),
        "agent_stalled": _stalled(rows, "agent_stalled"),
        "user_stalled": _stalled(rows, "user_stalled"),
        "missing": [{"scenario": name, "trial": trial} for name, trial in missing],
        "other_attempts": _other_attempts(others),
        "latency_stats": latency_stats(_latencies(scored)),
        "token_usage": {role: _tokens(rows, role) for role in ROLES},
        "cost_usd": _sum(row.metrics["cost_usd"] for row in rows),
        "control_flow": control_flow_totals(row.metrics for row in rows),
        "speech_accuracy": combine([row.metrics["speech_accuracy"] for row in scored]),
        "versions": _versions(rows),
        "domains": _domains(tasks),
        "tasks": [_task(task) for task in tasks],
        "scenarios": [_scenario(row) for row in rows],
    }
    return {**summary, "warnings": _warnings(summary, rows)}


def latencies_csv(rows: Sequence[Row], trials: int) -> str:
    """Returns all_latencies.csv: Scenario, User_Transcript, Agent_Transcript, Latency_ms."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["Scenario", "User_Transcript", "Agent_Transcript", "Latency_ms"])
    for row in sorted(rows, key=lambda row: row.place):
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


def _latencies(rows: Sequence[Row]) -> list[float]:
    return [sample["latency_ms"] for row in rows for sample in row.metrics["latencies"]]


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known), 9) if known else None


def _tokens(rows: Sequence[Row], role: str) -> dict[str, Any]:
    usages = [row.metrics["token_usage"].get(role) for row in rows]
    used = [usage for usage in usages if usage is not None]
    return {
        **{name: sum(usage[name] for usage in used) for name in _TOKEN_COUNTS},
        "cost_usd": _sum(usage["cost_usd"] for usage in used),
        "models": sorted({model for usage in used for model in usage["models"]}),
    }


def _not_run_kinds(tasks: Iterable[TaskTally]) -> dict[str, int]:
    kinds: Counter[str] = Counter()
    for task in tasks:
        kinds.update(task.kinds)
    return dict(sorted(kinds.items()))


def _resumes(run: Run) -> list[dict[str, Any]]:
    """Each time the run was gone on with, and which settings were other ones then."""
    return [
        {
            "at": resume.at,
            "changes": [
                {"name": change["name"], "before": change["before"], "after": change["after"]}
                for change in resume.changes
            ],
        }
        for resume in run.resumes
    ]


def _judge(run: Run, rows: Sequence[Row]) -> dict[str, Any]:
    """What the judge did, beside the assertions' rates; all of it informational."""
    settings = run.plan.judge
    metrics = [row.metrics for row in rows]
    scores = [m["judge_score"] for m in metrics if m.get("judge_score") is not None]
    agreements = [
        (m["judge_agreement"], m["nl_assertion_total"])
        for m in metrics
        if m.get("judge_agreement") is not None and m.get("nl_assertion_total")
    ]
    asked = sum(total for _, total in agreements)
    return {
        "model": settings.model or None,
        "votes": settings.votes if settings.enabled else None,
        "statuses": dict(
            sorted(Counter(str(m.get("judge_status", "off")) for m in metrics).items())
        ),
        "scored": len(scores),
        "mean_score": round(sum(scores) / len(scores), 6) if scores else None,
        "agreement": (
            round(sum(share * total for share, total in agreements) / asked, 6) if asked else None
        ),
    }


def _versions(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    """Each part's versions, with the number of conversations that have them."""
    found: dict[str, Counter[str]] = {}
    for row in rows:
        for name, value in row.metrics.get("versions", {}).items():
            if value is not None:
                text = value if isinstance(value, str) else dump_line(value).decode().strip()
                found.setdefault(str(name), Counter())[text] += 1
    return {name: dict(sorted(values.items())) for name, values in sorted(found.items())}


def _other_attempts(others: Sequence[Row]) -> dict[str, Any]:
    return {
        "count": len(others),
        "reasons": dict(sorted(Counter(row.not_run_kind or row.outcome for row in others).items())),
        "cost_usd": _sum(row.metrics["cost_usd"] for row in others),
        "attempts": [
            {
                "scenario": row.scenario,
                "trial": row.trial,
                "attempt_id": row.metrics["attempt_id"],
                "outcome": row.outcome,
                "not_run_kind": row.not_run_kind or None,
                "caused_by_agent": bool(row.metrics["caused_by_agent"]),
                "explanation": row.verdict["explanation"],
            }
            for row in others
        ],
    }


def _domains(tasks: Sequence[TaskTally]) -> dict[str, Any]:
    domains: dict[str, list[TaskTally]] = {}
    for task in tasks:
        domains.setdefault(task.domain, []).append(task)
    return {
        name: {
            "planned": sum(task.planned for task in those),
            "success_rate": success_rate(those),
            "success_rate_with_agent_faults_failed": success_rate(those, strict=True),
            "not_run": sum(task.not_run for task in those),
            "not_run_kinds": _not_run_kinds(those),
            "missing": sum(task.missing for task in those),
        }
        for name, those in sorted(domains.items())
    }


def _task(task: TaskTally) -> dict[str, Any]:
    """One task's trials. The rate has no interval: within one task there is nothing to cluster."""
    return {
        "scenario": task.scenario,
        "domain": task.domain,
        "planned": task.planned,
        "passed": task.passed,
        "of": task.scored,
        "rate": rate([task.counts()])["rate"],
        "passed_with_agent_faults_failed": task.strict_passed,
        "of_with_agent_faults_failed": task.strict_of,
        "not_run": task.not_run,
        "not_run_kinds": dict(sorted(task.kinds.items())),
        "missing": task.missing,
    }


def _stalled(rows: Sequence[Row], reason: str) -> list[dict[str, Any]]:
    return _names(row for row in rows if row.verdict["stop_reason"] == reason)


def _names(rows: Iterable[Row]) -> list[dict[str, Any]]:
    return [{"scenario": row.scenario, "trial": row.trial} for row in rows]


def _scenario(row: Row) -> dict[str, Any]:
    metrics = row.metrics
    return {
        "scenario_name": row.scenario,
        "trial": row.trial,
        "attempt_id": metrics["attempt_id"],
        "scoring": metrics.get("scoring", 1),
        "scenario_directory": metrics["scenario_directory"],
        "domain": metrics["domain"],
        "outcome": row.outcome,
        "not_run_kind": row.not_run_kind or None,
        "caused_by_agent": bool(metrics["caused_by_agent"]),
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
        "judge_status": metrics.get("judge_status", "off"),
        "judge_score": metrics.get("judge_score"),
        "judge_passed": metrics.get("judge_passed"),
        "judge_agreement": metrics.get("judge_agreement"),
        "nl_assertion_pass_count": metrics.get("nl_assertion_pass_count"),
        "nl_assertion_total": metrics.get("nl_assertion_total"),
        "nl_assertion_pass_rate": metrics.get("nl_assertion_pass_rate"),
        "explanation": row.verdict["explanation"],
    }


def _warnings(summary: Mapping[str, Any], rows: Sequence[Row]) -> list[str]:
    """What a reader must know before taking the rates for what they seem; one line each."""
    warnings = []
    run_id = summary["run_id"]
    unjudged = {
        kind: summary["not_run_kinds"].get(kind, 0) for kind in ("judge_off", "judge_error")
    }
    if unjudged["judge_off"]:
        warnings.append(
            f"{unjudged['judge_off']} conversations wait for a judge and are in no success rate: "
            f"they count neither as passed nor as failed. Judge them, without calling again, by "
            f"`tau2-eval score {run_id} --judge-model MODEL`."
        )
    if unjudged["judge_error"]:
        warnings.append(
            f"The judge failed on {unjudged['judge_error']} conversations, which are in no success "
            f"rate. Judge them again, without calling again, by `tau2-eval score {run_id}`."
        )
    if summary["mixed_settings"]:
        names = dict.fromkeys(
            change["name"] for resume in summary["resumes"] for change in resume["changes"]
        )
        warnings.append(
            f"Mixed settings: the run was resumed with another {', '.join(names)}. Its rates are "
            f"of both settings together."
        )
    for name, label in _ONE_VERSION.items():
        values = summary["versions"].get(name, {})
        if len(values) > 1:
            listed = ", ".join(f"{value[:24]} ({count})" for value, count in values.items())
            warnings.append(f"Not all conversations have the same {label}: {listed}.")
    if summary["pass_hat"]["planned_trials"] > 1 and summary["short_of_trials"]:
        short = ", ".join(
            f"{task['scenario']} ({task['scored']}/{task['planned']})"
            for task in summary["short_of_trials"]
        )
        warnings.append(
            f"Short of trials, and left out of pass^k for a larger k than they have: {short}."
        )
    if lost := [row.scenario for row in rows if row.agent_fault]:
        warnings.append(
            f"{len(lost)} conversations were not run by the agent's own doing. The success rate "
            f"leaves them out; the rate with the agent's faults as failures is the one that an "
            f"agent cannot raise by crashing: {', '.join(dict.fromkeys(lost))}."
        )
    if unchecked := unchecked_calls(summary["control_flow"]):
        listed = ", ".join(f"{name} {count} times" for name, count in unchecked.items())
        warnings.append(
            f"Control flows could not do their work and let answers pass unchecked: {listed}. To "
            f"that extent the run measures the plain model."
        )
    return warnings


_ONE_VERSION = {
    "scorer": "version of the scorer",
    "assertions": "set of assertions",
    "judge_model": "judge",
    "judge_prompt_sha256": "prompt of the judge",
}
