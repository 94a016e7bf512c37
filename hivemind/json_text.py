"""Find JSON in a model's answer, which may be fenced, surrounded by prose or cut off. Refuse values that no log can hold."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from hivemind.boundary import Unreadable, boundary

_FENCE = re.compile(r"```[a-zA-Z]*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.DOTALL)
_START = re.compile(r"[\[{]")
_MAX_TRIES = 50  # brackets in prose that are tried as the beginning of JSON

MAX_DEPTH = 64
"""The most levels of nested lists and objects. Tools need only a few, and recursive functions walk all levels."""


def fault_of(value: Any) -> str | None:
    """Return why no log can hold a JSON value: too deeply nested, lone surrogates, NaN or infinity. Return None for a good value.

    The reason is written for the model that made the value.
    """
    level, depth = [value], 0
    while level:
        next_level: list[Any] = []
        for node in level:
            if isinstance(node, str):
                if without_surrogates(node) != node:
                    return "a text in it contains a lone surrogate (half a character)"
            elif isinstance(node, float):
                if not math.isfinite(node):  # Python would write it, but no other program could read the log
                    return "a number in it is not valid JSON (NaN, Infinity, or too large)"
            elif isinstance(node, Mapping):
                next_level += [*node, *node.values()]
            elif isinstance(node, list):
                next_level += node
        level, depth = next_level, depth + 1
        if level and depth > MAX_DEPTH:
            return f"it is nested more than {MAX_DEPTH} deep"
    return None


def without_surrogates(text: str) -> str:
    """Return the text with `?` for each lone surrogate. JSON can contain them, but files cannot."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def read_json(text: str) -> Any:
    """Return the JSON value that a program has written, with `?` for lone surrogates.

    Raises Unreadable if the text is not JSON, or if no log can hold the value.
    """
    with boundary("JSON value", "a message"):
        value = json.loads(text)
        if "\\ud" in text.lower():
            value = json.loads(without_surrogates(json.dumps(value, ensure_ascii=False)))
    if fault := fault_of(value):
        raise Unreadable(f"the JSON cannot be used: {fault}")
    return value


def find_json(text: str) -> Any:
    """Return the JSON value in a text: the whole text, the content of a fence, or the first object or list in prose.

    Truncated JSON is never completed, because half of a request may mean something else. Raises Unreadable, with a reason for
    the model, if there is no value, or if it is nested too deeply or contains a lone surrogate.
    """
    with boundary("JSON value", "the answer"):
        document = _find(text)
    if fault := fault_of(document):
        raise Unreadable(f"the JSON in the answer cannot be used: {fault}")
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
        raise Unreadable(f"the answer contained no JSON ({problem})")
    return match[0]


def _find_in_prose(text: str) -> tuple[Any] | None:
    """Return the first object or list in a text, in a tuple; None if there is none.

    Raises Unreadable if the value is cut off: its inner values are only parts.
    """
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
    """Return the first error of a value against a JSON Schema, with the error's path, or None if the value is valid."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(schema).iter_errors(value))
    if error is None:
        return None
    path = ".".join(str(part) for part in error.absolute_path)
    return f"{path}: {error.message}" if path else error.message
