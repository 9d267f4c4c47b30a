"""Crews: named compositions of models and control flows, from the model list's file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tau2eval_gateway.flows.ids import CREW_PREFIX, FLOW_NAMES, is_flow_id
from tau2eval_gateway.lessons import MODES
from tau2eval_gateway.model_list import ModelListError, read_config

SECTION: Final = "crews"
MAX_CREWS: Final = 200
MAX_CHECKERS: Final = 5
MAX_ROUNDS: Final = 3
MAX_DESCRIPTION_CHARS: Final = 500
_MAX_MODEL_CHARS: Final = 256
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_MODEL: Final = re.compile(r"[\x21-\x7e]+")
_KEYS: Final = ("proposer", "checkers", "flows", "rounds", "lessons", "description")


@dataclass(frozen=True, slots=True)
class Crew:
    """A named composition; callers ask for it as marina:<name>.

    Attributes:
        name: Lower-case.
        proposer: Plain id of the model that answers.
        checkers: Plain ids of verify's checkers; empty: verify's default.
        flows: Control flows, outermost first.
        rounds: Revisions of verify, 0 to 3; None: MARINA_VERIFY_ROUNDS.
        lessons: "armed", "observe" or "off"; None: as for a marina/ id with the same flows.
        description: For people.
    """

    name: str
    proposer: str
    flows: tuple[str, ...]
    checkers: tuple[str, ...] = ()
    rounds: int | None = None
    lessons: str | None = None
    description: str = ""

    @property
    def model_id(self) -> str:
        """What callers ask for."""
        return CREW_PREFIX + self.name


def load_crews(path: Path) -> dict[str, Crew]:
    """Reads the section `crews` of a model list; empty without one.

    Raises:
        ModelListError: Something in it is unknown or wrong; names the file and the key.
    """
    section = read_config(path).get(SECTION)
    if section is None:
        return {}
    where = f"{path}: {SECTION}"
    if not isinstance(section, dict) or not section:
        raise ModelListError(f"{where} is not a mapping of names to crews")
    if len(section) > MAX_CREWS:
        raise ModelListError(f"{where} has more than {MAX_CREWS} entries")
    return {name: _crew(where, name, entry) for name, entry in section.items()}


def check_crews(crews: Mapping[str, Crew], path: Path, check: Callable[[str], None]) -> None:
    """Checks that every model of every crew is there.

    Args:
        crews: What `load_crews` gave.
        path: Of the file, for the message.
        check: Raises an exception for a model id that is not served.

    Raises:
        ModelListError: One is not; names the crew and the key.
    """
    for crew in crews.values():
        keys = [("proposer", crew.proposer)]
        keys += [(f"checkers[{at}]", model) for at, model in enumerate(crew.checkers)]
        for key, model in keys:
            try:
                check(model)
            except Exception:
                raise ModelListError(
                    f"{path}: {SECTION}.{crew.name}.{key}: no entry of model_list serves {model!r}"
                ) from None


def _crew(section: str, name: object, entry: object) -> Crew:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ModelListError(
            f"{section}: the name {str(name)[:64]!r} is not a lower-case letter or digit followed "
            "by at most 63 lower-case letters, digits, -, _ and ."
        )
    where = f"{section}.{name}"
    if not isinstance(entry, dict):
        raise ModelListError(f"{where} is not a mapping")
    for key in entry:
        if key not in _KEYS:
            raise ModelListError(f"{where}.{key} is not a key of a crew{_hint(key, _KEYS)}")
    flows = _flows(f"{where}.flows", entry.get("flows"))
    checkers = _checkers(f"{where}.checkers", entry.get("checkers"))
    rounds = _rounds(f"{where}.rounds", entry.get("rounds"))
    for key, value in (("checkers", checkers), ("rounds", rounds)):
        if value not in ((), None) and "verify" not in flows:
            raise ModelListError(f"{where}.{key} has no meaning without verify in {where}.flows")
    return Crew(
        name=name,
        proposer=_model(f"{where}.proposer", entry.get("proposer")),
        flows=flows,
        checkers=checkers,
        rounds=rounds,
        lessons=_lessons(f"{where}.lessons", entry.get("lessons")),
        description=_description(f"{where}.description", entry.get("description")),
    )


def _flows(where: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise ModelListError(f"{where} is not a list with some of {', '.join(FLOW_NAMES)}")
    for flow in value:
        if flow not in FLOW_NAMES:
            raise ModelListError(
                f"{where}: there is no control flow {str(flow)[:64]!r}{_hint(flow, FLOW_NAMES)}; "
                f"there are {', '.join(FLOW_NAMES)}"
            )
        if value.count(flow) > 1:
            raise ModelListError(f"{where} names {flow} twice")
    return tuple(value)


def _checkers(where: str, value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not value:
        raise ModelListError(f"{where} is not a list of model ids")
    if len(value) > MAX_CHECKERS:
        raise ModelListError(f"{where} has more than {MAX_CHECKERS} models")
    models = tuple(_model(f"{where}[{at}]", model) for at, model in enumerate(value))
    if len(set(models)) < len(models):
        raise ModelListError(f"{where} names a model twice")
    return models


def _model(where: str, value: object) -> str:
    if value is None:
        raise ModelListError(f"{where} is missing")
    if (
        not isinstance(value, str)
        or len(value) > _MAX_MODEL_CHARS
        or not _MODEL.fullmatch(value)
        or "*" in value
    ):
        raise ModelListError(f"{where} is not a model id")
    if is_flow_id(value):
        raise ModelListError(
            f"{where}: members are plain model ids, and {value!r} is a crew or has a control flow"
        )
    return value


def _rounds(where: str, value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_ROUNDS:
        raise ModelListError(f"{where} is not a whole number from 0 to {MAX_ROUNDS}")
    return value


def _lessons(where: str, value: object) -> str | None:
    if value is None:
        return None
    if value is False:
        value = "off"  # YAML 1.1 reads the bare word as false.
    if not isinstance(value, str) or value not in MODES:
        raise ModelListError(f"{where} is none of {', '.join(reversed(MODES))}")
    return value


def _description(where: str, value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > MAX_DESCRIPTION_CHARS:
        raise ModelListError(f"{where} is not a text of at most {MAX_DESCRIPTION_CHARS} characters")
    return value


def _hint(key: Any, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(str(key), known, n=2)
    return f"; did you mean {' or '.join(near)}?" if near else ""
