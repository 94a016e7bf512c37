"""What callers give, checked: what is in a Draft may stand in the database (seed 001, *Validation Rules*)."""

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
from hivemind.longterm.entry import FIRST, LAST, Embedding, MemoryEntry, as_micros
from hivemind.longterm.errors import EntryInvalid
from hivemind.longterm.namespace import text_problem
from hivemind.masking import mask, masked
from hivemind.search.item import said_by
from hivemind.words import shown

_MOST = 1 << 40  # a whole number beyond means: all there are


def check_unicode(text: str, what: str) -> str:
    """The text as it is. Raises EntryInvalid for what not every database can keep."""
    if (problem := text_problem(text)) is not None:
        raise EntryInvalid(f"{what} has {problem}")
    return text


def check_name(name: str, what: str) -> str:
    """The name as it is. Raises EntryInvalid as check_unicode does, and for a secret, which a name would show everywhere."""
    if mask(check_unicode(name, what), words=False) != name:
        raise EntryInvalid(f"{what} holds a secret", mend="choose another: a name is shown wherever the entry is")
    return name


def check_text(text: object, what: str) -> str:
    """A text, which may be blank."""
    if not isinstance(text, str):
        raise EntryInvalid(f"{what} is a text, {shown(text)} is none")
    return text


def check_whole(number: object, what: str) -> int:
    """A whole number from 0."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise EntryInvalid(f"{what} is a whole number from 0, {shown(number)} is none")
    return min(number, _MOST)


def check_between(number: object, what: str, least: float, most: float) -> float:
    """A number from `least` to `most`."""
    if isinstance(number, bool) or not isinstance(number, int | float) or not least <= number <= most:
        raise EntryInvalid(f"{what} is a number from {least:g} to {most:g}, {shown(number)} is none")
    return float(number)


def check_flag(flag: object, what: str) -> bool:
    """True or False: what only counts as true must not widen a search, or store what was not to be stored."""
    if not isinstance(flag, bool):
        raise EntryInvalid(f"{what} is True or False, {shown(flag)} is neither")
    return flag


def check_time(moment: object, what: str) -> int:
    """A time in microseconds since 1970; one without a zone is UTC. It must be one that a datetime in UTC can say."""
    if not isinstance(moment, datetime):
        raise EntryInvalid(f"{what} is a datetime, {shown(moment)} is none", mend="without a zone it is taken as UTC")
    micros = as_micros(moment)
    if not FIRST <= micros <= LAST:
        raise EntryInvalid(f"{what} is a time that UTC cannot say: {moment.isoformat()}")
    return micros


MAX_TOKENS = 2_048
MAX_METADATA_BYTES = 65_536
_MAX_KEY = 256
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # as JSON says it
_TAKEN = ("content", "metadata", "embedding", "category", "importance", "expires_at", "parent_id", "links")


@frozen
class Draft:
    """A checked value. `metadata` and `links` are JSON, `expires_at` microseconds, `vector` float32 bytes or None."""

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
    """What tells contents apart: 16 bytes."""
    return hashlib.blake2b(content.encode(), digest_size=16).digest()


def draft_of(value: MemoryEntry | Mapping[str, Any] | str, count: Callable[[str], int], dimension: int) -> Draft:
    """The checked form of a value: an entry, a mapping with an entry's fields, or just its content.

    Raises EntryInvalid that says which rule is broken.
    """
    told = _fields(value)
    content = _content(told.get("content"), count)
    embedding, importance, expires = (told.get(name) for name in ("embedding", "importance", "expires_at"))
    if isinstance(embedding, Embedding) and (not embedding.given or embedding.digest != digest_of(content)):
        embedding = None  # the store computed it, or had it with another content: the content says what it means
    return Draft(
        content=content,
        digest=digest_of(content),
        metadata=_metadata(told.get("metadata")),
        category=check_category(told.get("category")),
        importance=None if importance is None else check_between(importance, "importance", 0, 1),
        expires_at=None if expires is None else check_time(expires, "expires_at"),
        parent_id=_parent(told.get("parent_id")),
        links=_links(told.get("links")),
        vector=None if embedding is None else check_vector(embedding, dimension),
    )


def _fields(value: MemoryEntry | Mapping[str, Any] | str) -> Mapping[str, Any]:
    if isinstance(value, MemoryEntry):
        return {name: getattr(value, name) for name in _TAKEN}
    if isinstance(value, str):
        return {"content": value}
    if not isinstance(value, Mapping):
        raise EntryInvalid(
            f"a {type(value).__name__} cannot be stored", mend="a memory is a text, a mapping or a MemoryEntry"
        )
    unknown = [name for name in value if name not in _TAKEN]
    if unknown:
        raise EntryInvalid(f"{unknown[0]!r} is no field of a memory", mend=f"fields: {', '.join(_TAKEN)}")
    return value


def check_key(key: str) -> str:
    """The key as it is. Raises EntryInvalid unless it is 1 to 256 characters of text."""
    if not isinstance(key, str) or not 1 <= len(key) <= _MAX_KEY:
        raise EntryInvalid(f"{str(key)[:60]!r} is no key", mend=f"a key is a text of 1 to {_MAX_KEY} characters")
    return check_name(key, "the key")


def _content(content: object, count: Callable[[str], int]) -> str:
    if not isinstance(content, str) or not content.strip():
        raise EntryInvalid("the content is blank", mend="say what is to be remembered")
    check_unicode(content, "the content")
    # A token has at least one byte: most contents need no counting.
    if len(content.encode()) > MAX_TOKENS and (tokens := count(content)) > MAX_TOKENS:
        raise EntryInvalid(
            f"the content has {tokens} tokens, {MAX_TOKENS} is the most",
            mend="store it in parts, or what matters of it",
        )
    return mask(content)


def _metadata(metadata: object) -> str:
    if metadata is None:
        return "{}"
    text = check_json(metadata, "metadata", masked)
    if (size := len(text.encode())) > MAX_METADATA_BYTES:
        raise EntryInvalid(f"metadata has {size} bytes as JSON, {MAX_METADATA_BYTES} is the most")
    return text


def check_json(mapping: object, what: str, written: Callable[[dict[str, Any]], Any] = dict) -> str:
    """A mapping of names as the text of a JSON object; `written` is what of it is written. Raises EntryInvalid."""
    if not isinstance(mapping, Mapping) or not all(isinstance(name, str) for name in mapping):
        raise EntryInvalid(f"{what} is a JSON object", mend='names are strings, as in {"customer": "Acme"}')
    try:
        text = json.dumps(written(dict(mapping)), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise EntryInvalid(f"{what} cannot be said in JSON ({error})") from None
    if _NUL.search(text):
        raise EntryInvalid(f"{what} has a NUL character in it")
    return check_unicode(text, what)


def check_category(category: object) -> str | None:
    """A category as it is, or None. Raises EntryInvalid unless it is a word."""
    if category is None:
        return None
    if not isinstance(category, str) or not category.strip():
        raise EntryInvalid(f"{category!r} is no category", mend="a word, such as preference, fact, goal, context")
    return mask(check_unicode(category, "the category"))


def _parent(parent_id: object) -> str | None:
    if parent_id is not None and (not isinstance(parent_id, str) or not parent_id):
        raise EntryInvalid(f"{parent_id!r} is no id of a parent")
    return None if parent_id is None else check_name(parent_id, "the parent's id")


def _links(links: object) -> str:
    if links is None:
        return "{}"
    if not isinstance(links, Mapping) or not all(isinstance(name, str) and name for name in links):
        raise EntryInvalid("links are relations with keys", mend='as {"previous": "turn-41"}')
    return _metadata({check_name(name, "the relation"): check_key(key) for name, key in links.items()})


def provenance(
    content: str, speaker: str, *, known: str | None = None, session: str | None = None, time: str | None = None
) -> dict[str, Any]:
    """Who says a content, in which session and when, as metadata that search goes by (ISO 8601; an entry without a time is of
    the day that it was made). `speaker` is who writes it: a content that begins with somebody's name ("Ann: …") is theirs,
    and `known` says whose it is in any case."""
    who = known or ("" if said_by("", content) else speaker)
    found = {"speaker": who, "session": session, "time": time}
    return {name: value for name, value in found.items() if value}


def check_vector(vector: Sequence[float], dimension: int) -> bytes:
    """A vector as float32 bytes. Raises EntryInvalid unless it has `dimension` finite numbers that are not all 0."""
    try:
        packed = array("f", vector)
    except (TypeError, ValueError, OverflowError) as error:
        raise EntryInvalid(f"an embedding is a row of numbers ({error})") from None
    if len(packed) != dimension:
        raise EntryInvalid(f"an embedding of {len(packed)} numbers was given, {dimension} are expected")
    if not all(map(math.isfinite, packed)):
        raise EntryInvalid("an embedding's numbers are finite")
    if not any(packed):
        raise EntryInvalid("an embedding that is all zero says nothing")
    return packed.tobytes()


def shortened(text: str, count: Callable[[str], int], most: int = MAX_TOKENS) -> str:
    """The beginning of a text that has at most `most` tokens; all of it where it fits."""
    check_text(text, "what is to be shortened")
    while len(text.encode("utf-8", "surrogatepass")) > most and count(text) > most:
        text = text[: len(text) * 3 // 4]
    return text
