"""The client of a provider: what of a request leaves this machine, how much of an answer is read, what the model costs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from hivemind.boundary import Unreadable
from hivemind.frozen import frozen
from hivemind.minds.language.config import ModelConfig
from hivemind.minds.meter import Prices, Pricing
from hivemind.minds.mind import Usage

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model

LARGEST_ANSWER = 8_000_000
"""Bytes of an answer; an answer of 100,000 tokens has a twentieth of it."""
_CONNECT_S = 10.0
_NAME = "hivemind"
_SENT = frozenset({
    "accept", "anthropic-beta", "anthropic-version", "connection", "content-length", "content-type", "host",
    "transfer-encoding",
})  # fmt: skip
_KEYS = {"authorization": "Bearer {}", "x-api-key": "{}", "x-goog-api-key": "{}"}
_OPENAI = "api.openai.com"
_OPENAI_ACCOUNT = frozenset({"openai-organization", "openai-project"})

_OLLAMA = "http://localhost:11434/v1"
_PUBLISHED = ("anthropic", "openai", "google")


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


@frozen
class PublishedPrices:
    """What pydantic-ai's price list says of a model, in dollars."""

    provider: str
    model: str

    def of(self, used: Usage) -> float:
        """What a request costs. Raises LookupError for a model that is not listed."""
        from genai_prices import Usage as Listed
        from genai_prices import calc_price

        counted = Listed(
            input_tokens=used.tokens_in, output_tokens=used.tokens_out, cache_read_tokens=used.cached,
            cache_write_tokens=used.written,
        )  # fmt: skip
        return float(calc_price(counted, self.model, provider_id=self.provider).total_price)


def published_prices(config: ModelConfig) -> Pricing | None:
    """What is known of a model's price, or None."""
    if config.provider not in _PUBLISHED or config.address is not None:
        return Prices(0, 0) if config.provider == "ollama" else None
    with suppress(LookupError):
        found = PublishedPrices(config.provider, config.model)
        found.of(Usage(1, 1))
        return found
    return None


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
        packing = response.headers.get("content-encoding", "").strip().lower()
        if packing not in ("", "identity"):
            raise Unreadable(f"its answer is packed as {packing[:40]!r}, which was not asked for")
        response.stream = Bounded(response.stream)

    class Bounded(httpx2.AsyncByteStream):
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = LARGEST_ANSWER
            async for part in self._stream:
                left -= len(part)
                if left < 0:
                    raise Unreadable(f"its answer has more than {LARGEST_ANSWER:,} bytes")
                yield part

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
    headers["accept-encoding"] = "identity"  # so that a small answer cannot be a huge one
