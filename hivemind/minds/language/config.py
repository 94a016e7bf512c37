"""The configuration of a language model: the validated value of `mind:` in agents/<agent>.yaml."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hivemind.boundary import boundary
from hivemind.errors import UserError
from hivemind.frontmatter import problem_of
from hivemind.masking import keep_secret
from hivemind.minds.mind import KEYS, MissingKey

ADDRESSES = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "openai": "OPENAI_BASE_URL",
    "google": "GOOGLE_GEMINI_BASE_URL",
    "ollama": "OLLAMA_BASE_URL",
}
"""The client libraries' environment variables for a provider's address, used without `url`."""

_MAX_OUTPUT = 16_000
_LARGE_OUTPUT = 32_000  # ten minutes at 50 tokens per second, the speed of a large provider's model
_SETTINGS = frozenset({
    "effort", "extra_body", "frequency_penalty", "logit_bias", "parallel_tool_calls", "presence_penalty", "seed",
    "service_tier", "stop_sequences", "temperature", "thinking", "top_k", "top_p",
})  # fmt: skip
_CLIENTS = {"anthropic": "anthropic", "google": "google.genai"}


class ModelConfig(BaseModel):
    """A model and its settings. `key_env` names the environment variable with its key; the key itself is not stored.

    `max_output` is the maximum length of an answer in tokens; it is lowered if the model reports a lower limit.
    `timeout_s` is the maximum time for an answer. `tools` is `native` if the model can call tools, else `prompted`: tools
    are then described in the system message, and the model answers in JSON. `pictures` says whether the model accepts
    pictures (default: yes for Anthropic, OpenAI and Google). All other keys are settings of the model, named as in
    pydantic-ai (`temperature`, `thinking`, `top_p`, `seed`, `anthropic_…`); `effort` is an alias of `thinking`.
    """

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True, defer_build=True)

    provider: Literal["anthropic", "openai", "google", "ollama", "openai-compatible"]
    model: str = Field(min_length=1)
    url: str | None = Field(None, pattern=r"^https?://[^/]")
    key_env: str | None = Field(None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    max_output: int = Field(
        default_factory=lambda fields: _LARGE_OUTPUT if fields.get("provider") in KEYS else _MAX_OUTPUT, ge=16
    )
    timeout_s: float = Field(600, gt=0, le=600)
    tools: Literal["native", "prompted"] = "native"
    pictures: bool | None = None

    @model_validator(mode="after")
    def _check_keys(self) -> ModelConfig:
        for name in self.model_extra or {}:
            if name not in _SETTINGS and not name.startswith(("anthropic_", "openai_", "google_")):
                raise ValueError(f"unknown key {name!r}")
        if self.provider == "openai-compatible" and self.url is None:
            raise ValueError("openai-compatible needs a url")
        return self

    @property
    def name(self) -> str:
        """Return `provider:model`, as in the log and the price list."""
        return f"{self.provider}:{self.model}"

    @property
    def takes_pictures(self) -> bool:
        return self.provider in KEYS if self.pictures is None else self.pictures

    def settings(self, max_output: int) -> Any:
        """Return the settings of a request: its limits, the model's settings, and the use of the provider's cache."""
        model_settings = dict(self.model_extra or {})
        if "effort" in model_settings:
            model_settings["thinking"] = model_settings.pop("effort")
        if self.provider == "openai":
            model_settings.setdefault("openai_prompt_cache_key", f"hivemind-{self.model}")
        bounds = {"max_tokens": max_output, "timeout": self.timeout_s, "request_timeout": self.timeout_s}
        return {**bounds, "max_retries": 0, "cache": True, **model_settings}

    @property
    def address(self) -> str | None:
        """Return `url`, else the address in the provider's environment variable, else None for the default address."""
        return self.url or os.environ.get(ADDRESSES.get(self.provider, ""), "").strip() or None

    def key(self) -> str | None:
        """Return the key from the environment, or None if the model needs none. Raises MissingKey if it is not set."""
        names = (self.key_env,) if self.key_env is not None else KEYS.get(self.provider, ())
        if self.key_env is not None:
            keep_secret(self.key_env)  # masks the key in logs, in case a model or server repeats it
        for name in names:
            if key := os.environ.get(name, "").strip():
                return key
        if self.provider == "ollama" and self.key_env is None:
            return os.environ.get("OLLAMA_API_KEY") or None
        if not names:
            return None
        raise MissingKey(
            f"{self.name} needs a key, and {' or '.join(names)} is not set",
            remedy="set it in the environment of hivemind up; keys are read only from there",
        )

    def check(self) -> None:
        """Raise UserError if the key or the client library is missing. Does not import the library."""
        client = _CLIENTS.get(self.provider, "openai")
        if not (_is_installed("pydantic_ai") and _is_installed("jsonschema") and _is_installed(client)):
            raise UserError(f"{self.name} needs the extra 'models'", remedy="pip install 'hivemind-swarm[models]'")
        self.key()


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def model_config(provider: str, argument: Any) -> ModelConfig:
    """Return the config in `provider:MODEL` or `{provider: {model: …, …}}`. Raises UserError naming the bad key."""
    fields: Any = {"model": argument} if isinstance(argument, str) else argument
    if not isinstance(fields, Mapping):
        raise UserError(f"mind: {provider} needs a model", remedy=f"write mind: {provider}:MODEL")
    with boundary(f"configuration of {provider}"):
        try:
            return ModelConfig.model_validate({**fields, "provider": provider})
        except ValidationError as error:
            first_error = error.errors(include_input=False)[0]
            location = ".".join(str(part) for part in first_error["loc"])
            message = f"mind: {provider}{'.' if location else ''}{location}: {problem_of(first_error)}"
            keys = [name for name in ModelConfig.model_fields if name != "provider"] + sorted(_SETTINGS)
            raise UserError(message, remedy=f"keys: {', '.join(keys)}, {provider.partition('-')[0]}_…") from None
