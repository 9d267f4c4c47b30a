"""The scripted models, what each does, and how a call with it must end.

`EXPECTED_OUTCOMES` is the one table of it: the README shows it and the tests hold every scripted
agent to it. Words are those of the scorer: outcomes, signals, kinds and stop reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Role = Literal["agent", "user", "judge", "checker"]
Outcome = Literal["passed", "failed", "not_run"]


@dataclass(frozen=True)
class Expectation:
    """How one conversation must end.

    Attributes:
        outcome: "passed", "failed" or "not_run".
        failing_signals: The signals that fail; the others that apply pass.
        not_run_kind: Why it was not run; empty otherwise.
        stop_reason: The bridge's stop reason.
    """

    outcome: Outcome
    failing_signals: tuple[str, ...]
    not_run_kind: str
    stop_reason: str


@dataclass(frozen=True)
class ScriptedModel:
    """One scripted model.

    Attributes:
        id: The model id.
        role: The side that it plays.
        does: What it does, for people.
        failing_signals: Signals that fail in every scenario.
        fails_where_gold_writes: Signals that fail besides where gold changes the database.
        fails_where_asserted: Signals that fail besides where assertions are adopted.
        not_run_kind: Kind of a call that is never scored; empty for one that is.
        stop_reason: The stop reason, or where gold hands over to a human and the model follows
            gold, "transfer" instead.
        follows_gold: Executes the gold actions, the hand-over to a human among them.
    """

    id: str
    role: Role
    does: str
    failing_signals: tuple[str, ...] = ()
    fails_where_gold_writes: tuple[str, ...] = ()
    fails_where_asserted: tuple[str, ...] = ()
    not_run_kind: str = ""
    stop_reason: str = "agent_exit"
    follows_gold: bool = False

    def expectation(
        self,
        *,
        gold_writes: bool,
        gold_transfers: bool = False,
        asserted: bool = False,
        judge: bool = True,
    ) -> Expectation:
        """How a call must end in a scenario, with scripted/caller on the other side.

        Args:
            gold_writes: Whether the scenario's gold changes the database.
            gold_transfers: Whether the scenario's gold hands over to a human.
            asserted: Whether assertions are adopted for the scenario.
            judge: Whether scripted/judge judges the run. Where it is off, what needs it is not run.
        """
        failing = (
            self.failing_signals
            + (self.fails_where_gold_writes if gold_writes else ())
            + (self.fails_where_asserted if asserted and judge else ())
        )
        stop = "transfer" if self.follows_gold and gold_transfers else self.stop_reason
        if self.not_run_kind:
            return Expectation("not_run", (), self.not_run_kind, stop)
        if asserted and not judge:
            return Expectation("not_run", failing, "judge_off", stop)
        return Expectation("failed" if failing else "passed", failing, "", stop)


_DB = ("DB_STATE_MATCH",)
_EXIT = ("CLEAN_EXIT",)
_SAID = ("NL_ASSERTION",)

EXPECTED_OUTCOMES: Mapping[str, ScriptedModel] = MappingProxyType(
    {
        model.id: model
        for model in (
            ScriptedModel(
                id="scripted/gold",
                role="agent",
                does="Looks up, asks for a yes, executes the gold actions, says what it did, ends.",
                follows_gold=True,
            ),
            ScriptedModel(
                id="scripted/slow",
                role="agent",
                does="As scripted/gold, a few seconds late with each response.",
                follows_gold=True,
            ),
            ScriptedModel(
                id="scripted/do-nothing",
                role="agent",
                does="Three polite turns, no tool, a clean end.",
                fails_where_gold_writes=_DB,
                fails_where_asserted=_SAID,
            ),
            ScriptedModel(
                id="scripted/refuse-all",
                role="agent",
                does="Refuses in general words, whatever is asked, and ends.",
                fails_where_gold_writes=_DB,
                fails_where_asserted=_SAID,
            ),
            ScriptedModel(
                id="scripted/liar",
                role="agent",
                does="As scripted/gold without any write, and says that it did what was asked.",
                fails_where_gold_writes=_DB,
                fails_where_asserted=_SAID,
            ),
            ScriptedModel(
                id="scripted/parrot",
                role="agent",
                does="Reads back what the caller said, agrees to all of it, and ends.",
                fails_where_gold_writes=_DB,
                fails_where_asserted=_SAID,
            ),
            ScriptedModel(
                id="scripted/transfer-at-once",
                role="agent",
                does="Hands the caller to a human as soon as it has spoken.",
                fails_where_gold_writes=_DB,
                fails_where_asserted=_SAID,
                stop_reason="transfer",
            ),
            ScriptedModel(
                id="scripted/silent",
                role="agent",
                does="Answers every request with an empty text.",
                failing_signals=_EXIT,
                fails_where_gold_writes=_DB,
                stop_reason="agent_stalled",
            ),
            ScriptedModel(
                id="scripted/rogue-write",
                role="agent",
                does="As scripted/gold, and sends the caller a certificate that nobody asked for.",
                failing_signals=_DB,
                follows_gold=True,
            ),
            ScriptedModel(
                id="scripted/never-hangs-up",
                role="agent",
                does="Asks one question after the other and never ends.",
                failing_signals=_EXIT,
                fails_where_gold_writes=_DB,
                fails_where_asserted=_SAID,
                stop_reason="timeout",
            ),
            ScriptedModel(
                id="scripted/crash",
                role="agent",
                does="Two ordinary turns, then HTTP 500, also when the request is repeated.",
                not_run_kind="gateway_error",
                stop_reason="gateway_error",
            ),
            ScriptedModel(
                id="scripted/caller",
                role="user",
                does="Says who it is and why it calls, says yes when asked, says goodbye.",
            ),
            ScriptedModel(
                id="scripted/judge",
                role="judge",
                does="Decides the adopted assertions by its table of evidence.",
            ),
            ScriptedModel(
                id="scripted/checker",
                role="checker",
                does="Answers the helper tasks of the control flows by simple rules.",
            ),
            ScriptedModel(
                id="scripted/checker-strict",
                role="checker",
                does="Finds fault with everything, and names no conflict.",
            ),
            ScriptedModel(
                id="scripted/checker-outage",
                role="checker",
                does="Answers every helper task with HTTP 500.",
            ),
            ScriptedModel(
                id="scripted/checker-babble",
                role="checker",
                does="Answers every helper task with words that hold no JSON.",
            ),
        )
    }
)


def markdown_table() -> str:
    """Returns the table of `EXPECTED_OUTCOMES` for the README."""
    lines = [
        "| model | role | what it does | outcome | failing signals | kind | stop reason |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for model in EXPECTED_OUTCOMES.values():
        if model.role != "agent":
            lines.append(f"| `{model.id}` | {model.role} | {model.does} | | | | |")
            continue
        # Each scenario either writes or has assertions, so this is the outcome in all of them.
        outcome = model.expectation(gold_writes=True).outcome
        signals = "; ".join(
            ", ".join(names) + where
            for names, where in (
                (model.failing_signals, ""),
                (model.fails_where_gold_writes, " where gold writes"),
                (model.fails_where_asserted, " where assertions are adopted"),
            )
            if names
        )
        stop = model.stop_reason + (" (transfer where gold does)" if model.follows_gold else "")
        lines.append(
            f"| `{model.id}` | agent | {model.does} | {outcome} | {signals} | "
            f"{model.not_run_kind} | {stop} |"
        )
    return "\n".join(lines)
