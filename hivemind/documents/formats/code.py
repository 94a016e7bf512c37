"""Source code by classes and functions: a class is interior, its methods and other functions are leaves."""

from __future__ import annotations

import ast
import re
import warnings

from hivemind.documents.formats.outline import Lines, Piece

__all__ = ["python", "source_code"]

_DEFINITION = re.compile(
    r"(?P<indent>[ \t]*)(?:(?:export|default|public|private|protected|internal|static|async|abstract|final|sealed|open"
    r"|override|virtual|inline|unsafe|extern|data|partial|pub(?:\([^)]*\))?)[ \t]+)*"
    r"(?:class|interface|struct|enum|trait|impl|fn|func|function|fun|def|sub|module|namespace|record|object|protocol"
    r"|extension|defmodule|defp?|proc)\b[ \t*]*(?P<rest>[^{;]*)"
)
_NAME = re.compile(r"(?:\([^)]*\)[ \t]*)?(?:<[^>]*>[ \t]*)?([A-Za-z_$][\w$.:]*)")
_BELONGS = re.compile(r"[ \t]*(?://|#(?!include|define|if|endif)|\*|/\*|@|--)")
_LARGEST_TREE = 1 << 19  # characters, whose tree takes 400 times as many bytes
_Defined = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def python(text: str) -> list[Piece]:
    """Python by its syntax tree; what does not parse or is larger than 512 KiB, by the lines that look like definitions."""
    if len(text) > _LARGEST_TREE or "\r" in text.replace("\r\n", ""):  # Python would count lines where nobody else does
        return source_code(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the file's author's concern
            module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source_code(text)
    source = Lines(text)
    starts: list[tuple[int, int, str]] = []  # (line, depth, name) at which a piece begins, in order
    todo: list[tuple[ast.stmt, int]] = [(statement, 1) for statement in reversed(module.body)]
    ends_at = 0
    while todo:
        statement, depth = todo.pop()
        first = min([statement.lineno, *(mark.lineno for mark in getattr(statement, "decorator_list", ()))]) - 1
        if isinstance(statement, _Defined):
            starts.append((_with_comments(source, first, ends_at), depth, statement.name))
            if isinstance(statement, ast.ClassDef):
                todo += [(inner, depth + 1) for inner in reversed(statement.body) if isinstance(inner, _Defined)]
        elif depth == 1 and (not starts or starts[-1][2] or starts[-1][1] > 1):
            starts.append((_with_comments(source, first, ends_at), 1, ""))
        ends_at = (statement.end_lineno or first + 1) if not isinstance(statement, ast.ClassDef) else first + 1
    return _between(source, starts)


def _with_comments(source: Lines, first: int, floor: int) -> int:
    """The first line of the comments that stand right above a line."""
    while first > floor and source.lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return first


def source_code(text: str) -> list[Piece]:
    """Any language: from each line that looks like a definition to the next one; nested ones by their indentation."""
    source = Lines(text)
    starts: list[tuple[int, int, str]] = []
    outer: list[int] = []
    for at, line in enumerate(source.lines):
        found = _DEFINITION.match(line)
        named = _NAME.match(found["rest"]) if found else None
        if found is None or named is None:
            continue
        indent = source.indent(at)
        while outer and outer[-1] >= indent:
            outer.pop()
        first = at
        while first > 0 and _BELONGS.match(source.lines[first - 1]) and (not starts or first - 1 > starts[-1][0]):
            first -= 1
        starts.append((first, len(outer) + 1, named[1]))
        outer.append(indent)
    return _between(source, starts)


def _between(source: Lines, starts: list[tuple[int, int, str]]) -> list[Piece]:
    first_code = next((at for at in range(len(source)) if not source.blank(at)), None)
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
