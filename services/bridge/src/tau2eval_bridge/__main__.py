"""Runs the bridge: `python -m tau2eval_bridge`."""

from __future__ import annotations

import sys

from tau2eval_bridge.service import BridgeService
from tau2eval_bridge.settings import BridgeSettings
from tau2eval_common.server import run_service
from tau2eval_common.settings import load_settings_or_exit
from tau2eval_common.usage import only_help, settings_help

_PROGRAM = "python -m tau2eval_bridge"


def main(arguments: list[str]) -> int:
    """Returns the exit code: 0 after an orderly end, 2 for wrong use."""
    text = settings_help(
        _PROGRAM,
        "Holds scenarios as calls between two bots, and submits their records.",
        BridgeSettings,
    )
    if (code := only_help(arguments, "bridge", text)) is not None:
        return code
    settings = load_settings_or_exit(BridgeSettings)
    return run_service(BridgeService(settings), settings)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
