"""JSON in what a model wrote: fenced, with words around it, or cut off; and what of it no log can hold."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from hivemind.boundary import Unreadable, boundary

_FENCE = re.compile(r"```[a-zA-Z]*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_START = re.compile(r"[\[{]")
_LOOKS = 50  # brackets in prose that may be the beginning of the JSON

DEEPEST = 64
"""How many lists and objects may stand in each other: no tool asks for more than a few, and what walks them recurses."""


def fault_of(value: Any) -> str | None:
    """Why a JSON value can't be used, in words for the mind that wrote it, or None: nested too deeply, half a character,
    a number that is none."""
    level, depth = [value], 0
    while level:
        below: list[Any] = []
        for one in level:
            if isinstance(one, str):
                if whole_text(one) != one:
                    return "a text in it has half a character (a lone surrogate)"
            elif isinstance(one, float):
                if not math.isfinite(one):  # Python writes it, and no other program can read the log then
                    return "a number in it is none that JSON has (NaN, Infinity, or too large)"
            elif isinstance(one, Mapping):
                below += [*one, *one.values()]
            elif isinstance(one, list):
                below += one
        level, depth = below, depth + 1
        if level and depth > DEEPEST:
            return f"it is nested more than {DEEPEST} deep"
    return None


def whole_text(text: str) -> str:
    """The text with `?` for what no file can hold: halves of characters, which JSON can write."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def find_json(text: str) -> Any:
    """The one JSON value of a text: all of it, or what a fence has in it, or the first object or list among words.

    What is cut off is never completed by guessing: half an order may be another order. Raises Unreadable, for what is nested
    too deeply or has half a character in it as well; it says why, for the model to read.
    """
    with boundary("JSON value", "the answer"):
        found = _found(text)
    if fault := fault_of(found):
        raise Unreadable(f"the JSON in the answer can't be used: {fault}")
    return found


def _found(text: str) -> Any:
    whole = text.strip()
    if not whole:
        raise Unreadable("the answer was empty")
    problem: ValueError | None = None
    for part in [whole, *(found.strip() for found in _FENCE.findall(whole))]:
        try:
            return json.loads(part)
        except ValueError as error:
            problem = problem or error
    found = _among_words(whole)
    if found is None:
        raise Unreadable(f"the answer had no JSON in it ({problem})")
    return found[0]


def _among_words(text: str) -> tuple[Any] | None:
    """The first object or list in a text, or None. Raises Unreadable for one that is cut off: what is in it is a part."""
    decoder = json.JSONDecoder()
    at = 0
    for _ in range(_LOOKS):
        start = _START.search(text, at)
        if start is None:
            return None
        try:
            return (decoder.raw_decode(text, start.start())[0],)
        except json.JSONDecodeError as error:
            if error.pos >= len(text) or error.msg.startswith("Unterminated"):
                raise Unreadable(f"the JSON in the answer is cut off ({error.msg})") from None
            at = max(error.pos, start.end())
    return None


def fault_in(value: Any, schema: Mapping[str, Any]) -> str | None:
    """What is wrong with a value by its JSON Schema, with the place, or None if nothing is."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    found = best_match(Draft202012Validator(schema).iter_errors(value))
    if found is None:
        return None
    place = ".".join(str(part) for part in found.absolute_path)
    return f"{place}: {found.message}" if place else found.message
