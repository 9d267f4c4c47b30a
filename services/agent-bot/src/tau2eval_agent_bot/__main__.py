"""The agent's bot as a process: `python -m tau2eval_agent_bot`."""

from __future__ import annotations

import sys
from importlib.metadata import version

from tau2eval.voice.v1 import voice_pb2
from tau2eval_agent_bot.airline_tools import AirlineTools
from tau2eval_agent_bot.settings import AgentBotSettings
from tau2eval_airline import FixtureError, load_seed
from tau2eval_common.errors import FailedPrecondition
from tau2eval_voice.bot import VoiceBot
from tau2eval_voice.main import run_bot


def make_bot(settings: AgentBotSettings) -> VoiceBot:
    """Makes the bot, with the fixtures checked and loaded.

    Raises:
        FailedPrecondition: A fixture is missing or altered.
    """
    try:
        load_seed()
    except FixtureError as error:
        raise FailedPrecondition(str(error)) from error
    return VoiceBot(
        settings,
        role=voice_pb2.ROLE_AGENT,
        make_tools=AirlineTools,
        version=version("tau2eval-agent-bot"),
    )


if __name__ == "__main__":
    raise SystemExit(
        run_bot(
            sys.argv[1:],
            name="agent-bot",
            module="tau2eval_agent_bot",
            settings_class=AgentBotSettings,
            make_bot=make_bot,
        )
    )
