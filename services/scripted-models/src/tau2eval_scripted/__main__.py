"""`python -m tau2eval_scripted`: serves the scripted models; --help tells its settings."""

from __future__ import annotations

import sys

from tau2eval_common.settings import load_settings_or_exit
from tau2eval_common.usage import only_help

from .runner import run
from .settings import ScriptedSettings, help_text


def main() -> int:
    """Reads the settings and serves; returns the exit code."""
    if (code := only_help(sys.argv[1:], "scripted-models", help_text())) is not None:
        return code
    return run(load_settings_or_exit(ScriptedSettings))


if __name__ == "__main__":
    sys.exit(main())
