"""Model ids that name control flows: which models stand in them."""

from __future__ import annotations

from typing import Final

SCRIPTED_PREFIX: Final = "scripted/"
FLOW_PREFIX: Final = "marina/"
CREW_PREFIX: Final = "marina:"
FLOWS: Final = ("verify", "obligations", "argcheck")


def models_of(model: str) -> tuple[str, ...]:
    """Returns the plain ids in a model id: of the model that answers, then verify's checker.

    Empty when the id is not understood here: a crew is known to the gateway alone, and so is what
    it makes of a wrong id.
    """
    rest, verified = model, False
    while rest.startswith(FLOW_PREFIX):
        flow, _, rest = rest.removeprefix(FLOW_PREFIX).partition(":")
        if flow not in FLOWS:
            return ()
        verified |= flow == "verify"
    if not rest or rest.startswith(CREW_PREFIX):
        return ()
    if verified and "+" in rest:
        proposer, _, checker = rest.rpartition("+")
        return (proposer, checker) if proposer and checker else ()
    return (rest,)


def is_scripted(model: str) -> bool:
    """Tells whether a script writes the answers of a model, with or without control flows."""
    return next(iter(models_of(model)), "").startswith(SCRIPTED_PREFIX)
