"""Going on with a run: what is left of it, and with which settings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tau2eval.scorer.v1 import scorer_pb2
from tau2eval_cli.errors import WrongUse
from tau2eval_cli.judging import JudgeFlags, describe_judge, same_judge
from tau2eval_cli.plan import RunOptions
from tau2eval_cli.results import parse_object
from tau2eval_cli.trials import Trial, Work

KEEP = scorer_pb2.RESUME_ACTION_KEEP
RUN = scorer_pb2.RESUME_ACTION_RUN
JUDGE = scorer_pb2.RESUME_ACTION_JUDGE
JUDGE_OFF = scorer_pb2.RESUME_ACTION_JUDGE_OFF

ACTIONS: Final = {KEEP: "keep", RUN: "run", JUDGE: "judge", JUDGE_OFF: "judge_off"}
_WORDS: Final = {
    KEEP: "kept",
    RUN: "to hold",
    JUDGE: "to judge again",
    JUDGE_OFF: "waiting for a judge",
}
_TEXTS: Final = ("agent_model", "user_model", "modality", "agent_url", "user_url")
_NUMBERS: Final = ("parallel", "duration", "min_agent_turns", "output_sample_rate")
_OBJECTS: Final = ("agent_params", "user_params")
PLANNED: Final = (*_TEXTS, *_NUMBERS, *_OBJECTS)
"""Options that a plan keeps, by the names that both give them."""


def options_of(
    plan: scorer_pb2.RunPlan, given: RunOptions, explicit: Collection[str]
) -> RunOptions:
    """Returns the options with which a run goes on: the plan's, but for flags that were given.

    Args:
        plan: Of the run.
        given: The options of this command.
        explicit: Names of those that a person gave.
    """
    settings = parse_object(plan.settings_json)
    values: dict[str, Any] = {}
    for name in PLANNED:
        if name in explicit or name not in settings:
            continue
        value = settings[name]
        if name in _OBJECTS:
            values[name] = json.dumps(value, sort_keys=True) if value else ""
        elif name in _NUMBERS:
            values[name] = int(value or 0)
        else:
            values[name] = str(value or "")
    return replace(given, trials=plan.trials, **values)


def settings_of(
    plan: scorer_pb2.RunPlan, options: RunOptions, surroundings: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the settings of a resumption, to be held against the plan's.

    What is not known here, since services elsewhere have it, is taken to be as it was. The number
    of calls at once is no change.

    Args:
        plan: Of the run.
        options: With which the run goes on.
        surroundings: Settings of services and versions, as far as they are known.
    """
    before = parse_object(plan.settings_json)
    now = options.settings()
    if "parallel" in before:
        now["parallel"] = before["parallel"]
    around = {
        name: value for name, value in surroundings.items() if name in before or name == "services"
    }
    if not around.get("services") and not before.get("services"):
        around.pop("services", None)
    return {**before, **now, **around}


def check_judge_kept(run_id: str, plan: scorer_pb2.RunPlan, flags: JudgeFlags) -> None:
    """Refuses another judge than the plan's: one run has one judge.

    Raises:
        WrongUse: With the command that judges by another one.
    """
    asked = scorer_pb2.JudgeConfig() if flags.off else flags.over(plan.judge)
    if same_judge(asked, plan.judge):
        return
    before = describe_judge(plan.judge).get("model", "none")
    if flags.off or not asked.model:
        raise WrongUse(f"run {run_id} began with the judge {before}; it goes on with that one")
    raise WrongUse(
        f"run {run_id} began with other settings of its judge ({before}); resume it without "
        f"{flags.given()[0]}, and let `tau2-eval score {run_id} --judge-model {asked.model}` judge "
        "the whole of it alike afterwards"
    )


@dataclass(frozen=True)
class Preview:
    """What a resumption would do.

    Attributes:
        run_id: The run.
        trials: Trials of a scenario in its plan.
        items: One a planned trial.
        changes: Settings that differ from the plan's.
    """

    run_id: str
    trials: int
    items: Sequence[scorer_pb2.ResumeItem]
    changes: Sequence[scorer_pb2.SettingChange]

    @staticmethod
    def of(response: scorer_pb2.ResumeRunResponse) -> Preview:
        """Returns what the scorer says."""
        plan = response.plan
        return Preview(plan.run_id, plan.trials, list(response.items), list(response.changes))

    def those(self, *actions: scorer_pb2.ResumeAction.ValueType) -> list[Trial]:
        """Returns the trials with these actions."""
        return [Trial.of(item) for item in self.items if item.action in actions]

    def work(self) -> list[Work]:
        """Returns what is left: judgements first, then calls, trial by trial."""
        judgements = [Work(trial, judge=True) for trial in self.those(JUDGE)]
        order = {Trial.of(item): (item.trial, number) for number, item in enumerate(self.items)}
        calls = sorted(self.those(RUN), key=lambda trial: order[trial])
        return [*judgements, *(Work(trial) for trial in calls)]

    def line(self) -> str:
        """Returns the numbers as one line."""
        counts = Counter(item.action for item in self.items)
        parts = [f"{counts[action]} {word}" for action, word in _WORDS.items() if counts[action]]
        held = sum(bool(item.holder) for item in self.items)
        if held:
            parts.append(f"{held} of them held by another runner now")
        return f"resume of {self.run_id}: {', '.join(parts) or 'nothing planned'}"

    def judge_line(self) -> str:
        """Says which command judges what waits for a judge; empty when nothing does."""
        waiting = self.those(JUDGE_OFF)
        if not waiting:
            return ""
        return (
            f"{len(waiting)} calls are whole and wait for a judge, which this run does not have: "
            f"`tau2-eval score {self.run_id} --judge-model MODEL` judges them without calling again"
        )

    def change_lines(self) -> list[str]:
        """Returns one line a changed setting."""
        return [
            f"{change.name}: {change.before_json or 'null'} -> {change.after_json or 'null'}"
            for change in self.changes
        ]

    def check(self, allow_mixed: bool) -> None:
        """Refuses changed settings unless they are allowed.

        Raises:
            WrongUse: With the list of changes.
        """
        if self.changes and not allow_mixed:
            lines = "\n  ".join(self.change_lines())
            raise WrongUse(
                f"run {self.run_id} began with other settings, so its results would be of two "
                f"kinds:\n  {lines}\nLeave these flags and settings out, start another run, or "
                "mix them with --allow-mixed, which the summary then shows"
            )

    def to_json(self) -> dict[str, Any]:
        """Returns what `run --resume ID --preview --json` prints."""
        counts = Counter(ACTIONS.get(item.action, "") for item in self.items)
        return {
            "run_id": self.run_id,
            "trials": self.trials,
            "counts": {word: counts[word] for word in ACTIONS.values()},
            "items": [
                {
                    "scenario": item.scenario,
                    "trial": item.trial,
                    "action": ACTIONS.get(item.action, ""),
                    "reason": item.reason,
                    "holder": item.holder or None,
                }
                for item in self.items
            ],
            "changes": [
                {
                    "name": change.name,
                    "before": json.loads(change.before_json or "null"),
                    "after": json.loads(change.after_json or "null"),
                }
                for change in self.changes
            ],
            "judge_command": f"tau2-eval score {self.run_id} --judge-model MODEL"
            if self.those(JUDGE_OFF)
            else None,
        }

    def print(self, console: Console) -> None:
        """Prints it as a table."""
        table = Table(box=None, pad_edge=False)
        for heading in ("scenario", "trial", "does", "because", "held by"):
            table.add_column(heading, overflow="fold")
        for item in self.items:
            table.add_row(
                item.scenario,
                str(item.trial),
                ACTIONS.get(item.action, "-").replace("_", " "),
                Text(item.reason),
                Text(item.holder or "-"),
            )
        console.print(table)
        for text in (self.line(), self.judge_line()):
            if text:
                console.print(Text(text), soft_wrap=True)
        if self.changes:
            console.print(Text("changed settings, refused without --allow-mixed:"))
            for line in self.change_lines():
                console.print(Text(f"  {line}"), soft_wrap=True)
