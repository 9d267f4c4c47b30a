"""What a run is asked to do, checked before anything is started."""

from __future__ import annotations

import difflib
import json
import os
import re
import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tau2eval_cli.errors import WrongUse

MAX_PARALLEL = 256
MAX_TRIALS = 1000
BOTS_SET = frozenset({"model", "messages", "tools", "stream"})
"""Members of a chat body that the bots set themselves."""

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True)
class RunOptions:
    """Settings of one run.

    Attributes:
        agent_model: Model id of the agent, as the gateway knows it.
        user_model: The same for the caller.
        agent_params: Extra members of the agent's chat body, as a JSON object; empty for none.
        user_params: The same for the caller.
        parallel: Calls held at once.
        trials: How often each scenario is held.
        duration: Ceiling of each call in seconds; 0 leaves each scenario its own.
        min_agent_turns: Fewer agent turns fail a scenario.
        modality: "voice" or "text".
        output_dir: Folder of the runs' artifacts.
        agent_url: gRPC target of an agent of the person's own; empty uses agent-bot.
        user_url: The same for the caller.
        output_sample_rate: Rate of the recording in hertz; 0 leaves it to the bridge.
        bridge_address: A running bridge; empty starts the services.
        scorer_address: A running scorer; empty starts the services.
        gateway_address: The gateway of running services, for the check of the models; empty leaves
            it out. Of no use where this command starts the services.
    """

    agent_model: str = "scripted/gold"
    user_model: str = "scripted/caller"
    agent_params: str = ""
    user_params: str = ""
    parallel: int = 1
    trials: int = 1
    duration: int = 0
    min_agent_turns: int = 2
    modality: str = "voice"
    output_dir: Path = Path("runs")
    agent_url: str = ""
    user_url: str = ""
    output_sample_rate: int = 0
    bridge_address: str = ""
    scorer_address: str = ""
    gateway_address: str = ""

    @property
    def embedded(self) -> bool:
        """Whether this command starts the services itself."""
        return not self.bridge_address

    def check(self) -> None:
        """Refuses what cannot work.

        Raises:
            WrongUse: With what to do instead.
        """
        if not 1 <= self.parallel <= MAX_PARALLEL:
            raise WrongUse(f"--parallel must be from 1 to {MAX_PARALLEL}, not {self.parallel}")
        if not 1 <= self.trials <= MAX_TRIALS:
            raise WrongUse(f"--trials must be from 1 to {MAX_TRIALS}, not {self.trials}")
        if self.duration < 0:
            raise WrongUse("--duration is a number of seconds; leave it out for the scenarios' own")
        if self.min_agent_turns < 0:
            raise WrongUse("--min-agent-turns cannot be negative")
        if self.output_sample_rate and not 8000 <= self.output_sample_rate <= 48000:
            raise WrongUse("--output-sample-rate must be from 8000 to 48000 hertz")
        if bool(self.bridge_address) != bool(self.scorer_address):
            raise WrongUse(
                "--bridge-address and --scorer-address belong together: the bridge sends its "
                "records to that scorer. Give both (`tau2-eval up --env-file F` writes them), or "
                "neither to have the services started"
            )
        for flag, target in (
            ("--agent-url", self.agent_url),
            ("--user-url", self.user_url),
            ("--bridge-address", self.bridge_address),
            ("--scorer-address", self.scorer_address),
            ("--gateway-address", self.gateway_address),
        ):
            check_target(flag, target)
        check_parameters("--agent-params", self.agent_params)
        check_parameters("--user-params", self.user_params)
        if self.output_dir.exists() and not self.output_dir.is_dir():
            raise WrongUse(f"--output-dir {self.output_dir} is a file; name a folder")

    def settings(self) -> dict[str, Any]:
        """Returns the settings as they go into the run's plan; they hold no secrets."""
        return {
            "agent_model": self.agent_model,
            "user_model": self.user_model,
            "agent_params": json.loads(self.agent_params or "{}"),
            "user_params": json.loads(self.user_params or "{}"),
            "parallel": self.parallel,
            "duration": self.duration or None,
            "min_agent_turns": self.min_agent_turns,
            "modality": self.modality,
            "agent_url": self.agent_url or None,
            "user_url": self.user_url or None,
            "output_sample_rate": self.output_sample_rate or None,
        }


def check_parameters(flag: str, text: str, reserved: Collection[str] = BOTS_SET) -> None:
    """Checks extra members of a chat body.

    Args:
        flag: Where they come from, for the message.
        text: A JSON object; empty for none.
        reserved: Members that are set by whoever asks the model.

    Raises:
        WrongUse: When the text is no JSON object, or holds a key or a reserved member.
    """
    if not text:
        return
    try:
        value = json.loads(text)
    except ValueError as error:
        raise WrongUse(f"{flag} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise WrongUse(f'{flag} must be a JSON object, {{"temperature": 0}} for instance')
    for name in value:
        if name in reserved:
            raise WrongUse(f"{flag} cannot set {name}: it is set for each call")
    secret = _secret_name(value)
    if secret:
        raise WrongUse(
            f"{flag} must not hold {secret}: parameters are kept with the run. Keys belong into "
            "the environment (OPENAI_API_KEY, ...), which only the gateway sees"
        )


def _secret_name(value: object) -> str:
    if isinstance(value, dict):
        for name, item in value.items():
            if re.search(r"api_?key|secret|password|authorization|access_?token", name, re.I):
                return str(name)
            if found := _secret_name(item):
                return found
    if isinstance(value, list):
        return next((found for item in value if (found := _secret_name(item))), "")
    return ""


def check_target(flag: str, target: str) -> None:
    """Checks the form of a gRPC target; an empty one is none.

    Raises:
        WrongUse: With what a target looks like.
    """
    if not target:
        return
    scheme = target.split("://", 1)[0] if "://" in target else ""
    if scheme in ("ws", "wss", "http", "https"):
        raise WrongUse(
            f"{flag} takes a gRPC target (host:port or dns:///host:port), not a {scheme}:// "
            "address; docs/user-guide.md says how to serve an agent of your own"
        )
    if not scheme and not re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:/]+):\d{1,5}", target):
        raise WrongUse(f"{flag} {target!r} is no gRPC target; 127.0.0.1:3311 is one")


def choose_scenarios(known: Sequence[str], names: Iterable[str], domain: str) -> list[str]:
    """Returns the scenarios of a run, in the order asked for and each once.

    Args:
        known: Every scenario that exists.
        names: Scenarios by name.
        domain: All scenarios whose names have this prefix.

    Raises:
        WrongUse: For nothing, for both ways of asking, and for names that do not exist.
    """
    names = list(dict.fromkeys(names))
    if names and domain:
        raise WrongUse("give one of the two: --domain for all its scenarios, or --scenarios")
    if not names and not domain:
        raise WrongUse(
            "name what to run: --domain tau2_airline for all 50, or "
            "--scenarios tau2_airline__1 tau2_airline__11; `tau2-eval scenarios` lists them"
        )
    if domain:
        return in_domain(known, domain)
    for name in names:
        check_name(known, name)
    return names


def make_folder(folder: Path) -> None:
    """Makes the output folder, so that a run does not begin that cannot be kept.

    Raises:
        WrongUse: When it cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WrongUse(f"--output-dir {folder} cannot be made: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise WrongUse(f"--output-dir {folder} cannot be written; name another folder")


def in_domain(known: Sequence[str], domain: str) -> list[str]:
    """Returns the scenarios of a domain.

    Raises:
        WrongUse: When there is none.
    """
    chosen = [name for name in known if name.startswith(f"{domain}__")]
    if not chosen:
        domains = sorted({name.split("__")[0] for name in known})
        raise WrongUse(f"no domain {domain!r}; there is {', '.join(domains) or 'none'}")
    return chosen


def check_name(known: Sequence[str], name: str) -> None:
    """Checks that a scenario exists.

    Raises:
        WrongUse: With the names that come nearest.
    """
    if name in known:
        return
    near = [item for item in known if item.endswith(f"__{name}")]
    near = near or difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    raise WrongUse(f"no scenario {name!r}.{hint} `tau2-eval scenarios` lists them")


def check_run_id(run_id: str) -> None:
    """Checks a run id that a person chose.

    Raises:
        WrongUse: With what it may be made of.
    """
    if not _RUN_ID.fullmatch(run_id):
        raise WrongUse(
            f"--run-id {run_id[:140]!r} must have 1 to 128 of A-Z, a-z, 0-9, '.', '_' and '-', the "
            "first of them a letter or a digit"
        )


def locate_run(text: str, output_dir: Path) -> tuple[str, Path]:
    """Returns the id of a run and the folder of runs that it lies in.

    Args:
        text: A run id, or the path of a run's folder.
        output_dir: Where it lies if it is an id.
    """
    path = Path(text)
    if _RUN_ID.fullmatch(text) and not ((output_dir / text).is_dir() is False and path.is_dir()):
        return text, output_dir
    return path.absolute().name, path.absolute().parent


def new_run_id(now: datetime) -> str:
    """Returns an id that sorts by time and that two runs of one second do not share."""
    return f"eval_{now:%Y%m%d_%H%M%S}_{secrets.token_hex(2)}"
