"""The adopted claims about what is said in a call, judged one at a time.

Upstream ships 123 of them and never runs them; several contradict the policy. None is adopted
by default: an entry here is a decision, taken per task.
"""

from __future__ import annotations

from collections.abc import Mapping

ADOPTED_NL_ASSERTIONS: Mapping[str, tuple[str, ...]] = {}
"""tau2_id to the adopted claims. A task without an entry is not scored by NL_ASSERTION."""
