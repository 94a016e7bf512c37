"""Which language model a mind is: the value of `mind:` in agents/<agent>.yaml, checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from hivemind.boundary import boundary
from hivemind.errors import UserError
from hivemind.masking import keep_secret

KEYS = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "google": ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
}
"""The environment variables that hold a provider's key; the first that is set counts."""

ADDRESSES = {
    "anthropic": "ANTHROPIC_BASE_URL",
    "openai": "OPENAI_BASE_URL",
    "google": "GOOGLE_GEMINI_BASE_URL",
    "ollama": "OLLAMA_BASE_URL",
}
"""The environment variables, the client libraries' own, that say where a provider is asked if no `url` does."""

_MAX_OUTPUT = 16_000
_LARGE_OUTPUT = 32_000  # what a model of a large provider writes in ten minutes, at fifty tokens a second
_SETTINGS = frozenset({
    "effort", "extra_body", "frequency_penalty", "logit_bias", "parallel_tool_calls", "presence_penalty", "seed",
    "service_tier", "stop_sequences", "temperature", "thinking", "top_k", "top_p",
})  # fmt: skip
_CLIENTS = {"anthropic": "anthropic", "google": "google.genai"}


class ModelConfig(BaseModel):
    """A model and how it is asked. `key_env` names the variable that its key stands in; the key itself is never kept here.

    `max_output` is the most tokens of one answer, `timeout_s` how long it may take; a model that allows fewer tokens says so, and
    is asked for those. `tools` is `native` where the model
    can call tools, else `prompted`: then it is told about them in words and answers in JSON. `pictures` says whether it takes
    them (default: the models of Anthropic, OpenAI and Google do). Any other key is a setting of
    the model, as pydantic-ai names it (`temperature`, `thinking`, `top_p`, `seed`, `anthropic_…`); `effort` is another name
    of `thinking`.
    """

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)

    provider: Literal["anthropic", "openai", "google", "ollama", "openai-compatible"]
    model: str = Field(min_length=1)
    url: str | None = Field(None, pattern=r"^https?://[^/]")
    key_env: str | None = Field(None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    max_output: int = Field(
        default_factory=lambda given: _LARGE_OUTPUT if given.get("provider") in KEYS else _MAX_OUTPUT, ge=16
    )
    timeout_s: float = Field(600, gt=0, le=600)
    tools: Literal["native", "prompted"] = "native"
    pictures: bool | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> ModelConfig:
        for name in self.model_extra or {}:
            if name not in _SETTINGS and not name.startswith(("anthropic_", "openai_", "google_")):
                raise ValueError(f"unknown key {name!r}")
        if self.provider == "openai-compatible" and self.url is None:
            raise ValueError("openai-compatible needs a url")
        return self

    @property
    def name(self) -> str:
        """`provider:model`, as the log and the price list have it."""
        return f"{self.provider}:{self.model}"

    @property
    def takes_pictures(self) -> bool:
        return self.provider in KEYS if self.pictures is None else self.pictures

    def settings(self, max_output: int) -> Any:
        """The settings of a request: its bounds, the model's own, and the provider's cache for what stays the same."""
        own = dict(self.model_extra or {})
        if "effort" in own:
            own["thinking"] = own.pop("effort")
        if self.provider == "openai":
            own.setdefault("openai_prompt_cache_key", f"hivemind-{self.model}")
        bounds = {"max_tokens": max_output, "timeout": self.timeout_s, "request_timeout": self.timeout_s}
        return {**bounds, "max_retries": 0, "cache": True, **own}

    @property
    def address(self) -> str | None:
        """Where it is asked: `url`, else what the provider's variable says; None for the provider's own place."""
        return self.url or os.environ.get(ADDRESSES.get(self.provider, ""), "").strip() or None

    def key(self) -> str | None:
        """The key, from the environment only; None for a model that needs none. Raises UserError if it is not set."""
        names = (self.key_env,) if self.key_env is not None else KEYS.get(self.provider, ())
        if self.key_env is not None:
            keep_secret(self.key_env)  # a model that is told its key, or a server that echoes it, gets it into no log
        for name in names:
            if found := os.environ.get(name, "").strip():
                return found
        if self.provider == "ollama" and self.key_env is None:
            return os.environ.get("OLLAMA_API_KEY") or None
        if not names:
            return None
        raise UserError(
            f"{self.name} needs a key, and {' or '.join(names)} is not set",
            mend="set it in the environment of hivemind up; keys are read from nowhere else",
        )

    def check(self) -> None:
        """Raise UserError if what it needs is not there: the key, the client library. Imports nothing."""
        client = _CLIENTS.get(self.provider, "openai")
        if not (_there("pydantic_ai") and _there("jsonschema") and _there(client)):
            raise UserError(f"{self.name} needs the extra 'models'", mend="pip install 'hivemind-swarm[models]'")
        self.key()


def _there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def model_config(provider: str, argument: Any) -> ModelConfig:
    """The config from `provider:MODEL`, or from `{provider: {model: …, …}}`. Raises UserError naming the key."""
    told: Any = {"model": argument} if isinstance(argument, str) else argument
    if not isinstance(told, Mapping):
        raise UserError(f"mind: {provider} needs a model", mend=f"write mind: {provider}:MODEL")
    with boundary(f"configuration of {provider}"):
        try:
            return ModelConfig.model_validate({**told, "provider": provider})
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            what = f"mind: {provider}{'.' if place else ''}{place}: {first['msg'].removeprefix('Value error, ')}"
            keys = [name for name in ModelConfig.model_fields if name != "provider"] + sorted(_SETTINGS)
            raise UserError(what, mend=f"keys: {', '.join(keys)}, {provider.partition('-')[0]}_…") from None
