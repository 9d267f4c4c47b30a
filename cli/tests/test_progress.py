import io
import json

from rich.console import Console

from tau2eval.bridge.v1 import bridge_pb2
from tau2eval.scorer.v1 import record_pb2, scorer_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_cli.progress import LiveProgress, PlainProgress, Tally, clock_time, make_progress
from tau2eval_cli.results import RunResult, TrialResult
from tau2eval_cli.summary import print_summary, word_error_rate


def result(name: str, outcome: int = scorer_pb2.OUTCOME_PASSED, **fields) -> TrialResult:
    return TrialResult(scorer_pb2.Verdict(scenario=name, outcome=outcome, **fields))


def turn(text: str) -> bridge_pb2.ScenarioEvent:
    return bridge_pb2.ScenarioEvent(
        time_seconds=3, turn=record_pb2.Turn(role=voice_pb2.ROLE_USER, text=text)
    )


def test_the_time_left_is_the_mean_so_far_over_the_calls_at_once() -> None:
    now = [0.0]
    tally = Tally(total=5, parallel=2, clock=lambda: now[0])
    assert tally.eta_seconds() is None
    tally.touch("a")
    tally.touch("b")
    now[0] = 60.0
    tally.finish(result("a"))
    assert tally.eta_seconds() == (4 * 60 - 60) / 2
    tally.finish(result("b", scorer_pb2.OUTCOME_NOT_RUN))
    assert tally.counts == {"passed": 1, "failed": 0, "not_run": 1}
    assert tally.eta_seconds() == 90
    for name in "cde":
        tally.touch(name)
        tally.finish(result(name, scorer_pb2.OUTCOME_FAILED))
    assert tally.eta_seconds() == 0
    assert "left" not in tally.line()
    assert "5 of 5 done, 1 passed, 3 failed, 1 not run" in tally.line()


def test_a_terminal_gets_a_table_and_a_pipe_gets_lines() -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, width=100)
    pipe = Console(file=io.StringIO())
    assert isinstance(make_progress(terminal, 1, 1), LiveProgress)
    assert isinstance(make_progress(pipe, 1, 1), PlainProgress)


def test_the_table_shows_running_calls_and_their_newest_words() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    tally = Tally(total=2, parallel=2)
    with LiveProgress(console, tally) as progress:
        progress.waiting("demo__2", "no free call: 8 of 8")
        progress.event(
            "demo__1", bridge_pb2.ScenarioEvent(started=bridge_pb2.Started(attempt_id="a"))
        )
        progress.event("demo__1", turn("[bold]I want to [cancel my flight"))
        screen = Console(file=io.StringIO(), width=100)
        screen.print(progress._render())
        progress.done(result("demo__2"))
    shown = screen.file.getvalue()
    assert "caller: [bold]I want to [cancel my flight" in shown
    assert "on the line" in shown
    assert "no free call: 8 of 8" in shown
    assert "0 of 2 done" in shown
    assert "demo__2 passed" in console.file.getvalue()


def test_lines_tell_a_reason_to_wait_once() -> None:
    console = Console(file=io.StringIO(), width=40)
    progress = PlainProgress(console, Tally(1, 1))
    for _ in range(3):
        progress.waiting("demo__1", "no free call")
    progress.event("demo__1", turn("a [red]long[/red] sentence " * 8))
    text = console.file.getvalue()
    assert text.count("no free call") == 1
    assert "[red]" in text
    assert len(text.splitlines()) == 2


def test_the_summary_reads_metrics_and_survives_their_absence() -> None:
    metrics = {
        "total_turns": 7,
        "latency_stats": {"count": 3, "p50_ms": 1234.5, "p95_ms": 2000.0},
        "speech_accuracy": {
            "agent_heard_user": {"words": 50, "ordinary_errors": 4},
            "user_heard_agent": {"words": 150, "ordinary_errors": 6},
        },
    }
    rich = result(
        "demo__1",
        metrics_json=json.dumps(metrics),
        stop_reason=record_pb2.STOP_REASON_TRANSFER,
        duration_seconds=61,
        success_breakdown=scorer_pb2.SuccessBreakdown(passed=["DB_STATE_MATCH"]),
    )
    bare = result("demo__2", scorer_pb2.OUTCOME_NOT_RUN, not_run_kind="harness_error")
    broken = result("demo__3", scorer_pb2.OUTCOME_FAILED, metrics_json="{")
    assert word_error_rate(metrics) == 0.05
    assert word_error_rate({}) is None
    console = Console(file=io.StringIO(), width=160)
    from pathlib import Path

    print_summary(console, RunResult("eval_1", Path("runs/eval_1"), [rich, bare, broken]))
    text = console.file.getvalue()
    for part in ("1234", "2000", "5.0%", "1:01", "transfer", "not run (harness_error)"):
        assert part in text
    assert "not fully judged (nothing checks what had to be said): demo__1, demo__3" in text
    assert "run eval_1: 1 passed, 1 failed, 1 not run" in text


def test_clock_time() -> None:
    assert [clock_time(seconds) for seconds in (0, 59.6, 65, 3600)] == [
        *("0:00", "1:00", "1:05", "60:00")
    ]
