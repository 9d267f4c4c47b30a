"""Dollars of a call by a list of prices."""

from __future__ import annotations

from dataclasses import dataclass

from tau2eval_gateway.usage import Usage


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars a token.

    Attributes:
        cache_read: For prompt tokens from the provider's cache; None: they cost as others do.
        cache_write: For prompt tokens written to it; None: as others.
        reasoning: For tokens that are written and not shown; None: as the rest of the output.
        above: Prices of calls whose prompt is longer than a number of tokens, the largest first;
            they hold for the whole call.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    reasoning: float | None = None
    above: tuple[tuple[int, Prices], ...] = ()

    def cost(self, usage: Usage) -> float:
        """Returns the price of a call in dollars; every token is billed once."""
        for tokens, prices in self.above:
            if usage.prompt_tokens > tokens:
                return prices.cost(usage)
        read = min(usage.cached_tokens, usage.prompt_tokens)
        written = min(usage.cache_write_tokens, usage.prompt_tokens - read)
        reasoning = min(usage.reasoning_tokens, usage.completion_tokens)
        return (
            (usage.prompt_tokens - read - written) * self.input
            + read * _or(self.cache_read, self.input)
            + written * _or(self.cache_write, self.input)
            + (usage.completion_tokens - reasoning) * self.output
            + reasoning * _or(self.reasoning, self.output)
        )


def _or(price: float | None, other: float) -> float:
    return other if price is None else price
