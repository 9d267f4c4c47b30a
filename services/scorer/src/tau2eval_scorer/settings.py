"""Settings of the scorer."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from tau2eval_common.settings import ServiceSettings
from tau2eval_common.usage import settings_help


class ScorerSettings(ServiceSettings):
    """Settings with the prefix TAU2EVAL_SCORER_."""

    model_config = SettingsConfigDict(
        env_prefix="TAU2EVAL_SCORER_", extra="forbid", frozen=True, protected_namespaces=()
    )

    port: int = Field(default=3314, ge=0, le=65535, description="gRPC port; 0 takes a free one.")
    max_sessions: int = Field(
        default=64, ge=1, description="Records taken at once; one more is RESOURCE_EXHAUSTED."
    )
    drain_seconds: float = Field(
        default=60.0, ge=0, description="After SIGTERM, how long calls in progress may go on."
    )
    artifacts_dir: Path = Field(
        default=Path("runs"), description="Folder of the runs; each has its own folder in it."
    )
    data_dir: Path | None = Field(
        default=None,
        description="Folder of the SQLite store; unset: the folder .store in artifacts_dir.",
    )
    database_url: str = Field(
        default="", description="SQLAlchemy URL of another store; empty: SQLite in data_dir."
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
        """SQLAlchemy URL of the store, with an asynchronous driver for SQLite."""
        if not self.database_url:
            return f"sqlite+aiosqlite:///{(self.store_dir / 'runs.sqlite3').absolute()}"
        scheme, separator, rest = self.database_url.partition("://")
        if scheme == "sqlite":
            return f"sqlite+aiosqlite{separator}{rest}"
        return self.database_url


def usage() -> str:
    """Returns the text of --help."""
    return settings_help(
        "python -m tau2eval_scorer",
        "Scores conversation records and keeps the runs.",
        ScorerSettings,
        notes=["EVAL_DATA_ROOT or TAU2_DATA_DIR name another source of the airline fixtures."],
    )
