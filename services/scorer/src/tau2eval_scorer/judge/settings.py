"""How a run's conversations are judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tau2eval.scorer.v1 import scorer_pb2
from tau2eval_common.errors import InvalidInput
from tau2eval_scorer.jsonio import parse_object, redact

DEFAULT_TIMEOUT_SECONDS = 120.0
MAX_TIMEOUT_SECONDS = 200.0
"""The bridge waits 300 s for a verdict: a call of the judge must leave room for a repetition."""
MAX_VOTES = 15
DEFAULT_THRESHOLD = 1.0
_RESERVED = frozenset(
    {"model", "messages", "stream", "stream_options", "n", "tools", "response_format"}
)


@dataclass(frozen=True)
class JudgeSettings:
    """The settings of a judge, as JudgeConfig has them.

    Attributes:
        model: Model id as the gateway knows it; empty: off.
        parameters: Extra members of the chat body.
        votes: Independent judgements, an odd number, of which the majority holds.
        timeout_seconds: Limit of one model call.
        threshold: Score from which the informational JUDGE_PASSED passes.
        include_conversation: Adds the plain conversation to the input.
        compact_context: Shortens long tool results in the input.
        all_scenarios: Judges scenarios without assertions too, for their score.
    """

    model: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    votes: int = 1
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    threshold: float = DEFAULT_THRESHOLD
    include_conversation: bool = False
    compact_context: bool = False
    all_scenarios: bool = False

    @property
    def enabled(self) -> bool:
        """Whether there is a judge at all."""
        return bool(self.model)

    @staticmethod
    def from_message(message: scorer_pb2.JudgeConfig) -> JudgeSettings:
        """Reads and checks a JudgeConfig.

        Raises:
            InvalidInput: When it cannot be used.
        """
        try:
            parameters = parse_object(message.parameters_json)
        except ValueError as error:
            raise _bad(f"parameters_json: {error}") from None
        if taken := sorted(_RESERVED & parameters.keys()):
            raise _bad(f"parameters_json sets {', '.join(taken)}, which the judge sets itself")
        if redact(parameters) != parameters:
            raise _bad("parameters_json holds a secret; keys belong into the gateway's environment")
        votes = message.votes or 1
        if not 1 <= votes <= MAX_VOTES or votes % 2 == 0:
            raise _bad(f"votes must be an odd number of 1 to {MAX_VOTES}, not {votes}")
        timeout = message.timeout_seconds or DEFAULT_TIMEOUT_SECONDS
        if not 0 < timeout <= MAX_TIMEOUT_SECONDS:
            raise _bad(f"timeout_seconds must be above 0 and at most {MAX_TIMEOUT_SECONDS:.0f}")
        threshold = message.threshold if message.HasField("threshold") else DEFAULT_THRESHOLD
        if not 0 <= threshold <= 1:
            raise _bad("threshold must be from 0 to 1")
        return JudgeSettings(
            model=message.model.strip(),
            parameters=parameters,
            votes=votes,
            timeout_seconds=timeout,
            threshold=threshold,
            include_conversation=message.include_conversation,
            compact_context=message.compact_context,
            all_scenarios=message.all_scenarios,
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings as JSON values, for the plan and the artifacts."""
        return {
            "model": self.model,
            "parameters": dict(self.parameters),
            "votes": self.votes,
            "timeout_seconds": self.timeout_seconds,
            "threshold": self.threshold,
            "include_conversation": self.include_conversation,
            "compact_context": self.compact_context,
            "all_scenarios": self.all_scenarios,
        }

    @staticmethod
    def from_dict(value: Mapping[str, Any]) -> JudgeSettings:
        """Reads what `to_dict` wrote; members that are missing have their default."""
        known = JudgeSettings().to_dict()
        return JudgeSettings(**{name: value.get(name, known[name]) for name in known})


def _bad(message: str) -> InvalidInput:
    return InvalidInput(f"judge: {message}", reason="BAD_JUDGE")
