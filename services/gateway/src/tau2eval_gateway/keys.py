"""Who may call: Bearer keys, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac

from tau2eval_gateway.errors import KeyRefused

OPEN_KEY_ID = "open"
INTERNAL_KEY_ID = "internal"


class KeyRing:
    """The keys of this gateway.

    Args:
        keys: Comma list; empty items do not count.
        open_api: Whether calls without a key are served; counts only when there are no keys.
    """

    def __init__(self, keys: str, open_api: bool) -> None:
        found = [key.strip() for key in keys.split(",") if key.strip()]
        self._digests = [hashlib.sha256(key.encode()).digest() for key in found]
        self.open = open_api and not found

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
        digest = hashlib.sha256(key.strip().encode("utf-8", "surrogateescape")).digest()
        matched = False
        for known in self._digests:
            # Every key is compared, so that the time tells nothing about which one is near.
            matched |= hmac.compare_digest(digest, known)
        if not matched:
            raise KeyRefused("the key is not one of this gateway", error_code="invalid_api_key")
        return f"key_{digest.hex()[:8]}"
