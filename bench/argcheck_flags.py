"""How often the argument check flags a write that is right, and how often it misses a wrong value.

Plays tau2's 50 airline scenarios with the scripted gold agent and the scripted caller, no server
between, and looks every write of the agent up in the conversation before it. Each write is right:
it is the gold one. Then every value in it is replaced by a near miss, one at a time.

    .venv/bin/python bench/argcheck_flags.py [--show]
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import random
from collections import Counter
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from tau2eval_airline import apply_initialization, get_scenario, resolve_tools
from tau2eval_gateway.flows.evidence import Evidence, check, gather
from tau2eval_gateway.flows.evidence_walk import Leaf, leaves_of
from tau2eval_gateway.flows.messages import ToolCall, tool_calls
from tau2eval_gateway.flows.readwrite import is_write
from tau2eval_scripted.app import ScriptedModels
from tau2eval_scripted.catalog import Catalog

SCENARIOS = 50
_CALLS = Path(__file__).parents[1] / "services/scripted-models/tests/conftest.py"
Tools = Mapping[str, Mapping[str, Any]]


async def play(scenario: str, models: ScriptedModels) -> list[dict[str, Any]]:
    """Returns the agent's context at the end of a call."""
    spec = importlib.util.spec_from_file_location("scripted_calls", _CALLS)
    assert spec is not None
    assert spec.loader is not None
    calls = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(calls)

    async def ask(body: Any, headers: Any) -> Any:
        answer = await models.answer(body, headers)
        return json.loads(answer.body())["choices"][0]["message"]

    call = await calls.hold_call(ask, scenario, "scripted/gold")
    messages: list[dict[str, Any]] = call.messages
    return messages


def lookups(call: ToolCall, tools: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns what the agent would have read, had it looked for the flights that it books."""
    results = [tools["list_all_airports"].invoke()]
    flights = (call.arguments or {}).get("flights", [])
    for flight in flights:
        known = tools["get_flight_status"].get_flight(flight["flight_number"])
        route = {"origin": known["origin"], "destination": known["destination"]}
        results.append(tools["search_direct_flight"].invoke(**route, date=flight["date"]))
    return [{"role": "tool", "content": json.dumps(result)} for result in results]


def near_miss(leaf: Leaf, chance: random.Random) -> str | float | None:
    """Returns a wrong value of the same kind; None where there is none."""
    value = leaf.value
    if leaf.options:
        others = [option for option in leaf.options if option != value]
        return chance.choice(others) if others else None
    if not isinstance(value, str):
        return value + chance.choice([-7, 13, 100])
    try:
        return (
            date.fromisoformat(value) + timedelta(days=chance.choice([-40, 11, 33]))
        ).isoformat()
    except ValueError:
        pass
    at = chance.choice([at for at, char in enumerate(value) if char.isalnum()])
    letters = "0123456789" if value[at].isdigit() else "abcdefghijklmnopqrstuvwxyz"
    other = chance.choice([char for char in letters if char != value[at].lower()])
    return value[:at] + (other.upper() if value[at].isupper() else other) + value[at + 1 :]


def replaced(arguments: Any, path: str, value: Any) -> ToolCall:
    """Returns the arguments with another value at a path, such as flights[0].date."""
    copy = json.loads(json.dumps(arguments))
    at: Any = copy
    *before, last = path.replace("[", ".").replace("]", "").split(".")
    for part in before:
        at = at[int(part)] if isinstance(at, list) else at[part]
    at[int(last) if isinstance(at, list) else last] = value
    return ToolCall("", "", json.dumps(copy), copy)


def misses(
    call: ToolCall, evidence: Evidence, tools: Tools, counts: Counter[str], show: bool
) -> None:
    """Counts which near misses are flagged."""
    chance = random.Random(call.canonical())
    for leaf in leaves_of(call.name, call.arguments, call.text, tools):
        wrong = near_miss(leaf, chance)
        if wrong is None:
            continue
        changed = replaced(call.arguments, leaf.path, wrong)
        changed = ToolCall("", call.name, changed.text, changed.arguments)
        paths = {finding.leaf.path for finding in check(changed, evidence, tools)}
        kind = "option" if leaf.options else "value"
        counts[f"{kind} changed"] += 1
        counts[f"{kind} flagged"] += leaf.path in paths
        if show and leaf.path not in paths:
            print(f"missed: {call.name} {leaf.path}: {wrong} for {leaf.value}")


async def main() -> None:
    """Prints the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--show", action="store_true", help="print what is flagged")
    show = parser.parse_args().show
    models = ScriptedModels(Catalog(), slow_seconds=0)
    counts: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for task in range(SCENARIOS):
        name = f"tau2_airline__{task}"
        messages = await play(name, models)
        scenario = get_scenario(name)
        resources = scenario.agent_resources
        state = scenario.setup_shared_state({})
        apply_initialization(state, state["db_path"])
        made = resolve_tools(resources.tool_domain, resources.tools, state)
        tools = {tool: each.openai_schema() for tool, each in made.items()}
        knows = {"role": "user", "content": scenario.get_user_prompt()}
        for at, message in enumerate(messages):
            calls = tool_calls(message) if message["role"] == "assistant" else []
            for call in calls:
                leaves = leaves_of(call.name, call.arguments, call.text, tools)
                if not is_write(call.name, tools.get(call.name), call.arguments) or not leaves:
                    continue
                evidence = gather(messages[:at])
                found = check(call, evidence, tools)
                counts["writes"] += 1
                counts["values"] += len(leaves)
                counts["flagged"] += bool(found)
                counts["values flagged"] += len(found)
                counts["values flagged, agent said them"] += sum(
                    "assistant" in finding.seen for finding in found
                )
                told = gather([*messages[:at], knows])
                left = check(call, told, tools)
                counts["flagged when the caller says all he knows"] += bool(left)
                searched = gather([*messages[:at], knows, *lookups(call, made)])
                left = check(call, searched, tools)
                counts["flagged when the agent has also looked up its flights"] += bool(left)
                for finding in left:
                    counts[f"  {finding.leaf.path.rsplit('.')[-1]} among these"] += 1
                for finding in found:
                    kinds[finding.leaf.path.rsplit(".")[-1].partition("[")[0]] += 1
                    if show:
                        where = ", ".join(finding.seen) or "nowhere"
                        print(f"{task} {call.name} {finding.leaf.path}: {where}")
                misses(call, told, tools, counts, show)
    for label, count in (*counts.items(), *kinds.most_common()):
        print(f"{count:5}  {label}")


if __name__ == "__main__":
    asyncio.run(main())
