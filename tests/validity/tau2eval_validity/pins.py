"""A sample whose ends were equal to the toolkit's, pinned by hash for `make test`.

The hashes hold no data. They are written by `tests/validity/run.py toolkit --update-pins`, after
all sequences compared without a deviation.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from .compare import Outcome
from .generate import COUNT
from .sequences import Sequence

PINS = Path(__file__).resolve().parents[1] / "pins.json"
EVERY = 10


def pinned_numbers() -> list[int]:
    """Returns the numbers of the sample's sequences: every tenth, golds and random ones."""
    return list(range(EVERY // 2, COUNT, EVERY))


def pin(
    sequence: Sequence, ok: tuple[bool, ...], db_hash: str, match: bool | None
) -> dict[str, Any]:
    """Returns what is pinned of one sequence."""
    return {
        "number": sequence.number,
        "calls": hashlib.sha256(sequence.text().encode()).hexdigest()[:16],
        "ok": "".join("+" if each else "-" for each in ok),
        "db": db_hash[:16],
        "match": match,
    }


def write_pins(outcomes: list[Outcome]) -> None:
    """Writes the sample of the compared sequences."""
    pins = [
        pin(outcomes[at].sequence, outcomes[at].ok, outcomes[at].db_hash, outcomes[at].match)
        for at in pinned_numbers()
    ]
    PINS.write_text("[\n" + ",\n".join(json.dumps(each) for each in pins) + "\n]\n")


def read_pins() -> list[dict[str, Any]]:
    """Reads the sample."""
    pins: list[dict[str, Any]] = json.loads(PINS.read_text())
    return pins
