"""Read YAML that a person wrote, configuration and front matter, with errors that name file, line and key."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from hivemind.boundary import boundary
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.pattern import pattern
from hivemind.schema import BaseModel

if TYPE_CHECKING:
    import yaml
    from pydantic_core import ErrorDetails

MAX_BYTES = 256 * 1024
_MAX_DEPTH = 64
_FENCE = pattern(r"\A\ufeff?---[ \t]*\r?\n")
_END = pattern(r"^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.MULTILINE)
_M = TypeVar("_M", bound=BaseModel)
Path = tuple[str | int, ...]


@frozen
class ParsedText:
    """A YAML mapping, with the line of each value in its file (counted from 1)."""

    values: dict[str, Any]
    lines: dict[Path, int]
    location: str

    def line(self, path: Path) -> int:
        """Return the line of the value at `path`. If there is none, return the line of the innermost mapping or list on the way
        to it.
        """
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return 1


def split(text: str) -> tuple[str | None, str, int]:
    """Split a text into front matter (or None), body, and the line at which the body begins (counted from 1).

    Front matter is between a first line `---` and the next line `---` or `...`. If that next line is missing, there is
    no front matter.
    """
    start = _FENCE.match(text)
    end = _END.search(text, start.end()) if start else None
    if start is None or end is None:
        return None, text.removeprefix("\ufeff"), 1
    return text[start.end() : end.start()], text[end.end() :], text.count("\n", 0, end.end()) + 1


def parse(text: str, location: object, first_line: int = 1) -> ParsedText:
    """Parse a YAML mapping with the lines of its values. Raises UserError with file and line for anything else.

    `first_line` is the line of the file at which `text` begins (2 for front matter). The parser also refuses repeated keys,
    aliases (a few bytes can expand to gigabytes), more than 64 levels, and more than 256 KiB.
    """
    location_text = str(location)
    if len(text) > MAX_BYTES:
        remedy = "put long texts into separate files; divide many steps among several tasks"
        raise UserError(f"more than {MAX_BYTES // 1024} KiB of YAML", location=location_text, remedy=remedy)
    import yaml  # late: most files were checked before, and a short command reads none

    with boundary("YAML text", location_text):
        try:
            return _parse(text, location_text, first_line)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            message = " ".join(filter(None, (error.context, error.problem)))
            raise UserError(
                f"is not valid YAML ({message})",
                location=f"{location_text}:{mark.line + first_line}" if mark else location_text,
                remedy="put a value with `: `, `#`, brackets or quotes into quotes, and check the indentation",
            ) from None


def _parse(text: str, location: str, first_line: int) -> ParsedText:
    import yaml

    def at(line: int) -> str:
        return f"{location}:{line + first_line}"

    loader_type: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    for event in yaml.parse(text, Loader=loader_type):
        if isinstance(event, yaml.AliasEvent):
            raise UserError("YAML aliases are not allowed", location=at(_row(event)), remedy="write the value out")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise UserError(f"nested more than {_MAX_DEPTH} deep", location=at(_row(event)))
    loader = loader_type(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return ParsedText({}, {(): first_line}, location)
        if not isinstance(node, yaml.MappingNode):
            raise UserError("is not a mapping of keys to values", location=at(_row(node)))
        lines = dict(_lines(node, first_line))
        for line, key in _repeated_keys(node):
            raise UserError(f"the key {key!r} occurs twice", location=at(line), remedy="remove one")
        for _, child in _walk(node):
            if child.tag == "tag:yaml.org,2002:timestamp":
                try:
                    loader.construct_yaml_timestamp(child)
                except (ValueError, AttributeError) as error:  # AttributeError: a tag before a value that is not a date
                    problem = "" if isinstance(error, AttributeError) else f": {error}"
                    raise UserError(f"{child.value!r} is not a date{problem}", location=at(_row(child))) from None
        values = loader.construct_document(node)
    finally:
        loader.dispose()
    return ParsedText({str(key): value for key, value in values.items()}, lines, location)


def _row(event: yaml.Event | yaml.Node) -> int:
    return event.start_mark.line if event.start_mark else 0


def _walk(node: yaml.Node) -> Iterator[tuple[Path, Any]]:
    queue: list[tuple[Path, Any]] = [((), node)]
    while queue:
        path, child = queue.pop()
        yield path, child
        if child.id == "mapping":
            queue += [((*path, str(key.value)), value) for key, value in child.value]
        elif child.id == "sequence":
            queue += [((*path, at), item) for at, item in enumerate(child.value)]


def _lines(node: yaml.Node, first_line: int) -> Iterator[tuple[Path, int]]:
    for path, child in _walk(node):
        yield path, child.start_mark.line + first_line
        if child.id == "mapping":  # errors about a key show the key's own line
            for key, _ in child.value:
                yield (*path, str(key.value), "<key>"), key.start_mark.line + first_line


def _repeated_keys(node: yaml.Node) -> Iterator[tuple[int, str]]:
    for _, child in _walk(node):
        if child.id == "mapping":
            seen: set[str] = set()
            for key, _ in child.value:
                if str(key.value) in seen:
                    yield key.start_mark.line, str(key.value)
                seen.add(str(key.value))


def validate(model: type[_M], document: ParsedText) -> _M:
    """Return the values as an object of a pydantic model. Raises UserError with file, line and key.

    For an unknown key the error suggests the most similar known key.
    """
    from pydantic import ValidationError

    with boundary("mapping", document.location):
        try:
            return model.model_validate(document.values)
        except ValidationError as error:
            raise _refusal(model, document, error.errors()) from None


def _refusal(model: type[BaseModel], document: ParsedText, details: Sequence[ErrorDetails]) -> UserError:
    """Return the error for the first wrong value. `details` are pydantic's errors about the document.

    For a value that may have several forms, return the error of the form that fits best, or list the forms that fit equally.
    """
    # without pydantic's names of the forms
    paths = [tuple(part for part in detail["loc"] if "[" not in str(part)) for detail in details]
    path = max((path for path in paths if path[: len(paths[0])] == paths[0]), key=len)
    first, *others = (detail for detail, detail_path in zip(details, paths, strict=True) if detail_path == path)
    key = ".".join(str(part) for part in path) or "the file"
    if first["type"] == "extra_forbidden":
        remedy = key_hint(path, model)
        return UserError(
            f"unknown key {key!r}", location=f"{document.location}:{document.line((*path, '<key>'))}", remedy=remedy
        )
    forms = [problem_of(detail, _keys(model, path)) for detail in (first, *others)]
    problem = " or ".join(forms).replace(" or must be ", " or ")
    return UserError(f"{key}: {problem}", location=f"{document.location}:{document.line(path)}")


def problem_of(detail: ErrorDetails, keys: Sequence[str] = ()) -> str:
    """Return the reason why pydantic refuses a value, as the end of a sentence.

    `keys` are the allowed keys if the value must be a mapping.
    """
    if keys and detail["type"] == "model_type":
        return f"must be a mapping {{{', '.join(keys)}}}"
    if detail["type"] == "missing":
        return "is missing"
    return detail["msg"].removeprefix("Value error, ").replace("Input should", "must", 1)


def key_hint(path: Path, model: type[BaseModel], noun: str = "keys") -> str:
    """Return a hint for an unknown key: the key under which it belongs, the most similar known key, or all known keys.

    `noun` is what the message calls the known keys.
    """
    known_keys = _keys(model, path[:-1])
    if parents := [name for name in known_keys if path[-1] in _keys(model, (*path[:-1], name))]:
        return f"it belongs under {parents[0]}:"
    import difflib

    beginnings = [key for key in known_keys if len(str(path[-1])) > 2 and key.startswith(str(path[-1]))]
    matches = beginnings or difflib.get_close_matches(str(path[-1]), known_keys, n=1)
    return f"did you mean {matches[0]!r}?" if matches else f"known {noun}: {', '.join(known_keys)}"


def _keys(model: type[BaseModel], path: Path) -> list[str]:
    """Return the keys that the model allows at `path`."""
    model_at_path: Any = model
    for part in path:
        field = model_at_path.model_fields.get(str(part)) if _is_model(model_at_path) else None
        if field is None:
            continue
        kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
        kinds += [inner for kind in kinds for inner in getattr(kind, "__args__", ())]
        model_at_path = next((kind for kind in kinds if _is_model(kind)), model_at_path)
    return [field.alias or name for name, field in model_at_path.model_fields.items()]


def _is_model(kind: object) -> bool:
    return isinstance(kind, type) and hasattr(kind, "model_fields")
