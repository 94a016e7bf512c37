"""What can go wrong with a provider, in the mind's own errors."""

from __future__ import annotations

import re

from hivemind.minds.json_text import whole_text
from hivemind.minds.language.answer import Answer
from hivemind.minds.mind import ContextTooLong, MindUnavailable
from hivemind.minds.turn import MindError

__all__ = ["Refused", "in_our_words"]

_TOO_LONG = re.compile(
    r"context.{0,20}(length|window|size|limit)|prompt is too long|too many (input )?tokens|maximum.{0,30}tokens",
    re.IGNORECASE,
)
_BOUND_TOO_HIGH = re.compile(r"(output|completion) tokens", re.IGNORECASE)
_TOO_LARGE = 413
_NOT_YET = frozenset({408, 425})
"""A proxy's words for a request that came too slowly, or too early: the same request may do in a moment."""
_SHOWN = 300


class Refused(MindError):
    """The model or its provider will not answer this; the message says why, if it was told.

    `answer` is what came all the same: a refusal is charged for, too.
    """

    def __init__(self, reason: str, answer: Answer | None = None) -> None:
        super().__init__(reason)
        self.answer = answer


def in_our_words(error: Exception, key: str | None) -> MindError:
    """The MindError that says what a client library's exception means; a key that stands in its text is taken out."""
    from pydantic_ai import exceptions as theirs

    said = _said(error, key)
    after = getattr(error, "retry_after", None)
    status = getattr(error, "status_code", None) or getattr(error.__cause__, "status_code", None)
    if isinstance(error, theirs.ContentFilterError):
        return Refused(f"the provider refused to answer: {said}")
    if (
        isinstance(error, theirs.ModelContextWindowExceededError)
        or status == _TOO_LARGE
        or _says_too_long(status, said)
    ):
        return ContextTooLong(f"the context is too long for the model: {said}")
    if isinstance(error, theirs.ModelRateLimitError):
        return MindUnavailable(f"asked too often: {said}", after_s=after, passing=True)
    if (
        isinstance(error, theirs.ModelUnavailableError | theirs.ModelServerError)
        or (status or 0) >= 500
        or status in _NOT_YET
    ):
        return MindUnavailable(f"the provider has trouble: {said}", after_s=after, passing=True)
    if isinstance(error, theirs.ModelQuotaExceededError):
        return MindUnavailable(f"the account's quota is used up: {said}")
    if isinstance(error, theirs.ModelAuthenticationError):
        return MindUnavailable(f"the provider does not accept the key: {said}")
    if isinstance(error, theirs.ModelNotFoundError):
        return MindUnavailable(f"the provider has no such model: {said}")
    if status is not None and 300 <= status < 400:
        return MindUnavailable(
            "the provider answers with a redirect, which is not followed: its url: is another one by now"
        )
    return _of_the_connection(error, said)


def _says_too_long(status: int | None, said: str) -> bool:
    """Whether a request was turned away for the length of its context, not for the length of the answer that it asks for."""
    return status in (400, 422) and bool(_TOO_LONG.search(said)) and not _BOUND_TOO_HIGH.search(said)


def _of_the_connection(error: Exception, said: str) -> MindError:
    from pydantic_ai import exceptions as theirs

    if isinstance(error, theirs.ModelRequestTimeout | theirs.ModelTimeoutError) and _was_sent(error):
        return MindUnavailable(f"no answer in time: {said}", passing=True, lost=True)
    if isinstance(error, theirs.ModelConnectionError):
        return MindUnavailable(f"no connection: {said}", passing=True, lost=_was_sent(error))
    if isinstance(error, theirs.ModelAPIError) and getattr(error, "status_code", None) is not None:
        return MindError(f"the provider does not understand the request: {said}")
    # What is no answer of this kind of server at all: a page of a proxy, half a body, too much of it.
    return MindUnavailable(f"what came is no answer of a model: {said}", passing=True, lost=True)


def _was_sent(error: Exception) -> bool:
    return getattr(error, "phase", None) not in ("pool", "connect")


def _said(error: Exception, key: str | None) -> str:
    """The error's own words in one line, without the key and not too long."""
    cause = error.__cause__
    text = str(error) or type(error).__name__
    if cause is not None and str(cause) and str(cause) not in text:
        text = f"{text} ({type(cause).__name__}: {cause})"
    if key:
        text = text.replace(key, "[key]")
    text = whole_text(" ".join(text.split()))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
