"""The caller's bot as a process: `python -m tau2eval_user_bot`."""

from __future__ import annotations

import sys
from importlib.metadata import version

from tau2eval.voice.v1 import voice_pb2
from tau2eval_user_bot.caller import no_tools
from tau2eval_user_bot.settings import UserBotSettings
from tau2eval_voice.bot import VoiceBot
from tau2eval_voice.main import run_bot


def make_bot(settings: UserBotSettings) -> VoiceBot:
    """Makes the bot."""
    return VoiceBot(
        settings,
        role=voice_pb2.ROLE_USER,
        make_tools=no_tools,
        version=version("tau2eval-user-bot"),
    )


if __name__ == "__main__":
    raise SystemExit(
        run_bot(
            sys.argv[1:],
            name="user-bot",
            module="tau2eval_user_bot",
            settings_class=UserBotSettings,
            make_bot=make_bot,
        )
    )
