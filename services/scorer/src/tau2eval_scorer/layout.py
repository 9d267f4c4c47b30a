"""Where the files of a run lie.

    <artifacts_dir>/<run_id>/
        run_args.json, all_metrics.json, all_summary.txt, all_latencies.csv
        <scenario>/                     the attempt that counts (runs of one trial)
        <scenario>/trial_<n>/           the same for runs of several trials
            scorings/<n>/               metrics.json and judge_result.json of earlier scorings
        attempts/<scenario>/trial_<n>/<attempt_id>/    every other attempt

An attempt's folder appears whole: it is written out of sight, moved among the attempts, and moved
to its scenario when it counts. Each step is one rename, and `place` can be repeated after a kill
at any point.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path

import orjson

ATTEMPTS = "attempts"
METRICS_FILE = "metrics.json"
JUDGE_FILE = "judge_result.json"
REPORT_FILE = "report.html"
SCORINGS = "scorings"
RUN_FILES = (
    "run_args.json",
    "all_metrics.json",
    "all_summary.txt",
    "all_latencies.csv",
    REPORT_FILE,
)


def scenario_path(scenario: str, trial: int, trials: int) -> str:
    """Returns where the counting attempt lies below the run's folder, with forward slashes."""
    return scenario if trials == 1 else f"{scenario}/trial_{trial}"


def attempt_path(scenario: str, trial: int, attempt_id: str) -> str:
    """Returns where an attempt that does not count lies below the run's folder."""
    return f"{ATTEMPTS}/{scenario}/trial_{trial}/{attempt_id}"


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes files into a folder that nobody reads yet."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def replace_file(path: Path, data: bytes) -> None:
    """Writes a file so that a reader sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def adopt(folder: Path, run_folder: Path, relative: str) -> None:
    """Moves a finished attempt's folder among the attempts, over one of a killed process."""
    target = run_folder / relative
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        shutil.rmtree(target)
    os.replace(folder, target)


def place(run_folder: Path, scenario: str, trial: int, trials: int, attempt_id: str) -> bool:
    """Puts the counting attempt where its scenario is looked for, and sets another one aside.

    Returns:
        False when the attempt's folder is nowhere (somebody removed it).
    """
    target = run_folder / scenario_path(scenario, trial, trials)
    present = attempt_in(target)
    if present == attempt_id:
        return True
    source = run_folder / attempt_path(scenario, trial, attempt_id)
    if not source.is_dir():
        return False
    if target.exists():
        aside = run_folder / attempt_path(scenario, trial, present or f"unknown-{uuid.uuid4().hex}")
        adopt(target, run_folder, str(aside.relative_to(run_folder)))
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(source, target)
    return True


def files_below(folder: Path) -> list[Path]:
    """Returns the files in a folder and below it, in the order of their paths, but no links."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and not path.name.startswith(".")
    )


def attempt_in(folder: Path) -> str:
    """Returns which attempt lies in a folder; empty when that is not to be told."""
    try:
        value = orjson.loads((folder / METRICS_FILE).read_bytes())
        return str(value["attempt_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
