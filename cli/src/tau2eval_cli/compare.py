"""`compare`: two runs, paired by task."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tau2eval_cli.errors import EXIT_DONE, EXIT_GATE_FAILED, EXIT_NOT_VALID, NotValid, WrongUse
from tau2eval_cli.plan import locate_run
from tau2eval_cli.results import parse_object
from tau2eval_cli.session import Interruptible, ScorerTarget, make_console, open_session

MAX_SAMPLES = 200_000


def find_both(first: str, second: str, output_dir: Path) -> tuple[str, str, Path]:
    """Returns the ids of two runs and the folder that holds both.

    Raises:
        WrongUse: When they lie in two folders.
    """
    (run_a, folder_a), (run_b, folder_b) = (
        locate_run(text, output_dir) for text in (first, second)
    )
    if folder_a.absolute() != folder_b.absolute():
        raise WrongUse(
            f"{run_a} lies in {folder_a} and {run_b} in {folder_b}: runs are compared within one "
            "folder of runs, since the store beside them has what is compared"
        )
    return run_a, run_b, folder_a


def compare(
    first: str,
    second: str,
    target: ScorerTarget,
    *,
    fail_if_worse: bool = False,
    samples: int = 0,
    as_json: bool = False,
) -> int:
    """Compares the second run with the first and returns the exit code.

    Args:
        first: Id or folder of the base line.
        second: Of the run that is judged.
        target: The scorer that has both.
        fail_if_worse: Exit with 1 when the second run is worse.
        samples: Resamples of the bootstrap; 0 leaves it to the scorer.
        as_json: Print JSON.

    Raises:
        CommandError: For wrong use, and when the scorer cannot be used.
    """
    if samples and not 100 <= samples <= MAX_SAMPLES:
        raise WrongUse(f"--samples must be from 100 to {MAX_SAMPLES}")
    run_a, run_b, folder = find_both(first, second, target.output_dir)
    target = replace(target, output_dir=folder)
    target.check()
    console = make_console(as_json)
    process = Interruptible()

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    async def main() -> int:
        async with open_session(target, say, started=process.note) as session:
            response = await session.scorer.compare(run_a, run_b, samples)
        result = parse_object(response.comparison_json)
        if not result:
            raise NotValid("the scorer sent no comparison; it is of another version than this")
        if as_json:
            print(json.dumps(result, indent=2, ensure_ascii=False), flush=True)
        else:
            print(response.comparison_text.rstrip("\n"), flush=True)
        if not fail_if_worse:
            return EXIT_DONE
        if result.get("worse"):
            say(f"{run_b} is worse than {run_a}")
            return EXIT_GATE_FAILED
        if result.get("verdict") == "not_comparable":
            say(f"{run_a} and {run_b} have no task in common that both scored")
            return EXIT_NOT_VALID
        return EXIT_DONE

    return process.run(main)
