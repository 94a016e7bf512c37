"""An embedder as hive.yaml names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hivemind.embedding.embedder import Embedder
from hivemind.embedding.local import HashingEmbedder, MiniLM, is_installed
from hivemind.embedding.service import SharedEmbedder, users_folder
from hivemind.errors import UserError


def open_embedder(spec: str | Mapping[str, Any] = "auto", *, shared: bool = False) -> Embedder | None:
    """The embedder that `spec` names, or None for `none`, and for `auto` where the extra `embed` is not installed.

    `auto`, `none`, `minilm`, `hashing`, or `{url, model, dimension, key_env}` for an endpoint. `shared`: MiniLM
    runs in the one process that serves all hives of the user, otherwise in this one. Nothing is loaded or started before
    the first text. Raises UserError for what is none of these, EmbedderUnavailable for `minilm` without its extra.
    """
    if isinstance(spec, Mapping):
        return _endpoint(spec)
    if spec == "none" or (spec == "auto" and not is_installed()):
        return None
    if spec == "hashing":
        return HashingEmbedder()
    if spec not in ("auto", "minilm"):
        raise UserError(
            f"unknown embedder {spec!r}", mend="known: auto, none, minilm, hashing, or {url, model, dimension, key_env}"
        )
    if not shared or not is_installed():
        return MiniLM()
    return SharedEmbedder(users_folder(), "minilm", MiniLM.name, MiniLM.dimension)


def _endpoint(spec: Mapping[str, Any]) -> Embedder:
    from hivemind.config import EmbedderConfig  # late: few hives have one
    from hivemind.embedding.endpoint import EndpointEmbedder
    from hivemind.frontmatter import Parsed, validate

    told = validate(EmbedderConfig, Parsed(dict(spec), {}, "embedder"))
    return EndpointEmbedder(told.url, told.model, told.dimension, key_env=told.key_env)
