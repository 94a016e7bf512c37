"""A notice by HTTP, signed as Standard Webhooks says."""

from __future__ import annotations

import base64
import hashlib
import hmac
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError

__all__ = ["post"]

_WITHIN_S = 10.0


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def post(url: str, id: str, body: bytes, secret: str | None, *, at: int) -> None:  # noqa: A002 - the header's name
    """Send it. `secret` as Standard Webhooks writes it (`whsec_` and base64), or any text. Raises OSError, UserError."""
    headers = {"content-type": "application/json", "webhook-id": id, "webhook-timestamp": str(at)}
    if secret is not None:
        signed = hmac.new(_key(secret), f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
        headers["webhook-signature"] = f"v1,{base64.b64encode(signed).decode()}"
    request = urllib.request.Request(url, body, headers, method="POST")  # noqa: S310 - hive.yaml takes http(s) only
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=_WITHIN_S):
            return
    except urllib.error.HTTPError as error:
        raise UserError(f"answered {error.code} {error.reason}") from None


def _key(secret: str) -> bytes:
    if secret.startswith("whsec_"):
        with suppress(Unreadable), boundary("secret"):  # else it is a text like any other
            return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    return secret.encode()
