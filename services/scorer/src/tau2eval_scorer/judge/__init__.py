"""The judge of what was said: settings, input, question, answer, result."""

from tau2eval_scorer.judge.client import ChatModel, GatewayChat, JudgeCallError, JudgeReply
from tau2eval_scorer.judge.judge import LLMJudge
from tau2eval_scorer.judge.prompt import PROMPT_VERSION, prompt_sha256
from tau2eval_scorer.judge.result import (
    AssertionVerdict,
    JudgeResult,
    JudgeUsage,
)
from tau2eval_scorer.judge.settings import JudgeSettings

__all__ = [
    "PROMPT_VERSION",
    "AssertionVerdict",
    "ChatModel",
    "GatewayChat",
    "JudgeCallError",
    "JudgeReply",
    "JudgeResult",
    "JudgeSettings",
    "JudgeUsage",
    "LLMJudge",
    "prompt_sha256",
]
