"""Settings that both bots have."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from tau2eval_common.settings import ServiceSettings
from tau2eval_voice.session import TurnSettings
from tau2eval_voice.speech.settings import SpeechSettings


class BotSettings(ServiceSettings):
    """What a bot is told. Subclasses set `env_prefix` and the port.

    Members of `turns` and `speech` are set by names with two underscores, such as
    ..._TURNS__BARGE_IN_SECONDS or ..._SPEECH__RECOGNIZER.

    Attributes:
        gateway_address: gRPC target of the gateway.
        speech_preload: Load the speech models at the start. Off: at the first voice session; a
            process that serves text only then never loads them.
        idle_timeout_seconds: A stream on which nothing arrives for this long is given up.
        setup_timeout_seconds: Limit of the wait for Setup, and of building a session.
        niceness: Added to the scheduling niceness of the process, so that the bridge stays
            punctual on the same machine.
        turns: Turn-taking.
        speech: Speech back ends.
    """

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_nested_delimiter="__", protected_namespaces=()
    )
    about: ClassVar[str] = ""

    gateway_address: str = Field(default="127.0.0.1:3301", min_length=1)
    speech_preload: bool = True
    idle_timeout_seconds: float = Field(default=600.0, gt=0)
    setup_timeout_seconds: float = Field(default=60.0, gt=0)
    niceness: int = Field(default=5, ge=0, le=19)
    turns: TurnSettings = TurnSettings()
    speech: SpeechSettings = SpeechSettings()
