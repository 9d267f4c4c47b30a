"""Names that become paths: checked before anything touches the disk."""

from __future__ import annotations

import re

from tau2eval_common.errors import InvalidInput

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def check_name(what: str, value: str) -> str:
    """Returns a name that is safe as one component of a path.

    Args:
        what: What the name is of, for the message ("run_id" for instance).
        value: 1 to 128 letters, digits, dots, underscores and hyphens; a letter or digit first.

    Raises:
        InvalidInput: For anything else.
    """
    if _NAME.fullmatch(value) is None:
        raise InvalidInput(
            f"{what} {value[:140]!r} must have 1 to 128 characters of A-Z, a-z, 0-9, '.', '_' and "
            "'-', the first of them a letter or a digit",
            reason="BAD_NAME",
        )
    return value
