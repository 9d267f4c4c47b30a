"""The signals that a scenario can be scored by (shared/reference/voice-evaluator.md)."""

from __future__ import annotations

from enum import StrEnum


class Signal(StrEnum):
    """One check of a finished conversation.

    A scenario's success_signals are those that gate its verdict; the others are diagnostics.
    """

    ACTION_MATCH = "ACTION_MATCH"
    """The recorded actions are the reference's."""

    DB_STATE_MATCH = "DB_STATE_MATCH"
    """The final database is the one after the gold replay."""

    DB_STATE_ASSERTION = "DB_STATE_ASSERTION"
    """Single claims about the final database; the airline has none."""

    NL_ASSERTION = "NL_ASSERTION"
    """Every adopted claim about what was said was judged true."""

    JUDGE_PASSED = "JUDGE_PASSED"
    """The judge's overall score reached its threshold."""

    CLEAN_EXIT = "CLEAN_EXIT"
    """The agent ended the call, or transferred it."""
