"""Pages as text: pure functions of the contents of files, without transport and store.

Everything that a call or a model wrote is escaped by the templates, and a page forbids the browser
to run anything but its own script and style, which it names by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from tau2eval_scorer import __version__
from tau2eval_scorer.jsonio import dump_line
from tau2eval_scorer.layout import attempt_path
from tau2eval_scorer.report import files as names
from tau2eval_scorer.report import formats
from tau2eval_scorer.report.files import AttemptFiles
from tau2eval_scorer.report.run_page import run_page
from tau2eval_scorer.report.scenario_page import outcome_label, scenario_page, title

_ASSETS = ("report.css", "run.js", "scenario.js")
_TEMPLATES = ("base", "run", "scenario", "runs", "message", "usage")
_FINGERPRINT = '<meta name="tau2eval-fingerprint" content="'
_HEAD_BYTES = 1024


def render_run(summary: Mapping[str, Any], arguments: Mapping[str, Any] | None = None) -> str:
    """Returns a run's page, report.html in its folder.

    Args:
        summary: all_metrics.json.
        arguments: run_args.json; without it the page shows no settings.
    """
    return _render(
        "run",
        title=f"Run {summary['run_id']}",
        script="run.js",
        fingerprint=run_fingerprint(summary, arguments),
        **run_page(summary, arguments),
    )


def render_scenario(files: AttemptFiles, run_href: str = "../report.html") -> str:
    """Returns the page of one attempt, report.html in its folder.

    Args:
        files: The attempt's files. metrics.json must be there; what else is missing is said.
        run_href: Link to the run's page, relative to the attempt's folder.

    Raises:
        ValueError: When there is no readable metrics.json.
    """
    page = scenario_page(files)
    metrics = page["metrics"]
    return _render(
        "scenario",
        title=title(metrics),
        script="scenario.js",
        fingerprint=scenario_fingerprint(files),
        run_href=run_href,
        label=outcome_label(metrics["outcome"], metrics["not_run_kind"]),
        **page,
    )


def render_runs(runs: Sequence[Mapping[str, Any]]) -> str:
    """Returns the list of runs.

    Args:
        runs: For each its run_id, created_at, finished_at, planned, passed, failed and not_run.
    """
    return _render("runs", title="Runs", script="run.js", fingerprint="", runs=runs)


def render_message(heading: str, text: str) -> str:
    """Returns a page that says one thing, that something is not found for instance."""
    return _render("message", title=heading, script="", fingerprint="", text=text)


def run_fingerprint(summary: Mapping[str, Any], arguments: Mapping[str, Any] | None) -> str:
    """Returns what tells whether a stored page of a run is the newest one."""
    return _digest(dump_line(summary), dump_line(arguments or {}))


def scenario_fingerprint(files: AttemptFiles) -> str:
    """Returns what tells whether a stored page of an attempt is the newest one.

    The recording is known by its size: it is written once.
    """
    listed = sorted(set(files.names()) - {"report.html"})
    return _digest(
        *(files.read(name) or b"-" for name in names.READ),
        repr([(name, files.size(name)) for name in listed if name not in names.READ]).encode(),
    )


def fingerprint_of(page: bytes) -> str:
    """Returns the fingerprint that a page says it has; empty when it says none.

    Args:
        page: The page, or its first 1,024 bytes.
    """
    _, found, rest = page[:_HEAD_BYTES].partition(_FINGERPRINT.encode())
    return rest.partition(b'"')[0].decode("ascii", "replace") if found else ""


def content_security_policy() -> str:
    """Returns the policy of the pages, for a server's header."""
    return f"{_policy()}; frame-ancestors 'none'"


def _render(template: str, **values: Any) -> str:
    return _environment().get_template(f"{template}.html.j2").render(policy=_policy(), **values)


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    package = resources.files(__package__ or "")
    templates = {
        f"{name}.html.j2": (package / "templates" / f"{name}.html.j2").read_text("utf-8")
        for name in _TEMPLATES
    }
    environment = jinja2.Environment(
        loader=jinja2.DictLoader(templates),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        clock=formats.clock,
        duration=formats.duration,
        ms=formats.milliseconds,
        percent=formats.percent,
        dollars=formats.dollars,
        number=formats.count,
        interval=formats.interval,
        words=formats.words,
        sentence=formats.sentence,
        pretty=formats.pretty,
        inline=formats.inline,
        counted=formats.counted,
    )
    environment.globals.update(
        share_of=formats.share_of,
        attempt_path=attempt_path,
        assets={name: Markup(text) for name, text in _assets().items()},  # noqa: S704 (ours)
        version=__version__,
    )
    return environment


@lru_cache(maxsize=1)
def _assets() -> dict[str, str]:
    package = resources.files(__package__ or "")
    return {name: (package / "assets" / name).read_text("utf-8") for name in _ASSETS}


@lru_cache(maxsize=1)
def _policy() -> str:
    def sources(kind: str) -> str:
        return " ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
            for name, text in _assets().items()
            if name.endswith(kind)
        )

    # "self" is a page's own server, and file: its own folder.
    return (
        f"default-src 'none'; script-src {sources('.js')}; style-src {sources('.css')}; "
        "media-src 'self' file:; img-src data:; base-uri 'none'; form-action 'none'"
    )


@lru_cache(maxsize=1)
def _code() -> bytes:
    """Everything that makes pages, so that a page of an older version is known to be stale."""
    package = resources.files(__package__ or "")
    found = [entry for entry in package.iterdir() if entry.name.endswith(".py")]
    for folder in ("templates", "assets"):
        found += (package / folder).iterdir()
    texts = [entry.read_bytes() for entry in sorted(found, key=lambda entry: entry.name)]
    return hashlib.sha256(__version__.encode() + b"".join(texts)).digest()


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256(_code())
    for part in parts:
        digest.update(f"{len(part)}:".encode() + part)
    return digest.hexdigest()[:32]
