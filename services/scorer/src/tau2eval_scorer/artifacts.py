"""The files of one attempt, as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tau2eval_scorer.jsonio import dump_json, dump_line, redact
from tau2eval_scorer.layout import JUDGE_FILE, METRICS_FILE
from tau2eval_scorer.metrics import bounded_differences
from tau2eval_scorer.record import Conversation, Role, Turn
from tau2eval_scorer.scoring import ScoredConversation

MAX_DIFF_ENTRIES = 2000


def attempt_files(scored: ScoredConversation) -> dict[str, bytes]:
    """Returns every file of an attempt but the recording and record.pb, by relative path."""
    conversation = scored.conversation
    files = {
        METRICS_FILE: dump_json(scored.metrics),
        "conversation_log.txt": conversation_text(conversation).encode("utf-8", "replace"),
        "conversation_log.seglst.json": dump_json(seglst(conversation)),
        "events.jsonl": b"".join(
            dump_line(
                {
                    "time_seconds": event.time_seconds,
                    "role": str(event.role),
                    "event": event.kind,
                    "data": event.data,
                }
            )
            for event in conversation.events
        ),
        "final_scenario_db_hash.txt": f"{scored.db.actual_hash}\n".encode(),
        "final_agent_response.json": dump_json(
            {"actions": scored.actions, "db_hash": scored.db.actual_hash or None}
        ),
        "db_diff.json": dump_json(_db_diff(scored)),
        **_config_files(scored),
    }
    if scored.judgement is not None and scored.judgement.status != "not_needed":
        files[JUDGE_FILE] = dump_json(scored.judgement.to_dict())
    for role in Role:
        summary = conversation.summary(role)
        files[f"bot_logs_{role}/llm_context.json"] = dump_json(
            summary.context if summary is not None else None
        )
    return files


def conversation_text(conversation: Conversation) -> str:
    """Returns the conversation for a person: one line a turn, in the order in which they began."""
    header = conversation.header
    lines = [
        f"{header.scenario}, trial {header.trial}, attempt {header.attempt_id}, "
        f"started {header.started_at}",
        "",
    ]
    for turn in conversation.turns:
        lines.append(f"[{_clock(turn.start_seconds)}] {turn.role}: {_words(turn)}")
        if turn.heard and turn.heard != turn.text:
            lines.append(f"{'':12}heard: {' '.join(turn.heard.split())}")
    lines += [
        "",
        f"[{_clock(conversation.duration_seconds)}] ended: {conversation.stop_reason}"
        + (f" ({conversation.stop_detail})" if conversation.stop_detail else ""),
    ]
    return "\n".join(lines) + "\n"


def seglst(conversation: Conversation) -> list[dict[str, Any]]:
    """Returns the turns as segments: session_id, speaker, words, start_time, end_time (seconds)."""
    header = conversation.header
    session = f"{header.run_id}/{header.scenario}/{header.trial}"
    return [
        {
            "session_id": session,
            "speaker": str(turn.role),
            "words": turn.text,
            "start_time": turn.start_seconds,
            "end_time": turn.end_seconds,
        }
        for turn in conversation.turns
    ]


def _words(turn: Turn) -> str:
    words = " ".join(turn.text.split()) or "(nothing)"
    if turn.interrupted:
        words += " [interrupted]"
    if turn.unspoken.strip():
        words += f" [unspoken: {' '.join(turn.unspoken.split())}]"
    return words


def _clock(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes):02d}:{rest:05.2f}"


def _db_diff(scored: ScoredConversation) -> Mapping[str, Any]:
    state = scored.db
    return {
        "expected_hash": state.expected_hash or None,
        "actual_hash": state.actual_hash or None,
        "match": scored.metrics["db_state_match"],
        "how": state.how or None,
        "inconsistent": state.inconsistent or None,
        "differences": bounded_differences(state.differences, MAX_DIFF_ENTRIES),
        "differences_total": len(state.differences),
    }


def _config_files(scored: ScoredConversation) -> dict[str, bytes]:
    conversation, card = scored.conversation, scored.card
    header = conversation.header
    metadata = {
        "run_id": header.run_id,
        "scenario": header.scenario,
        "domain": card.domain,
        "tau2_id": card.tau2_id,
        "trial": header.trial,
        "attempt_id": header.attempt_id,
        "started_at": header.started_at,
        "modality": header.modality,
        "recording_sample_rate_hz": header.sample_rate_hz,
        "max_duration_seconds": card.max_duration_seconds,
        "success_signals": list(card.success_signals),
        "nl_assertions": list(card.nl_assertions),
        "seed_db_hash": card.seed_db_hash,
        "expected_db_hash": card.expected_db_hash,
        "settings": redact(header.settings),
        "versions": redact(header.versions),
        "ready": {str(role): side.ready for role, side in conversation.sides.items()},
    }
    return {
        "scenario_config/metadata.json": dump_json(metadata),
        "scenario_config/reference_answer.json": dump_json(card.reference_answer),
        "scenario_config/agent_prompt.txt": _text(header.agent_prompt),
        "scenario_config/user_prompt.txt": _text(header.user_prompt),
        "scenario_config/agent_tools.json": dump_json(_tools(conversation, Role.AGENT)),
        "scenario_config/user_tools.json": dump_json(_tools(conversation, Role.USER)),
    }


def _tools(conversation: Conversation, role: Role) -> Any:
    """Returns the tool declarations as the model saw them, or their names when none came."""
    summary = conversation.summary(role)
    if summary is not None and summary.tools is not None:
        return summary.tools
    side = conversation.sides.get(role)
    return [{"name": name} for name in side.ready["tool_names"]] if side else []


def _text(value: str) -> bytes:
    return value.encode("utf-8", "replace")
