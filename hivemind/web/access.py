"""Admit only requests to an address that begins with the secret, and limit what a browser may do with a page."""

from __future__ import annotations

import hmac
import re
from collections.abc import Collection

from hivemind.loopback import App, Message, Receive, Send, read_body, replay_body, respond

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self';"
    " base-uri 'self'; frame-ancestors 'none'"
)
_SECURITY_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_HOST = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::\d{1,5})?")  # any port: `ssh -L` may use a different one
_STATIC = "/static/"
_SAFE_METHODS = ("GET", "HEAD")
_MAX_BYTES = 32 << 20


class Access:
    """An ASGI application that passes on requests below `/s/SECRET`. It refuses other requests, and requests from other
    sites' pages.

    `open_paths` are served without the secret, because their content is not secret on this machine.

    The application sees the path below `/s/SECRET`. `address` in its scope is that path as the browser sent it, with
    the query.

    The secret is in the address, not in a cookie: a browser sends a cookie to every port of a host, and so to other
    users' servers on this machine. No other site learns the address, since referrers are off and links are relative.
    """

    def __init__(self, app: App, secret: str, open_paths: Collection[str] = ()) -> None:
        self._app, self._open_paths = app, open_paths
        self._root = f"/s/{secret}".encode()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        is_safe = scope["method"] in _SAFE_METHODS
        target = b"?".join(filter(None, (scope["raw_path"], scope["query_string"]))).decode("latin-1")
        scope["address"] = target[len(self._root) :]
        if _HOST.fullmatch(headers.get("host", "")) is None:
            await _refuse(send, 421, "This address is not served here.")
        elif is_safe and scope["path"] in self._open_paths:
            await self._app(scope, receive, send)
        elif not self._is_below_root(scope["raw_path"]):
            await _refuse(send, 401, "Open the link that hivemind web printed: it contains the secret.")
        elif _is_foreign(headers, is_safe=is_safe):
            await _refuse(send, 403, "This request came from another site's page.")
        elif is_safe:
            await self._pass_on(scope, receive, send)
        elif (body := await read_body(receive, _MAX_BYTES)) is None:
            return  # the client is gone
        elif len(body) > _MAX_BYTES:
            await _refuse(send, 413, "The request is larger than 32 MiB.")
        else:
            await self._pass_on(scope, replay_body(body, receive), send)

    def _is_below_root(self, path: bytes) -> bool:
        return hmac.compare_digest(path[: len(self._root)], self._root) and path.startswith(b"/", len(self._root))

    async def _pass_on(self, scope: Message, receive: Receive, send: Send) -> None:
        path = scope["path"][len(self._root) :]
        caching = (b"cache-control", b"max-age=3600" if path.startswith(_STATIC) else b"no-store")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_SECURITY_HEADERS, caching]
            await send(message)

        await self._app({**scope, "path": path}, receive, send_with_headers)


def _is_foreign(headers: dict[str, str], *, is_safe: bool) -> bool:
    """Return True if the headers say that another site's page sent the request. Following a link there is allowed if
    `is_safe` (the request only reads).

    Forms of the hive's own pages send the origin `null`, because they send no referrer.
    """
    if headers.get("origin", "null") not in ("null", f"http://{headers['host']}"):
        return True
    is_link = is_safe and headers.get("sec-fetch-mode") == "navigate"
    return headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not is_link


async def _refuse(send: Send, status: int, reason: str) -> None:
    await respond(
        send, status, f"{reason}\n".encode(), [(b"content-type", b"text/plain; charset=utf-8"), *_SECURITY_HEADERS]
    )
