"""Any endpoint that takes OpenAI's embeddings requests, by the standard library's HTTP."""

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

_AT_ONCE = 64
_CHARACTERS = 24_000  # of one text: models refuse more than 8,191 tokens
_TIMEOUT_S = 30.0
_TRIES = 3
_PAUSE_S = 0.5
_MOST_BYTES = 1 << 27
_AGAIN = (408, 409, 429, 500, 502, 503, 504)


class EndpointEmbedder:
    """`POST <url>/embeddings` with the model's name; the key is read from the environment when it is needed.

    A request is tried three times where the answer says that it may help; nothing is sent but the texts and the model.
    Raises UserError for a url that is none, EmbedderUnavailable for everything that fails later.
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
            raise UserError(f"embedder: {url!r} is no http(s) address")
        self.name = f"{model}-{dimension}@{parts.hostname}"
        self.dimension = dimension
        self._model = model
        self._url = url.rstrip("/") + ("" if parts.path.rstrip("/").endswith("/embeddings") else "/embeddings")
        self._key_env, self._pause = key_env, pause

    def embed(self, texts: list[str]) -> Sequence[Sequence[float]]:
        """One row for each text."""
        parts = [texts[at : at + _AT_ONCE] for at in range(0, len(texts), _AT_ONCE)]
        return [row for part in parts for row in self._embed(part)]

    def _embed(self, texts: list[str]) -> list[list[float]]:
        clean = [text[:_CHARACTERS].encode("utf-8", "replace").decode() or " " for text in texts]
        answer = self._post({"model": self._model, "input": clean, "encoding_format": "float"})
        try:
            with boundary("embedding"):
                rows = {int(item["index"]): [float(value) for value in item["embedding"]] for item in answer["data"]}
                found = [rows[number] for number in range(len(texts))]
        except Unreadable as error:
            raise EmbedderUnavailable(f"answered what is no embedding ({error.__cause__!r})", where=self._url) from None
        for row in found:
            if len(row) != self.dimension:
                raise EmbedderUnavailable(
                    f"gave {len(row)} dimensions, not {self.dimension}",
                    where=self._url,
                    mend=f"say dimension: {len(row)} in hive.yaml",
                )
        return found

    def _post(self, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(self._url, json.dumps(body).encode(), self._headers())  # noqa: S310 (checked)
        for turn in range(_TRIES):
            try:
                with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
                    raw = answer.read(_MOST_BYTES)
                with boundary("answer"):
                    found = json.loads(raw)
                    return found if isinstance(found, dict) else {}
            except urllib.error.HTTPError as error:
                with error:
                    why, again = f"answered {error.code} {error.reason}", error.code in _AGAIN
            except OSError as error:
                why, again = f"failed ({error})", True
            except (Unreadable, ValueError) as error:
                why, again = f"failed ({error})", False
            if not again:
                break
            if turn < _TRIES - 1:
                self._pause(_PAUSE_S * 2**turn)
        raise EmbedderUnavailable(why, where=self._url)

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        if self._key_env is not None:
            keep_secret(self._key_env)
            key = os.environ.get(self._key_env)
            if not key:
                raise EmbedderUnavailable(f"no key in the environment: {self._key_env}", where=self._url)
            headers["Authorization"] = f"Bearer {key}"
        return headers
