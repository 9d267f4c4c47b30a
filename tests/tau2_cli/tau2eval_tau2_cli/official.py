"""One `tau2 run` of the official CLI, and what came of it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tau2eval.gateway.v1 import gateway_pb2
from tau2eval_tau2_cli.stack import KEY, Stack

RUN_SECONDS = 240.0
TASKS = ("11", "13")
"""A change of flights with a figure to be told, and a refusal that ends in a hand-over."""
ARMS = {
    "scripted/gold": "single",
    "marina/verify:scripted/gold": "verify",
    "marina/obligations:scripted/gold": "obligations",
    "marina/argcheck:scripted/gold": "argcheck",
    "marina/obligations:marina/argcheck:scripted/gold": "obligations+argcheck",
}
"""The agent's model ids, and the arm under which the ledger must have their calls."""
USER = "scripted/caller"
_NOWHERE = "http://127.0.0.1:9"
"""A proxy that answers nothing: what would leave the machine fails at once."""


class Tau2Error(RuntimeError):
    """The CLI did not end as it does."""


@dataclass(frozen=True)
class Simulation:
    """One task as tau2 reports it.

    Attributes:
        task: Its id.
        reward: The official evaluator's; None: it was not evaluated.
        ended: tau2's termination reason.
        turns: Messages of both sides with words in them.
    """

    task: str
    reward: float | None
    ended: str
    turns: int


@dataclass(frozen=True)
class Outcome:
    """A run.

    Attributes:
        model: The agent's model id.
        simulations: By task.
        rows: The ledger's rows of the run.
    """

    model: str
    simulations: tuple[Simulation, ...]
    rows: tuple[gateway_pb2.SpendRow, ...]

    def calls(self, *roles: str) -> int:
        """Returns the upstream calls of some roles."""
        return sum(row.calls for row in self.rows if row.role in roles)

    @property
    def arms(self) -> list[str]:
        """The arms under which the ledger has the agent's calls and those of its helpers."""
        return sorted({row.arm for row in self.rows if row.role != "user"})


def run(
    python: Path,
    stack: Stack,
    folder: Path,
    model: str,
    run_id: str,
    tasks: Sequence[str] = TASKS,
) -> Outcome:
    """Runs the tasks with a model.

    Args:
        python: The Python of the CLI's environment.
        stack: The gateway.
        folder: For tau2's results.
        model: The agent's model id.
        run_id: Name of the run, in the ledger too.
        tasks: Ids of the airline's tasks.

    Raises:
        Tau2Error: It fails, or does not end in time.
    """
    arguments = [
        *("run", "--domain", "airline", "--task-ids", *tasks, "--num-trials", "1"),
        *("--agent-llm", f"openai/{model}", "--agent-llm-args", _llm_args(stack, run_id, "agent")),
        *("--user-llm", f"openai/{USER}", "--user-llm-args", _llm_args(stack, run_id, "user")),
        # This CLI takes the agent's key from the variable that is named here, not from the args.
        *("--agent-api-key", "OPENAI_API_KEY"),
        *("--max-concurrency", "2", "--max-steps", "60", "--max-retries", "0"),
        *("--results-dir", str(folder), "--save-to", run_id),
    ]
    try:
        done = subprocess.run(
            [str(python), "-m", "tau2.cli", *arguments],
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            env=_environment(stack),
            stdin=subprocess.DEVNULL,
            cwd=folder,
        )
    except subprocess.TimeoutExpired as error:
        raise Tau2Error(f"{model}: tau2 run did not end in {RUN_SECONDS:g} s") from error
    results = folder / f"{run_id}.json"
    if done.returncode or not results.is_file():
        said = (done.stdout + done.stderr)[-3000:]
        raise Tau2Error(f"{model}: tau2 run ended with code {done.returncode}:\n{said}")
    found = json.loads(results.read_text())["simulations"]
    return Outcome(
        model=model,
        simulations=tuple(
            sorted((_simulation(each) for each in found), key=lambda each: each.task)
        ),
        rows=tuple(stack.spend(run_id)),
    )


def _llm_args(stack: Stack, run_id: str, role: str) -> str:
    return json.dumps(
        {
            "api_base": stack.api_base,
            "api_key": KEY,
            # LiteLLM drops a reasoning_effort that stands outside of it.
            "extra_body": {"reasoning_effort": "high" if role == "agent" else "low"},
            "extra_headers": {"x-tau2eval-run": run_id, "x-tau2eval-role": role},
        }
    )


def _environment(stack: Stack) -> dict[str, str]:
    """Returns an environment in which tau2's own models are the gateway's, and nothing else is."""
    kept = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "OPENAI_API_KEY": KEY,
        "OPENAI_API_BASE": stack.api_base,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "PYTHONWARNINGS": "ignore",
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), _NOWHERE),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
    }


def _simulation(found: dict[str, Any]) -> Simulation:
    reward = found.get("reward_info") or {}
    spoken = [
        message
        for message in found["messages"]
        if message["role"] in ("assistant", "user") and (message.get("content") or "").strip()
    ]
    return Simulation(
        task=str(found["task_id"]),
        reward=reward.get("reward"),
        ended=str(found["termination_reason"]),
        turns=len(spoken),
    )
