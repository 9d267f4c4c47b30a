"""The scorer as a process: `python -m tau2eval_scorer`."""

from __future__ import annotations

import logging
import sys

from tau2eval_airline import FixtureError
from tau2eval_common.server import run_service
from tau2eval_common.settings import load_settings_or_exit
from tau2eval_common.usage import only_help
from tau2eval_scorer.catalog import Catalog
from tau2eval_scorer.core import ScorerCore
from tau2eval_scorer.service import ScorerService
from tau2eval_scorer.settings import ScorerSettings, usage


def main(arguments: list[str]) -> int:
    """Runs the scorer and returns the process's exit code.

    Returns:
        0 after an orderly end or --help, 2 for wrong use, fixtures or settings.
    """
    if (code := only_help(arguments, "scorer", usage())) is not None:
        return code
    settings = load_settings_or_exit(ScorerSettings)
    # It tells at every start what kind of database it found.
    logging.getLogger("alembic.runtime.migration").setLevel(logging.WARNING)
    try:
        return run_service(ScorerService(ScorerCore(settings, Catalog())), settings)
    except FixtureError as error:
        print(f"scorer: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
