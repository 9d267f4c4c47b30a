"""Runs a sequence on our tools, and says by the rules what it means to the toolkit."""

from __future__ import annotations

import copy
import json
from typing import Any, NamedTuple

import tau2eval_airline as airline

from .rules import GOLD_CORRECTION, PAYMENT_ORDER, Rewrite, in_gold_payment_order, rewrite
from .sequences import Call, Sequence

Records = dict[tuple[str, str], Any]
"""(table, key) to the record, of every record that differs from the seed."""


class Ours(NamedTuple):
    """How a sequence went on our side.

    Attributes:
        ok: Whether each call succeeded.
        errors: Each call's message, empty where it succeeded.
        records: The changed records.
        db_hash: The hash of the final database, as a session reports it.
        match: The verdict DB_STATE_MATCH; None for a sequence of no task.
        rewrites: What each call means to the toolkit.
    """

    ok: tuple[bool, ...]
    errors: tuple[str, ...]
    records: Records
    db_hash: str
    match: bool | None
    rewrites: tuple[Rewrite, ...]


def make_tools(state: dict[str, Any]) -> dict[str, Any]:
    """Returns the 14 tools over a state with a fresh database."""
    airline.apply_initialization(state, airline.DB_PATH)
    return dict(
        airline.resolve_tools("tau2_airline", list(airline.TAU2_AIRLINE_TOOL_NAME_TO_CLASS), state)
    )


def run_ours(sequence: Sequence) -> Ours:
    """Runs a sequence on a fresh overlay, by the synchronous way into the tools."""
    state: dict[str, Any] = {}
    tools = make_tools(state)
    db = state["db"]
    ok, errors, rewrites = [], [], []
    for call in sequence.calls:
        rewrites.append(rewrite(call, db))
        result = tools[call.tool].invoke(**copy.deepcopy(call.arguments))
        refused = result.get("status") == "error" and "error_type" in result
        ok.append(not refused)
        errors.append(f"{result['error_type']}: {result['message']}" if refused else "")
    match = None
    if sequence.task is not None:
        match = airline.compare_databases(scenario(sequence.task).expected_scenario_db, db).match
    records = {(change.table, change.key): change.record for change in db.changed_records()}
    return Ours(tuple(ok), tuple(errors), records, db.hash(), match, tuple(rewrites))


def scenario(task: str) -> Any:
    """Returns the scenario of a tau2_id."""
    return airline.get_scenario(f"tau2_airline__{task}")


def verdict_rewrite(
    sequence: Sequence, calls: list[Call]
) -> tuple[list[Call], list[str], list[str]]:
    """Applies the rules of the verdict.

    Args:
        sequence: Its task is looked at.
        calls: Its calls in canonical form.

    Returns:
        The calls, the action ids that the toolkit's gold has to leave out, and the rules applied.
    """
    if sequence.task is None:
        return calls, [], []
    gold = [Call(action.name, action.arguments) for action in scenario(sequence.task).gold_actions]
    ordered = [in_gold_payment_order(call, gold) for call in calls]
    left_out = sorted(airline.GOLD_ACTION_DROPS.get(sequence.task, ()))
    rules = [PAYMENT_ORDER] if ordered != calls else []
    return ordered, left_out, rules + ([GOLD_CORRECTION] if left_out else [])


def same_record(left: Any, right: Any) -> bool:
    """Compares two records as JSON; 2.0 and 2 are one number, as in both hashes' databases."""
    return canonical(left) == canonical(right)


def canonical(value: Any) -> str:
    """Returns canonical JSON: sorted keys, whole floats as integers, nothing else changed."""
    return json.dumps(_whole(value), sort_keys=True)


def _whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
