"""Whole calls with real audio: CPU speech on both ends, in real time, several at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import wave
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from playwright.sync_api import sync_playwright

pytestmark = [pytest.mark.voice, pytest.mark.timeout(800)]

DEMO = ("tau2_airline__1", "tau2_airline__11", "tau2_airline__14", "tau2_airline__41")
# Each faulty agent in one scenario, where its row of the table says the most.
FAULTY = {
    "scripted/do-nothing": "tau2_airline__11",
    "scripted/silent": "tau2_airline__1",
    "scripted/rogue-write": "tau2_airline__14",
    "scripted/never-hangs-up": "tau2_airline__1",
    "scripted/crash": "tau2_airline__1",
}
CALL_SECONDS = 700


@pytest.fixture(scope="module")
def calls(voice_stack):
    """All calls of this module, at most four at a time: the demo, then the faulty agents."""

    def faulty(model: str):
        limit = ["--duration", "60"] if model == "scripted/never-hangs-up" else []
        return voice_stack.run(
            *("--agent-model", model, *limit, "--scenarios", FAULTY[model]), seconds=CALL_SECONDS
        )

    with ThreadPoolExecutor(max_workers=3) as pool:
        demo = pool.submit(
            voice_stack.run, "--parallel", "2", "--scenarios", *DEMO, seconds=CALL_SECONDS
        )
        others = {model: pool.submit(faulty, model) for model in FAULTY}
        return {"demo": demo.result(), **{model: run.result() for model, run in others.items()}}


def test_the_demo_passes(calls) -> None:
    demo = calls["demo"]
    assert demo.result["counts"] == {"passed": 4, "failed": 0, "not_run": 0}, demo.stderr
    assert demo.code == 0
    for name in DEMO:
        passed = demo.scenario(name)["success_breakdown"]["passed"]
        assert {"DB_STATE_MATCH", "CLEAN_EXIT"} <= set(passed)


@pytest.mark.parametrize("name", DEMO)
def test_ordinary_words_were_recognised(calls, name: str) -> None:
    accuracy = calls["demo"].metrics(name)["speech_accuracy"]
    for direction in ("agent_heard_user", "user_heard_agent"):
        assert accuracy[direction]["words"] > 10
        assert accuracy[direction]["ordinary_wer"] < 0.2, accuracy


@pytest.mark.parametrize("name", DEMO)
def test_the_recording_is_audible_on_both_channels(calls, name: str) -> None:
    with wave.open(str(calls["demo"].folder(name) / "conversation_log.wav")) as file:
        assert (file.getnchannels(), file.getsampwidth()) == (2, 2)
        seconds = file.getnframes() / file.getframerate()
        samples = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2").reshape(-1, 2)
    metrics = calls["demo"].metrics(name)
    assert seconds == pytest.approx(metrics["duration_seconds"], abs=2.0)
    loud = np.abs(samples.astype(np.int32)) > 1000
    for channel in (0, 1):
        assert loud[:, channel].mean() > 0.01
    # They take turns: most of the time at most one side is loud.
    both = (loud[:, 0] & loud[:, 1]).sum()
    assert both < 0.1 * loud.any(axis=1).sum()


@pytest.mark.parametrize("name", DEMO)
def test_latencies_and_turns_are_measured(calls, name: str) -> None:
    metrics = calls["demo"].metrics(name)
    assert metrics["latency_stats"]["count"] >= 2
    # The agent waits for the end of the turn before it answers, so no answer comes at once.
    assert metrics["latency_stats"]["min_ms"] > 300
    assert metrics["agent_turns"] >= 2
    assert metrics["line_quality"]["frames"] > 0


@pytest.mark.parametrize("model", FAULTY)
def test_every_faulty_agent_ends_as_its_row_says(calls, expected, observed, model: str) -> None:
    run, name = calls[model], FAULTY[model]
    assert observed(run.scenario(name)) == expected(model, name), run.stderr


def test_an_agent_killed_in_mid_call_is_told_at_once_and_comes_back(voice_stack) -> None:
    run = voice_stack.start_run("--scenarios", DEMO[0], DEMO[3])
    run.stderr.wait_for(DEMO[0], "agent:")
    os.kill(voice_stack.pid("agent-bot"), signal.SIGKILL)
    done = run.finish(CALL_SECONDS)
    assert done.code == 3
    assert done.scenario(DEMO[0])["kind"] == "agent_lost"
    assert done.scenario(DEMO[3])["outcome"] == "passed", done.stderr
    lost = done.metrics(DEMO[0])
    # Its record keeps what was said until then, on both clocks of one call.
    assert lost["total_turns"] >= 1
    assert lost["recording_seconds"] > 0


def _browser() -> str:
    names = (os.environ.get("TAU2EVAL_CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no Chromium: apt-get install chromium, or set TAU2EVAL_CHROMIUM")
    return found


def test_the_demos_report_opens_without_an_error(voice_stack, command, calls) -> None:
    executable = _browser()
    run_id = calls["demo"].result["run_id"]
    scorer = voice_stack.services["scorer"]
    told = json.loads(
        command(
            *("report", run_id, "--json", "--scorer-address", scorer["grpc"]),
            *("--output-dir", str(voice_stack.client_dir)),
        )
    )
    assert told["pages"] == 1 + len(DEMO)
    said: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        try:
            for width, height in ((1280, 800), (390, 844)):
                page = browser.new_page(viewport={"width": width, "height": height})
                page.on("console", lambda message: said.append(message.text))
                page.on("pageerror", lambda error: said.append(str(error)))
                for path in ("report.html", f"{DEMO[0]}/report.html", f"{DEMO[1]}/report.html"):
                    page.goto(f"http://{scorer['http']}/runs/{run_id}/{path}")
                    assert page.evaluate("document.documentElement.scrollWidth") <= width
                audio = page.locator("audio")
                assert audio.count() == 1
                page.wait_for_function("document.querySelector('audio').duration > 10")
                page.close()
        finally:
            browser.close()
    assert said == []
