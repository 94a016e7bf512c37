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
_MAX_TRIES = 50  # brackets in prose that may be the beginning of the JSON

MAX_DEPTH = 64
"""How many lists and objects may stand in each other: no tool asks for more than a few, and what walks them recurses."""


def fault_of(value: Any) -> str | None:
    """Why a JSON value can't be used, in words for the mind that wrote it, or None: nested too deeply, half a character,
    a number that is none."""
    level, depth = [value], 0
    while level:
        next_level: list[Any] = []
        for node in level:
            if isinstance(node, str):
                if without_surrogates(node) != node:
                    return "a text in it has half a character (a lone surrogate)"
            elif isinstance(node, float):
                if not math.isfinite(node):  # Python writes it, and no other program can read the log then
                    return "a number in it is none that JSON has (NaN, Infinity, or too large)"
            elif isinstance(node, Mapping):
                next_level += [*node, *node.values()]
            elif isinstance(node, list):
                next_level += node
        level, depth = next_level, depth + 1
        if level and depth > MAX_DEPTH:
            return f"it is nested more than {MAX_DEPTH} deep"
    return None


def without_surrogates(text: str) -> str:
    """The text with `?` for what no file can hold: halves of characters, which JSON can write."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def find_json(text: str) -> Any:
    """The one JSON value of a text: all of it, or what a fence has in it, or the first object or list among words.

    What is cut off is never completed by guessing: half an order may be another order. Raises Unreadable, for what is nested
    too deeply or has half a character in it as well; it says why, for the model to read.
    """
    with boundary("JSON value", "the answer"):
        document = _find(text)
    if fault := fault_of(document):
        raise Unreadable(f"the JSON in the answer can't be used: {fault}")
    return document


def _find(text: str) -> Any:
    trimmed = text.strip()
    if not trimmed:
        raise Unreadable("the answer was empty")
    problem: ValueError | None = None
    for part in [trimmed, *(fenced.strip() for fenced in _FENCE.findall(trimmed))]:
        try:
            return json.loads(part)
        except ValueError as error:
            problem = problem or error
    match = _find_in_prose(trimmed)
    if match is None:
        raise Unreadable(f"the answer had no JSON in it ({problem})")
    return match[0]


def _find_in_prose(text: str) -> tuple[Any] | None:
    """The first object or list in a text, or None. Raises Unreadable for one that is cut off: what is in it is a part."""
    decoder = json.JSONDecoder()
    position = 0
    for _ in range(_MAX_TRIES):
        start = _START.search(text, position)
        if start is None:
            return None
        try:
            return (decoder.raw_decode(text, start.start())[0],)
        except json.JSONDecodeError as error:
            if error.pos >= len(text) or error.msg.startswith("Unterminated"):
                raise Unreadable(f"the JSON in the answer is cut off ({error.msg})") from None
            position = max(error.pos, start.end())
    return None


def schema_fault(value: Any, schema: Mapping[str, Any]) -> str | None:
    """What is wrong with a value by its JSON Schema, with the place, or None if nothing is."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(schema).iter_errors(value))
    if error is None:
        return None
    path = ".".join(str(part) for part in error.absolute_path)
    return f"{path}: {error.message}" if path else error.message
