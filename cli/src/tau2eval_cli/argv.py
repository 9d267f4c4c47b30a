"""Arguments as people type them, made into what the parser takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tau2eval_cli.errors import WrongUse

MULTIPLE: Final = frozenset({"--scenarios"})
"""Options that take several values after one flag, as the reference evaluator has them."""

REFERENCE_FLAGS: Final = {
    "--list": "`tau2-eval scenarios` lists the scenarios",
    "--list-domains": "`tau2-eval scenarios` shows each scenario's domain",
    "--pause": "no pause is needed: a call leaves nothing behind in the bots",
    "--audio-chunk-in-seconds": "the bridge always sends frames of 20 ms",
    "--strict-match": "action match is a diagnostic, shown among the excluded signals",
}
"""Flags of the reference evaluator that `run` does without, and what to do instead."""

JUDGE_FLAGS: Final = {
    "--judge-url": "models are reached only through the gateway; --judge-model names one by its "
    "LiteLLM id, and its provider's ..._API_BASE in the environment, or a model list in "
    "TAU2EVAL_GATEWAY_MODEL_CONFIG, says where it is",
    "--judge-api-key": "a key never goes into arguments, which others can read; set the provider's "
    "variable (OPENAI_API_KEY, ...), which only the gateway sees",
}
"""The same for the flags of the judge, of `run` and of `score`."""


def expand_values(argv: Sequence[str]) -> list[str]:
    """Repeats a flag of `MULTIPLE` before each of its values: `--scenarios a b` and so on.

    Values end at the next argument that starts with a hyphen.
    """
    expanded: list[str] = []
    flag: str | None = None
    fresh = False
    for position, argument in enumerate(argv):
        if argument == "--":
            return [*expanded, *argv[position:]]
        if argument in MULTIPLE:
            flag, fresh = argument, True
            expanded.append(argument)
        elif argument.startswith("-"):
            name = argument.split("=", 1)[0]
            flag, fresh = (name, False) if "=" in argument and name in MULTIPLE else (None, False)
            expanded.append(argument)
        elif flag is not None and not fresh:
            expanded += [flag, argument]
        else:
            fresh = False
            expanded.append(argument)
    return expanded


def check_reference_flags(argv: Sequence[str]) -> None:
    """Tells a person who comes from the reference evaluator what a flag of it is here.

    Raises:
        WrongUse: When `run` or `score` is given one that it does without.
    """
    if not argv or argv[0] not in ("run", "score"):
        return
    known = JUDGE_FLAGS | (REFERENCE_FLAGS if argv[0] == "run" else {})
    for argument in argv[1:]:
        name = argument.split("=", 1)[0]
        if name in known:
            raise WrongUse(
                f"{argv[0]} has no {name}: {known[name]} "
                "(docs/from-the-reference-evaluator.md has the whole table)"
            )
