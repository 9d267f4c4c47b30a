"""Entry: `python -m tau2eval_gateway`."""

from __future__ import annotations

import sys

from tau2eval_common.logs import setup_logging
from tau2eval_common.server import run_service
from tau2eval_common.settings import load_settings_or_exit
from tau2eval_common.usage import only_help
from tau2eval_gateway.model_list import ModelListError
from tau2eval_gateway.service import GatewayService, configured_deployments
from tau2eval_gateway.settings import GatewaySettings, SeedSettings, help_text


def main(arguments: list[str]) -> int:
    """Runs the gateway until it is told to stop and returns the exit code."""
    if (code := only_help(arguments, "gateway", help_text())) is not None:
        return code
    settings = load_settings_or_exit(GatewaySettings)
    seed = load_settings_or_exit(SeedSettings)
    setup_logging("gateway", settings.log_level, settings.log_format)
    try:
        deployments = configured_deployments(settings)
    except ModelListError as error:
        print(f"gateway: {error}", file=sys.stderr)
        return 2
    return run_service(GatewayService(settings, seed, deployments), settings)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
