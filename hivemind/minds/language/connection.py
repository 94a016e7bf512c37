"""Open the HTTP client and model of a provider, limit requests and answers, and look up published prices."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from hivemind.boundary import Unreadable
from hivemind.frozen import frozen
from hivemind.minds.language.config import ModelConfig
from hivemind.minds.meter import Prices, Pricing
from hivemind.minds.mind import Usage

if TYPE_CHECKING:
    import ssl

    import httpx2
    from pydantic_ai.models import Model

MAX_ANSWER_BYTES = 8_000_000
"""The maximum size of an answer; 100,000 tokens take a twentieth of it."""
_CONNECT_S = 10.0
_USER_AGENT = "hivemind"
_SENT_HEADERS = frozenset({
    "accept", "anthropic-beta", "anthropic-version", "connection", "content-length", "content-type", "host",
    "transfer-encoding",
})  # fmt: skip
_KEY_HEADERS = {"authorization": "Bearer {}", "x-api-key": "{}", "x-goog-api-key": "{}"}
_OPENAI_HOST = "api.openai.com"
_OPENAI_ACCOUNT_HEADERS = frozenset({"openai-organization", "openai-project"})

_OLLAMA_URL = "http://localhost:11434/v1"
_PROVIDERS_WITH_PRICES = ("anthropic", "openai", "google")


def open_model(config: ModelConfig, client: httpx2.AsyncClient) -> Model:
    """Return a model that uses `client` for its requests. Raises UserError if its key is missing."""
    key, url = config.key(), config.address
    if config.provider == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicModel(config.model, provider=AnthropicProvider(api_key=key, base_url=url, http_client=client))
    if config.provider == "google":
        from pydantic_ai.models.google import GoogleModel
        from pydantic_ai.providers.google import GoogleProvider

        return GoogleModel(config.model, provider=GoogleProvider(api_key=key, base_url=url, http_client=client))
    return _open_openai_compatible(config, key, client)


def _open_openai_compatible(config: ModelConfig, key: str | None, client: httpx2.AsyncClient) -> Model:
    """Open a model of OpenAI or of a server with OpenAI's protocol."""
    if config.provider == "ollama":
        from pydantic_ai.models.ollama import OllamaModel
        from pydantic_ai.providers.ollama import OllamaProvider

        return OllamaModel(
            config.model, provider=OllamaProvider(config.address or _OLLAMA_URL, key, http_client=client)
        )
    from pydantic_ai.models.openai import OpenAIChatModel

    if config.provider == "openai":
        from pydantic_ai.providers.openai import OpenAIProvider

        return OpenAIChatModel(config.model, provider=OpenAIProvider(config.address, key, http_client=client))
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    assert config.url is not None  # the config requires it
    provider = OpenAICompatibleProvider(
        "openai-compatible", base_url=config.url, api_key=key, http_client=client,
    )  # fmt: skip
    # Most of these servers support the older name of the output limit, and JSON by schema.
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False, supports_json_schema_output=True)
    return OpenAIChatModel(config.model, provider=provider, profile=profile)


@frozen
class PublishedPrices:
    """The prices of a model in pydantic-ai's price list, in dollars."""

    provider: str
    model: str

    def price_of(self, usage: Usage) -> float:
        """Return the price of a request. Raises LookupError if the model is not listed."""
        from genai_prices import Usage as ListedUsage
        from genai_prices import calc_price

        listed_usage = ListedUsage(
            input_tokens=usage.tokens_in, output_tokens=usage.tokens_out, cache_read_tokens=usage.cached,
            cache_write_tokens=usage.written,
        )  # fmt: skip
        return float(calc_price(listed_usage, self.model, provider_id=self.provider).total_price)


def published_prices(config: ModelConfig) -> Pricing | None:
    """Return a model's published prices; zero for Ollama, None if they are unknown."""
    if config.provider not in _PROVIDERS_WITH_PRICES or config.address is not None:
        return Prices(0, 0) if config.provider == "ollama" else None
    with suppress(LookupError):
        prices = PublishedPrices(config.provider, config.model)
        prices.price_of(Usage(1, 1))
        return prices
    return None


def http_client(config: ModelConfig) -> httpx2.AsyncClient:
    """Create a client that sends only the protocol's headers and the config's key, and limits the size of answers.

    Client libraries add headers about accounts, projects and the machine. They are removed, except for OpenAI's account
    headers in requests to OpenAI's address. Redirects are not followed, so a key is sent only to the configured address.
    The environment's proxies are used.
    """
    import httpx2

    key = config.key()

    async def strip_request(request: httpx2.Request) -> None:
        _strip_headers(request.headers, key, request.url.host)

    async def limit_response(response: httpx2.Response) -> None:
        encoding = response.headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity"):
            raise Unreadable(f"its answer is compressed as {encoding[:40]!r}, which was not asked for")
        response.stream = BoundedTransport(response.stream)

    class BoundedTransport(httpx2.AsyncByteStream):
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            remaining = MAX_ANSWER_BYTES
            async for chunk in self._stream:
                remaining -= len(chunk)
                if remaining < 0:
                    raise Unreadable(f"its answer has more than {MAX_ANSWER_BYTES:,} bytes")
                yield chunk

        async def aclose(self) -> None:
            await self._stream.aclose()

    timeout = httpx2.Timeout(config.timeout_s, connect=min(_CONNECT_S, config.timeout_s))
    hooks: dict[str, list[Any]] = {"request": [strip_request], "response": [limit_response]}
    return httpx2.AsyncClient(verify=_tls_context(), timeout=timeout, follow_redirects=False, event_hooks=hooks)


@cache
def _tls_context() -> ssl.SSLContext:
    """Return the certificates, read once for all clients of the process: reading takes 20 ms."""
    import httpx2

    return httpx2.create_ssl_context()


def _strip_headers(headers: Any, key: str | None, host: str) -> None:
    """Remove the headers that must not be sent, and set key headers to `key`."""
    allowed_headers = _SENT_HEADERS | _OPENAI_ACCOUNT_HEADERS if host == _OPENAI_HOST else _SENT_HEADERS
    for name in list(headers):
        if name in _KEY_HEADERS and key is not None:
            headers[name] = _KEY_HEADERS[name].format(key)
        elif name not in allowed_headers:
            del headers[name]
    headers["user-agent"] = _USER_AGENT
    headers["accept-encoding"] = "identity"  # a small compressed answer could expand to a huge one
