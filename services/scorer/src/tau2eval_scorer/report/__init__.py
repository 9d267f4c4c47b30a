"""Report pages: static and self-contained, one for a run and one for each scenario."""

from __future__ import annotations

from tau2eval_scorer.report.files import AttemptFiles, MemoryFiles, StoredFiles
from tau2eval_scorer.report.pages import (
    content_security_policy,
    fingerprint_of,
    render_message,
    render_run,
    render_runs,
    render_scenario,
    run_fingerprint,
    scenario_fingerprint,
)

__all__ = [
    "AttemptFiles",
    "MemoryFiles",
    "StoredFiles",
    "content_security_policy",
    "fingerprint_of",
    "render_message",
    "render_run",
    "render_runs",
    "render_scenario",
    "run_fingerprint",
    "scenario_fingerprint",
]
