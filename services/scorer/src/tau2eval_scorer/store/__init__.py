"""The store of runs, in SQLite or PostgreSQL."""

from tau2eval_scorer.store.locks import RunLocks
from tau2eval_scorer.store.runs import RunStore
from tau2eval_scorer.store.values import (
    Attempt,
    AttemptKey,
    Claim,
    ClaimAnswer,
    Plan,
    Resume,
    Run,
    Scoring,
    StoreError,
    check_open,
)

__all__ = [
    "Attempt",
    "AttemptKey",
    "Claim",
    "ClaimAnswer",
    "Plan",
    "Resume",
    "Run",
    "RunLocks",
    "RunStore",
    "Scoring",
    "StoreError",
    "check_open",
]
