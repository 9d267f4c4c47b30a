"""Settings of the agent's bot."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from tau2eval_voice.bot_settings import BotSettings


class AgentBotSettings(BotSettings):
    """Settings with the prefix TAU2EVAL_AGENT_BOT_."""

    model_config = SettingsConfigDict(
        env_prefix="TAU2EVAL_AGENT_BOT_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        protected_namespaces=(),
    )
    about: ClassVar[str] = "Serves the agent under test: a voice pipeline with the airline's tools."

    port: int = Field(default=3311, ge=0, le=65535)
