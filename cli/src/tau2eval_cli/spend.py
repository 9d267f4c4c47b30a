"""`spend`: what model calls have cost, added up from the gateway's ledger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import date
from typing import Any, Final

import grpc
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tau2eval.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from tau2eval_cli.errors import EXIT_DONE, WrongUse
from tau2eval_cli.gateway_session import CALL_SECONDS, GatewayTarget, gateway_fault, open_gateway
from tau2eval_cli.plan import locate_run
from tau2eval_cli.session import Interruptible, make_console

GROUPS: Final = {
    "model": "model",
    "role": "role",
    "run": "run_id",
    "day": "day",
    "arm": "arm",
    "key": "key_id",
    "scenario": "scenario",
}
"""What --by takes, and the member of SpendRow that it stands for."""
_OF_A_RUN: Final = frozenset({"scenario", "role", "model"})
"""What ListRunSpend tells apart."""


@dataclass(frozen=True)
class SpendQuery:
    """What is asked for.

    Attributes:
        by: Names of `GROUPS`; at least one.
        from_day: First UTC day; empty: open. So is `to_day`.
        run: A run id, or the path of a run's folder; empty: all runs.
    """

    by: tuple[str, ...]
    from_day: str = ""
    to_day: str = ""
    run: str = ""

    def check(self) -> None:
        """Refuses what cannot be asked.

        Raises:
            WrongUse: With what to do instead.
        """
        for name in self.by:
            if name not in GROUPS:
                raise WrongUse(f"--by {name} is unknown; it takes {', '.join(GROUPS)}")
        if len(set(self.by)) != len(self.by):
            raise WrongUse("--by names the same thing twice")
        for flag, day in (("--from", self.from_day), ("--to", self.to_day)):
            if day and not _is_day(day):
                raise WrongUse(f"{flag} {day} is no day; write it as 2026-01-31")
        if self.from_day and self.to_day and self.from_day > self.to_day:
            raise WrongUse("--from is after --to")
        if "scenario" not in self.by:
            return
        if not self.run:
            raise WrongUse("--by scenario needs --run: scenarios are told apart within a run")
        other = sorted(set(self.by) - _OF_A_RUN)
        if other or self.from_day or self.to_day:
            what = f"--by {other[0]}" if other else "--from and --to"
            raise WrongUse(f"--by scenario goes with --by role and --by model, not with {what}")


@dataclass
class Sum:
    """Calls added up.

    Attributes:
        known_cost_usd: Sum of the known costs, in dollars.
        calls_without_cost: Calls that may have been billed and whose cost is unknown.
    """

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    known_cost_usd: float = 0.0
    calls_without_cost: int = 0
    calls_estimated: int = 0
    cost_estimated_usd: float = 0.0

    def add(self, row: gateway_pb2.SpendRow) -> None:
        """Adds a row of the gateway."""
        for field in fields(self):
            name = "cost_usd" if field.name == "known_cost_usd" else field.name
            setattr(self, field.name, getattr(self, field.name) + getattr(row, name))

    def json(self) -> dict[str, Any]:
        """Returns it as JSON values; `cost_usd` is null when the cost of any call is unknown."""
        value: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        value["known_cost_usd"] = round(self.known_cost_usd, 10)
        value["cost_estimated_usd"] = round(self.cost_estimated_usd, 10)
        value["cost_usd"] = None if self.calls_without_cost else value["known_cost_usd"]
        return value

    def cost(self) -> str:
        """Returns the cost for a person."""
        if self.calls_without_cost and not self.known_cost_usd:
            return "unknown"
        least = ">= " if self.calls_without_cost else ""
        return f"{least}{'~' if self.calls_estimated else ''}{dollars(self.known_cost_usd)}"


def spend(target: GatewayTarget, query: SpendQuery, *, as_json: bool = False) -> int:
    """Shows what was spent and returns the exit code.

    Raises:
        CommandError: For wrong use, and when the gateway cannot be used.
    """
    query.check()
    run_id = ""
    if query.run:
        run_id, folder = locate_run(query.run, target.output_dir)
        target = GatewayTarget(folder, target.address, target.gateway_names)
    target.check()
    process = Interruptible()

    async def main() -> tuple[list[gateway_pb2.SpendRow], gateway_pb2.ListDailySpendResponse]:
        async with open_gateway(target, _say, process.note) as channel:
            return await _ask(channel, query, run_id)

    rows, today = process.run(main)
    groups = add_up(rows, query.by)
    total = Sum()
    for row in rows:
        total.add(row)
    if as_json:
        print(json.dumps(_json(query, run_id, groups, total, today), indent=2), flush=True)
    else:
        _print(make_console(False), query, groups, total, today)
    return EXIT_DONE


async def _ask(
    channel: grpc.aio.Channel, query: SpendQuery, run_id: str
) -> tuple[list[gateway_pb2.SpendRow], gateway_pb2.ListDailySpendResponse]:
    """Returns the rows, and the answer that tells where today stands."""
    stub = gateway_pb2_grpc.SpendServiceStub(channel)
    request = gateway_pb2.ListDailySpendRequest(from_day=query.from_day, to_day=query.to_day)
    try:
        daily = await stub.ListDailySpend(request, timeout=CALL_SECONDS)
        if "scenario" in query.by:
            of_run = gateway_pb2.ListRunSpendRequest(run_id=run_id)
            return list((await stub.ListRunSpend(of_run, timeout=CALL_SECONDS)).rows), daily
    except grpc.aio.AioRpcError as error:
        raise gateway_fault("tell what was spent", error) from error
    return [row for row in daily.rows if not run_id or row.run_id == run_id], daily


def add_up(
    rows: Iterable[gateway_pb2.SpendRow], by: Sequence[str]
) -> list[tuple[tuple[str, ...], Sum]]:
    """Returns the sums by group: days and runs in their order, all else the dearest first."""
    sums: dict[tuple[str, ...], Sum] = {}
    for row in rows:
        group = tuple(str(getattr(row, GROUPS[name])) for name in by)
        sums.setdefault(group, Sum()).add(row)
    if by[0] in ("day", "run", "scenario"):
        return sorted(sums.items())
    return sorted(sums.items(), key=lambda item: (-item[1].known_cost_usd, item[0]))


def dollars(usd: float) -> str:
    """Returns dollars with as many digits as tell something."""
    if 0 < usd < 0.001:
        # What is little is not nothing.
        return f"${usd:.9f}".rstrip("0")
    return f"${usd:,.2f}" if usd >= 100 else f"${usd:.4f}"


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _json(
    query: SpendQuery,
    run_id: str,
    groups: Sequence[tuple[tuple[str, ...], Sum]],
    total: Sum,
    today: gateway_pb2.ListDailySpendResponse,
) -> dict[str, Any]:
    return {
        "by": list(query.by),
        "from": query.from_day or None,
        "to": query.to_day or None,
        "run": run_id or None,
        "rows": [
            {**dict(zip(query.by, group, strict=True)), **found.json()} for group, found in groups
        ],
        "total": total.json(),
        "today": {
            "cap_usd": today.cap_usd if today.HasField("cap_usd") else None,
            "counted_usd": round(today.spent_today_usd, 10),
            "reserved_usd": round(today.reserved_usd, 10),
        },
    }


def _print(
    console: Console,
    query: SpendQuery,
    groups: Sequence[tuple[tuple[str, ...], Sum]],
    total: Sum,
    today: gateway_pb2.ListDailySpendResponse,
) -> None:
    table = Table(box=None, pad_edge=False)
    for name in query.by:
        table.add_column(name, overflow="fold")
    for heading in ("calls", "read", "cached", "written", "wrote", "reasoning", "cost"):
        table.add_column(heading, justify="right", no_wrap=True)
    for group, found in groups:
        # Text from a database: it must not move the cursor.
        cells = [Text(_printable(cell) or "-") for cell in group]
        table.add_row(*cells, *_cells(found))
    if len(groups) > 1:
        table.add_row(*("total", *[""] * (len(query.by) - 1)), *_cells(total), style="bold")
    if groups:
        console.print(table)
    for line in _remarks(total):
        console.print(line, markup=False, highlight=False)
    console.print(_today(today), markup=False, highlight=False)


def _cells(found: Sum) -> list[str]:
    counts = (
        *(found.calls, found.prompt_tokens, found.cached_tokens, found.cache_write_tokens),
        *(found.completion_tokens, found.reasoning_tokens),
    )
    return [*(f"{count:,}" for count in counts), found.cost()]


def _remarks(total: Sum) -> list[str]:
    if not total.calls:
        return ["no calls"]
    lines = []
    if total.calls_without_cost:
        lines.append(
            f"{total.calls_without_cost} of {total.calls} calls have no known cost: give their "
            "models prices in the gateway's model list"
        )
    if total.calls_estimated:
        lines.append(
            f"~ {total.calls_estimated} calls are estimated, {dollars(total.cost_estimated_usd)} "
            "of the sum"
        )
    return lines


def _today(today: gateway_pb2.ListDailySpendResponse) -> str:
    counted = f"today (UTC) {dollars(today.spent_today_usd)}"
    if not today.HasField("cap_usd"):
        return f"{counted}; no daily cap (MARINA_DAILY_SPEND_CAP_USD)"
    left = today.cap_usd - today.spent_today_usd - today.reserved_usd
    return (
        f"{counted} of the cap of {dollars(today.cap_usd)}, {dollars(today.reserved_usd)} reserved "
        f"by calls in progress, {dollars(max(0.0, left))} left"
    )


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _say(text: str) -> None:
    make_console(True).print(text, markup=False, highlight=False, soft_wrap=True)
