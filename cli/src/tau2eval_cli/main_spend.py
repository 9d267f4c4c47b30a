"""The command `spend`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tau2eval_cli import flags


def spend(
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="WHAT",
            help="model, role, run, day, arm, key or scenario; can be repeated. Default: model.",
        ),
    ] = None,
    from_day: Annotated[
        str, typer.Option("--from", metavar="DAY", help="First UTC day, as 2026-01-31.")
    ] = "",
    to_day: Annotated[str, typer.Option("--to", metavar="DAY", help="Last UTC day.")] = "",
    run: Annotated[
        str, typer.Option("--run", metavar="RUN", help="Only this run: its id, or its folder.")
    ] = "",
    output_dir: Annotated[
        Path,
        typer.Option("--output-dir", help="Folder of runs, whose gateway keeps the ledger."),
    ] = Path("runs"),
    gateway_address: Annotated[
        str,
        typer.Option(
            "--gateway-address",
            "--gateway",
            envvar="TAU2EVAL_GATEWAY_ADDRESS",
            help="A running gateway (gRPC); else one is started on --output-dir.",
        ),
    ] = "",
    gateway_env: flags.GatewayEnv = None,
    as_json: flags.Json = False,
) -> None:
    """Show what model calls have cost, from the gateway's ledger.

    A cost that is not known is never shown as 0: "unknown" stands for a group without any known
    cost, and ">= $0.12" for one where some calls are unknown. "~" marks sums that rest in part on
    estimated tokens, as those of streams that were broken off. Cached, written and reasoning
    tokens are parts of the tokens read and written beside them.

    The last line tells the daily cap, MARINA_DAILY_SPEND_CAP_USD of the gateway that is asked.

    For example:

      tau2-eval spend

      tau2-eval spend --by day --by role --from 2026-01-01

      tau2-eval spend --run eval_20260101_120000_ab12 --by scenario --json

      tau2-eval spend --gateway 127.0.0.1:3301 --by run

    Exit codes: 0 done, also when nothing was spent; 2 wrong use; 3 the gateway or its ledger could
    not be used.
    """
    from tau2eval_cli.gateway_session import GatewayTarget
    from tau2eval_cli.spend import SpendQuery
    from tau2eval_cli.spend import spend as do

    target = GatewayTarget(output_dir, gateway_address, gateway_env or [])
    query = SpendQuery(tuple(by or ["model"]), from_day, to_day, run)
    raise typer.Exit(do(target, query, as_json=as_json))
