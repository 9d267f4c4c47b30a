"""Contract enums as the words that people and JSON readers see."""

from __future__ import annotations

from tau2eval.scorer.v1 import record_pb2, scorer_pb2
from tau2eval.voice.v1 import voice_pb2


def stop_reason(value: record_pb2.StopReason.ValueType) -> str:
    """Returns "agent_exit", "timeout" and so on; empty when unspecified."""
    return _word(record_pb2.StopReason.Name(value), "STOP_REASON_")


def outcome(value: scorer_pb2.Outcome.ValueType) -> str:
    """Returns "passed", "failed" or "not_run"; empty when unspecified."""
    return _word(scorer_pb2.Outcome.Name(value), "OUTCOME_")


def speaker(value: voice_pb2.Role.ValueType) -> str:
    """Returns "agent" or "caller"; empty when unspecified."""
    return {voice_pb2.ROLE_AGENT: "agent", voice_pb2.ROLE_USER: "caller"}.get(value, "")


def modality(word: str) -> voice_pb2.Modality.ValueType:
    """Returns the modality of a word, "voice" or "text"."""
    return voice_pb2.Modality.Value(f"MODALITY_{word.upper()}")


def _word(name: str, prefix: str) -> str:
    word = name.removeprefix(prefix).lower()
    return "" if word == "unspecified" else word
