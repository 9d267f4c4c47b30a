"""`lessons learn`: draws lessons from the failures of a scored run, and has them judged."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from rich.text import Text

from tau2eval.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from tau2eval.scorer.v1 import scorer_pb2
from tau2eval_cli.artifacts import read_artifacts
from tau2eval_cli.errors import EXIT_DONE, EXIT_NOT_VALID, CommandError, NotValid, WrongUse
from tau2eval_cli.gateway_session import gateway_fault
from tau2eval_cli.judging import SCRIPTED_PREFIX, check_judge
from tau2eval_cli.lesson_material import Failure, read_failure
from tau2eval_cli.lesson_prompts import (
    Draft,
    Unusable,
    free_name,
    judge_messages,
    learn_messages,
    read_draft,
    read_judgement,
    repair_messages,
    same_lesson,
)
from tau2eval_cli.lessons import LessonClient, lesson_json
from tau2eval_cli.plan import check_target, locate_run
from tau2eval_cli.preflight import check_targets
from tau2eval_cli.results import parse_object
from tau2eval_cli.session import Interruptible, ScorerTarget, Session, make_console, open_session
from tau2eval_cli.trials import Trial
from tau2eval_cli.wiring import JUDGING, READING
from tau2eval_common.client import open_channel

MODEL_SECONDS: Final = 180.0
_PARALLEL: Final = 4
_TRIES: Final = 2
"""The answer and one repair of it."""
_CONTEXT: Final = "bot_logs_agent/llm_context.json"
_TOOLS: Final = "scenario_config/agent_tools.json"
LEAKAGE: Final = (
    "Lessons learnt from scenarios must not be in use when the same scenarios are scored: that "
    "would test on what was trained on. Learn from one set and score another, or set "
    "MARINA_LESSONS=off"
)


@dataclass(frozen=True)
class LearnRequest:
    """What a person asks `lessons learn` for.

    Attributes:
        run: Id or folder of the run.
        target: The scorer that has it, and the gateway.
        model: Writes the lessons; empty: the judge's model of the run, else the agent's.
        judge_model: Judges them; empty: the judge's model of the run, else `model`.
        names: Only these scenarios; empty: all.
        dry_run: Keep nothing.
        as_json: Print the result as JSON on standard output, and all else on standard error.
    """

    run: str
    target: ScorerTarget
    model: str = ""
    judge_model: str = ""
    names: Sequence[str] = ()
    dry_run: bool = False
    as_json: bool = False


@dataclass
class Learnt:
    """What became of one failure.

    Attributes:
        trial: Scenario and number.
        status: "added", "would_add", "duplicate", "refused" (by the judge), "unusable" (the model
            wrote no lesson) or "problem" (somebody could not be asked).
        reason: Why, or the judge's reason.
        draft: The lesson, if there is one.
    """

    trial: Trial
    status: str
    reason: str = ""
    draft: Draft | None = None
    lesson: gateway_pb2.Lesson | None = field(default=None, repr=False)


class LearnCommand:
    """One `tau2-eval lessons learn`.

    Args:
        request: What is asked for.
    """

    def __init__(self, request: LearnRequest) -> None:
        self._request = request
        self._run_id, folder = locate_run(request.run, request.target.output_dir)
        target = request.target
        self._target = ScorerTarget(
            folder, target.address, target.gateway_address, target.gateway_names
        )
        self._console = make_console(request.as_json)
        self._several = False

    def execute(self) -> int:
        """Learns and returns the exit code.

        Raises:
            CommandError: For wrong use, and when scorer or gateway cannot be used.
        """
        self._target.check()
        gateway = self._target.gateway_address
        check_target("--gateway-address", gateway)
        if self._target.address and not gateway:
            raise WrongUse("--scorer-address needs --gateway-address beside it: models are asked")
        process = Interruptible()

        async def main() -> int:
            async with AsyncExitStack() as stack:
                session = await stack.enter_async_context(
                    open_session(
                        self._target, self._say, READING if gateway else JUDGING, process.note
                    )
                )
                address = gateway or session.gateway_address
                if gateway:
                    await check_targets({"--gateway-address": gateway})
                channel = await stack.enter_async_context(open_channel(address))
                return await self._learn(session, channel)

        return process.run(main)

    async def _learn(self, session: Session, channel: grpc.aio.Channel) -> int:
        run = await session.scorer.run(self._run_id)
        self._several = run.plan.trials > 1
        if unknown := [name for name in self._request.names if name not in run.plan.scenarios]:
            raise WrongUse(f"{unknown[0]} is not in the plan of run {self._run_id}")
        model, judge = self._models(run.plan)
        wanted = self._request.names or run.plan.scenarios
        verdicts = [v for v in run.verdicts if v.counts and v.scenario in wanted]
        failed = [v for v in verdicts if v.outcome == scorer_pb2.OUTCOME_FAILED]
        not_run = sum(v.outcome == scorer_pb2.OUTCOME_NOT_RUN for v in verdicts)
        client = LessonClient(channel)
        known = list((await client.list()).lessons)
        self._say(
            f"{len(failed)} failures of run {self._run_id} teach by {model}, judged by {judge}"
            + (f"; {not_run} not run teach nothing" if not_run else "")
        )
        teacher = _Teacher(session, channel, model, judge)
        learnt = await self._all(teacher, failed)
        await self._keep(client, known, learnt)
        self._report(learnt, model, judge, not_run)
        return EXIT_NOT_VALID if any(item.status == "problem" for item in learnt) else EXIT_DONE

    def _models(self, plan: scorer_pb2.RunPlan) -> tuple[str, str]:
        settings = parse_object(plan.settings_json)
        agent = str(settings.get("agent_model") or "")
        agent_url = str(settings.get("agent_url") or "")
        model = self._request.model or plan.judge.model or agent
        judge = self._request.judge_model or plan.judge.model or model
        for flag, name in (("--model", model), ("--judge-model", judge)):
            if not name or name.startswith(("marina/", "marina:")):
                raise WrongUse(
                    f"{flag} has to name a plain model: {name or 'the run has no judge and names'}"
                    f"{' adds control flow' if name else ' no model'}"
                )
            if name.startswith(SCRIPTED_PREFIX):
                check_judge(name, agent, agent_url)
        return model, judge

    async def _all(self, teacher: _Teacher, failed: Sequence[scorer_pb2.Verdict]) -> list[Learnt]:
        slots = asyncio.Semaphore(_PARALLEL)

        async def one(verdict: scorer_pb2.Verdict) -> Learnt:
            async with slots:
                return await teacher.learn(verdict)

        return list(await asyncio.gather(*(one(verdict) for verdict in failed)))

    async def _keep(
        self, client: LessonClient, known: list[gateway_pb2.Lesson], learnt: Sequence[Learnt]
    ) -> None:
        """Adds what the judge found sound, in the order of the plan, and marks the rest."""
        for item in learnt:
            if item.status == "sound" and item.draft is not None:
                await self._keep_one(client, known, item, item.draft)
            label = item.trial.label(self._several)
            name = f" {item.lesson.name}" if item.lesson is not None else ""
            reason = f": {item.reason}" if item.reason else ""
            self._say(f"{label}: {item.status.replace('_', ' ')}{name}{reason}")

    async def _keep_one(
        self, client: LessonClient, known: list[gateway_pb2.Lesson], item: Learnt, draft: Draft
    ) -> None:
        for lesson in known:
            if same_lesson(lesson.text, draft.text):
                item.status, item.reason = "duplicate", f"{lesson.name} teaches it already"
                return
        lesson = gateway_pb2.Lesson(
            name=free_name(draft.name, [lesson.name for lesson in known]),
            text=draft.text,
            triggers=draft.triggers,
            kind=draft.kind,
            judged=True,
            judgement=item.reason,
            run_id=self._run_id,
            scenario=item.trial.scenario,
        )
        if self._request.dry_run:
            item.status = "would_add"
        else:
            try:
                lesson = (await client.add(lesson)).lesson
            except CommandError as error:
                item.status = "unusable" if isinstance(error, WrongUse) else "problem"
                item.reason = error.message
                return
            item.status = "added"
        item.lesson = lesson
        known.append(lesson)

    def _report(self, learnt: Sequence[Learnt], model: str, judge: str, not_run: int) -> None:
        counts = Counter(item.status for item in learnt)
        if self._request.as_json:
            value = {
                "run_id": self._run_id,
                "model": model,
                "judge_model": judge,
                "dry_run": self._request.dry_run,
                "failures": len(learnt),
                "not_run": not_run,
                "counts": dict(counts),
                "lessons": [_learnt_json(item) for item in learnt],
                "warning": LEAKAGE,
            }
            print(json.dumps(value, indent=2, ensure_ascii=False), flush=True)
        words = [f"{count} {status.replace('_', ' ')}" for status, count in counts.items()]
        self._say(", ".join(words) or "no failure, so there was nothing to learn")
        if counts["added"] or counts["would_add"]:
            self._console.print(Text(f"{LEAKAGE}.", style="bold"), soft_wrap=True)

    def _say(self, text: str) -> None:
        self._console.print(
            "".join(letter if letter.isprintable() else " " for letter in text),
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        self._console.file.flush()


class _Teacher:
    """Asks the models about one failure after another."""

    def __init__(self, session: Session, channel: grpc.aio.Channel, model: str, judge: str) -> None:
        self._scorer = session.scorer
        self._chat = gateway_pb2_grpc.ChatServiceStub(channel)
        self._model = model
        self._judge = judge

    async def learn(self, verdict: scorer_pb2.Verdict) -> Learnt:
        """Returns a sound lesson (status "sound"), or why there is none."""
        trial = Trial.of(verdict)
        try:
            failure = await self._failure(verdict)
            if failure is None:
                return Learnt(trial, "unusable", "the agent's conversation is not recorded")
            return await self._taught(verdict, failure)
        except (NotValid, WrongUse) as error:
            return Learnt(trial, "problem", error.message)

    async def _taught(self, verdict: scorer_pb2.Verdict, failure: Failure) -> Learnt:
        messages = learn_messages(failure)
        draft: Draft | None = None
        fault = Unusable("")
        for _ in range(_TRIES):
            answer = await self._ask(self._model, verdict, messages)
            try:
                draft = read_draft(answer, failure)
                break
            except Unusable as error:
                fault = error
                messages = [*learn_messages(failure), *repair_messages(answer, error)]
        if draft is None:
            return Learnt(failure.trial, "unusable", f"{self._model} wrote no lesson: {fault}")
        messages = judge_messages(failure, draft)
        for _ in range(_TRIES):
            answer = await self._ask(self._judge, verdict, messages)
            try:
                sound, reason = read_judgement(answer)
            except Unusable as error:
                fault = error
                messages = [*judge_messages(failure, draft), *repair_messages(answer, error)]
                continue
            return Learnt(failure.trial, "sound" if sound else "refused", reason, draft)
        # Without a judgement nothing rides.
        return Learnt(failure.trial, "refused", f"{self._judge} gave no judgement: {fault}", draft)

    async def _failure(self, verdict: scorer_pb2.Verdict) -> Failure | None:
        trial = Trial.of(verdict)
        files = await read_artifacts(self._scorer, verdict.run_id, trial, (_CONTEXT, _TOOLS))
        return read_failure(
            trial,
            verdict.explanation,
            verdict.metrics_json,
            files.get(_CONTEXT, b""),
            files.get(_TOOLS, b""),
        )

    async def _ask(
        self, model: str, verdict: scorer_pb2.Verdict, messages: Sequence[dict[str, Any]]
    ) -> str:
        request = gateway_pb2.ChatCompletionRequest(
            context=gateway_pb2.CallContext(
                run_id=verdict.run_id,
                scenario=verdict.scenario,
                trial=verdict.trial,
                role="judge",
            ),
            body_json=json.dumps({"model": model, "messages": list(messages)}).encode(),
        )
        try:
            response = await self._chat.ChatCompletion(request, timeout=MODEL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise gateway_fault(f"ask {model}", error) from error
        return _content(response.body_json)


def _content(body: bytes) -> str:
    value = parse_object(body.decode("utf-8", "replace"))
    choices = value.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, str) else ""


def _learnt_json(item: Learnt) -> dict[str, Any]:
    value: dict[str, Any] = {
        "scenario": item.trial.scenario,
        "trial": item.trial.number,
        "status": item.status,
        "reason": item.reason or None,
        "lesson": None,
    }
    if item.lesson is not None:
        value["lesson"] = lesson_json(item.lesson)
    elif item.draft is not None:
        value["lesson"] = {
            "name": item.draft.name,
            "text": item.draft.text,
            "triggers": list(item.draft.triggers),
            "kind": item.draft.kind,
        }
    return value
