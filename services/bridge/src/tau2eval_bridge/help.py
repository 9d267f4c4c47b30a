"""The settings as text, for --help."""

from __future__ import annotations

import inspect
import re

from pydantic_settings import BaseSettings


def settings_help(cls: type[BaseSettings], program: str, summary: str) -> str:
    """Returns usage, and every setting with its environment name, default and meaning.

    Args:
        cls: Settings whose docstrings (and those of their bases) have an Attributes section.
        program: How the program is called.
        summary: What it does, in a sentence.
    """
    meanings: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if issubclass(base, BaseSettings):
            meanings.update(_attributes(inspect.getdoc(base) or ""))
    lines = [f"usage: {program} [--help]", "", summary, "", "Settings (environment):"]
    prefix = cls.model_config.get("env_prefix", "").upper()
    for name, field in cls.model_fields.items():
        lines.append(f"  {prefix}{name.upper()} (default {field.default!r})")
        lines.append(f"      {meanings.get(name, '')}")
    return "\n".join(lines)


def _attributes(doc: str) -> dict[str, str]:
    section = re.search(r"^Attributes:\n(.*?)(?:\n\S|\Z)", doc, re.S | re.M)
    if section is None:
        return {}
    found: dict[str, str] = {}
    name = ""
    for line in section.group(1).splitlines():
        match = re.match(r"^    (\w+): (.*)", line)
        if match:
            name = match.group(1)
            found[name] = match.group(2).strip()
        elif name and line.strip():
            found[name] += f" {line.strip()}"
    return found
