"""The command line of a service: --help, which teaches its settings, and nothing else."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo


def settings_help(
    program: str, summary: str, *classes: type[BaseModel], notes: Sequence[str] = ()
) -> str:
    """Returns the text of --help: every setting with its environment name, default and meaning.

    A setting's meaning is its `description`, or what the Attributes section of its class's
    docstring (or of a base's) says. Members of nested models are listed under NAME__MEMBER.

    Args:
        program: How the program is called, "python -m tau2eval_bridge" for instance.
        summary: What it does, in a sentence.
        classes: Settings models.
        notes: Further lines at the end.
    """
    lines = [f"usage: {program} [--help]", "", summary, ""]
    lines.append("It takes no other arguments. These environment variables set it:")
    for cls in classes:
        lines += _describe(cls, str(cls.model_config.get("env_prefix", "")))
    if notes:
        lines += ["", *notes]
    return "\n".join(lines)


def only_help(arguments: Sequence[str], name: str, text: str) -> int | None:
    """Treats the arguments of a service that takes none.

    Returns:
        None to go on; 0 after --help was printed; 2 for anything else.
    """
    if not arguments:
        return None
    if list(arguments) in (["--help"], ["-h"]):
        print(text)
        return 0
    print(f"{name}: it takes no arguments but --help\n\n{text}", file=sys.stderr)
    return 2


def _describe(
    model: type[BaseModel], prefix: str, values: BaseModel | None = None
) -> Iterator[str]:
    meanings: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        meanings.update(_attributes(cls))
    for name, field in model.model_fields.items():
        default = _default(field) if values is None else getattr(values, name)
        if isinstance(default, BaseModel):
            yield from _describe(type(default), f"{prefix}{name}__".upper(), default)
            continue
        alias = field.validation_alias
        key = alias if isinstance(alias, str) else f"{prefix}{name}".upper()
        shown = "unset" if default is None else "empty" if default == "" else default
        yield f"  {key}  (default: {shown})"
        yield f"      {field.description or meanings.get(name, '')}"


def _default(field: FieldInfo) -> object:
    default: object = field.get_default(call_default_factory=True, validated_data={})
    return default.get_secret_value() if isinstance(default, SecretStr) else default


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
