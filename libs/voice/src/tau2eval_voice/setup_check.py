"""What a Setup must be before anything is built from it."""

from __future__ import annotations

from tau2eval.voice.v1 import voice_pb2
from tau2eval_common.errors import InvalidInput
from tau2eval_voice.gateway_llm import parse_parameters

ROLE_NAMES = {voice_pb2.ROLE_AGENT: "agent", voice_pb2.ROLE_USER: "user"}
_MIN_RATE_HZ, _MAX_RATE_HZ = 8_000, 48_000


def check_setup(setup: voice_pb2.Setup, role: voice_pb2.Role.ValueType) -> None:
    """Checks a Setup.

    Args:
        setup: The first message of a stream.
        role: The role that this bot plays.

    Raises:
        InvalidInput: Naming the member that is wrong and what it should be.
    """
    if not setup.session_id:
        raise InvalidInput("Setup.session_id is empty; it must be unique in this process")
    if setup.role != role:
        raise InvalidInput(
            f"Setup.role is {voice_pb2.Role.Name(setup.role)}; this bot plays "
            f"{voice_pb2.Role.Name(role)}",
            reason="WRONG_ROLE",
        )
    if not setup.prompt:
        raise InvalidInput("Setup.prompt is empty")
    if setup.modality not in (voice_pb2.MODALITY_VOICE, voice_pb2.MODALITY_TEXT):
        raise InvalidInput("Setup.modality must be MODALITY_VOICE or MODALITY_TEXT")
    rate = setup.audio_format.sample_rate_hz
    if setup.modality == voice_pb2.MODALITY_VOICE and not _MIN_RATE_HZ <= rate <= _MAX_RATE_HZ:
        raise InvalidInput(
            f"Setup.audio_format.sample_rate_hz is {rate}; it must be {_MIN_RATE_HZ} to "
            f"{_MAX_RATE_HZ}"
        )
    if setup.trial < 0:
        raise InvalidInput("Setup.trial is negative")
    parse_parameters(setup.model)
