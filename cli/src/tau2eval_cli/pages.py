"""`report`: the pages of a run."""

from __future__ import annotations

import asyncio
import json
import webbrowser
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tau2eval.scorer.v1 import scorer_pb2
from tau2eval_cli.artifacts import download
from tau2eval_cli.errors import EXIT_DONE, NotValid, WrongUse
from tau2eval_cli.plan import locate_run, make_folder
from tau2eval_cli.scorer_client import ScorerClient
from tau2eval_cli.session import Interruptible, ScorerTarget, Session, make_console, open_session
from tau2eval_cli.signals import two_step_end
from tau2eval_cli.trials import Trial

Say = Callable[[str], None]


def report(
    run: str,
    target: ScorerTarget,
    *,
    open_page: bool = False,
    serve: bool = False,
    as_json: bool = False,
) -> int:
    """Writes the pages of a run, prints where they are, and returns the exit code.

    Args:
        run: Id or folder of the run.
        target: The scorer that has it.
        open_page: Show the first page in the browser.
        serve: Serve the pages over HTTP until Ctrl-C.
        as_json: Print JSON.

    Raises:
        CommandError: For wrong use, and when the scorer cannot be used.
    """
    if serve and target.address:
        raise WrongUse(
            f"the scorer at {target.address} serves its pages itself, on the HTTP port that it "
            "printed when it started; --serve is for one that this command starts"
        )
    run_id, folder = locate_run(run, target.output_dir)
    target = replace(target, output_dir=folder)
    if target.address:
        make_folder(folder)
    target.check()
    console = make_console(as_json)
    process = Interruptible()

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)
        console.file.flush()

    async def main() -> int:
        async with open_session(target, say, started=process.note) as session:
            rendered = await session.scorer.render(run_id)
            path = (folder / run_id / rendered.path).absolute()
            if not target.local:
                await _fetch(session.scorer, run_id, folder / run_id, say)
            url = _url(session, run_id) if serve else path.as_uri()
            _tell(run_id, path, rendered, url, as_json=as_json, serve=serve, say=say)
            if open_page and not await asyncio.to_thread(webbrowser.open, url):
                say(f"no browser could be started; open {url}")
            if serve:
                await _until_ended(process)
        return EXIT_DONE

    return process.run(main)


def _tell(
    run_id: str,
    path: Path,
    rendered: scorer_pb2.RenderReportResponse,
    url: str,
    *,
    as_json: bool,
    serve: bool,
    say: Say,
) -> None:
    if as_json:
        value = {"run_id": run_id, "path": str(path), "pages": rendered.pages, "url": url}
        print(json.dumps(value), flush=True)
        return
    print(path, flush=True)
    say(f"{rendered.pages} pages")
    if serve:
        say(f"served at {url} until Ctrl-C")


def _url(session: Session, run_id: str) -> str:
    if not session.http_address:
        raise NotValid("the scorer serves no pages; it is of another version than this")
    return f"http://{session.http_address}/runs/{run_id}/"


async def _fetch(scorer: ScorerClient, run_id: str, folder: Path, say: Say) -> None:
    """Copies the run with its pages from a scorer whose files are elsewhere."""
    verdicts = (await scorer.run(run_id)).verdicts
    files = await download(scorer, run_id, None, folder)
    for number, verdict in enumerate(verdicts, start=1):
        files += await download(scorer, run_id, Trial.of(verdict), folder)
        say(f"fetched {number} of {len(verdicts)} conversations")


async def _until_ended(process: Interruptible) -> None:
    """Waits for Ctrl-C, which is the orderly end here; a second one ends at once."""
    ended = asyncio.Event()
    with two_step_end(ended.set, process.end_at_once):
        await ended.wait()
