"""An embedder that calls an OpenAI-compatible endpoint with the standard library's HTTP client."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from hivemind.boundary import Unreadable, boundary
from hivemind.embedding.embedder import EmbedderUnavailable
from hivemind.errors import UserError
from hivemind.masking import keep_secret

_BATCH_SIZE = 64
_MAX_CHARACTERS = 24_000  # a longer text is cut: models refuse more than 8,191 tokens
_TIMEOUT_S = 30.0
_TRIES = 3
_PAUSE_S = 0.5
_MAX_BYTES = 1 << 27
_RETRIED_STATUSES = (408, 409, 429, 500, 502, 503, 504)


class EndpointEmbedder:
    """An embedder that sends `POST <url>/embeddings` with the texts and the model's name.

    Each request reads the key from the environment, and is sent up to three times if the status allows a retry. The
    constructor raises UserError for an invalid URL; later failures raise EmbedderUnavailable.
    """

    def __init__(
        self,
        url: str,
        model: str,
        dimension: int,
        *,
        key_env: str | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        with boundary("address", url):
            parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise UserError(f"embedder: {url!r} must be an http or https URL")
        self.name = f"{model}-{dimension}@{parts.hostname}"
        self.dimension = dimension
        self._model = model
        self._url = url.rstrip("/") + ("" if parts.path.rstrip("/").endswith("/embeddings") else "/embeddings")
        self._key_env, self._pause = key_env, pause

    def embed(self, texts: list[str]) -> Sequence[Sequence[float]]:
        batches = [texts[start : start + _BATCH_SIZE] for start in range(0, len(texts), _BATCH_SIZE)]
        return [row for batch in batches for row in self._embed(batch)]

    def _embed(self, texts: list[str]) -> list[list[float]]:
        clean = [text[:_MAX_CHARACTERS].encode("utf-8", "replace").decode() or " " for text in texts]
        answer = self._post({"model": self._model, "input": clean, "encoding_format": "float"})
        try:
            with boundary("embedding"):
                rows = {int(item["index"]): [float(value) for value in item["embedding"]] for item in answer["data"]}
                vectors = [rows[number] for number in range(len(texts))]
        except Unreadable as error:
            raise EmbedderUnavailable(
                f"the answer contains no valid embeddings ({error.__cause__!r})", location=self._url
            ) from None
        for row in vectors:
            if len(row) != self.dimension:
                raise EmbedderUnavailable(
                    f"returned {len(row)} dimensions instead of {self.dimension}",
                    location=self._url,
                    remedy=f"set dimension: {len(row)} in hive.yaml",
                )
        return vectors

    def _post(self, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(self._url, json.dumps(body).encode(), self._headers())  # noqa: S310 (checked)
        for attempt in range(_TRIES):
            try:
                with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
                    raw = answer.read(_MAX_BYTES)
                with boundary("answer"):
                    return json.loads(raw)
            except urllib.error.HTTPError as error:
                with error:
                    reason, can_retry = f"answered {error.code} {error.reason}", error.code in _RETRIED_STATUSES
            except OSError as error:
                reason, can_retry = f"failed ({error})", True
            except (Unreadable, ValueError) as error:
                reason, can_retry = f"failed ({error})", False
            if not can_retry:
                break
            if attempt < _TRIES - 1:
                self._pause(_PAUSE_S * 2**attempt)
        raise EmbedderUnavailable(reason, location=self._url)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self._key_env is not None:
            keep_secret(self._key_env)
            key = os.environ.get(self._key_env)
            if not key:
                raise EmbedderUnavailable(f"the environment has no key {self._key_env}", location=self._url)
            headers["Authorization"] = f"Bearer {key}"
        return headers
