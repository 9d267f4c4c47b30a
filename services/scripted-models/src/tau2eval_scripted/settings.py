"""Settings of the scripted models, from TAU2EVAL_SCRIPTED_... in the environment."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from tau2eval_common.usage import settings_help


class ScriptedSettings(BaseSettings):
    """What the server of scripted models is told. It has no gRPC, so no settings of that."""

    model_config = SettingsConfigDict(env_prefix="TAU2EVAL_SCRIPTED_", extra="forbid", frozen=True)

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(
        default=3320,
        ge=0,
        le=65535,
        description="HTTP port; 0 takes a free one, which the listening line tells.",
    )
    slow_seconds: float = Field(
        default=4.0, ge=0, le=600, description="How late scripted/slow is with each response."
    )
    log_level: str = Field(
        default="info",
        pattern="^(debug|info|warning|error)$",
        description='"debug", "info", "warning" or "error".',
    )
    log_format: str = Field(
        default="text",
        pattern="^(text|json)$",
        description='"text" for people, "json" for machines.',
    )
    exit_with_parent: bool = Field(default=False, description="End when standard input is closed.")


def help_text() -> str:
    """Returns the text of --help."""
    return settings_help(
        "python -m tau2eval_scripted",
        "Serves the scripted models over OpenAI-compatible HTTP.",
        ScriptedSettings,
    )
