"""Who may come in: this machine alone, with the token, from our own pages; what a browser may do with them."""

from __future__ import annotations

import hashlib
import hmac
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from hivemind.loopback import App, Message, Receive, Send, respond

__all__ = ["Access"]

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
_ALWAYS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_OPEN = "/static/"
_SAFE = ("GET", "HEAD")
_MOST_BYTES = 32 << 20


class Access:
    """Wraps the page: lets through what shows the token, and nothing that another site's page could have sent.

    The token comes once in the link that the terminal shows, and is in a cookie from then on. What changes something must
    name this origin, and is a form with the `key` of our own pages.
    """

    def __init__(self, app: App, token: str, port: int) -> None:
        self._app = app
        self._token = token
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"}
        self._cookie = f"hivemind-{port}"

    @staticmethod
    def key_of(token: str) -> str:
        """What our forms carry: it can be made of the token, and the token cannot be made of it."""
        return hmac.new(token.encode(), b"form", hashlib.sha256).hexdigest()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if host not in self._hosts:
            await _refuse(send, 421, "This address is not served here.")
            return
        method, origin = scope["method"], headers.get("origin")
        foreign = origin is not None and origin != f"http://{host}"
        nameless = method not in _SAFE and origin is None
        if foreign or nameless or _is_cross_site(headers):
            who = "A program that names no Origin" if nameless else "Another site's page"
            await _refuse(send, 403, f"{who} asked for this.")
            return
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > _MOST_BYTES:
            await _refuse(send, 413, "That is more than 32 MiB.")
            return
        if scope["path"].startswith(_OPEN):
            await self._app(scope, receive, _with_headers(send, cached=True))
            return
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        if method == "GET" and self._is_token(query.pop("token", "")):
            await self._let_in(send, scope["path"], query)
        elif self._is_token(self._shown(headers.get("cookie", ""))):
            await self._app(scope, receive, _with_headers(send))
        else:
            await _refuse(send, 401, "Open the link that hivemind web has printed: it has the token.")

    def _is_token(self, shown: str) -> bool:
        return hmac.compare_digest(shown.encode("utf-8", "replace"), self._token.encode())

    def _shown(self, cookies: str) -> str:
        try:
            found = SimpleCookie(cookies).get(self._cookie)
        except CookieError:
            return ""
        return "" if found is None else found.value

    async def _let_in(self, send: Send, path: str, query: dict[str, str]) -> None:
        """Keep the token in the browser, and out of its address line."""
        cookie = f"{self._cookie}={self._token}; Path=/; HttpOnly; SameSite=Strict"
        place = "/" + path.lstrip("/\\") + (f"?{urlencode(query)}" if query else "")
        headers = [(b"location", place.encode("latin-1", "ignore")), (b"set-cookie", cookie.encode())]
        await respond(send, 303, b"", [*headers, *_ALWAYS])


def _is_cross_site(headers: dict[str, str]) -> bool:
    """Whether a browser says that another site's page wants this as a part of itself; following a link from there is none."""
    return headers.get("sec-fetch-site") in ("cross-site", "same-site") and headers.get("sec-fetch-mode") != "navigate"


def _with_headers(send: Send, *, cached: bool = False) -> Send:
    caching = (b"cache-control", b"max-age=3600" if cached else b"no-store")

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *_ALWAYS, caching]
        await send(message)

    return sending


async def _refuse(send: Send, status: int, why: str) -> None:
    await respond(send, status, f"{why}\n".encode(), [(b"content-type", b"text/plain; charset=utf-8"), *_ALWAYS])
