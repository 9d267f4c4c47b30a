"""Typed settings from the environment, in which an unknown key is an error."""

from __future__ import annotations

import difflib
import os
import sys
from typing import NoReturn, TypeVar

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict


class UnknownSettingError(ValueError):
    """An environment variable has a service's prefix and names no setting of it."""


class ServiceSettings(BaseSettings):
    """What every service is told. Subclasses set `env_prefix`, "TAU2EVAL_BRIDGE_" for instance.

    Attributes:
        host: Address to listen on.
        port: gRPC port; 0 takes a free one, which the listening line tells.
        max_sessions: Calls held at once; one more is RESOURCE_EXHAUSTED.
        drain_seconds: After SIGTERM, how long calls in progress (up to 900 s each) may go on.
        log_level: "debug", "info", "warning" or "error".
        log_format: "text" for people, "json" for machines.
        exit_with_parent: End when standard input is closed, so that no process is left behind.
    """

    model_config = SettingsConfigDict(extra="forbid", frozen=True)

    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)
    max_sessions: int = Field(default=8, ge=1)
    drain_seconds: float = Field(default=930.0, ge=0)
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$")
    log_format: str = Field(default="text", pattern="^(text|json)$")
    exit_with_parent: bool = False


S = TypeVar("S", bound=BaseSettings)


def check_unknown_keys(cls: type[BaseSettings], environ: dict[str, str]) -> None:
    """Refuses environment variables that have the prefix of `cls` and name none of its settings.

    Raises:
        UnknownSettingError: With the nearest names that exist.
    """
    prefix = cls.model_config.get("env_prefix", "").upper()
    if not prefix:
        return
    known = {
        alias.upper()
        if isinstance(alias := field.validation_alias, str)
        else f"{prefix}{name}".upper()
        for name, field in cls.model_fields.items()
    }
    delimiter = cls.model_config.get("env_nested_delimiter")
    for key in environ:
        upper = key.upper()
        if not upper.startswith(prefix) or upper in known:
            continue
        if delimiter and upper.split(delimiter.upper())[0] in known:
            continue
        near = difflib.get_close_matches(upper, known, n=3)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise UnknownSettingError(f"{key} is not a setting of this service.{hint}")


def load_settings(cls: type[S]) -> S:
    """Reads settings from the environment.

    Raises:
        UnknownSettingError: For a variable with the prefix that names no setting.
        pydantic.ValidationError: For a value that does not fit.
    """
    check_unknown_keys(cls, dict(os.environ))
    return cls()


def load_settings_or_exit(cls: type[S]) -> S:
    """Reads settings; on an error prints one line per fault and exits with 2."""
    try:
        return load_settings(cls)
    except UnknownSettingError as error:
        _exit(str(error))
    except ValidationError as error:
        prefix = cls.model_config.get("env_prefix", "")
        lines = [
            f"{prefix.upper()}{'__'.join(str(part) for part in fault['loc']).upper()}: "
            f"{fault['msg']}"
            for fault in error.errors()
        ]
        _exit("\n".join(lines))


def _exit(message: str) -> NoReturn:
    print(f"settings: {message}", file=sys.stderr)
    raise SystemExit(2)
