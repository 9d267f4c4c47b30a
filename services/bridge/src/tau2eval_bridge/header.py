"""The header of a record: settings and versions as they took effect."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tau2eval.bridge.v1 import bridge_pb2
from tau2eval.scorer.v1 import record_pb2, scorer_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_bridge.conversation import Limits
from tau2eval_bridge.line import AUDIBLE_AMPLITUDE
from tau2eval_bridge.settings import BridgeSettings

FORMAT_VERSION = 1
"""Version of the record's format that this bridge writes."""

_SECRET_NAMES = frozenset(
    {"api_key", "apikey", "authorization", "password", "secret", "token", "access_token"}
)


def bridge_version() -> str:
    """Returns the version of this package."""
    try:
        return version("tau2eval-bridge")
    except PackageNotFoundError:
        return "unknown"


def without_credentials(address: str) -> str:
    """Returns a gRPC target without a user part."""
    scheme, separator, rest = address.rpartition("//")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def make_header(
    request: bridge_pb2.RunScenarioRequest,
    scenario: scorer_pb2.GetScenarioResponse,
    settings: BridgeSettings,
    limits: Limits,
    *,
    attempt_id: str,
    modality: voice_pb2.Modality.ValueType,
    recording_rate: int,
    addresses: Mapping[str, str],
    ready: Mapping[str, voice_pb2.Ready],
) -> record_pb2.RecordHeader:
    """Returns the header of a call that starts now.

    Args:
        request: What the client asked for.
        scenario: What the scorer told.
        settings: The bridge's settings.
        limits: Limits of this call.
        attempt_id: Identity of the attempt.
        modality: Voice or text.
        recording_rate: Rate of the recording in hertz.
        addresses: gRPC targets by "agent" and "user".
        ready: What the bots reported by "agent" and "user"; a lost one is missing.
    """
    asked_models = {"agent": request.agent_model, "user": request.user_model}
    asked_speech = {"agent": request.agent_speech, "user": request.user_speech}
    effective: dict[str, Any] = {
        "modality": voice_pb2.Modality.Name(modality).removeprefix("MODALITY_").lower(),
        "limits": {
            "max_duration_seconds": limits.max_duration_seconds,
            "min_agent_turns": request.min_agent_turns,
            "stall_seconds": limits.stall_seconds,
            "activity_limit_seconds": limits.activity_limit_seconds,
            "ready_timeout_seconds": settings.ready_timeout_seconds,
            "finish_timeout_seconds": limits.finish_timeout_seconds,
        },
        "audio": {
            "input_sample_rate_hz": settings.input_sample_rate_hz,
            "recording_sample_rate_hz": recording_rate,
            "frame_seconds": 0.02,
            "audible_amplitude": AUDIBLE_AMPLITUDE,
        },
    }
    versions: dict[str, str] = {"bridge": bridge_version(), "python": platform.python_version()}
    for side in ("agent", "user"):
        report = ready.get(side)
        effective[side] = {
            "address": without_credentials(addresses[side]),
            "model": _model(report.model if report else asked_models[side]),
            "speech": _speech(report.speech if report else asked_speech[side]),
            "tools": list(report.tool_names) if report else [],
            "reported_ready": report is not None,
        }
        if report is not None:
            versions[f"{side}_bot"] = report.version
    return record_pb2.RecordHeader(
        format_version=FORMAT_VERSION,
        run_id=request.run_id,
        scenario=request.scenario,
        trial=request.trial,
        attempt_id=attempt_id,
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        settings_json=json.dumps(effective, sort_keys=True),
        versions_json=json.dumps(versions, sort_keys=True),
        agent_prompt=scenario.agent_prompt,
        user_prompt=scenario.user_prompt,
        modality=modality,
        recording_sample_rate_hz=recording_rate if modality == voice_pb2.MODALITY_VOICE else 0,
    )


def _model(model: voice_pb2.ModelConfig) -> dict[str, Any]:
    try:
        parameters = json.loads(model.parameters_json) if model.parameters_json else {}
    except ValueError:
        parameters = {}
    return {
        "model": model.model,
        "parameters": _scrub(parameters),
        "timeout_seconds": model.timeout_seconds,
    }


def _speech(speech: voice_pb2.SpeechConfig) -> dict[str, str]:
    return {
        "recognizer": speech.recognizer,
        "synthesizer": speech.synthesizer,
        "voice": speech.voice,
    }


def _scrub(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: "[removed]" if key.lower().replace("-", "_") in _SECRET_NAMES else _scrub(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_scrub(item) for item in value]
    return value
