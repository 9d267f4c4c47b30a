"""Settings of the scorer."""

from __future__ import annotations

from pathlib import Path

from pydantic import AliasChoices, Field
from pydantic_settings import SettingsConfigDict

from tau2eval_common.settings import ServiceSettings
from tau2eval_common.usage import settings_help
from tau2eval_scorer.store.database import async_url


class ScorerSettings(ServiceSettings):
    """Settings with the prefix TAU2EVAL_SCORER_."""

    model_config = SettingsConfigDict(
        env_prefix="TAU2EVAL_SCORER_",
        extra="forbid",
        frozen=True,
        protected_namespaces=(),
        populate_by_name=True,
    )

    port: int = Field(default=3314, ge=0, le=65535, description="gRPC port; 0 takes a free one.")
    max_sessions: int = Field(
        default=64, ge=1, description="Records taken at once; one more is RESOURCE_EXHAUSTED."
    )
    drain_seconds: float = Field(
        default=270.0,
        ge=0,
        description="After SIGTERM, how long calls in progress may go on: a judgement, above all.",
    )
    http_port: int = Field(
        default=3315, ge=0, le=65535, description="Port of the report pages; 0 takes a free one."
    )
    gateway_address: str = Field(
        default="127.0.0.1:3301", description="gRPC target of the gateway, which the judge asks."
    )
    artifacts_dir: Path = Field(
        default=Path("runs"), description="Folder of the runs; each has its own folder in it."
    )
    artifacts_url: str = Field(
        default="",
        pattern=r"^$|^[a-z0-9]+://.+",
        description="Object store of the artifacts in its place, s3://bucket/prefix for instance; "
        "artifacts_dir then only holds what is on its way. AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY as everywhere.",
    )
    data_dir: Path | None = Field(
        default=None,
        description="Folder of the SQLite store; unset: the folder .store in artifacts_dir.",
    )
    database_url: str = Field(
        default="",
        validation_alias=AliasChoices("TAU2EVAL_SCORER_DATABASE_URL", "DATABASE_URL"),
        description="URL of another store, postgresql://user@host/name for instance; empty: SQLite "
        "in data_dir. DATABASE_URL is read too, when this is not set.",
    )
    max_record_bytes: int = Field(
        default=512 * 1024 * 1024, ge=1024, description="Largest record, audio included, in bytes."
    )
    max_record_text_bytes: int = Field(
        default=64 * 1024 * 1024,
        ge=1024,
        description="Largest record without its audio, in bytes; this part is held in memory.",
    )
    part_timeout_seconds: float = Field(
        default=120.0, gt=0, description="Longest wait for the next part of a record, in seconds."
    )
    scoring_threads: int = Field(
        default=2, ge=1, le=64, description="Threads that score; the event loop stays free."
    )

    @property
    def store_dir(self) -> Path:
        """Folder of the SQLite store."""
        return self.data_dir or self.artifacts_dir / ".store"

    @property
    def store_url(self) -> str:
        """SQLAlchemy URL of the store, with an asynchronous driver."""
        if not self.database_url:
            return f"sqlite+aiosqlite:///{(self.store_dir / 'runs.sqlite3').absolute()}"
        return async_url(self.database_url)


def usage() -> str:
    """Returns the text of --help."""
    return settings_help(
        "python -m tau2eval_scorer",
        "Scores conversation records and keeps the runs.",
        ScorerSettings,
        notes=["EVAL_DATA_ROOT or TAU2_DATA_DIR name another source of the airline fixtures."],
    )
