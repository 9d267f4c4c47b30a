"""How a run goes, told to a person: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tau2eval.bridge.v1 import bridge_pb2
from tau2eval_cli import words
from tau2eval_cli.results import OUTCOMES, TrialResult

Clock = Callable[[], float]
OUTCOME_STYLES = {"passed": "green", "failed": "red", "not_run": "yellow"}


@dataclass
class _Running:
    since: float
    newest: str = ""
    state: str = "waiting"


class Tally:
    """What is known of a run at a moment.

    Attributes:
        total: Trials to do.
        running: Trials in progress by label, in the order in which they began.
        counts: Finished trials by outcome.
    """

    def __init__(self, total: int, parallel: int, clock: Clock = time.monotonic) -> None:
        self.total = total
        self.running: dict[str, _Running] = {}
        self.counts = dict.fromkeys(OUTCOMES, 0)
        self._parallel = parallel
        self._clock = clock
        self._spent = 0.0
        self._begun = clock()

    @property
    def finished(self) -> int:
        """Number of scenarios with a result."""
        return sum(self.counts.values())

    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self._clock() - self._begun

    def elapsed_of(self, name: str) -> float:
        """Seconds since a running scenario was taken up."""
        return self._clock() - self.running[name].since

    def touch(self, name: str) -> _Running:
        """Returns the entry of a running scenario, made when it is new."""
        return self.running.setdefault(name, _Running(self._clock()))

    def finish(self, result: TrialResult) -> float:
        """Counts a result and returns the seconds of the wall clock that the trial took."""
        entry = self.running.pop(result.label, None)
        took = self._clock() - entry.since if entry else 0.0
        self._spent += took
        self.counts[result.outcome] = self.counts.get(result.outcome, 0) + 1
        return took

    def leave(self, label: str) -> None:
        """Takes a trial out that is not in progress any more and has no result."""
        self.running.pop(label, None)

    def eta_seconds(self) -> float | None:
        """Seconds that the rest will take, from the mean so far; None before the first result."""
        if not self.finished:
            return None
        mean = self._spent / self.finished
        begun = sum(min(self.elapsed_of(name), mean) for name in self.running)
        left = (self.total - self.finished) * mean - begun
        return max(0.0, left) / max(1, min(self._parallel, self.total - self.finished))

    def line(self) -> str:
        """Returns counts and times as one line."""
        parts = [f"{self.finished} of {self.total} done"]
        parts += [f"{count} {outcome.replace('_', ' ')}" for outcome, count in self.counts.items()]
        parts.append(f"{clock_time(self.elapsed())} elapsed")
        eta = self.eta_seconds()
        if eta is not None and self.finished < self.total:
            parts.append(f"about {clock_time(eta)} left")
        return ", ".join(parts)


def clock_time(seconds: float) -> str:
    """Returns seconds as minutes and seconds ("1:05")."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def outcome_line(result: TrialResult) -> str:
    """Returns outcome and reason of a result as one line."""
    verdict = result.verdict
    kind = f" ({verdict.not_run_kind})" if verdict.not_run_kind else ""
    text = verdict.explanation or f"{result.outcome.replace('_', ' ')}{kind}"
    facts = [words.stop_reason(verdict.stop_reason), f"{verdict.duration_seconds:.0f} s"]
    return f"{text} [{', '.join(fact for fact in facts if fact)}]"


class PlainProgress:
    """One line for each thing that happens; for logs and pipes."""

    def __init__(self, console: Console, tally: Tally) -> None:
        self._console = console
        self._tally = tally
        self._told: dict[str, str] = {}

    def __enter__(self) -> PlainProgress:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def waiting(self, scenario: str, why: str) -> None:
        """Tells a reason to wait, once."""
        self._tally.touch(scenario)
        if self._told.get(scenario) != why:
            self._told[scenario] = why
            self._say(f"{scenario} waits: {why}")

    def event(self, scenario: str, event: bridge_pb2.ScenarioEvent) -> None:
        """Tells the beginning, the utterances and the end of a call."""
        self._tally.touch(scenario)
        kind = event.WhichOneof("event")
        if kind == "started":
            self._say(f"{scenario} started")
        elif kind == "turn":
            turn = event.turn
            text = turn.text or "(not transcribed)"
            self._say(f"{scenario} {turn.start_seconds:6.1f} s {words.speaker(turn.role)}: {text}")
        elif kind == "stopped":
            reason = words.stop_reason(event.stopped.stop_reason)
            self._say(f"{scenario} {event.time_seconds:6.1f} s stopped: {reason}")

    def left(self, scenario: str) -> None:
        """Tells that a call was given up for another runner's."""
        self._tally.leave(scenario)
        self._say(f"{scenario} is held by another runner now")

    def done(self, result: TrialResult) -> None:
        """Tells a result and the counts."""
        self._tally.finish(result)
        self._say(f"{result.label} {outcome_line(result)}")
        self._say(self._tally.line())

    def notice(self, text: str) -> None:
        """Tells something that a person should know."""
        self._say(text)

    def _say(self, text: str) -> None:
        self._console.print(
            f"{time.strftime('%H:%M:%S')} {text}", markup=False, highlight=False, soft_wrap=True
        )
        self._console.file.flush()


class LiveProgress:
    """A table of the running calls, the counts and the time left; results above it."""

    def __init__(self, console: Console, tally: Tally) -> None:
        self._console = console
        self._tally = tally
        self._live = Live(
            get_renderable=self._render, console=console, refresh_per_second=4, transient=True
        )

    def __enter__(self) -> LiveProgress:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def waiting(self, scenario: str, why: str) -> None:
        """Shows why a call cannot begin."""
        entry = self._tally.touch(scenario)
        entry.state, entry.newest = "waiting", why

    def event(self, scenario: str, event: bridge_pb2.ScenarioEvent) -> None:
        """Shows the newest utterance."""
        entry = self._tally.touch(scenario)
        kind = event.WhichOneof("event")
        if kind == "started":
            entry.state, entry.newest = "on the line", ""
        elif kind == "turn":
            entry.newest = f"{words.speaker(event.turn.role)}: {event.turn.text}"
        elif kind == "stopped":
            entry.state = "scoring"
            entry.newest = words.stop_reason(event.stopped.stop_reason)

    def left(self, scenario: str) -> None:
        """Takes a call out of the table that was given up for another runner's."""
        self._tally.leave(scenario)

    def done(self, result: TrialResult) -> None:
        """Shows a result above the table."""
        self._tally.finish(result)
        style = OUTCOME_STYLES.get(result.outcome, "")
        self._console.print(Text(f"{result.label} {outcome_line(result)}", style=style))

    def notice(self, text: str) -> None:
        """Shows a text above the table."""
        self._console.print(Text(text, style="yellow"))

    def _render(self) -> RenderableType:
        table = Table(box=None, expand=True, pad_edge=False)
        table.add_column("scenario", no_wrap=True)
        table.add_column("time", justify="right", no_wrap=True)
        table.add_column("state", no_wrap=True)
        table.add_column("newest words", ratio=1, no_wrap=True, overflow="ellipsis")
        for name, entry in list(self._tally.running.items()):
            table.add_row(
                name, clock_time(self._tally.elapsed_of(name)), entry.state, Text(entry.newest)
            )
        return Group(table, Text(self._tally.line(), style="bold"))


def make_progress(console: Console, total: int, parallel: int) -> PlainProgress | LiveProgress:
    """Returns the display that fits where the output goes."""
    tally = Tally(total, parallel)
    if console.is_terminal and not console.is_dumb_terminal:
        return LiveProgress(console, tally)
    return PlainProgress(console, tally)
