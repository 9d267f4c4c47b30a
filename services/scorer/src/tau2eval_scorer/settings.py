"""Settings of the scorer."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from tau2eval_common.settings import ServiceSettings


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


def usage(settings: type[ScorerSettings] = ScorerSettings) -> str:
    """Returns the text of --help: every setting's environment variable, default and meaning."""
    inherited = _inherited_descriptions()
    prefix = settings.model_config.get("env_prefix", "")
    lines = [
        "usage: python -m tau2eval_scorer",
        "",
        "Scores conversation records and keeps the runs. It takes no arguments; these environment",
        "variables set it:",
        "",
    ]
    for name, field in settings.model_fields.items():
        default = "unset" if field.default is None else str(field.default) or "empty"
        lines.append(f"  {prefix}{name.upper()}  (default: {default})")
        lines.append(f"      {field.description or inherited.get(name, '')}")
    lines += [
        "",
        "EVAL_DATA_ROOT or TAU2_DATA_DIR name another source of the airline fixtures.",
    ]
    return "\n".join(lines)


def _inherited_descriptions() -> dict[str, str]:
    """Reads the Attributes section of ServiceSettings, which describes its fields."""
    section = (ServiceSettings.__doc__ or "").partition("Attributes:")[2]
    found = {}
    for line in section.splitlines():
        name, separator, text = line.strip().partition(": ")
        if separator:
            found[name] = text
    return found
