"""The commands on runs that are there: score, compare, report, runs, attempts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tau2eval_cli import flags

_RUNS = Path("runs")


def score(
    run: flags.RunArgument,
    judge_model: flags.JudgeModel = None,
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
    names: Annotated[
        list[str] | None,
        typer.Option("--scenarios", metavar="NAME...", help="Only these scenarios."),
    ] = None,
    only_unjudged: Annotated[
        bool,
        typer.Option("--only-unjudged", help="Only calls whose judge failed or was off."),
    ] = False,
    output_dir: flags.OutputDir = _RUNS,
    scorer_address: flags.ScorerAddress = "",
    gateway_address: flags.GatewayAddress = "",
    gateway_env: flags.GatewayEnv = None,
    preflight: flags.Preflight = True,
    as_json: flags.Json = False,
) -> None:
    """Score the stored conversations of a run again, without calling again.

    Every signal is computed from the record, with today's scorer and assertions. Without a flag of
    the judge the run's own is used, and a judgement that stands is kept as it is; with one, all is
    judged anew. Earlier verdicts are kept as history.

    For example:

      tau2-eval score eval_20260101_120000_ab12

      tau2-eval score eval_20260101_120000_ab12 --judge-model openai/gpt-4.1 --judge-votes 3

      tau2-eval score runs/eval_20260101_120000_ab12 --only-unjudged --json

    Exit codes: 0 done, 2 wrong use, 3 a conversation could not be scored or is still not run, 130
    interrupted; what was done until then is kept.
    """
    from tau2eval_cli.judging import JudgeFlags
    from tau2eval_cli.score import ScoreCommand, ScoreRequest
    from tau2eval_cli.session import ScorerTarget

    command = ScoreCommand(
        ScoreRequest(
            run,
            ScorerTarget(output_dir, scorer_address, gateway_address, gateway_env or []),
            JudgeFlags(
                model=judge_model,
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
            ),
            names=names or [],
            only_unjudged=only_unjudged,
            as_json=as_json,
            preflight=preflight,
        )
    )
    raise typer.Exit(command.execute())


def compare(
    first: Annotated[
        str, typer.Argument(metavar="A", help="The base line: id or folder of a run.")
    ],
    second: Annotated[str, typer.Argument(metavar="B", help="The run that is held against it.")],
    fail_if_worse: Annotated[
        bool, typer.Option("--fail-if-worse", help="Exit with 1 when B is worse than A.")
    ] = False,
    samples: Annotated[
        int, typer.Option("--samples", help="Resamples of the bootstrap; 0: 10,000.")
    ] = 0,
    output_dir: flags.OutputDir = _RUNS,
    scorer_address: flags.ScorerAddress = "",
    as_json: flags.Json = False,
) -> None:
    """Compare two runs, paired by task: rates, which tasks flipped, latency, cost.

    B is worse when the 95 % interval of the difference of the success rates, with or without the
    agent's own not run as failures, lies below zero. Both runs lie in one --output-dir.

    For example:

      tau2-eval compare eval_20260101_120000_ab12 eval_20260102_120000_cd34

      tau2-eval compare runs/main runs/candidate --fail-if-worse --json

    Exit codes: 0 done, 1 worse and --fail-if-worse, 2 wrong use, 3 the two have no task in common
    that both scored (with --fail-if-worse), 130 interrupted.
    """
    from tau2eval_cli.compare import compare as do
    from tau2eval_cli.session import ScorerTarget

    target = ScorerTarget(output_dir, scorer_address)
    code = do(
        first,
        second,
        target,
        fail_if_worse=fail_if_worse,
        samples=samples,
        as_json=as_json,
    )
    raise typer.Exit(code)


def report(
    run: flags.RunArgument,
    open_page: Annotated[
        bool, typer.Option("--open/--no-open", help="Show the first page in the browser.")
    ] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the pages over HTTP until Ctrl-C.")
    ] = False,
    output_dir: flags.OutputDir = _RUNS,
    scorer_address: flags.ScorerAddress = "",
    as_json: flags.Json = False,
) -> None:
    """Write the pages of a run and print the path of the first one.

    The pages need no server; some browsers play recordings from a server only, which --serve is
    for. With --scorer-address the run is copied into --output-dir first.

    For example:

      tau2-eval report eval_20260101_120000_ab12 --open

      tau2-eval report eval_20260101_120000_ab12 --serve

      TAU2EVAL_SCORER_HTTP_PORT=3315 tau2-eval report runs/eval_20260101_120000_ab12 --serve

    Exit codes: 0 done, 2 wrong use, 3 the pages could not be written, 130 interrupted.
    """
    from tau2eval_cli.pages import report as do
    from tau2eval_cli.session import ScorerTarget

    target = ScorerTarget(output_dir, scorer_address)
    raise typer.Exit(do(run, target, open_page=open_page, serve=serve, as_json=as_json))


def runs(
    output_dir: flags.OutputDir = _RUNS,
    scorer_address: flags.ScorerAddress = "",
    as_json: flags.Json = False,
) -> None:
    """List the runs, newest first, with their rates.

    For example:

      tau2-eval runs

      tau2-eval runs --output-dir nightly --json

    Exit codes: 0 done, 2 wrong use, 3 the scorer could not be used.
    """
    from tau2eval_cli.listing import runs as do
    from tau2eval_cli.session import ScorerTarget

    raise typer.Exit(do(ScorerTarget(output_dir, scorer_address), as_json=as_json))


def attempts(
    run: flags.RunArgument,
    output_dir: flags.OutputDir = _RUNS,
    scorer_address: flags.ScorerAddress = "",
    as_json: flags.Json = False,
) -> None:
    """List every attempt of a run, also those that do not count, and why.

    For example:

      tau2-eval attempts eval_20260101_120000_ab12

    Exit codes: 0 done, 2 wrong use, 3 the scorer could not be used.
    """
    from tau2eval_cli.listing import attempts as do
    from tau2eval_cli.session import ScorerTarget

    raise typer.Exit(do(run, ScorerTarget(output_dir, scorer_address), as_json=as_json))
