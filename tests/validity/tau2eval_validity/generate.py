"""The set of sequences: the same for the same seed and fixtures, on every machine."""

from __future__ import annotations

import random

import tau2eval_airline as airline

from .ours import make_tools, scenario
from .perturb import PERTURBATIONS
from .rules import TOOLS
from .sequences import Call, Sequence
from .world import World

SEED = 20260
COUNT = 1000
GOLD_SHARE = 0.4
ALL_TASKS_TURNS = 5
NOISE = 0.06  # Share of the calls of a random sequence that are perturbed, and as many are quirks.
HANG = Call("calculate", {"expression": "9**9**9"})  # Hangs an evaluator that takes Python.


def generate(count: int = COUNT, seed: int = SEED) -> list[Sequence]:
    """Returns the set: perturbed golds first, then random sequences.

    Args:
        count: How many in all.
        seed: Where chance starts.
    """
    return [make_sequence(number, count, seed) for number in range(count)]


def make_sequence(number: int, count: int = COUNT, seed: int = SEED) -> Sequence:
    """Returns one sequence of a set."""
    return _gold(number, seed) if number < round(count * GOLD_SHARE) else _random(number, seed)


def _gold(number: int, seed: int) -> Sequence:
    """Perturbs the gold of one task: all tasks in turn, then those that write, kinds in turn."""
    tasks = sorted((name.rsplit("_", 1)[1] for name in airline.list_scenarios()), key=int)
    turn, at = divmod(number, len(tasks))
    if turn >= ALL_TASKS_TURNS:
        tasks = [task for task in tasks if scenario(task).gold_mutates]
        turn, at = divmod(number - ALL_TASKS_TURNS * 50, len(tasks))
        turn += ALL_TASKS_TURNS
    task = tasks[at]
    calls = [Call(action.name, action.arguments) for action in scenario(task).gold_actions]
    rng = random.Random(f"{seed} gold {number}")
    world = World()
    able = [name for name, change in PERTURBATIONS.items() if change(rng, calls, world) is not None]
    random.Random(f"{seed} order {task}").shuffle(able)
    able.sort(key=lambda name: name != "unchanged")  # The first turn is all golds as they are.
    kind = able[turn % len(able)]
    changed = PERTURBATIONS[kind](rng, calls, world)
    assert changed is not None, (task, kind)
    return Sequence(number, kind, task, tuple(changed))


def _random(number: int, seed: int) -> Sequence:
    """Builds calls one by one over a database that follows them."""
    rng = random.Random(f"{seed} random {number}")
    state: dict[str, object] = {}
    tools = make_tools(state)
    world = World(state["db"])  # type: ignore[arg-type]
    about = [world.reservation_id(rng) for _ in range(2)]
    noise = [name for name in PERTURBATIONS if name not in ("unchanged", "extra_reads")]
    calls: list[Call] = []
    for _ in range(rng.randrange(2, 9)):
        call = world.write(rng, about) if rng.random() < 0.7 else world.read(rng)
        if rng.random() < NOISE:
            call = world.quirk(rng, about) or call
        elif rng.random() < NOISE:
            changed = PERTURBATIONS[rng.choice(noise)](rng, [call], world)
            call = changed[0] if changed else call
        calls.append(call.copy())
        tools[call.tool].invoke(**call.copy().arguments)
        booked = [key for key in ("HATHAT", "HATHAU", "HATHAV") if _held(world, key)]
        about = [*about[:2], *booked]
    if number % 250 == 249:
        calls.insert(rng.randrange(len(calls) + 1), HANG)
    return Sequence(number, "random", None, tuple(calls))


def _held(world: World, key: str) -> bool:
    return world.db.view("reservations", key) is not None


def tools_used(sequences: list[Sequence]) -> dict[str, int]:
    """Counts the calls of each of the 14 tools."""
    counts = dict.fromkeys(TOOLS, 0)
    for sequence in sequences:
        for call in sequence.calls:
            counts[call.tool] += 1
    return counts
