"""Settings that both bots have."""

from __future__ import annotations

import inspect
from typing import ClassVar

from pydantic import BaseModel, Field
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


def usage(settings: type[BotSettings], module: str) -> str:
    """Returns the text of --help: every setting with its name in the environment.

    Args:
        settings: The class with its prefix.
        module: What is run, "tau2eval_agent_bot" for instance.
    """
    prefix = str(settings.model_config.get("env_prefix", ""))
    lines = [
        f"usage: python -m {module}",
        "",
        settings.about,
        "It takes no arguments; these environment variables set it:",
        "",
    ]
    lines += _describe(settings, prefix)
    return "\n".join(lines)


def _describe(model: type[BaseModel], prefix: str, values: BaseModel | None = None) -> list[str]:
    """Describes the members of a model; `values` holds defaults that replace its own."""
    meanings: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        meanings.update(_attributes(cls))
    lines: list[str] = []
    for name, field in model.model_fields.items():
        default = field.default if values is None else getattr(values, name)
        if isinstance(default, BaseModel):
            lines += _describe(type(default), f"{prefix}{name.upper()}__", default)
            continue
        shown = "unset" if default is None else default
        lines.append(f"  {prefix}{name.upper()}  (default: {shown})")
        lines.append(f"      {meanings.get(name, '')}")
    return lines


def _attributes(cls: type) -> dict[str, str]:
    """Reads the Attributes section of a class's docstring."""
    section = inspect.cleandoc(cls.__dict__.get("__doc__") or "").partition("Attributes:\n")[2]
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if not line.startswith("    "):
            break
        if line.startswith("     "):
            found[name] += " " + line.strip()
            continue
        name, _, text = line.strip().partition(": ")
        found[name] = text
    return found
