"""Which scenario a request is about when no header tells: the official tau2 CLI sends none.

The caller is known by the instructions in its system prompt, the agent by the caller's first words.
Two tasks may have the same: then the model id must name one, as scripted/gold@15 does. Releases of
tau2 differ in the wording of some instructions, so not all parts of them need to agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tau2eval_airline import get_scenario

from .caller import opening
from .catalog import Catalog, Plan
from .conversation import Conversation, words

DOMAIN = "tau2_airline"
_PARTS = ("known_info", "reason_for_call", "task_instructions")


class Recogniser:
    """Finds plans by what was said.

    Args:
        catalog: The plans of the scenarios.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._openings: dict[str, str] = {}
        self._instructions: dict[str, tuple[str, ...]] = {}
        for name in catalog.names():
            plan = catalog.get(name)
            assert plan is not None
            self._openings[name] = _plain(opening(plan.caller))
            told = get_scenario(name).tau2_task["user_scenario"]["instructions"]
            self._instructions[name] = tuple(_plain(told[part] or "") for part in _PARTS)

    def named(self, task: str) -> Plan | None:
        """Returns the plan of a scenario or of a tau2 task id, or None."""
        return self._catalog.get(task) or self._catalog.get(f"{DOMAIN}__{task}")

    def of_agent(self, conversation: Conversation) -> list[Plan]:
        """Returns the plans whose caller opened the conversation."""
        said = _plain(" ".join(text for _, text in conversation.texts("user")))
        return self._plans(_longest({n: t for n, t in self._openings.items() if t in said}))

    def of_caller(self, conversation: Conversation) -> list[Plan]:
        """Returns the plans whose instructions stand in the system text, or fit it best."""
        told = _plain(conversation.system)
        found = [name for name, (known, *_) in self._instructions.items() if known in told]
        for part in range(1, len(_PARTS)):
            fits = {name: self._instructions[name][part] for name in found}
            found = _longest({n: t for n, t in fits.items() if t in told}) or found
        return self._plans(found)

    def _plans(self, names: Iterable[str]) -> list[Plan]:
        return [plan for name in names if (plan := self._catalog.get(name)) is not None]


def _longest(texts: Mapping[str, str]) -> list[str]:
    """Returns the names with the longest text: one task's words may begin with another's."""
    most = max(map(len, texts.values()), default=0)
    return [name for name, text in texts.items() if len(text) == most]


def _plain(text: str) -> str:
    # Spaces around it: a text is never found within a word.
    return f" {' '.join(words(text))} "
