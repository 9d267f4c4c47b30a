"""Settings of the gateway: its own, with a prefix, and the names that the seed document fixes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from tau2eval_common.settings import ServiceSettings
from tau2eval_common.usage import settings_help


def default_data_dir() -> Path:
    """Returns the folder for the ledger of a gateway that is told none: per user, kept."""
    state = os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    return base / "tau2-eval" / "gateway"


class GatewaySettings(ServiceSettings):
    """Settings with the prefix TAU2EVAL_GATEWAY_."""

    model_config = SettingsConfigDict(
        env_prefix="TAU2EVAL_GATEWAY_", extra="forbid", frozen=True, protected_namespaces=()
    )

    port: int = Field(default=3301, ge=0, le=65535, description="gRPC port; 0 takes a free one.")
    http_port: int = Field(
        default=3300, ge=0, le=65535, description="HTTP port; 0 takes a free one."
    )
    max_sessions: int = Field(
        default=256, ge=1, description="Model calls in progress at once; one more gets 429."
    )
    drain_seconds: float = Field(
        default=120.0, ge=0, description="After SIGTERM, how long gRPC calls may go on."
    )
    http_drain_seconds: float = Field(
        default=30.0, ge=0, description="Then, how long HTTP calls may go on."
    )
    data_dir: Path = Field(
        default_factory=default_data_dir,
        description="Folder of the SQLite ledger and of rows that could not be written.",
    )
    model_config_file: Path | None = Field(
        default=None,
        description="Model list in the LiteLLM proxy's form (YAML).",
        validation_alias="TAU2EVAL_GATEWAY_MODEL_CONFIG",
    )
    scripted_address: str = Field(
        default="",
        pattern=r"^([^\s/:]+:\d{1,5})?$",
        description="host:port of the scripted models; empty: no scripted/* ids.",
    )
    max_body_bytes: int = Field(
        default=10_000_000, ge=1_000, description="Largest request body, in bytes."
    )
    connect_timeout_seconds: float = Field(
        default=10.0, gt=0, description="To open a connection to an upstream."
    )
    first_byte_timeout_seconds: float = Field(
        default=300.0, gt=0, description="Streams: until the first event of the upstream."
    )
    idle_timeout_seconds: float = Field(
        default=60.0, gt=0, description="Streams: between two events of the upstream."
    )
    total_timeout_seconds: float = Field(
        default=600.0, gt=0, description="A whole call, plain or streamed."
    )
    retries: int = Field(
        default=2,
        ge=0,
        le=10,
        description="Further attempts at a call that no upstream has begun to serve.",
    )
    grpc_require_key: bool = Field(
        default=False,
        description="Ask gRPC callers for `authorization: Bearer KEY` metadata too.",
    )
    helper_timeout_seconds: float = Field(
        default=60.0, gt=0, description="A call that a control flow makes for itself."
    )
    state_url: SecretStr = Field(
        default=SecretStr(""),
        description="redis:// URL of the state that several gateways share; empty: memory.",
    )
    state_max_conversations: int = Field(
        default=10_000, ge=1, description="Keys of conversation state that are kept (memory)."
    )
    state_max_age_seconds: float = Field(
        default=86_400.0, gt=0, description="How long the state of a conversation is kept."
    )
    rate_limit_per_minute: int = Field(
        default=0, ge=0, description="Requests of one key in a minute; 0: no limit."
    )
    reserve_output_tokens: int = Field(
        default=8_192,
        ge=1,
        description="With a cap: output that a call without max_tokens is expected to need.",
    )
    unpriced_call_usd: float = Field(
        default=0.05,
        ge=0,
        allow_inf_nan=False,
        description="Dollars that a call counts for whose model has no known price or cost.",
    )
    log_content: bool = Field(
        default=False,
        description="Write prompts and answers to the log, for finding faults; never keys.",
    )


class SeedSettings(BaseSettings):
    """Settings whose environment names have no prefix."""

    model_config = SettingsConfigDict(
        env_prefix="", extra="forbid", frozen=True, protected_namespaces=()
    )

    model_api_keys: SecretStr = Field(
        default=SecretStr(""),
        validation_alias="MODEL_API_KEYS",
        description="Keys of the HTTP API, separated by commas.",
    )
    marina_open_api: bool = Field(
        default=False,
        validation_alias="MARINA_OPEN_API",
        description="true: no key is asked for; counts only while MODEL_API_KEYS is empty.",
    )
    database_url: SecretStr = Field(
        default=SecretStr(""),
        validation_alias="DATABASE_URL",
        description="Ledger database; empty: a SQLite file in the data folder.",
    )
    daily_spend_cap_usd: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        validation_alias="MARINA_DAILY_SPEND_CAP_USD",
        description="Dollars that may be spent in a UTC day; then 429. Unset: no cap.",
    )
    verify_checker_model: str = Field(
        default="",
        validation_alias="MARINA_VERIFY_CHECKER_MODEL",
        description="Checks the drafts of marina/verify:; empty: the proposer itself.",
    )
    verify_rounds: int = Field(
        default=1,
        validation_alias="MARINA_VERIFY_ROUNDS",
        description="Revisions of one answer, held within 0 and 3.",
    )
    obligations_model: str = Field(
        default="",
        validation_alias="MARINA_OBLIGATIONS_MODEL",
        description="Keeps the obligations; empty: the agent's model.",
    )
    argcheck_model: str = Field(
        default="",
        validation_alias="MARINA_ARGCHECK_MODEL",
        description="Judges arguments; empty: MARINA_OBLIGATIONS_MODEL, then the agent's model.",
    )
    argcheck_trigger: Literal["flagged", "all-writes"] = Field(
        default="flagged",
        validation_alias="MARINA_ARGCHECK_TRIGGER",
        description="Which writes are judged: flagged ones, or all-writes.",
    )
    lessons: Literal["armed", "observe", "off"] = Field(
        default="armed",
        validation_alias="MARINA_LESSONS",
        description="Whether judged lessons ride (armed), are only named (observe), or neither.",
    )

    @field_validator("verify_rounds")
    @classmethod
    def _clamp_rounds(cls, value: int) -> int:
        return min(max(value, 0), 3)

    @field_validator("daily_spend_cap_usd", mode="before")
    @classmethod
    def _empty_is_unset(cls, value: object) -> object:
        return None if value == "" else value


def help_text() -> str:
    """Returns the text of --help."""
    return settings_help(
        "python -m tau2eval_gateway",
        "The model gateway: OpenAI-compatible HTTP, and gRPC for the other services.",
        GatewaySettings,
        SeedSettings,
        notes=["Provider keys are read under LiteLLM's names (OPENAI_API_KEY and so on)."],
    )
