"""`score`: judges and scores the stored conversations of a run again, without calling again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from tau2eval.scorer.v1 import scorer_pb2
from tau2eval_cli import words
from tau2eval_cli.errors import EXIT_DONE, EXIT_NOT_VALID, WrongUse
from tau2eval_cli.judging import JudgeFlags, check_judge, describe_judge
from tau2eval_cli.plan import locate_run
from tau2eval_cli.preflight import ModelUse, check_models
from tau2eval_cli.results import RATES, parse_object, verdict_json
from tau2eval_cli.session import Interruptible, ScorerTarget, Session, make_console, open_session
from tau2eval_cli.summary import print_rates
from tau2eval_cli.trials import Trial
from tau2eval_cli.wiring import JUDGING
from tau2eval_common.client import open_channel

_LEAST_SILENCE_SECONDS = 600.0
_TRIES = 6
"""Model calls one after another that a judgement may take: tries and a repair."""


@dataclass(frozen=True)
class ScoreRequest:
    """What a person asks `score` for.

    Attributes:
        run: Id or folder of the run.
        target: The scorer that has it.
        judge: Flags of the judge; without any, the run's own judge.
        names: Only these scenarios.
        only_unjudged: Only calls whose judge failed or was off.
        as_json: Print the result as JSON on standard output, and all else on standard error.
        preflight: Ask the judge's model for one word first, where the gateway is known.
    """

    run: str
    target: ScorerTarget
    judge: JudgeFlags = field(default_factory=JudgeFlags)
    names: Sequence[str] = ()
    only_unjudged: bool = False
    as_json: bool = False
    preflight: bool = True


@dataclass
class _Changes:
    """What became of the conversations so far."""

    scored: list[scorer_pb2.Verdict] = field(default_factory=list)
    changed: list[tuple[str, scorer_pb2.Verdict]] = field(default_factory=list)
    problems: list[tuple[Trial, str]] = field(default_factory=list)


class ScoreCommand:
    """One `tau2-eval score`.

    Args:
        request: What is asked for.
    """

    def __init__(self, request: ScoreRequest) -> None:
        self._request = request
        self._run_id, folder = locate_run(request.run, request.target.output_dir)
        self._target = ScorerTarget(
            folder,
            request.target.address,
            request.target.gateway_address,
            request.target.gateway_names,
        )
        self._console = make_console(request.as_json)
        self._several = False

    def execute(self) -> int:
        """Scores and returns the exit code.

        Raises:
            CommandError: For wrong use, and when the scorer cannot be used.
        """
        self._request.judge.check()
        self._target.check()
        process = Interruptible()

        async def main() -> int:
            async with open_session(self._target, self._say, JUDGING, process.note) as session:
                return await self._score(session)

        return process.run(main)

    async def _score(self, session: Session) -> int:
        request, run_id = self._request, self._run_id
        run = await session.scorer.run(run_id)
        self._several = run.plan.trials > 1
        if unknown := [name for name in request.names if name not in run.plan.scenarios]:
            raise WrongUse(f"{unknown[0]} is not in the plan of run {run_id}")
        asked = bool(request.judge.given())
        judge = request.judge.over(run.plan.judge)
        if asked and not judge.model:
            raise WrongUse(
                f"{request.judge.given()[0]} needs a judge, and run {run_id} has none: name one "
                "with --judge-model"
            )
        settings = parse_object(run.plan.settings_json)
        check_judge(
            judge.model, str(settings.get("agent_model")), str(settings.get("agent_url") or "")
        )
        await self._check_model(session, judge)
        self._say(f"scoring run {run_id} again, judge {judge.model or 'off'}")
        message = scorer_pb2.ScoreRunRequest(
            run_id=run_id, scenarios=request.names, only_unjudged=request.only_unjudged
        )
        if asked:
            message.judge.CopyFrom(judge)
        changes = _Changes()
        async for response in session.scorer.score(message, _silence(judge)):
            self._take(response, changes)
        after = await session.scorer.run(run_id)
        summary = parse_object(after.summary_json)
        if request.as_json:
            value = self._to_json(changes, summary, judge)
            print(json.dumps(value, indent=2, ensure_ascii=False), flush=True)
        else:
            self._print(changes, summary)
        counting = [verdict for verdict in changes.scored if verdict.counts]
        not_run = any(verdict.outcome == scorer_pb2.OUTCOME_NOT_RUN for verdict in counting)
        return EXIT_NOT_VALID if changes.problems or not_run else EXIT_DONE

    async def _check_model(self, session: Session, judge: scorer_pb2.JudgeConfig) -> None:
        if not judge.model or not session.gateway_address or not self._request.preflight:
            return
        use = ModelUse("judge", judge.model, judge.parameters_json)
        async with open_channel(session.gateway_address) as channel:
            for fault in await check_models(channel, self._run_id, [use]):
                self._say(fault)

    def _take(self, response: scorer_pb2.ScoreRunResponse, changes: _Changes) -> None:
        verdict = response.verdict
        trial = Trial.of(verdict)
        before, after = words.outcome(response.outcome_before), words.outcome(verdict.outcome)
        changes.scored.append(verdict)
        text = f"{response.done}/{response.total} {trial.label(self._several)}: "
        if response.problem:
            changes.problems.append((trial, response.problem))
            text += f"stays {after}: {response.problem}"
        elif before != after:
            changes.changed.append((before, verdict))
            text += f"{before} -> {after}"
        else:
            text += after
        self._say(text + ("" if verdict.counts else " (an attempt that does not count)"))

    def _print(self, changes: _Changes, summary: Mapping[str, Any]) -> None:
        console = self._console
        console.print()
        console.print(
            Text(
                f"{len(changes.scored)} conversations, {len(changes.changed)} verdicts changed",
                style="bold",
            )
        )
        for before, verdict in changes.changed:
            label = Trial.of(verdict).label(self._several)
            self._say(
                f"{label}: {before} -> {words.outcome(verdict.outcome)}. {verdict.explanation}"
            )
        for trial, problem in changes.problems:
            console.print(Text(f"{trial.label(self._several)}: {problem}", style="red"))
        print_rates(console, summary)

    def _to_json(
        self, changes: _Changes, summary: Mapping[str, Any], judge: scorer_pb2.JudgeConfig
    ) -> dict[str, Any]:
        return {
            "run_id": self._run_id,
            "judge": describe_judge(judge) or None,
            "conversations": len(changes.scored),
            "changed": [
                {"before": before, "after": words.outcome(verdict.outcome), **verdict_json(verdict)}
                for before, verdict in changes.changed
            ],
            "problems": [
                {"scenario": trial.scenario, "trial": trial.number, "problem": problem}
                for trial, problem in changes.problems
            ],
            "counts": summary.get("counts"),
            "rates": {name: summary[name] for name in RATES if name in summary},
        }

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        self._console.file.flush()


def _silence(judge: scorer_pb2.JudgeConfig) -> float:
    """Returns how long one conversation may take: all votes, one after another at worst."""
    settings = describe_judge(judge)
    if not settings:
        return _LEAST_SILENCE_SECONDS
    calls = float(settings["votes"]) * _TRIES
    return max(_LEAST_SILENCE_SECONDS, calls * float(settings["timeout_seconds"]))
