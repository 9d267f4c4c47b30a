"""The judge of a run as a person asks for it."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any, Final

from tau2eval.scorer.v1 import scorer_pb2
from tau2eval_cli import model_ids
from tau2eval_cli.errors import WrongUse
from tau2eval_cli.plan import BOTS_SET, RunOptions, check_parameters

SCRIPTED_PREFIX: Final = model_ids.SCRIPTED_PREFIX
SCRIPTED_JUDGE: Final = "scripted/judge"
NL_ASSERTION: Final = "NL_ASSERTION"
MAX_VOTES: Final = 15
MAX_TIMEOUT_SECONDS: Final = 200.0
"""The bridge waits 300 s for a verdict, and one model call may have to be repeated."""
DEFAULT_TIMEOUT_SECONDS: Final = 120.0
_RESERVED: Final = BOTS_SET | {"stream_options", "n", "response_format"}
_SAMPLING: Final = ("max_tokens", "temperature", "top_p", "seed")


@dataclass(frozen=True)
class JudgeFlags:
    """The flags --judge-...; None or False where one was not given.

    Attributes:
        model: Model id.
        off: No judge, although the default would be one.
        params: Extra members of the chat body, as a JSON object.
        votes: Independent judgements, of which the majority holds.
        threshold: Score from which the informational JUDGE_PASSED passes.
        timeout: Limit of one model call in seconds.
        max_tokens: Member of the chat body.
        temperature: The same.
        top_p: The same.
        seed: The same.
        include_conversation: Adds the plain conversation to the judge's input.
        compact_context: Shortens long tool results in the judge's input.
        all_scenarios: Judges scenarios without assertions too, for their score.
    """

    model: str | None = None
    off: bool = False
    params: str | None = None
    votes: int | None = None
    threshold: float | None = None
    timeout: float | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    include_conversation: bool = False
    compact_context: bool = False
    all_scenarios: bool = False

    def given(self) -> list[str]:
        """Returns the flags that were given."""
        names = {"off": "--no-judge", "all_scenarios": "--judge-all"}
        return [
            names.get(field.name, f"--judge-{field.name.replace('_', '-')}")
            for field in fields(self)
            if getattr(self, field.name) not in (None, False)
        ]

    def check(self) -> None:
        """Refuses what cannot work.

        Raises:
            WrongUse: With what to do instead.
        """
        if self.off and (others := [flag for flag in self.given() if flag != "--no-judge"]):
            raise WrongUse(f"--no-judge and {others[0]} exclude each other")
        if self.model is not None and not self.model.strip():
            raise WrongUse("--judge-model names a model; --no-judge runs without one")
        check_parameters("--judge-params", self.params or "", _RESERVED)
        if self.votes is not None and (not 1 <= self.votes <= MAX_VOTES or self.votes % 2 == 0):
            raise WrongUse(
                f"--judge-votes must be an odd number from 1 to {MAX_VOTES}, so that there is a "
                f"majority; not {self.votes}"
            )
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise WrongUse("--judge-threshold must be from 0 to 1")
        if self.timeout is not None and not 0 < self.timeout <= MAX_TIMEOUT_SECONDS:
            raise WrongUse(f"--judge-timeout must be above 0 and at most {MAX_TIMEOUT_SECONDS:g} s")
        doubled = [name for name in _SAMPLING if name in self._params() and self._has(name)]
        if doubled:
            raise WrongUse(
                f"--judge-{doubled[0].replace('_', '-')} is in --judge-params too; give it once"
            )

    def for_run(self, options: RunOptions) -> scorer_pb2.JudgeConfig:
        """Returns the judge of a new run.

        Without flags it is scripted/judge for a scripted agent, whose words it knows, and off
        otherwise.

        Raises:
            WrongUse: When the judge cannot judge that agent, or settings of none are given.
        """
        model = self.model or ""
        if self.model is None and not self.off and is_scripted(options):
            model = SCRIPTED_JUDGE
        if not model and not self.off and (given := self.given()):
            raise WrongUse(f"{given[0]} needs a judge: name one with --judge-model")
        config = self.over(scorer_pb2.JudgeConfig(model=model)) if model else NO_JUDGE
        check_judge(config.model, options.agent_model, options.agent_url)
        return config

    def over(self, judge: scorer_pb2.JudgeConfig) -> scorer_pb2.JudgeConfig:
        """Returns a judge in which the given flags replace what was set."""
        config = scorer_pb2.JudgeConfig()
        config.CopyFrom(judge)
        if self.model is not None:
            config.model = self.model.strip()
        sampling = {name: getattr(self, name) for name in _SAMPLING if self._has(name)}
        if self.params is not None or sampling:
            before = {} if self.params is not None else json.loads(judge.parameters_json or "{}")
            config.parameters_json = json.dumps(
                {**before, **self._params(), **sampling}, sort_keys=True
            )
        if self.votes is not None:
            config.votes = self.votes
        if self.threshold is not None:
            config.threshold = self.threshold
        if self.timeout is not None:
            config.timeout_seconds = self.timeout
        config.include_conversation |= self.include_conversation
        config.compact_context |= self.compact_context
        config.all_scenarios |= self.all_scenarios
        return config

    def _params(self) -> dict[str, Any]:
        return dict(json.loads(self.params or "{}"))

    def _has(self, name: str) -> bool:
        return getattr(self, name) is not None


NO_JUDGE: Final = scorer_pb2.JudgeConfig()


def is_scripted(options: RunOptions) -> bool:
    """Tells whether the agent of a run is one of the scripted ones."""
    return model_ids.is_scripted(options.agent_model) and not options.agent_url


def check_judge(judge: str, agent_model: str, agent_url: str) -> None:
    """Refuses a scripted judge for words that it does not know.

    Raises:
        WrongUse: When the agent is not a scripted one.
    """
    scripted = model_ids.is_scripted(agent_model) and not agent_url
    if not model_ids.is_scripted(judge) or scripted:
        return
    raise WrongUse(
        f"--judge-model {judge} knows the words of the scripted agents only, not those of "
        f"{agent_url or agent_model}: name a real model, or --no-judge"
    )


def same_judge(a: scorer_pb2.JudgeConfig, b: scorer_pb2.JudgeConfig) -> bool:
    """Tells whether two judges judge alike."""
    return describe_judge(a) == describe_judge(b)


def describe_judge(judge: scorer_pb2.JudgeConfig) -> dict[str, Any]:
    """Returns a judge's settings as they take effect; empty when it is off."""
    if not judge.model:
        return {}
    return {
        "model": judge.model,
        "parameters": json.loads(judge.parameters_json or "{}"),
        "votes": judge.votes or 1,
        "timeout_seconds": judge.timeout_seconds or DEFAULT_TIMEOUT_SECONDS,
        "threshold": judge.threshold if judge.HasField("threshold") else 1.0,
        "include_conversation": judge.include_conversation,
        "compact_context": judge.compact_context,
        "all_scenarios": judge.all_scenarios,
    }
