"""The options of `run`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tau2eval_cli import flags

RUN_HELP = """
Hold scenarios as calls and score them.

The services are started on this machine for the run, unless --bridge-address and --scorer-address
name running ones. Keys of model providers come from the environment (OPENAI_API_KEY, ...); only
the gateway sees them. Settings of a service come from the environment too: TAU2EVAL_AGENT_BOT_...,
TAU2EVAL_BRIDGE_..., and so on (`python -m tau2eval_agent_bot --help` lists them).

Examples:

  tau2-eval run --scenarios tau2_airline__1 tau2_airline__11

  tau2-eval run --domain tau2_airline --trials 4 --parallel 4 --json > result.json

  tau2-eval run --domain tau2_airline --agent-model openai/gpt-4.1 --judge-model openai/gpt-4.1

  tau2-eval run --domain tau2_airline --agent-url 127.0.0.1:9000 --no-judge

  tau2-eval run --domain tau2_airline --run-id nightly --fail-under 80% --require-clean

  tau2-eval run --resume nightly --preview

  tau2-eval run --resume nightly

A resume keeps what was scored, judges what only lacks its judgement, and holds the rest. Several
may go on with one run at once: no two hold the same call.

Ctrl-C ends the calls in order and keeps what is done; a second one ends at once.

Exit codes, the first that applies: 130 interrupted, 2 wrong use, 3 not valid as a result (a call
was not run or is missing, or --require-clean found something), 1 --fail-under failed, 0 done.
"""


class Modality(StrEnum):
    """How the two sides meet."""

    VOICE = "voice"
    TEXT = "text"


def run(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Option("--scenarios", metavar="NAME...", help="Scenarios by name, one or more."),
    ] = None,
    domain: Annotated[
        str, typer.Option("--domain", metavar="D", help="All scenarios of a domain.")
    ] = "",
    trials: Annotated[
        int, typer.Option("--trials", metavar="K", help="Hold each scenario K times, for pass^k.")
    ] = 1,
    parallel: Annotated[int, typer.Option("--parallel", help="Calls held at once.")] = 1,
    run_id: Annotated[
        str,
        typer.Option("--run-id", metavar="NAME", help="Id of the run; one is made otherwise."),
    ] = "",
    resume: Annotated[
        str,
        typer.Option("--resume", metavar="RUN", help="Go on with a run: its id, or its folder."),
    ] = "",
    preview: Annotated[
        bool,
        typer.Option("--preview", help="With --resume: only print what would be done."),
    ] = False,
    allow_mixed: Annotated[
        bool,
        typer.Option(
            "--allow-mixed",
            help="With --resume: go on with changed settings, which the summary then shows.",
        ),
    ] = False,
    agent_model: Annotated[
        str, typer.Option("--agent-model", help="Model id of the agent.")
    ] = "scripted/gold",
    user_model: Annotated[
        str, typer.Option("--user-model", help="Model id of the caller.")
    ] = "scripted/caller",
    agent_params: Annotated[
        str,
        typer.Option("--agent-params", metavar="JSON", help="Added to the agent's chat body."),
    ] = "",
    user_params: Annotated[
        str,
        typer.Option("--user-params", metavar="JSON", help="Added to the caller's chat body."),
    ] = "",
    judge_model: Annotated[
        str | None,
        typer.Option(
            "--judge-model",
            metavar="M",
            help="Model id of the judge. Without it: scripted/judge for a scripted agent, else "
            "none.",
        ),
    ] = None,
    no_judge: Annotated[
        bool, typer.Option("--no-judge", help="No judge; `tau2-eval score` can judge later.")
    ] = False,
    judge_params: flags.JudgeParams = None,
    judge_votes: flags.JudgeVotes = None,
    judge_threshold: flags.JudgeThreshold = None,
    judge_timeout: flags.JudgeTimeout = None,
    judge_max_tokens: flags.JudgeMaxTokens = None,
    judge_temperature: flags.JudgeTemperature = None,
    judge_top_p: flags.JudgeTopP = None,
    judge_seed: flags.JudgeSeed = None,
    judge_include_conversation: flags.JudgeIncludeConversation = False,
    judge_compact_context: flags.JudgeCompactContext = False,
    judge_all: flags.JudgeAll = False,
    fail_under: Annotated[
        str,
        typer.Option(
            "--fail-under",
            metavar="P",
            help="Exit with 1 when the success rate, the agent's own not run taken as failures, "
            "is below this share: 0.8, or 80%.",
        ),
    ] = "",
    require_clean: Annotated[
        bool,
        typer.Option(
            "--require-clean",
            help="Exit with 3 also when a trial is missing, settings are mixed, an attempt was "
            "lost and repeated, or a verdict is not fully judged.",
        ),
    ] = False,
    duration: Annotated[
        int,
        typer.Option("--duration", help="Ceiling of a call in seconds; 0: the scenario's own."),
    ] = 0,
    min_agent_turns: Annotated[
        int, typer.Option("--min-agent-turns", help="Fewer agent turns fail a scenario.")
    ] = 2,
    modality: Annotated[
        Modality, typer.Option("--modality", help="Real audio, or text alone.")
    ] = Modality.VOICE,
    output_dir: flags.OutputDir = Path("runs"),
    output_sample_rate: Annotated[
        int, typer.Option("--output-sample-rate", help="Rate of the recording in hertz.")
    ] = 0,
    agent_url: Annotated[
        str, typer.Option("--agent-url", metavar="TARGET", help="gRPC target of your own agent.")
    ] = "",
    user_url: Annotated[
        str, typer.Option("--user-url", metavar="TARGET", help="gRPC target of your own caller.")
    ] = "",
    bridge_address: Annotated[
        str,
        typer.Option(
            "--bridge-address", envvar="TAU2EVAL_BRIDGE_ADDRESS", help="A running bridge."
        ),
    ] = "",
    scorer_address: Annotated[
        str,
        typer.Option(
            "--scorer-address", envvar="TAU2EVAL_SCORER_ADDRESS", help="Its running scorer."
        ),
    ] = "",
    gateway_address: flags.GatewayAddress = "",
    gateway_env: flags.GatewayEnv = None,
    preflight: flags.Preflight = True,
    as_json: flags.Json = False,
) -> None:
    """Hold scenarios as calls and score them."""
    from tau2eval_cli.gates import Gates, parse_share
    from tau2eval_cli.judging import JudgeFlags
    from tau2eval_cli.plan import RunOptions
    from tau2eval_cli.run import RunCommand, RunRequest

    options = RunOptions(
        agent_model=agent_model,
        user_model=user_model,
        agent_params=agent_params,
        user_params=user_params,
        parallel=parallel,
        trials=trials,
        duration=duration,
        min_agent_turns=min_agent_turns,
        modality=modality.value,
        output_dir=output_dir,
        agent_url=agent_url,
        user_url=user_url,
        output_sample_rate=output_sample_rate,
        bridge_address=bridge_address,
        scorer_address=scorer_address,
        gateway_address=gateway_address,
    )
    judge = JudgeFlags(
        model=judge_model,
        off=no_judge,
        params=judge_params,
        votes=judge_votes,
        threshold=judge_threshold,
        timeout=judge_timeout,
        max_tokens=judge_max_tokens,
        temperature=judge_temperature,
        top_p=judge_top_p,
        seed=judge_seed,
        include_conversation=judge_include_conversation,
        compact_context=judge_compact_context,
        all_scenarios=judge_all,
    )
    request = RunRequest(
        options=options,
        names=names or [],
        domain=domain,
        run_id=run_id,
        resume=resume,
        allow_mixed=allow_mixed,
        preview=preview,
        judge=judge,
        gates=Gates(parse_share("--fail-under", fail_under), require_clean),
        explicit=_explicit(context),
        as_json=as_json,
        gateway_names=gateway_env or [],
        preflight=preflight,
    )
    raise typer.Exit(RunCommand(request).execute())


def _explicit(context: typer.Context) -> frozenset[str]:
    """Returns the options that were given, and not left at their defaults."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return frozenset(
        name
        for name, source in sources.items()
        if source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")
    )
