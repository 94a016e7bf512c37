"""Validate callers' values. An `EntryDraft` holds only values that may be stored."""

from __future__ import annotations

import hashlib
import json
import math
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from hivemind.frozen import frozen
from hivemind.longterm.entry import MAX_MICROS, MIN_MICROS, Embedding, MemoryEntry, as_micros
from hivemind.longterm.errors import EntryInvalid
from hivemind.longterm.namespace import text_problem
from hivemind.masking import mask, mask_values
from hivemind.search.item import words_of_speaker
from hivemind.words import short_repr

_MAX_WHOLE = 1 << 40  # a larger number is replaced by this one


def check_unicode(text: str, subject: str) -> str:
    """Return the text. Raises EntryInvalid, with `subject` as the text's name, for a character that not every database
    can store."""
    if (problem := text_problem(text)) is not None:
        raise EntryInvalid(f"{subject} contains {problem}")
    return text


def check_name(name: str, subject: str) -> str:
    """Return the name. Raises EntryInvalid as `check_unicode` does, and also for a secret, because names are displayed
    everywhere."""
    if mask(check_unicode(name, subject), words=False) != name:
        raise EntryInvalid(f"{subject} contains a secret", remedy="choose another: names are displayed with the entry")
    return name


def check_text(text: object, subject: str) -> str:
    """Return the text, which may be blank. Raises EntryInvalid, which names `subject`, unless it is a string."""
    if not isinstance(text, str):
        raise EntryInvalid(f"{subject} must be a string, not {short_repr(text)}")
    return text


def check_whole(number: object, subject: str) -> int:
    """Return the number. Raises EntryInvalid, which names `subject`, unless it is an integer ≥ 0."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise EntryInvalid(f"{subject} must be an integer ≥ 0, not {short_repr(number)}")
    return min(number, _MAX_WHOLE)


def check_between(number: object, subject: str, minimum: float, maximum: float) -> float:
    """Return the number. Raises EntryInvalid, which names `subject`, unless it is from `minimum` to `maximum`."""
    if isinstance(number, bool) or not isinstance(number, int | float) or not minimum <= number <= maximum:
        raise EntryInvalid(f"{subject} must be a number from {minimum:g} to {maximum:g}, not {short_repr(number)}")
    return float(number)


def check_flag(flag: object, subject: str) -> bool:
    """Return the flag. Raises EntryInvalid, which names `subject`, unless it is True or False.

    Other values are not converted: the string "false" would count as True.
    """
    if not isinstance(flag, bool):
        raise EntryInvalid(f"{subject} must be True or False, not {short_repr(flag)}")
    return flag


def check_time(moment: object, subject: str) -> int:
    """Return a time as microseconds since 1970. A time without a zone counts as UTC. Raises EntryInvalid, which names
    `subject`, for other values."""
    if not isinstance(moment, datetime):
        raise EntryInvalid(
            f"{subject} must be a datetime, not {short_repr(moment)}",
            remedy="pass a datetime; without a zone it counts as UTC",
        )
    micros = as_micros(moment)
    if not MIN_MICROS <= micros <= MAX_MICROS:
        raise EntryInvalid(f"{subject} is out of range in UTC: {moment.isoformat()}")
    return micros


MAX_TOKENS = 2_048
MAX_METADATA_BYTES = 65_536
_MAX_KEY = 256
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # as JSON escapes it
_DRAFT_FIELDS = ("content", "metadata", "embedding", "category", "importance", "expires_at", "parent_id", "links")


@frozen
class EntryDraft:
    """A value that was checked and may be stored. `metadata` and `links` are JSON, `expires_at` is in microseconds,
    `vector` is float32 bytes or None."""

    content: str
    digest: bytes
    metadata: str
    category: str | None
    importance: float | None
    expires_at: int | None
    parent_id: str | None
    links: str
    vector: bytes | None


def digest_of(content: str) -> bytes:
    """Return the digest (16 bytes) of an entry's content."""
    return hashlib.blake2b(content.encode(), digest_size=16).digest()


def draft_of(
    value: MemoryEntry | Mapping[str, Any] | str, count_tokens: Callable[[str], int], dimension: int
) -> EntryDraft:
    """Return a checked draft of an entry, of a mapping with an entry's fields, or of a content alone. Raises EntryInvalid."""
    fields = _fields(value)
    content = _content(fields.get("content"), count_tokens)
    embedding, importance, expires = (fields.get(name) for name in ("embedding", "importance", "expires_at"))
    if isinstance(embedding, Embedding) and (not embedding.is_from_caller or embedding.digest != digest_of(content)):
        embedding = None  # it was computed by the store or belongs to another content: embed the content again
    return EntryDraft(
        content=content,
        digest=digest_of(content),
        metadata=_metadata(fields.get("metadata")),
        category=check_category(fields.get("category")),
        importance=None if importance is None else check_between(importance, "importance", 0, 1),
        expires_at=None if expires is None else check_time(expires, "expires_at"),
        parent_id=_parent(fields.get("parent_id")),
        links=_links(fields.get("links")),
        vector=None if embedding is None else check_vector(embedding, dimension),
    )


def _fields(value: MemoryEntry | Mapping[str, Any] | str) -> Mapping[str, Any]:
    if isinstance(value, MemoryEntry):
        return {name: getattr(value, name) for name in _DRAFT_FIELDS}
    if isinstance(value, str):
        return {"content": value}
    if not isinstance(value, Mapping):
        raise EntryInvalid(
            f"a {type(value).__name__} cannot be stored", remedy="pass a text, a mapping or a MemoryEntry"
        )
    unknown_names = [name for name in value if name not in _DRAFT_FIELDS]
    if unknown_names:
        raise EntryInvalid(f"{unknown_names[0]!r} is not a field of a memory", remedy=f"use {', '.join(_DRAFT_FIELDS)}")
    return value


def check_key(key: str) -> str:
    """Return the key. Raises EntryInvalid unless it is a string of 1 to 256 characters without a secret."""
    if not isinstance(key, str) or not 1 <= len(key) <= _MAX_KEY:
        raise EntryInvalid(f"{str(key)[:60]!r} is not a key", remedy=f"use a string of 1 to {_MAX_KEY} characters")
    return check_name(key, "the key")


def _content(content: object, count_tokens: Callable[[str], int]) -> str:
    if not isinstance(content, str) or not content.strip():
        raise EntryInvalid("the content is blank", remedy="write the text to remember")
    check_unicode(content, "the content")
    # A token has at least one byte, so most contents need no counting.
    if len(content.encode()) > MAX_TOKENS and (tokens := count_tokens(content)) > MAX_TOKENS:
        raise EntryInvalid(
            f"the content has {tokens} tokens, more than {MAX_TOKENS}",
            remedy="store it in parts, or only the important part",
        )
    return mask(content)


def _metadata(metadata: object) -> str:
    if metadata is None:
        return "{}"
    text = check_json(metadata, "metadata", mask_values)
    if (size := len(text.encode())) > MAX_METADATA_BYTES:
        raise EntryInvalid(f"metadata has {size} bytes as JSON, more than {MAX_METADATA_BYTES}")
    return text


def check_json(mapping: object, subject: str, transform: Callable[[dict[str, Any]], Any] = dict) -> str:
    """Call `transform` with the mapping and return the result as JSON text. Raises EntryInvalid, which names `subject`,
    if this is impossible."""
    if not isinstance(mapping, Mapping) or not all(isinstance(name, str) for name in mapping):
        raise EntryInvalid(
            f"{subject} must be a JSON object", remedy='use strings as names, as in {"customer": "Acme"}'
        )
    try:
        text = json.dumps(transform(dict(mapping)), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise EntryInvalid(f"{subject} cannot be written as JSON ({error})") from None
    if _NUL.search(text):
        raise EntryInvalid(f"{subject} contains a NUL character")
    return check_unicode(text, subject)


def check_category(category: object) -> str | None:
    """Return the category. Raises EntryInvalid unless it is a non-blank string or None."""
    if category is None:
        return None
    if not isinstance(category, str) or not category.strip():
        raise EntryInvalid(
            f"{category!r} is not a category", remedy="use a word, for example preference, fact, goal, context"
        )
    return mask(check_unicode(category, "the category"))


def _parent(parent_id: object) -> str | None:
    if parent_id is not None and (not isinstance(parent_id, str) or not parent_id):
        raise EntryInvalid(f"{parent_id!r} is not the id of a parent")
    return None if parent_id is None else check_name(parent_id, "the parent's id")


def _links(links: object) -> str:
    if links is None:
        return "{}"
    if not isinstance(links, Mapping) or not all(isinstance(name, str) and name for name in links):
        raise EntryInvalid("links must map relations to keys", remedy='pass a mapping such as {"previous": "turn-41"}')
    return _metadata({check_name(name, "the relation"): check_key(key) for name, key in links.items()})


def provenance(
    content: str, speaker: str, *, author: str | None = None, session: str | None = None, time: str | None = None
) -> dict[str, Any]:
    """Return the metadata about a content's origin (speaker, session, time), which the ranking uses.

    The speaker is `author`. If this is None, it is `speaker`, or is left out if the content begins with a name
    ("Ann: …"). `time` is in ISO 8601; an entry without a time dates from the day on which it was created.
    """
    speaker_name = author or ("" if words_of_speaker("", content) else speaker)
    fields = {"speaker": speaker_name, "session": session, "time": time}
    return {name: value for name, value in fields.items() if value}


def check_vector(vector: Sequence[float], dimension: int) -> bytes:
    """Return a vector as float32 bytes. Raises EntryInvalid unless these are `dimension` finite numbers, not all 0."""
    try:
        vector_array = array("f", vector)
    except (TypeError, ValueError, OverflowError) as error:
        raise EntryInvalid(f"an embedding must be a sequence of numbers ({error})") from None
    if len(vector_array) != dimension:
        raise EntryInvalid(f"the embedding has {len(vector_array)} numbers instead of {dimension}")
    if not all(map(math.isfinite, vector_array)):
        raise EntryInvalid("an embedding's numbers must be finite")
    if not any(vector_array):
        raise EntryInvalid("an embedding must not be all zero")
    return vector_array.tobytes()


def shorten(text: str, count_tokens: Callable[[str], int], max_tokens: int = MAX_TOKENS) -> str:
    check_text(text, "the text")
    while len(text.encode("utf-8", "surrogatepass")) > max_tokens and count_tokens(text) > max_tokens:
        text = text[: len(text) * 3 // 4]
    return text
