"""Split source code: classes become interior nodes, methods and functions become leaves."""

from __future__ import annotations

import ast
import re
import warnings

from hivemind.documents.formats.outline import LineReader, Piece

_DEFINITION = re.compile(
    r"(?P<indent>[ \t]*)(?:(?:export|default|public|private|protected|internal|static|async|abstract|final|sealed|open"
    r"|override|virtual|inline|unsafe|extern|data|partial|pub(?:\([^)]*\))?)[ \t]+)*"
    r"(?:class|interface|struct|enum|trait|impl|fn|func|function|fun|def|sub|module|namespace|record|object|protocol"
    r"|extension|defmodule|defp?|proc)\b[ \t*]*(?P<rest>[^{;]*)"
)
_NAME = re.compile(r"(?:\([^)]*\)[ \t]*)?(?:<[^>]*>[ \t]*)?([A-Za-z_$][\w$.:]*)")
_LEADING_LINE = re.compile(r"[ \t]*(?://|#(?!include|define|if|endif)|\*|/\*|@|--)")
_MAX_TREE_CHARS = 1 << 19  # the syntax tree takes about 400 bytes per character
_DefinitionNode = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def python(text: str) -> list[Piece]:
    """Split Python code by its syntax tree, or by `source_code` if it does not parse or exceeds 512 KiB."""
    if len(text) > _MAX_TREE_CHARS or "\r" in text.replace("\r\n", ""):  # Python counts a lone CR as a line end
        return source_code(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings concern the author of the file
            module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source_code(text)
    source = LineReader(text)
    starts: list[tuple[int, int, str]] = []  # (first line, depth, name) of each piece
    todo: list[tuple[ast.stmt, int]] = [(statement, 1) for statement in reversed(module.body)]
    ends_at = 0
    while todo:
        statement, depth = todo.pop()
        first = min([statement.lineno, *(mark.lineno for mark in getattr(statement, "decorator_list", ()))]) - 1
        if isinstance(statement, _DefinitionNode):
            starts.append((_first_comment_line(source, first, ends_at), depth, statement.name))
            if isinstance(statement, ast.ClassDef):
                todo += [(inner, depth + 1) for inner in reversed(statement.body) if isinstance(inner, _DefinitionNode)]
        elif depth == 1 and (not starts or starts[-1][2] or starts[-1][1] > 1):
            starts.append((_first_comment_line(source, first, ends_at), 1, ""))
        ends_at = (statement.end_lineno or first + 1) if not isinstance(statement, ast.ClassDef) else first + 1
    return _split_at(source, starts)


def _first_comment_line(source: LineReader, first: int, floor: int) -> int:
    """Return the first line of the comment directly above line `first`, or `first` if there is none. Lines before
    `floor` are not examined."""
    while first > floor and source.lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return first


def source_code(text: str) -> list[Piece]:
    """Split code of any language before each line that looks like a definition; indentation decides the depth."""
    source = LineReader(text)
    starts: list[tuple[int, int, str]] = []
    outer: list[int] = []
    for at, line in enumerate(source.lines):
        definition = _DEFINITION.match(line)
        name_match = _NAME.match(definition["rest"]) if definition else None
        if definition is None or name_match is None:
            continue
        indent = source.indent(at)
        while outer and outer[-1] >= indent:
            outer.pop()
        first = at
        while first > 0 and _LEADING_LINE.match(source.lines[first - 1]) and (not starts or first - 1 > starts[-1][0]):
            first -= 1
        starts.append((first, len(outer) + 1, name_match[1]))
        outer.append(indent)
    return _split_at(source, starts)


def _split_at(source: LineReader, starts: list[tuple[int, int, str]]) -> list[Piece]:
    first_code = next((at for at in range(len(source)) if not source.is_blank(at)), None)
    if first_code is None:
        return []
    if not starts or starts[0][0] > first_code:
        starts = [(first_code, 1, ""), *starts]
    ends = [start for start, _, _ in starts[1:]] + [len(source)]
    return [
        source.piece("code", depth, first, end, name)
        for (first, depth, name), end in zip(starts, ends, strict=True)
        if end > first
    ]
