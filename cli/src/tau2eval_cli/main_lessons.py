"""The commands `lessons add`, `list`, `remove` and `learn`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tau2eval_cli import flags

_RUNS = Path("runs")

lessons_app = typer.Typer(
    name="lessons",
    help="Lessons that ride with marina/verify: calls and with crews that ask for them.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

OutputDir = Annotated[
    Path,
    typer.Option("--output-dir", help="Folder of runs, whose gateway keeps lessons of its own."),
]
GatewayAddress = Annotated[
    str,
    typer.Option(
        "--gateway-address",
        envvar="TAU2EVAL_GATEWAY_ADDRESS",
        help="A running gateway (gRPC); else one is started on --output-dir.",
    ),
]


@lessons_app.command()
def add(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Lower-case letters, digits, -, _ and .")
    ],
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT", help="What the model reads, at most 800 bytes; - reads standard input."
        ),
    ],
    triggers: Annotated[
        list[str] | None,
        typer.Option(
            "--trigger",
            metavar="WORDS",
            help="A word or phrase of a caller's turn to which it matters; can be repeated.",
        ),
    ] = None,
    kind: Annotated[str, typer.Option("--kind", help="tools or code.")] = "tools",
    unjudged: Annotated[
        bool, typer.Option("--unjudged", help="Keep it without letting it ride.")
    ] = False,
    output_dir: OutputDir = _RUNS,
    gateway_address: GatewayAddress = "",
    gateway_env: flags.GatewayEnv = None,
    as_json: flags.Json = False,
) -> None:
    """Add a lesson, or replace the one of the same name.

    By adding it you vouch for it: it counts as judged and rides from the next call on, unless
    --unjudged is given.

    For example:

      tau2-eval lessons add check-first --trigger cancel "Look the booking up first."

    Exit codes: 0 done, 2 wrong use, 3 the gateway could not be used.
    """
    from tau2eval.gateway.v1 import gateway_pb2
    from tau2eval_cli.gateway_session import GatewayTarget
    from tau2eval_cli.lessons import add as do

    lesson = gateway_pb2.Lesson(
        name=name,
        text=text,
        triggers=triggers or [],
        kind=kind,
        judged=not unjudged,
        judgement="" if unjudged else "added by hand",
    )
    target = GatewayTarget(output_dir, gateway_address, gateway_env or [])
    raise typer.Exit(do(target, lesson, as_json=as_json))


@lessons_app.command("list")
def list_(
    output_dir: OutputDir = _RUNS,
    gateway_address: GatewayAddress = "",
    gateway_env: flags.GatewayEnv = None,
    as_json: flags.Json = False,
) -> None:
    """List the lessons, by name.

    For example:

      tau2-eval lessons list --json

    Exit codes: 0 done, 2 wrong use, 3 the gateway could not be used.
    """
    from tau2eval_cli.gateway_session import GatewayTarget
    from tau2eval_cli.lessons import list_lessons

    target = GatewayTarget(output_dir, gateway_address, gateway_env or [])
    raise typer.Exit(list_lessons(target, as_json=as_json))


@lessons_app.command()
def remove(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of lessons.")],
    output_dir: OutputDir = _RUNS,
    gateway_address: GatewayAddress = "",
    gateway_env: flags.GatewayEnv = None,
    as_json: flags.Json = False,
) -> None:
    """Remove lessons.

    For example:

      tau2-eval lessons remove check-before-cancel

    Exit codes: 0 done, 2 wrong use (there is none of that name), 3 the gateway could not be used.
    """
    from tau2eval_cli.gateway_session import GatewayTarget
    from tau2eval_cli.lessons import remove as do

    target = GatewayTarget(output_dir, gateway_address, gateway_env or [])
    raise typer.Exit(do(target, names, as_json=as_json))


@lessons_app.command()
def learn(
    run: flags.RunArgument,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            metavar="M",
            help="Writes the lessons; by default the judge of the run, else its agent's model.",
        ),
    ] = "",
    judge_model: Annotated[
        str,
        typer.Option(
            "--judge-model",
            metavar="J",
            help="Accepts or refuses them; by default the judge of the run, else --model.",
        ),
    ] = "",
    names: Annotated[
        list[str] | None,
        typer.Option("--scenarios", metavar="NAME...", help="Only these scenarios."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be added; the models are asked.")
    ] = False,
    output_dir: flags.OutputDir = _RUNS,
    scorer_address: flags.ScorerAddress = "",
    gateway_address: GatewayAddress = "",
    gateway_env: flags.GatewayEnv = None,
    as_json: flags.Json = False,
) -> None:
    """Learn lessons from the failures of a scored run.

    Each conversation that was scored and failed is shown to a model, which writes one general
    lesson; a judge accepts or refuses it. Lessons that repeat anything of the conversation are
    refused by rule, those that are known already are left out. What was not run teaches nothing.

    Do not score the scenarios that you learnt from with their lessons in use: learn from one set
    of scenarios and score another. MARINA_LESSONS=off runs without lessons.

    For example:

      tau2-eval lessons learn eval_20260101_120000_ab12 --dry-run

      tau2-eval lessons learn RUN --model openai/gpt-4.1 --judge-model openai/gpt-5.2

    Exit codes: 0 done, 2 wrong use, 3 a model or a conversation could not be had, 130 interrupted.
    """
    from tau2eval_cli.learning import LearnCommand, LearnRequest
    from tau2eval_cli.session import ScorerTarget

    request = LearnRequest(
        run,
        ScorerTarget(output_dir, scorer_address, gateway_address, gateway_env or []),
        model=model,
        judge_model=judge_model,
        names=names or [],
        dry_run=dry_run,
        as_json=as_json,
    )
    raise typer.Exit(LearnCommand(request).execute())
