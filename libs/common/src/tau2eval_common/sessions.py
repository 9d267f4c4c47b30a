"""A bound on the calls that one process holds at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tau2eval_common.errors import CapacityExhausted


class SessionLimit:
    """Counts active sessions and refuses one too many.

    Attributes:
        limit: Sessions allowed at once.
        active: Sessions held now.
    """

    def __init__(self, limit: int, what: str) -> None:
        self.limit = limit
        self.active = 0
        self._what = what

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Holds one session for the body of the `with`.

        Raises:
            CapacityExhausted: When `limit` sessions are active.
        """
        if self.active >= self.limit:
            raise CapacityExhausted(
                f"{self._what} holds {self.active} of {self.limit} sessions; try again later, or "
                "raise max_sessions",
                reason="SESSIONS_EXHAUSTED",
                metadata={"limit": str(self.limit)},
            )
        self.active += 1
        try:
            yield
        finally:
            self.active -= 1
