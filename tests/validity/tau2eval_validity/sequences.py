"""What is executed on both sides: a sequence of tool calls, and how it is written down."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from typing import Any, NamedTuple


class Call(NamedTuple):
    """One tool call as an agent would send it."""

    tool: str
    arguments: dict[str, Any]

    def copy(self) -> Call:
        """Returns an independent copy."""
        return Call(self.tool, copy.deepcopy(self.arguments))

    def data(self) -> dict[str, Any]:
        """Returns the call as JSON data."""
        return {"tool": self.tool, "arguments": self.arguments}


class Sequence(NamedTuple):
    """A sequence over a fresh database.

    Attributes:
        number: Its place in the whole set, the name that reports use.
        kind: What made it: the perturbation of a gold, or "random".
        task: tau2_id of the task whose gold it was; None for a random one, which has no verdict.
        calls: The calls, in order.
    """

    number: int
    kind: str
    task: str | None
    calls: tuple[Call, ...]

    def with_calls(self, calls: Iterable[Call]) -> Sequence:
        """Returns the sequence with other calls."""
        return self._replace(calls=tuple(calls))

    def text(self) -> str:
        """Returns the calls as JSON, one a line, ready to be replayed."""
        return "\n".join(json.dumps(call.data(), sort_keys=True) for call in self.calls)
