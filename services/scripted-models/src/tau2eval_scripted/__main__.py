"""`python -m tau2eval_scripted`: serves the scripted models; --help tells its settings."""

from __future__ import annotations

import sys

from tau2eval_common.settings import load_settings_or_exit

from .runner import run
from .settings import ScriptedSettings, help_text


def main() -> int:
    """Reads the settings and serves; returns the exit code."""
    arguments = sys.argv[1:]
    if arguments in (["--help"], ["-h"]):
        print(help_text())
        return 0
    if arguments:
        print(f"unknown arguments {arguments}\n\n{help_text()}", file=sys.stderr)
        return 2
    return run(load_settings_or_exit(ScriptedSettings))


if __name__ == "__main__":
    sys.exit(main())
