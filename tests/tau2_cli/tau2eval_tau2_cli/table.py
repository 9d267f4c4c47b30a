"""What came of the runs, for people, and what of it is wrong."""

from __future__ import annotations

from collections.abc import Sequence

from tau2eval_tau2_cli.official import ARMS, Outcome

_HELPERS = ("checker", "ledger")
_HEADER = (
    *("agent model", "task", "reward", "ended", "turns"),
    *("agent calls", "helper calls", "user calls", "arm"),
)


def faults(outcome: Outcome, tasks: Sequence[str]) -> list[str]:
    """Returns what is not as a run of gold must be, one line each."""
    model = outcome.model
    found = []
    if sorted(each.task for each in outcome.simulations) != sorted(tasks):
        found.append(f"{model}: not each of the tasks {', '.join(tasks)} was run once")
    for each in outcome.simulations:
        if each.ended != "user_stop":
            found.append(f"{model}: task {each.task} ended by {each.ended}")
        if each.reward != 1.0:
            found.append(f"{model}: task {each.task} has reward {each.reward}")
    if (arm := ARMS.get(model)) and outcome.arms != [arm]:
        found.append(f"{model}: the ledger has the arms {outcome.arms}, not {arm}")
    for role in ("agent", "user"):
        if not outcome.calls(role):
            found.append(f"{model}: the ledger has no call of the {role}")
    if outcome.arms != ["single"] and not outcome.calls(*_HELPERS):
        found.append(f"{model}: the control flow asked no helper model")
    return found


def table(outcomes: Sequence[Outcome]) -> str:
    """Returns the runs as a Markdown table; upstream calls are those of both tasks."""
    lines = [
        f"| {' | '.join(_HEADER)} |",
        f"| {' | '.join('---' for _ in _HEADER)} |",
    ]
    for outcome in outcomes:
        calls = (outcome.calls("agent"), outcome.calls(*_HELPERS), outcome.calls("user"))
        for at, each in enumerate(outcome.simulations):
            of_run = (*calls, "+".join(outcome.arms)) if at == 0 else ("", "", "", "")
            cells = (f"`{outcome.model}`" if at == 0 else "", each.task, each.reward, each.ended)
            row = (*cells, each.turns, *of_run)
            lines.append(f"| {' | '.join(str(cell) for cell in row)} |")
    return "\n".join(lines)
