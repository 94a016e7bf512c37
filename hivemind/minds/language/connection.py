"""The connections to a provider: what of a request leaves this machine, and how much of an answer is read."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from hivemind.boundary import Unreadable, boundary
from hivemind.minds.language.config import ModelConfig

if TYPE_CHECKING:
    import httpx2

__all__ = ["LARGEST_ANSWER", "http_client"]

LARGEST_ANSWER = 8_000_000
"""Bytes of an answer, unpacked; an answer of 100,000 tokens has a twentieth of it."""

_CONNECT_S = 10.0
_NAME = "hivemind"
_SENT = frozenset({
    "accept", "anthropic-beta", "anthropic-version", "connection", "content-length", "content-type", "host",
    "transfer-encoding",
})  # fmt: skip
_KEYS = {"authorization": "Bearer {}", "x-api-key": "{}", "x-goog-api-key": "{}"}
_OPENAI = "api.openai.com"
_OPENAI_ACCOUNT = frozenset({"openai-organization", "openai-project"})
_PLAIN, _PACKED = ("", "identity"), ("gzip", "x-gzip")
_GZIP = 16 + zlib.MAX_WBITS


def http_client(config: ModelConfig) -> httpx2.AsyncClient:
    """A client that sends what the protocol needs and the config's key, no more, and reads no endless answer.

    Client libraries add headers of their own accord: what the environment says of accounts, projects and further headers,
    what this machine is. Those do not leave it, but for OpenAI's account at OpenAI's own address. Redirects are not
    followed: a key goes where the config says, and nowhere else. The environment's proxies are used.
    """
    import httpx2

    key = config.key()

    async def strip(request: httpx2.Request) -> None:
        _strip(request.headers, key, request.url.host)

    async def bound(response: httpx2.Response) -> None:
        packing = response.headers.pop("content-encoding", "").strip().lower()
        response.stream = Bounded(response.stream, packing)

    class Bounded(httpx2.AsyncByteStream):
        def __init__(self, stream: Any, packing: str) -> None:
            self._stream, self._packing = stream, packing

        async def __aiter__(self) -> AsyncIterator[bytes]:
            unpacked = _Unpacked(self._packing)
            async for part in self._stream:
                yield unpacked.take(part)

        async def aclose(self) -> None:
            await self._stream.aclose()

    timeout = httpx2.Timeout(config.timeout_s, connect=min(_CONNECT_S, config.timeout_s))
    hooks: dict[str, list[Any]] = {"request": [strip], "response": [bound]}
    return httpx2.AsyncClient(timeout=timeout, follow_redirects=False, event_hooks=hooks)


def _strip(headers: Any, key: str | None, host: str) -> None:
    """Take out of a request's headers what is not to be sent; a key in them can only be `key`."""
    kept = _SENT | _OPENAI_ACCOUNT if host == _OPENAI else _SENT
    for name in list(headers):
        if name in _KEYS and key is not None:
            headers[name] = _KEYS[name].format(key)
        elif name not in kept:
            del headers[name]
    headers["user-agent"] = _NAME
    headers["accept-encoding"] = _PACKED[0]


class _Unpacked:
    """The bytes of one answer, unpacked part by part and never more than `LARGEST_ANSWER`."""

    def __init__(self, packing: str) -> None:
        if packing not in (*_PLAIN, *_PACKED):
            raise Unreadable(f"its answer is packed as {packing[:40]!r}, which was not asked for")
        self._unpack = zlib.decompressobj(_GZIP) if packing in _PACKED else None
        self._left = LARGEST_ANSWER

    def take(self, part: bytes) -> bytes:
        """What a part of the answer comes to. Raises Unreadable."""
        if self._unpack is not None:
            with boundary("packed answer"):
                part = self._unpack.decompress(part, self._left + 1)
        self._left -= len(part)
        if self._left < 0:
            raise Unreadable(f"its answer has more than {LARGEST_ANSWER:,} bytes")
        return part
