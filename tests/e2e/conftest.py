"""A run of real records, its pages, and a browser to open them in."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest
import pytest_asyncio
from playwright.async_api import async_playwright

from tau2eval.scorer.v1 import record_pb2, scorer_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_scorer.report import render_scenario

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_SCORER_TESTS = Path(__file__).parents[2] / "services/scorer/tests"
RUN = "run-1"
MISSING = "tau2_airline__5"


def _load(name: str, path: Path) -> ModuleType:
    """Loads a module of the scorer's tests, which are no package."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


records = _load("scorer_records", _SCORER_TESTS / "conftest.py")
report_calls = _load("scorer_report_calls", _SCORER_TESTS / "report/report_calls.py")


class Site:
    """Where the pages are: served, and as files."""

    def __init__(self, folder: Path, address: str, judged: Path) -> None:
        self.folder = folder
        self.served = f"http://{address}/runs/{RUN}"
        self.home = f"http://{address}/"
        self.judged = judged.as_uri()

    def file(self, path: str = "report.html") -> str:
        return (self.folder / RUN / path).as_uri()

    def scenario(self, name: str) -> str:
        return self.file(f"tau2_airline__{name}/report.html")


async def _calls(make):
    """Calls of every kind: passed, failed, not run, hostile, in text, without a judge."""
    yield await make.rich("tau2_airline__11")
    yield await make.rich("tau2_airline__14", calls=[])
    lost = await make.rich("tau2_airline__1")
    lost.stop_reason, lost.agent = record_pb2.STOP_REASON_AGENT_LOST, None
    yield lost
    hostile = await make.hostile()
    hostile.stop_reason = record_pb2.STOP_REASON_AGENT_ERROR
    yield hostile
    text = await make.rich("tau2_airline__41")
    text.modality = voice_pb2.MODALITY_TEXT
    yield text
    yield make.long(await make.rich("tau2_airline__9"), turns=60, seconds=300.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory):
    """A run that a real scorer has scored, rendered and serves."""
    folder = tmp_path_factory.mktemp("site")
    make = report_calls.Calls(records.RecordBuilder)
    calls = [call async for call in _calls(make)]
    names = ("11", "14", "1", "12", "41", "9")
    judged = folder / "judged"
    async with records.ScorerProcess(folder / "runs") as scorer:
        planned = [f"tau2_airline__{name}" for name in names]
        await scorer.create(RUN, (*planned, MISSING), agent_model=report_calls.HOSTILE)
        for at, (call, name) in enumerate(zip(calls, planned, strict=True)):
            call.scenario, call.attempt_id = name, f"attempt-{at}"
            seconds = 300.0 if name.endswith("__9") else 14.0
            await scorer.submit(report_calls.parts(call, seconds, sound=True))
        request = scorer_pb2.RenderReportRequest(run_id=RUN)
        rendered = await scorer.runs.RenderReport(request, timeout=60)
        assert (rendered.path, rendered.pages) == ("report.html", len(names) + 1)
        await _judged(make, judged)
        yield Site(folder / "runs", scorer.addresses["http"], judged / "report.html")


async def _judged(make, folder: Path) -> None:
    """A call with a judgement; it needs no gateway to be shown."""
    call = await make.rich(report_calls.REFUSAL)
    assertions = make.assertions(report_calls.REFUSAL)
    judgement = report_calls.judged(assertions, broken=(1,), quote="how can I help")
    files = make.files(call, judgement)
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    page = render_scenario(report_calls.MemoryFiles(files))
    (folder / "report.html").write_text(page, encoding="utf-8")


def _browser_path() -> str:
    named = os.environ.get("TAU2EVAL_CHROMIUM", "")
    found = [shutil.which(name) for name in ((named,) if named else _BROWSERS)]
    return next((path for path in found if path), "")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser():
    """One headless Chromium for all tests."""
    path = _browser_path()
    if not path:
        pytest.skip("no Chromium: install Debian's, or name one in TAU2EVAL_CHROMIUM")
    async with async_playwright() as playwright:
        # Root, as in a container, cannot use its sandbox; it only sees pages of this machine.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = await playwright.chromium.launch(executable_path=path, args=options)
        yield browser
        await browser.close()


class Opened:
    """A page and what went wrong on it."""

    def __init__(self, page) -> None:
        self.page = page
        self.faults: list[str] = []
        self.asked: list[str] = []
        page.set_default_timeout(20_000)
        page.on("console", lambda message: self.faults.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.faults.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("requestfailed", self._failed)
        page.on("response", self._answered)

    def _failed(self, request) -> None:
        # A browser breaks off the recording once it knows its length.
        if not (request.url.endswith(".wav") and "ABORTED" in (request.failure or "")):
            self.faults.append(f"failed: {request.url} {request.failure}")

    def _answered(self, response) -> None:
        if response.status >= 400:
            self.faults.append(f"{response.status}: {response.url}")


@pytest_asyncio.fixture(loop_scope="module")
async def visit(browser):
    """Opens an address in a window of its own, and checks at the end that nothing went wrong."""
    opened, contexts = [], []

    async def open_page(url, width=1280, height=800, **options):
        context = await browser.new_context(
            viewport={"width": width, "height": height}, reduced_motion="reduce", **options
        )
        contexts.append(context)
        one = Opened(await context.new_page())
        opened.append(one)
        await one.page.goto(url)
        return one.page

    yield open_page
    faults = [fault for one in opened for fault in one.faults]
    strange = [
        url
        for one in opened
        for url in one.asked
        if not url.startswith(("file:///", "http://127.0.0.1:", "data:image/svg+xml"))
    ]
    for context in contexts:
        await context.close()
    assert not faults
    assert not strange
