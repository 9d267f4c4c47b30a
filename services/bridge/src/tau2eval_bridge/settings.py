"""Settings of the bridge."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict

from tau2eval_bridge.resample import check_rate
from tau2eval_common.settings import ServiceSettings


class BridgeSettings(ServiceSettings):
    """What the bridge is told.

    Attributes:
        port: gRPC port; 0 takes a free one, which the listening line tells.
        agent_address: gRPC target of the agent's bot.
        user_address: gRPC target of the caller's bot.
        scorer_address: gRPC target of the scorer.
        stall_seconds: A side that owes a turn, does not speak and has nothing in flight for this
            long (media time) has stalled.
        activity_limit_seconds: A model, tool or speech job that is in flight for longer than this
            no longer counts as being busy.
        ready_timeout_seconds: How long a bot may take to be reached and to report Ready.
        finish_timeout_seconds: How long a bot may take to answer Finish with its Summary.
        max_duration_seconds: Ceiling of a call whose scenario and request name none.
        input_sample_rate_hz: Rate of the audio that the bots are sent.
        recording_sample_rate_hz: Rate of the recording, unless the request names one.
        exit_tail_seconds: How long the recording goes on after the last words before an exit.
        scenario_timeout_seconds: Limit of the scorer's answer to GetScenario.
        submit_timeout_seconds: Limit of one try to submit a record; judging is part of it.
        submit_retries: Further tries when the scorer cannot be reached.
        submit_backoff_seconds: Wait before the first further try; it doubles with each.
        spool_dir: Folder for records while their call goes on, and for those that could not be
            submitted. Empty: "tau2eval-bridge" in the system's folder for temporary files.
        heartbeat_seconds: A Heartbeat is sent after this long without another event.
        client_queue: Events kept for a client that reads slowly; beyond it bot events are dropped.
        text_words_per_minute: Speaking rate of virtual time in text modality.
        text_thinking_seconds: Virtual pause before each reply in text modality.
        text_settle_seconds: Real time without a further message after which a side's reply in
            text modality counts as whole.
        text_unanswered_seconds: The same for a side that has shown no sign of work since the words
            reached it: its process may be held up.
        text_grace_seconds: Real time with nothing in flight and no Text after which a side that
            owes a turn counts as silent in text modality.
    """

    model_config = SettingsConfigDict(env_prefix="TAU2EVAL_BRIDGE_", extra="forbid", frozen=True)

    port: int = Field(default=3313, ge=0, le=65535)
    agent_address: str = Field(default="127.0.0.1:3311", min_length=1)
    user_address: str = Field(default="127.0.0.1:3312", min_length=1)
    scorer_address: str = Field(default="127.0.0.1:3314", min_length=1)
    stall_seconds: float = Field(default=30.0, gt=0)
    activity_limit_seconds: float = Field(default=180.0, gt=0)
    ready_timeout_seconds: float = Field(default=60.0, gt=0)
    finish_timeout_seconds: float = Field(default=10.0, gt=0)
    max_duration_seconds: int = Field(default=900, gt=0)
    input_sample_rate_hz: int = 16_000
    recording_sample_rate_hz: int = 24_000
    exit_tail_seconds: float = Field(default=0.3, ge=0)
    scenario_timeout_seconds: float = Field(default=20.0, gt=0)
    submit_timeout_seconds: float = Field(default=300.0, gt=0)
    submit_retries: int = Field(default=8, ge=0)
    submit_backoff_seconds: float = Field(default=0.5, ge=0)
    spool_dir: str = ""
    heartbeat_seconds: float = Field(default=5.0, gt=0)
    client_queue: int = Field(default=1000, ge=10)
    text_words_per_minute: float = Field(default=150.0, gt=0)
    text_thinking_seconds: float = Field(default=0.5, ge=0)
    text_settle_seconds: float = Field(default=0.03, ge=0)
    text_grace_seconds: float = Field(default=2.0, gt=0)
    text_unanswered_seconds: float = Field(default=20.0, gt=0)

    @field_validator("input_sample_rate_hz", "recording_sample_rate_hz")
    @classmethod
    def _rate_fits(cls, value: int) -> int:
        return check_frame_rate(value)

    def spool_folder(self) -> Path:
        """Returns the folder of the spool files."""
        if self.spool_dir:
            return Path(self.spool_dir).expanduser()
        return Path(tempfile.gettempdir()) / "tau2eval-bridge"


def check_frame_rate(rate: int) -> int:
    """Returns the rate when a 20 ms frame of it is a whole number of samples.

    Raises:
        ValueError: For any other rate.
    """
    check_rate(rate)
    if rate % 50:
        raise ValueError(f"{rate} Hz has no whole number of samples in 20 ms")
    return rate
