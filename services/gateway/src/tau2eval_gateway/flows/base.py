"""What every control flow is given and what it gives back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tau2eval_gateway.flows.state import ConversationState
from tau2eval_gateway.requests import ChatRequest


@dataclass(frozen=True, slots=True)
class Spent:
    """What one upstream call took.

    Attributes:
        cost_usd: In dollars; None when unknown, which is not 0.
        usage: The `usage` member of the answer; empty when it has none.
    """

    cost_usd: float | None
    usage: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer on its way back to the caller.

    Attributes:
        raw: The chat.completion object as JSON; returned verbatim unless a flow says otherwise.
        body: `raw`, parsed.
        upstream_model: Id of the model that wrote it.
    """

    raw: bytes
    body: dict[str, Any]
    upstream_model: str = ""

    @property
    def message(self) -> dict[str, Any]:
        """The first choice's message; empty when there is none."""
        choices = self.body.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        message = first.get("message") if isinstance(first, dict) else None
        return message if isinstance(message, dict) else {}


@dataclass(slots=True)
class Tally:
    """What one flow did in one request; becomes its x-marina-* headers.

    Attributes:
        counters: Counts by name, in the order in which they are to be shown.
        verdict: A word that stands for the whole, as verify has it; empty: the counters are shown.
        own: Upstream calls of the flow itself, a discarded draft's calls included.
        noted: What the flow has dealt with in this request, in its own words.
    """

    counters: Counter[str] = field(default_factory=Counter)
    verdict: str = ""
    own: list[Spent] = field(default_factory=list)
    noted: set[str] = field(default_factory=set)

    def header(self) -> str:
        """Returns the value of the flow's header: the verdict, or "name=1 other=2"; "0" if none."""
        if self.verdict:
            return self.verdict
        return " ".join(f"{name}={count}" for name, count in self.counters.items()) or "0"


Inner = Callable[[ChatRequest], Awaitable[Reply]]
"""Asks the next flow, or the model. Raises GatewayError."""
Consult = Callable[[str, str, Mapping[str, Any]], Awaitable[Reply]]
"""Asks a helper model: (role, model id, chat body without `model`). Raises GatewayError."""


@dataclass(slots=True)
class FlowContext:
    """One request on its way through its flows. Never shared between requests.

    Attributes:
        requested_model: The id as the caller wrote it.
        agent_model: The plain model that answers, innermost in the id.
        caller: Id of the caller's key.
        session_id: The caller's x-marina-session; empty: none.
        consult: Asks a helper model within its own time limit; the call is in the ledger and in
            `spent`.
        open_state: Opens a flow's view of what is kept about this conversation.
        spent: Every upstream call of this request that gave an answer, in order.
        tallies: By flow name.
        lessons: The system message with lessons that ride with this request; empty: none.
        caller_messages: The conversation as the caller sent it, without what lessons and outer
            flows add; None: not known.
    """

    requested_model: str
    agent_model: str
    caller: str
    session_id: str
    consult: Consult
    open_state: Callable[[str, ChatRequest], Awaitable[ConversationState]]
    spent: list[Spent] = field(default_factory=list)
    tallies: dict[str, Tally] = field(default_factory=dict)
    lessons: str = ""
    caller_messages: Sequence[Mapping[str, Any]] | None = None

    def tally(self, flow: str) -> Tally:
        """Returns the flow's tally; it lasts through retries of outer flows."""
        return self.tallies.setdefault(flow, Tally())

    def mark(self) -> int:
        """Returns a position in `spent`, for `since`."""
        return len(self.spent)

    def since(self, mark: int) -> list[Spent]:
        """Returns the calls made after a mark."""
        return self.spent[mark:]


class Flow(Protocol):
    """A control flow. One object serves all requests and keeps nothing about them."""

    name: str
    """"verify", "obligations" or "argcheck"; the header is x-marina-<name>."""
    streams: bool
    """Whether a streamed request may pass (through `prepare`); else it is refused."""

    async def complete(self, request: ChatRequest, inner: Inner, context: FlowContext) -> Reply:
        """Answers a request.

        Raises:
            GatewayError: The first inner call failed; later faults never reach the caller.
        """

    async def prepare(self, request: ChatRequest, context: FlowContext) -> ChatRequest:
        """Returns the request to stream instead; only called when `streams`."""


def sum_costs(spent: Sequence[Spent]) -> float | None:
    """Adds costs up, in dollars; None when one of them is unknown (statement 19), 0.0 for none."""
    total = 0.0
    for item in spent:
        if item.cost_usd is None:
            return None
        total += item.cost_usd
    return total


def sum_usage(usages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Adds `usage` members up, details included; members that are no numbers are left out."""
    total: dict[str, Any] = {}
    for usage in usages:
        _add(total, usage)
    return total


def _add(total: dict[str, Any], usage: Mapping[str, Any]) -> None:
    for name, value in _numbers(usage):
        if isinstance(value, Mapping):
            _add(total.setdefault(name, {}), value)
        else:
            total[name] = total.get(name, 0) + value


def _numbers(usage: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in usage.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if number or isinstance(value, Mapping):
            yield name, value
