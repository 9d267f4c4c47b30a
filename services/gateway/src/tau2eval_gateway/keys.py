"""Who may call: Bearer keys, compared in constant time, and how often."""

from __future__ import annotations

import hashlib
import hmac

from tau2eval_gateway.errors import KeyRefused
from tau2eval_gateway.limits import RateLimiter

OPEN_KEY_ID = "open"
INTERNAL_KEY_ID = "internal"


class KeyRing:
    """The keys of this gateway.

    Args:
        keys: Comma list; white space around an item and empty items do not count.
        open_api: Whether calls without a key are served; counts only when there are no keys.
        limiter: How often one key may ask; None: as often as it likes.
    """

    def __init__(self, keys: str, open_api: bool, limiter: RateLimiter | None = None) -> None:
        found = [key.strip() for key in keys.split(",") if key.strip()]
        # A set: a key that is listed twice is one key.
        self._digests = sorted({_digest(_bytes(key)) for key in found})
        self._limiter = limiter
        self.open = open_api and not found

    def admit(self, authorization: str | None) -> str:
        """Returns the id of the key like `authenticate`, and counts the request.

        Raises:
            KeyRefused: As `authenticate`.
            TooMany: The key has asked too often.
        """
        key_id = self.authenticate(authorization)
        if self._limiter is not None:
            self._limiter.take(key_id)
        return key_id

    def authenticate(self, authorization: str | None) -> str:
        """Returns the id of the key in an Authorization value, for the ledger; never the key.

        Raises:
            KeyRefused: There is none, it is wrong, or this gateway has no keys and is not open.
        """
        if self.open:
            return OPEN_KEY_ID
        if not self._digests:
            raise KeyRefused(
                "this gateway has no keys: set MODEL_API_KEYS, or MARINA_OPEN_API=true for local "
                "use",
                error_code="no_keys_configured",
            )
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise KeyRefused(
                "no key given: send the header `Authorization: Bearer KEY`",
                error_code="missing_api_key",
            )
        for given in _readings(_bytes(key.strip())):
            digest = _digest(given)
            matched = False
            for known in self._digests:
                # Every key is compared, so that the time tells nothing about which one is near.
                matched |= hmac.compare_digest(digest, known)
            if matched:
                return f"key_{digest.hex()[:8]}"
        raise KeyRefused("the key is not one of this gateway", error_code="invalid_api_key")


def _bytes(text: str) -> bytes:
    # Bytes that are no UTF-8 come as surrogates, from the environment and from headers alike.
    return text.encode("utf-8", "surrogateescape")


def _readings(given: bytes) -> list[bytes]:
    """Returns what the bytes of a header may mean: UTF-8, or Latin-1 as some clients write."""
    if given.isascii():
        return [given]
    return [given, given.decode("latin-1").encode()]


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
