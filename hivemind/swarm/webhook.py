"""Send a notice by HTTP, signed as in Standard Webhooks. Run as a program, send the notice on standard input."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import signal
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import UserError


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def post(url: str, id: str, body: str, secret_env: str | None, *, at: int) -> None:  # noqa: A002 - the header's name
    """Post the notice `body` to `url`, signed as in Standard Webhooks. `id` identifies the notice, `at` is its time in seconds
    since 1970.

    `secret_env` names the environment variable with the secret: `whsec_` and base64, or any other text as it is. None: the notice
    is not signed. Raises OSError, and UserError if the secret is missing or the answer is an error.
    """
    headers = {"content-type": "application/json", "webhook-id": id, "webhook-timestamp": str(at)}
    if secret_env is not None:
        if not (secret := os.environ.get(secret_env)):
            raise UserError(f"the secret of the webhook is not in the environment: {secret_env}")
        digest = hmac.new(_key(secret), f"{id}.{at}.{body}".encode(), hashlib.sha256).digest()
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    request = urllib.request.Request(url, body.encode(), headers, method="POST")  # noqa: S310 - hive.yaml takes http(s) only
    try:
        with urllib.request.build_opener(_NoRedirect).open(request):
            return
    except urllib.error.HTTPError as error:
        raise UserError(f"answered {error.code} {error.reason}") from None


def _key(secret: str) -> bytes:
    if secret.startswith("whsec_"):
        with suppress(Unreadable), boundary("secret"):  # otherwise it is plain text
            return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    return secret.encode()


if __name__ == "__main__":
    with boundary("notice"):
        request = json.load(sys.stdin)
    signal.setitimer(signal.ITIMER_REAL, request.pop("within_s"))  # bounds the whole request; the starter may be gone
    try:
        post(**request)
    except (OSError, UserError) as error:
        sys.exit(str(error))
