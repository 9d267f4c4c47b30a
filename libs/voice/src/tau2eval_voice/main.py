"""The main function of a bot process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from tau2eval_common.errors import Tau2EvalError
from tau2eval_common.server import run_service
from tau2eval_common.settings import load_settings_or_exit
from tau2eval_common.usage import only_help, settings_help
from tau2eval_voice.bot import VoiceBot
from tau2eval_voice.bot_settings import BotSettings
from tau2eval_voice.servicer import BotService

S = TypeVar("S", bound=BotSettings)


def run_bot(
    arguments: Sequence[str],
    *,
    name: str,
    module: str,
    settings_class: type[S],
    make_bot: Callable[[S], VoiceBot],
) -> int:
    """Runs a bot until it is told to stop.

    Args:
        arguments: The command line, without the program's name.
        name: Name of the service, "agent-bot" for instance.
        module: What is run, for --help.
        settings_class: Settings with their prefix.
        make_bot: Makes the bot; a Tau2EvalError it raises ends the process.

    Returns:
        0 after an orderly end or --help, 2 for wrong use, settings, models or data.
    """
    text = settings_help(f"python -m {module}", settings_class.about, settings_class)
    if (code := only_help(arguments, name, text)) is not None:
        return code
    settings = load_settings_or_exit(settings_class)
    try:
        return run_service(BotService(make_bot(settings), name), settings)
    except Tau2EvalError as error:
        print(f"{name}: {error.message}", file=sys.stderr)
        return 2
