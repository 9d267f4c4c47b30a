"""The tau2-eval command. What a command needs is imported when it runs, so that help is quick."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tau2eval_cli.argv import check_reference_flags, expand_values
from tau2eval_cli.errors import EXIT_INTERRUPTED, CommandError
from tau2eval_cli.flags import GatewayEnv
from tau2eval_cli.main_lessons import lessons_app
from tau2eval_cli.main_run import RUN_HELP, run
from tau2eval_cli.main_runs import attempts, compare, report, runs, score
from tau2eval_cli.main_spend import spend

_HELP = """
Holds customer-support scenarios as real phone calls between a voice agent and a simulated caller,
and scores them.

Examples:

  tau2-eval run --scenarios tau2_airline__1 tau2_airline__11 --parallel 2

  tau2-eval run --domain tau2_airline --agent-model openai/gpt-4.1

  tau2-eval run --domain tau2_airline --agent-model marina/verify:openai/gpt-4.1

  tau2-eval show tau2_airline__11

  tau2-eval run --resume eval_20260101_120000_ab12

  tau2-eval score eval_20260101_120000_ab12 --judge-model openai/gpt-4.1

  tau2-eval compare BASELINE CANDIDATE --fail-if-worse

  tau2-eval report eval_20260101_120000_ab12 --serve

  tau2-eval spend --by role

  tau2-eval lessons learn eval_20260101_120000_ab12 --dry-run

  tau2-eval up --env-file services.env

Exit codes, the first that applies: 130 interrupted, 2 wrong use, 3 not valid as a result (some call
was not run, or the services would not start), 1 a gate that you asked for failed, 0 done.
"""
app = typer.Typer(
    help=_HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
DomainOption = Annotated[
    str, typer.Option("--domain", metavar="D", help="Only scenarios whose names begin with D__.")
]


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(f"tau2-eval {version('tau2eval-cli')}")
        raise typer.Exit


@app.callback()
def _root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def scenarios(domain: DomainOption = "", as_json: Json = False) -> None:
    """List the scenarios."""
    from tau2eval_cli import catalog

    if as_json:
        catalog.print_json(catalog.list_entries(domain))
    else:
        catalog.print_scenarios(domain)


@app.command(short_help="Show what a scenario is made of.")
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a scenario.")],
    as_json: Json = False,
) -> None:
    """Show what a scenario is made of: prompts, tools, limits, signals, assertions."""
    from tau2eval_cli import catalog

    if as_json:
        catalog.print_json(catalog.describe(name))
    else:
        catalog.print_scenario(name)


@app.command(short_help="Show the ground truth of scenarios.")
def gold(domain: DomainOption = "", as_json: Json = False) -> None:
    """Show the ground truth: the expected database's hash and the recorded actions."""
    from tau2eval_cli import catalog

    if as_json:
        catalog.print_json(catalog.gold(domain))
    else:
        catalog.print_gold(domain)


@app.command(short_help="Run one service in the foreground.")
def serve(
    service: Annotated[
        str,
        typer.Argument(
            metavar="SERVICE",
            help="gateway, agent-bot, user-bot, bridge, scorer or scripted-models.",
        ),
    ],
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "",
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")
    ] = None,
    http_port: Annotated[
        int | None,
        typer.Option(
            "--http-port", min=0, max=65535, help="HTTP port of the gateway or the scorer."
        ),
    ] = None,
    gateway_env: GatewayEnv = None,
) -> None:
    """Run one service in the foreground, with its settings from the environment."""
    from tau2eval_cli.serve import serve as become

    become(service, host=host, port=port, http_port=http_port, gateway_names=gateway_env or [])


@app.command()
def up(
    output_dir: Annotated[
        Path, typer.Option("--output-dir", help="Folder of runs, with the services' logs.")
    ] = Path("runs"),
    env_file: Annotated[
        Path | None,
        typer.Option(
            "--env-file",
            help="Write the addresses here as TAU2EVAL_..._ADDRESS lines; `set -a; . FILE` in "
            "another terminal makes `tau2-eval run` use them.",
        ),
    ] = None,
    gateway_port: Annotated[
        int | None,
        typer.Option("--gateway-port", min=1, max=65535, help="HTTP port of the gateway."),
    ] = None,
    use_default_ports: Annotated[
        bool,
        typer.Option("--default-ports", help="Take the documented ports (gateway 3300, ...)."),
    ] = False,
    gateway_env: GatewayEnv = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the addresses as one line of JSON.")
    ] = False,
) -> None:
    """Start all services on 127.0.0.1, on free ports, until Ctrl-C."""
    from tau2eval_cli.up import UpCommand, default_ports

    ports = default_ports() if use_default_ports else {}
    if gateway_port is not None:
        ports[("gateway", "http_port")] = gateway_port
    command = UpCommand(
        output_dir, ports, env_file=env_file, as_json=as_json, gateway_names=gateway_env or []
    )
    raise typer.Exit(command.execute())


app.command(help=RUN_HELP)(run)
for _command in (score, compare, report, runs, attempts, spend):
    app.command()(_command)
app.add_typer(lessons_app)


def main() -> None:
    """Runs the command and exits with its code."""
    argv = sys.argv[1:]
    try:
        check_reference_flags(argv)
        app(args=expand_values(argv), prog_name="tau2-eval")
    except CommandError as error:
        print(f"tau2-eval: {error.message}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader has enough; Python's own flush at the exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_INTERRUPTED)
