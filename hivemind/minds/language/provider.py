"""The client of a model's provider, made through pydantic-ai; no other provider's is imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hivemind.minds.language.config import ModelConfig
from hivemind.minds.prices import Prices

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model

__all__ = ["open_model", "published_prices"]

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
