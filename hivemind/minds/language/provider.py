"""The client of a model's provider, made through pydantic-ai; no other provider's is imported."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from hivemind.minds.language.config import ModelConfig
from hivemind.minds.prices import Prices

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model

__all__ = ["AnswerTooLarge", "http_client", "open_model", "published_prices"]

_CONNECT_S = 10.0
_LARGEST_ANSWER = 8_000_000  # bytes; an answer of 100,000 tokens has a twentieth of it
_OLLAMA = "http://localhost:11434/v1"
_PUBLISHED = ("anthropic", "openai", "google")
_MILLION = 1_000_000


class AnswerTooLarge(Exception):
    """An answer of more bytes than any model's answer has: cut off while it was read."""


def open_model(config: ModelConfig, client: httpx2.AsyncClient) -> Model:
    """The model, asked through `client`. Raises UserError without its key."""
    key = config.key()
    if config.provider == "anthropic":
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        return AnthropicModel(
            config.model, provider=AnthropicProvider(api_key=key, base_url=config.url, http_client=client)
        )
    if config.provider == "google":
        from pydantic_ai.models.google import GoogleModel
        from pydantic_ai.providers.google import GoogleProvider

        return GoogleModel(config.model, provider=GoogleProvider(api_key=key, base_url=config.url, http_client=client))
    return _openai_like(config, key, client)


def _openai_like(config: ModelConfig, key: str | None, client: httpx2.AsyncClient) -> Model:
    """OpenAI itself, or who speaks as it does."""
    if config.provider == "ollama":
        from pydantic_ai.models.ollama import OllamaModel
        from pydantic_ai.providers.ollama import OllamaProvider

        url = config.url or os.environ.get("OLLAMA_BASE_URL") or _OLLAMA
        return OllamaModel(config.model, provider=OllamaProvider(url, key, http_client=client))
    from pydantic_ai.models.openai import OpenAIChatModel

    if config.provider == "openai":
        from pydantic_ai.providers.openai import OpenAIProvider

        return OpenAIChatModel(config.model, provider=OpenAIProvider(config.url, key, http_client=client))
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

    assert config.url is not None  # the config insists
    provider = OpenAICompatibleProvider(
        "openai-compatible", base_url=config.url, api_key=key, http_client=client,
    )  # fmt: skip
    # What most of these servers know: the older name of the bound, JSON by schema.
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False, supports_json_schema_output=True)
    return OpenAIChatModel(config.model, provider=provider, profile=profile)


def http_client(timeout_s: float) -> httpx2.AsyncClient:
    """A client that follows no redirects (a key goes where the config says, and nowhere else) and reads no endless answer."""
    import httpx2

    async def cap(response: httpx2.Response) -> None:
        response.stream = _capped(response.stream)

    class Capped(httpx2.AsyncByteStream):
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            read = 0
            async for part in self._stream:
                read += len(part)
                if read > _LARGEST_ANSWER:
                    raise AnswerTooLarge(f"its answer has more than {_LARGEST_ANSWER:,} bytes")
                yield part

        async def aclose(self) -> None:
            await self._stream.aclose()

    def _capped(stream: Any) -> httpx2.AsyncByteStream:
        return Capped(stream)

    timeout = httpx2.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s))
    return httpx2.AsyncClient(timeout=timeout, follow_redirects=False, event_hooks={"response": [cap]})


def published_prices(config: ModelConfig) -> Prices | None:
    """What pydantic-ai's price list says of the model (dollars, the dearest tier), or None if it does not know it."""
    if config.provider not in _PUBLISHED or config.url is not None:
        return Prices(0, 0) if config.provider == "ollama" else None
    from genai_prices import Usage, calc_price

    try:
        taken = calc_price(Usage(input_tokens=_MILLION), config.model, provider_id=config.provider)
        given = calc_price(Usage(output_tokens=_MILLION), config.model, provider_id=config.provider)
    except LookupError:
        return None
    return Prices(float(taken.total_price), float(given.total_price))
