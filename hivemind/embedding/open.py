"""Open the embedder that hive.yaml names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hivemind.embedding.embedder import Embedder
from hivemind.embedding.local import HashingEmbedder, MiniLM, is_installed
from hivemind.embedding.service import SharedEmbedder, users_folder
from hivemind.errors import UserError


def open_embedder(spec: str | Mapping[str, Any] = "auto", *, use_service: bool = False) -> Embedder | None:
    """Return the embedder that `spec` names; None for `none`, and for `auto` if the extra `embed` is not installed.

    `spec` is `auto`, `none`, `minilm`, `hashing`, or `{url, model, dimension, key_env}` for an endpoint. With `use_service`,
    MiniLM runs in the process that serves all hives of the user, otherwise in the calling process. Models are loaded and
    processes started at the first text. Raises UserError for another `spec`, EmbedderUnavailable for `minilm` without extra.
    """
    if isinstance(spec, Mapping):
        from hivemind.config import EmbedderConfig  # imported here, because few hives use an endpoint
        from hivemind.embedding.endpoint import EndpointEmbedder
        from hivemind.frontmatter import ParsedText, validate

        settings = validate(EmbedderConfig, ParsedText(dict(spec), {}, "embedder"))
        return EndpointEmbedder(settings.url, settings.model, settings.dimension, key_env=settings.key_env)
    if spec == "none" or (spec == "auto" and not is_installed()):
        return None
    if spec == "hashing":
        return HashingEmbedder()
    if spec not in ("auto", "minilm"):
        raise UserError(
            f"unknown embedder {spec!r}",
            remedy="known: auto, none, minilm, hashing, or {url, model, dimension, key_env}",
        )
    if not use_service or not is_installed():
        return MiniLM()
    return SharedEmbedder(users_folder(), "minilm", MiniLM.name, MiniLM.dimension)
