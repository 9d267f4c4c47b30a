"""The content of metrics.json; docs/metrics.md describes every field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tau2eval_airline import assertions_sha256
from tau2eval_scorer import __version__
from tau2eval_scorer.catalog import ScenarioCard
from tau2eval_scorer.control_flow import control_flow
from tau2eval_scorer.jsonio import dump_line, redact
from tau2eval_scorer.judge.result import JudgeResult, JudgeUsage
from tau2eval_scorer.latency import latency_samples, latency_stats
from tau2eval_scorer.record import Conversation, Role, Turn, Usage
from tau2eval_scorer.signals import CLEAN_EXITS, JUDGE_PASSED, DbState, Signal, Status
from tau2eval_scorer.verdict import Composite, Outcome, signals_to_dict

METRICS_VERSION = 3
MAX_DIFFERENCES = 50
MAX_VALUE_CHARS = 400


def build(
    *,
    conversation: Conversation,
    card: ScenarioCard,
    signals: Mapping[str, Signal],
    composite: Composite,
    db: DbState,
    fully_judged: bool,
    is_action_match: bool | None,
    judgement: JudgeResult | None,
    accuracy: Mapping[str, Any],
    scenario_directory: str,
) -> dict[str, Any]:
    """Returns metrics.json as a dict."""
    header = conversation.header
    samples = latency_samples(conversation.turns)
    usage = {
        "agent": token_usage(conversation.usage(Role.AGENT)),
        "user": token_usage(conversation.usage(Role.USER)),
        "judge": token_usage(judgement.usage if judgement else ()),
    }
    return {
        "metrics_version": METRICS_VERSION,
        "run_id": header.run_id,
        "scenario_name": header.scenario,
        "domain": card.domain,
        "tau2_id": card.tau2_id,
        "trial": header.trial,
        "attempt_id": header.attempt_id,
        "scenario_directory": scenario_directory,
        "started_at": header.started_at,
        "modality": header.modality,
        "outcome": str(composite.outcome),
        "not_run_kind": composite.not_run_kind or None,
        "is_successful": composite.is_successful,
        "success_breakdown": composite.breakdown.to_dict(),
        "signals": signals_to_dict(signals),
        "explanation": composite.explanation,
        "fully_judged": fully_judged,
        "insufficient_agent_turns": composite.insufficient_agent_turns,
        "caused_by_agent": composite.caused_by_agent,
        "stop_reason": str(conversation.stop_reason),
        "stop_detail": conversation.stop_detail,
        "clean_exit": conversation.stop_reason in CLEAN_EXITS,
        "scenario_duration": conversation.duration_seconds,
        "duration_seconds": conversation.duration_seconds,
        "recording_seconds": (
            round(conversation.audio_frames / header.sample_rate_hz, 3)
            if header.sample_rate_hz
            else 0.0
        ),
        "total_turns": len(conversation.turns),
        "agent_turns": conversation.agent_turns,
        "min_agent_turns": conversation.min_agent_turns,
        "interrupted_turns": sum(turn.interrupted for turn in conversation.turns),
        "turns": [_turn(turn) for turn in conversation.turns],
        "latency_stats": latency_stats([sample.latency_ms for sample in samples]),
        "latencies": [sample.to_dict() for sample in samples],
        "is_action_match": is_action_match,
        **_judged(judgement, signals),
        "db_state_expected_hash": db.expected_hash or None,
        "db_state_actual_hash": db.actual_hash or None,
        "db_state_match": _db_match(db, composite),
        "db_state_match_how": db.how or None,
        "db_differences": bounded_differences(db.differences),
        "db_differences_total": len(db.differences),
        "speech_accuracy": accuracy,
        "token_usage": usage,
        "cost_usd": _total_cost(usage.values()),
        "control_flow": control_flow(conversation.events),
        "line_quality": conversation.line_quality,
        "report_faults": list(conversation.report_faults),
        "versions": {
            **redact(header.versions),
            "scorer": __version__,
            "assertions": assertions_sha256(),
            **_judge_versions(judgement),
        },
    }


def _judged(judgement: JudgeResult | None, signals: Mapping[str, Signal]) -> dict[str, Any]:
    """The judge's part; a judgement that was not to be had leaves numbers null, never zero."""
    found = judgement if judgement is not None and judgement.judged else None
    verdicts = found is not None and bool(found.verdicts)
    return {
        "judge_status": judgement.status if judgement else "off",
        "judge_error": (judgement.error or None) if judgement else None,
        "judge_score": found.score if found else None,
        "judge_passed": (
            signals[JUDGE_PASSED].status is Status.PASSED if JUDGE_PASSED in signals else None
        ),
        "judge_agreement": found.agreement if found else None,
        "nl_assertion_pass_count": found.pass_count if found and verdicts else None,
        "nl_assertion_total": len(found.verdicts) if found and verdicts else None,
        "nl_assertion_pass_rate": found.pass_rate if found else None,
    }


def _judge_versions(judgement: JudgeResult | None) -> dict[str, Any]:
    if judgement is None or not judgement.model:
        return {"judge_model": None, "judge_prompt": None, "judge_prompt_sha256": None}
    return {
        "judge_model": judgement.model,
        "judge_prompt": judgement.prompt_version,
        "judge_prompt_sha256": judgement.prompt_sha256,
    }


def token_usage(calls: Sequence[Usage | JudgeUsage]) -> dict[str, Any]:
    """Returns a side's model calls in sum.

    `cost_usd` is the sum of the known prices and null when none is known; `unpriced_calls` counts
    the calls that it lacks.
    """
    priced = [call.cost_usd for call in calls if call.cost_usd is not None]
    return {
        "n_calls": len(calls),
        "prompt": sum(call.prompt_tokens for call in calls),
        "completion": sum(call.completion_tokens for call in calls),
        "cached": sum(call.cached_tokens for call in calls),
        "cost_usd": round(sum(priced), 9) if priced else None,
        "unpriced_calls": len(calls) - len(priced),
        "models": sorted({call.model for call in calls if call.model}),
    }


def bounded_differences(
    differences: Sequence[Mapping[str, Any]], limit: int = MAX_DIFFERENCES
) -> list[dict[str, Any]]:
    """Returns the first differences; a value longer than 400 characters as JSON is cut."""
    return [
        {
            **item,
            "expected": _bounded(item.get("expected")),
            "actual": _bounded(item.get("actual")),
        }
        for item in differences[:limit]
    ]


def _db_match(db: DbState, composite: Composite) -> bool | None:
    """A lost bot reports no hash, which says nothing about its database."""
    if db.how == "missing" and composite.outcome is Outcome.NOT_RUN:
        return None
    return db.match


def _bounded(value: Any) -> Any:
    text = dump_line(value).decode().strip()
    return value if len(text) <= MAX_VALUE_CHARS else text[:MAX_VALUE_CHARS] + "…"


def _turn(turn: Turn) -> dict[str, Any]:
    latency = turn.response_latency_seconds
    return {
        "timestamp": turn.start_seconds,
        "end_seconds": turn.end_seconds,
        "role": str(turn.role),
        "text": turn.text,
        "spoken_form": turn.spoken_form,
        "heard": turn.heard,
        "interrupted": turn.interrupted,
        "unspoken": turn.unspoken,
        "latency_ms": None if latency is None else round(latency * 1000, 3),
    }


def _total_cost(sides: Any) -> float | None:
    costs = [side["cost_usd"] for side in sides if side["cost_usd"] is not None]
    return round(sum(costs), 9) if costs else None
