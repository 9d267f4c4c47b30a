"""The tau2-eval command. What a command needs is imported when it runs, so that help is quick."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tau2eval_cli.argv import check_reference_flags, expand_values
from tau2eval_cli.errors import EXIT_INTERRUPTED, CommandError

_HELP = """
Holds customer-support scenarios as real phone calls between a voice agent and a simulated caller,
and scores them.

Examples:

  tau2-eval run --scenarios tau2_airline__1 tau2_airline__11 --parallel 2

  tau2-eval run --domain tau2_airline --agent-model openai/gpt-4.1

  tau2-eval show tau2_airline__11

  tau2-eval up --env-file services.env

Exit codes: 0 everything was scored, 1 a gate failed, 2 wrong use, 3 not valid as a result (some
scenario was not run, or the services would not start), 130 interrupted.
"""
_RUN_HELP = """
Hold scenarios as calls and score them.

The services are started on this machine for the run, unless --bridge-address and --scorer-address
name running ones. Keys of model providers come from the environment (OPENAI_API_KEY, ...); only
the gateway sees them. Settings of a service come from the environment too: TAU2EVAL_AGENT_BOT_...,
TAU2EVAL_BRIDGE_..., and so on (`python -m tau2eval_agent_bot --help` lists them).

Examples:

  tau2-eval run --scenarios tau2_airline__1 tau2_airline__11

  tau2-eval run --domain tau2_airline --parallel 4 --json > result.json

  tau2-eval run --domain tau2_airline --agent-url 127.0.0.1:9000

Ctrl-C ends the calls in order and keeps what is done; a second one ends at once.
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
GatewayEnv = Annotated[
    list[str] | None,
    typer.Option(
        "--gateway-env",
        metavar="NAME",
        help="A further environment variable that the gateway may see; can be repeated.",
    ),
]


class Modality(StrEnum):
    """How the two sides meet."""

    VOICE = "voice"
    TEXT = "text"


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
        typer.Option("--http-port", min=0, max=65535, help="HTTP port of the gateway."),
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


@app.command(help=_RUN_HELP)
def run(
    names: Annotated[
        list[str] | None,
        typer.Option("--scenarios", metavar="NAME...", help="Scenarios by name, one or more."),
    ] = None,
    domain: Annotated[
        str, typer.Option("--domain", metavar="D", help="All scenarios of a domain.")
    ] = "",
    parallel: Annotated[int, typer.Option("--parallel", help="Calls held at once.")] = 1,
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
    output_dir: Annotated[
        Path, typer.Option("--output-dir", help="Folder of the runs' artifacts.")
    ] = Path("runs"),
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
    gateway_address: Annotated[
        str,
        typer.Option(
            "--gateway-address",
            envvar="TAU2EVAL_GATEWAY_ADDRESS",
            help="Their gateway (gRPC), for --preflight.",
        ),
    ] = "",
    gateway_env: GatewayEnv = None,
    preflight: Annotated[
        bool,
        typer.Option(
            help="Ask each model for one word before the first call. With running services it is "
            "skipped unless --gateway-address is known."
        ),
    ] = True,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print the result as JSON on standard output, nothing else."),
    ] = False,
) -> None:
    """Hold scenarios as calls and score them."""
    from tau2eval_cli.plan import RunOptions
    from tau2eval_cli.run import RunCommand

    options = RunOptions(
        agent_model=agent_model,
        user_model=user_model,
        agent_params=agent_params,
        user_params=user_params,
        parallel=parallel,
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
    command = RunCommand(
        options,
        names or [],
        domain,
        as_json=as_json,
        gateway_names=gateway_env or [],
        preflight=preflight,
    )
    raise typer.Exit(command.execute())


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
