"""What a call may cost, before it is made and when nobody says it."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tau2eval_gateway.upstreams.base import Upstream, UpstreamCall
from tau2eval_gateway.usage import MAX_TOKENS, Usage

BYTES_PER_PROMPT_TOKEN: Final = 2
"""Every tokenizer in use makes fewer tokens than this of text and JSON; most make half of it."""
_MODELS: Final = 1_000
_RECENT: Final = 50
_MAX_CHOICES: Final = 128


class CostEstimates:
    """Estimates costs from prices, and from what calls of the same model have cost lately.

    Args:
        output_tokens: Written at most by a call that sets no limit itself.
        unpriced_usd: What a call counts for whose model has neither a price nor a known call.
    """

    def __init__(self, *, output_tokens: int, unpriced_usd: float) -> None:
        self._output_tokens = output_tokens
        self._unpriced_usd = unpriced_usd
        self._seen: OrderedDict[str, deque[tuple[float, int]]] = OrderedDict()

    def observe(self, model: str, cost_usd: float, completion_tokens: int) -> None:
        """Notes what a call cost, in dollars."""
        recent = self._seen.get(model)
        if recent is None:
            recent = self._seen[model] = deque(maxlen=_RECENT)
            if len(self._seen) > _MODELS:
                self._seen.popitem(last=False)
        recent.append((cost_usd, completion_tokens))

    def load(self, largest: Iterable[tuple[str, float, int]]) -> None:
        """Takes over what earlier calls cost: (model, dollars, tokens written)."""
        for model, cost, tokens in largest:
            self.observe(model, cost, tokens)

    def unknown(self, model: str) -> float:
        """Returns what a call counts for whose cost nobody knows, in dollars."""
        recent = self._seen.get(model)
        return max(cost for cost, _ in recent) if recent else self._unpriced_usd

    def worst_case(self, call: UpstreamCall, upstream: Upstream) -> float:
        """Returns what a call may cost at most, in dollars.

        Every byte pair of the body counts as a token read, at the dearer of the prices for reading
        and for writing the cache; the output is as long as the caller allows, and where the caller
        says nothing as long as the default, or as the longest recent one.
        """
        body = call.request.body
        prompt = -(-len(call.request.raw) // BYTES_PER_PROMPT_TOKEN)
        output = self._output(body, call.request.model)
        plain = upstream.price(call, Usage(prompt, output))
        if plain is None:
            return self.unknown(call.request.model)
        written = upstream.price(call, Usage(prompt, output, cache_write_tokens=prompt))
        thought = upstream.price(call, Usage(prompt, output, reasoning_tokens=output))
        return max(plain, written or 0.0, thought or 0.0)

    def _output(self, body: Mapping[str, Any], model: str) -> int:
        limits = [
            value
            for name in ("max_completion_tokens", "max_tokens")
            if (value := _positive(body.get(name))) is not None
        ]
        if limits:
            tokens = max(limits)
        else:
            recent = self._seen.get(model)
            longest = max(count for _, count in recent) if recent else 0
            tokens = max(self._output_tokens, longest)
        choices = min(_positive(body.get("n")) or 1, _MAX_CHOICES)
        return min(tokens * choices, MAX_TOKENS)


def _positive(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        return None
    return int(min(value, MAX_TOKENS))
