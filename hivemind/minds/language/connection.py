"""The client of a provider: what of a request leaves this machine, how much of an answer is read, what the model costs."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from hivemind.boundary import Unreadable, boundary
from hivemind.minds.language.config import ModelConfig
from hivemind.minds.prices import Prices

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model

__all__ = ["LARGEST_ANSWER", "http_client", "open_model", "published_prices"]

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

_OLLAMA = "http://localhost:11434/v1"
_PUBLISHED = ("anthropic", "openai", "google")
_MILLION = 1_000_000


def open_model(config: ModelConfig, client: httpx2.AsyncClient) -> Model:
    """The model, asked through `client`. Raises UserError without its key."""
    key, url = config.key(), config.address
    if config.provider == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicModel(config.model, provider=AnthropicProvider(api_key=key, base_url=url, http_client=client))
    if config.provider == "google":
        from pydantic_ai.models.google import GoogleModel
        from pydantic_ai.providers.google import GoogleProvider

        return GoogleModel(config.model, provider=GoogleProvider(api_key=key, base_url=url, http_client=client))
    return _openai_like(config, key, client)


def _openai_like(config: ModelConfig, key: str | None, client: httpx2.AsyncClient) -> Model:
    """OpenAI itself, or who speaks as it does."""
    if config.provider == "ollama":
        from pydantic_ai.models.ollama import OllamaModel
        from pydantic_ai.providers.ollama import OllamaProvider

        return OllamaModel(config.model, provider=OllamaProvider(config.address or _OLLAMA, key, http_client=client))
    from pydantic_ai.models.openai import OpenAIChatModel

    if config.provider == "openai":
        from pydantic_ai.providers.openai import OpenAIProvider

        return OpenAIChatModel(config.model, provider=OpenAIProvider(config.address, key, http_client=client))
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    assert config.url is not None  # the config insists
    provider = OpenAICompatibleProvider(
        "openai-compatible", base_url=config.url, api_key=key, http_client=client,
    )  # fmt: skip
    # What most of these servers know: the older name of the bound, JSON by schema.
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False, supports_json_schema_output=True)
    return OpenAIChatModel(config.model, provider=provider, profile=profile)


def published_prices(config: ModelConfig) -> Prices | None:
    """What pydantic-ai's price list says of the model (dollars, the dearest tier), or None if it does not know it."""
    if config.provider not in _PUBLISHED or config.address is not None:
        return Prices(0, 0) if config.provider == "ollama" else None
    from genai_prices import Usage, calc_price

    try:
        taken = calc_price(Usage(input_tokens=_MILLION), config.model, provider_id=config.provider)
        given = calc_price(Usage(output_tokens=_MILLION), config.model, provider_id=config.provider)
        kept = calc_price(
            Usage(input_tokens=_MILLION, cache_read_tokens=_MILLION), config.model, provider_id=config.provider
        )
        written = calc_price(
            Usage(input_tokens=_MILLION, cache_write_tokens=_MILLION), config.model, provider_id=config.provider
        )
    except LookupError:
        return None
    money = (float(one.total_price) for one in (taken, given, kept, written))
    return Prices(*money)


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
