"""An embedder as hive.yaml names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hivemind.embedding.embedder import Embedder
from hivemind.embedding.local import HashingEmbedder, MiniLM, is_installed
from hivemind.embedding.service import SharedEmbedder, users_folder
from hivemind.errors import UserError

__all__ = ["open_embedder"]

_KEYS = {"url", "model", "key_env", "dimension"}
_KNOWN = "auto, none, minilm, hashing, or {url, model, dimension, key_env}"


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
        raise UserError(f"unknown embedder {spec!r}", mend=f"known: {_KNOWN}")
    if not shared or not is_installed():
        return MiniLM()
    return SharedEmbedder(users_folder(), "minilm", MiniLM.name, MiniLM.dimension)


def _endpoint(spec: Mapping[str, Any]) -> Embedder:
    from hivemind.embedding.endpoint import EndpointEmbedder  # late: it brings the standard library's HTTP

    unknown = sorted(set(spec) - _KEYS)
    if unknown or not isinstance(spec.get("url"), str) or not isinstance(spec.get("model"), str):
        what = f"unknown key {unknown[0]!r}" if unknown else "url and model are texts that must be there"
        raise UserError(f"embedder: {what}", mend=f"known: {_KNOWN}")
    dimension = spec.get("dimension")
    if not isinstance(dimension, int) or isinstance(dimension, bool) or dimension < 1:
        raise UserError("embedder: dimension is a number of 1 or more", mend="say what the model gives, e.g. 1536")
    key_env = spec.get("key_env")
    if key_env is not None and not isinstance(key_env, str):
        raise UserError("embedder: key_env is the name of a variable of the environment")
    return EndpointEmbedder(spec["url"], spec["model"], dimension, key_env=key_env)
