"""Who owes a turn, and who has fallen silent. All times are media time."""

from __future__ import annotations

from dataclasses import dataclass, field

from tau2eval.voice.v1 import voice_pb2


@dataclass
class Activities:
    """Jobs that one bot has in flight.

    Attributes:
        limit_seconds: A job in flight for longer no longer counts: its end was lost.
        last_end: When the newest job ended; 0 before.
    """

    limit_seconds: float
    last_end: float = 0.0
    _started: dict[str, list[float]] = field(default_factory=dict)

    def event(self, activity: voice_pb2.Activity, now: float) -> None:
        """Notes the start or the end of a job."""
        starts = self._started.setdefault(activity.stage, [])
        if activity.state == voice_pb2.ACTIVITY_STATE_STARTED:
            starts.append(now)
        elif activity.state == voice_pb2.ACTIVITY_STATE_STOPPED:
            if starts:
                starts.pop(0)
            self.last_end = now

    def busy(self, now: float) -> bool:
        """Returns whether a job is in flight; those beyond the limit are forgotten."""
        for starts in self._started.values():
            while starts and now - starts[0] > self.limit_seconds:
                self.last_end = max(self.last_end, starts.pop(0) + self.limit_seconds)
        return any(self._started.values())


class StallWatch:
    """Tells when the side that owes a turn has been silent and idle for too long.

    The agent owes the first turn. A turn that ended passes the debt to the other side. While a
    side is audible, or anything is in flight on either side, nobody is waiting in vain: a caller
    who waits for the agent's lookup has not stalled.
    """

    def __init__(self, stall_seconds: float) -> None:
        self._limit = stall_seconds
        self.owes: voice_pb2.Role.ValueType = voice_pb2.ROLE_AGENT
        self.owed_since = 0.0
        self._quiet_since = 0.0

    def turn_ended(self, role: voice_pb2.Role.ValueType, now: float) -> None:
        """A side's utterance ended: the other owes a turn."""
        self.owes = voice_pb2.ROLE_USER if role == voice_pb2.ROLE_AGENT else voice_pb2.ROLE_AGENT
        self.owed_since = now
        self._quiet_since = max(self._quiet_since, now)

    def caller_overdue(self, now: float, *, agent: Activities) -> bool:
        """Returns whether the caller has owed a turn for too long, whatever its bot is busy with.

        A call that reaches its limit like that shows a fault of the simulated caller (a hung model,
        for instance), not of the agent. An agent that is at work, or was a moment ago, may have
        asked the caller to wait.
        """
        return (
            self.owes == voice_pb2.ROLE_USER
            and not agent.busy(now)
            and now - max(self.owed_since, agent.last_end) >= self._limit
        )

    def check(self, now: float, *, active: bool) -> voice_pb2.Role.ValueType | None:
        """Returns the side that has stalled, if one has.

        Args:
            now: Media time in seconds.
            active: True when a side is audible or has something in flight.
        """
        if active:
            self._quiet_since = now
            return None
        return self.owes if now - self._quiet_since >= self._limit else None
