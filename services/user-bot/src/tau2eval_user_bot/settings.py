"""Settings of the caller's bot."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from tau2eval_voice.bot_settings import BotSettings
from tau2eval_voice.speech.settings import SpeechSettings


class UserBotSettings(BotSettings):
    """Settings with the prefix TAU2EVAL_USER_BOT_."""

    model_config = SettingsConfigDict(
        env_prefix="TAU2EVAL_USER_BOT_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        protected_namespaces=(),
        # A single ..._SPEECH__... variable changes that member and keeps the caller's voice.
        nested_model_default_partial_update=True,
    )
    about: ClassVar[str] = "Serves the simulated caller: a voice pipeline without tools."

    port: int = Field(default=3312, ge=0, le=65535)
    speech: SpeechSettings = SpeechSettings(voice="caller")
