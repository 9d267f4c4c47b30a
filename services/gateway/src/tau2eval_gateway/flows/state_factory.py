"""Makes the store of conversation state that the configuration names."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlsplit

from tau2eval_gateway.flows.redis_state import RedisAddress, RedisStateStore
from tau2eval_gateway.flows.state_store import MemoryStateStore, StateStore


class StateUrlError(ValueError):
    """The URL of the state store is wrong. The text never holds a part of it."""


def make_state_store(
    url: str, max_conversations: int = 10_000, max_age_seconds: float = 86_400.0
) -> StateStore:
    """Returns the store that a URL names; nothing is connected yet.

    Args:
        url: redis://[[user]:password@]host[:port][/db], or rediss:// with TLS, then with
            ?ssl_ca_certs=FILE if need be; empty: the memory of this process.
        max_conversations: Keys that are kept.
        max_age_seconds: How long a key is kept after it was last written.

    Raises:
        StateUrlError: The URL cannot be read.
    """
    if not url.strip():
        return MemoryStateStore(max_conversations, max_age_seconds)
    return RedisStateStore(read_redis_url(url), max_conversations, max_age_seconds)


def read_redis_url(url: str) -> RedisAddress:
    """Returns what a URL says.

    Raises:
        StateUrlError: It is wrong.
    """
    try:
        parts = urlsplit(url.strip())
        port = parts.port
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True))
    except ValueError:
        # The text of this error may hold a password with a character that is not escaped.
        if "?" not in url:
            raise _wrong("has a wrong port or host") from None
        raise _wrong("has a wrong port, host or query") from None
    if parts.scheme not in ("redis", "rediss"):
        raise _wrong("does not begin with redis:// or rediss://")
    if not parts.hostname:
        raise _wrong("names no host")
    if parts.fragment:
        raise _wrong("has a #; write %23 for one in a password")
    database = parts.path.strip("/")
    if database and not (database.isascii() and database.isdigit() and len(database) < 6):
        raise _wrong("names a database that is no number; write %2F for a / in a password")
    tls = parts.scheme == "rediss"
    allowed = {"ssl_ca_certs"} if tls else set()
    if set(options) - allowed:
        raise _wrong(f"has options other than {', '.join(allowed) or 'none'}")
    return RedisAddress(
        host=parts.hostname,
        port=6379 if port is None else port,
        db=int(database or 0),
        username=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
        tls=tls,
        ca_file=options.get("ssl_ca_certs", ""),
    )


def _wrong(what: str) -> StateUrlError:
    return StateUrlError(f"TAU2EVAL_GATEWAY_STATE_URL {what}")
