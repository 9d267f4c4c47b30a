"""Runs the bridge: `python -m tau2eval_bridge`."""

from __future__ import annotations

import sys

from tau2eval_bridge.help import settings_help
from tau2eval_bridge.service import BridgeService
from tau2eval_bridge.settings import BridgeSettings
from tau2eval_common.server import run_service
from tau2eval_common.settings import load_settings_or_exit

_PROGRAM = "python -m tau2eval_bridge"


def main(arguments: list[str]) -> int:
    """Returns the exit code: 0 after an orderly end, 2 for wrong use."""
    if arguments in (["--help"], ["-h"]):
        summary = "Holds scenarios as calls between two bots, and submits their records."
        print(settings_help(BridgeSettings, _PROGRAM, summary))
        return 0
    if arguments:
        print(f"{_PROGRAM} takes no arguments; see --help", file=sys.stderr)
        return 2
    settings = load_settings_or_exit(BridgeSettings)
    return run_service(BridgeService(settings), settings)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
