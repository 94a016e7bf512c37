"""What code and Markdown are about: signatures and first docstring lines, headings and first sentences.

Python is read with `ast`. Other languages are read with tree-sitter where it is installed (extra `code`); where it is not,
there is no outline, and head and tail must do.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from contextlib import suppress

from hivemind.boundary import Unreadable, boundary
from hivemind.memory.sections import headings
from hivemind.memory.syntax import syntax_outline

__all__ = ["code_outline", "markdown_outline"]

LONGEST = 2_000_000  # characters: beyond this parsing takes too long for a cycle
_SENTENCE = re.compile(r".+?[.!?:](?=\s|$)|.+", re.DOTALL)


def code_outline(text: str, suffix: str) -> str | None:
    """Imports, class and function signatures with their lines, and first docstring lines; None if it cannot be read so."""
    if len(text) > LONGEST:
        return None
    with suppress(Unreadable), boundary("source"):  # nested beyond what a parser bears, or in another language
        return _python_outline(text) if suffix in (".py", ".pyi", ".pyw") else syntax_outline(text, suffix)
    return None


def _python_outline(text: str) -> str | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an odd escape in someone's code is not ours to report
        tree = ast.parse(text)
    return "\n".join(_signatures(tree, 0)) or None


def _signatures(node: ast.Module | ast.ClassDef, depth: int) -> Iterator[str]:
    indent = "    " * depth
    if depth == 0:
        yield from _first_line(node, indent)
    for item in node.body:
        if isinstance(item, ast.Import | ast.ImportFrom):
            yield indent + ast.unparse(item)
        elif isinstance(item, ast.ClassDef):
            bases = ", ".join(ast.unparse(base) for base in [*item.bases, *item.keywords])
            yield f"{indent}class {item.name}{f'({bases})' if bases else ''}:{_lines(item)}"
            yield from _first_line(item, indent + "    ")
            yield from _signatures(item, depth + 1)
        elif isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            word = "async def" if isinstance(item, ast.AsyncFunctionDef) else "def"
            returns = f" -> {ast.unparse(item.returns)}" if item.returns else ""
            yield f"{indent}{word} {item.name}({ast.unparse(item.args)}){returns}:{_lines(item)}"
            yield from _first_line(item, indent + "    ")


def _lines(item: ast.stmt) -> str:
    return f"  # lines {item.lineno}-{item.end_lineno}"


def _first_line(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, indent: str) -> Iterator[str]:
    docstring = ast.get_docstring(node)
    if docstring:
        yield f'{indent}"""{docstring.splitlines()[0]}"""'


def markdown_outline(text: str) -> str | None:
    """Each heading with the first sentence under it; None if there are no headings."""
    lines = text.splitlines()
    found = list(headings(lines))
    if not found:
        return None
    outline: list[str] = []
    if found[0][0] > 0:
        outline += _first_sentence(lines[: found[0][0]])
    for (at, level, title), end in zip(found, [*(at for at, _, _ in found[1:]), len(lines)], strict=True):
        outline.append(f"{'#' * level} {title}")
        outline += _first_sentence(lines[at + 1 : end])
    return "\n".join(outline)


def _first_sentence(lines: list[str]) -> list[str]:
    paragraph: list[str] = []
    for line in lines:
        plain = line.strip()
        if plain:
            paragraph.append(plain)
        elif paragraph:
            break
    text = " ".join(paragraph)
    found = _SENTENCE.match(text)
    return [found[0].strip()] if found else []
