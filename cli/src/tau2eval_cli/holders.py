"""Who holds a claim, and whether that process still lives."""

from __future__ import annotations

import hashlib
import os
import re
import socket
import uuid
from pathlib import Path

_HOLDER = re.compile(r".* process (\d+) \[([0-9a-f]{8})\]")


def describe_holder() -> str:
    """Returns who holds our claims: for a person, and so that `is_dead` can tell."""
    return f"{socket.gethostname()} process {os.getpid()} [{_machine()}]"


def is_dead(holder: str) -> bool:
    """Whether a holder was a process of this machine that is gone.

    Of another machine's processes nothing is known, and a process id that was given again looks
    alive: such claims end with their lease.
    """
    match = _HOLDER.fullmatch(holder)
    if match is None or match.group(2) != _machine():
        return False
    try:
        os.kill(int(match.group(1)), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _machine() -> str:
    """Tells this machine's processes from those of others, containers of one host included."""
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    except OSError:
        parts.append(hex(uuid.getnode()))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]
