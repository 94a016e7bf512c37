"""Compress content to a number of tokens.

Code is reduced to an outline, Markdown to headings and first sentences, a history to counts per action, any other text to
its head and tail around a mark that says how much was cut. If a mind is configured to write summaries, these are saved in
a folder; they never replace the original.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import dropwhile, takewhile
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.errors import HivemindError
from hivemind.fs import load_record, save_record
from hivemind.memory.blocks import HistoryMemoryBlock, KnowledgeMemoryBlock, MemoryBlock, MemoryType, MessageMemoryBlock
from hivemind.tokens import count_tokens

Summarizer = Callable[[str, int], str]
"""A function that returns a mind's summary of a text in at most so many tokens."""
LAST_RESULTS = 5  # a history's outline lists this many of the latest results
_MARKDOWN = (".md", ".markdown", ".mdx")
_ACTION = re.compile(r"([a-z][a-z0-9_.-]*)(?::|$)")
MAX_PARSED_LENGTH = 2_000_000  # characters: parsing more takes too long for a turn
_SENTENCE = re.compile(r".+?[.!?:](?=\s|$)|.+", re.DOTALL)
_HEADING = re.compile(r"(#{1,6})[ \t]+(.+?)[ \t#]*$")
_FENCE = re.compile(r"[ ]{0,3}(`{3,}|~{3,})")
_GRAMMARS = {
    ".c": "tree_sitter_c", ".h": "tree_sitter_c",
    ".cc": "tree_sitter_cpp", ".cpp": "tree_sitter_cpp", ".hpp": "tree_sitter_cpp",
    ".cs": "tree_sitter_c_sharp", ".go": "tree_sitter_go", ".java": "tree_sitter_java",
    ".js": "tree_sitter_javascript", ".jsx": "tree_sitter_javascript", ".mjs": "tree_sitter_javascript",
    ".rb": "tree_sitter_ruby", ".rs": "tree_sitter_rust", ".sh": "tree_sitter_bash",
    ".ts": "tree_sitter_typescript", ".tsx": "tree_sitter_typescript",
}  # fmt: skip
"""File suffix → module with the compiled grammar, from a small package, without a download."""

_DIALECTS = {".ts": "typescript", ".tsx": "tsx"}
_DECLARATION = re.compile(
    r"import|include|use_decl|using|package|namespace|module|class|interface|struct|enum|trait|impl|function|method|constructor|type_(alias|decl)|protocol|object_decl"
)
_BODY = re.compile(r"block|body|declaration_list|compound_statement|field_declaration_list|enum_variant_list|do_block")
"""Names of syntax nodes, alike in most grammars: an outline lists declarations, without their bodies."""


class MemoryCompressor:
    """A compressor of content, by rules or by `summarizer`, a mind (None: by rules only). If `folder` is set, the
    mind's summaries are saved there."""

    def __init__(
        self,
        token_counter: Callable[[str], int] = count_tokens,
        *,
        summarizer: Summarizer | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self.token_counter = token_counter
        self.summarizer = summarizer
        self.folder = folder

    def compress_if_needed(self, content: str, block: MemoryBlock, max_tokens: int) -> str:
        """Return the content, compressed if it is longer than `max_tokens`. Content of ROM (instructions that are
        always shown whole) is never compressed."""
        return self.compress(content, block, max_tokens)[0]

    def compress(self, content: str, block: MemoryBlock, max_tokens: int) -> tuple[str, str]:
        """Return the content, compressed to `max_tokens` if necessary, and its form: full, outline or excerpt."""
        if block.type is MemoryType.ROM or self._fits(content, max_tokens):
            return content, "full"
        outline = self._summary(content, max_tokens) or self._outline(content, block)
        if outline is None:
            return excerpt(content, max_tokens, self.token_counter), "excerpt"
        if not self._fits(outline, max_tokens):
            outline = self._outline(content, block, docstrings=False) or outline
        if not self._fits(outline, max_tokens):
            outline = excerpt(outline, max_tokens, self.token_counter)
        return outline, "outline"

    def _fits(self, content: str, max_tokens: int) -> bool:
        # A token has at most about a hundred characters, so a text that is far too long need not be counted.
        return len(content) <= 128 * max_tokens and self.token_counter(content) <= max_tokens

    def _outline(self, content: str, block: MemoryBlock, *, docstrings: bool = True) -> str | None:
        if isinstance(block, HistoryMemoryBlock):
            return history_outline(content.splitlines())
        location = str(getattr(block, "location", ""))
        suffix = os.path.splitext(location)[1].lower()
        if suffix in _MARKDOWN or isinstance(block, MessageMemoryBlock):
            return markdown_outline(content)
        outline = code_outline(content, suffix, docstrings=docstrings)
        if outline is None and isinstance(block, KnowledgeMemoryBlock) and not suffix:
            outline = markdown_outline(content)
        return outline

    def _summary(self, content: str, max_tokens: int) -> str | None:
        """Return the mind's summary: a saved one, or a new one. Return None without a mind, or if its summary does not fit."""
        if self.summarizer is None:
            return None
        digest = hashlib.sha256(f"{max_tokens}\0{content}".encode("utf-8", "surrogatepass")).hexdigest()
        path = None if self.folder is None else os.path.join(self.folder, f"{digest}.json")
        saved_summary = None if path is None else load_record(path, "summary", 1)
        if saved_summary is not None:
            return str(saved_summary["summary"])
        try:
            summary = self.summarizer(content, max_tokens)
        except HivemindError:  # the mind is down or refuses: compress by rules
            return None
        if not summary.strip() or not self._fits(summary, max_tokens):
            return None
        if path is not None:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            save_record(path, "summary", 1, {"max_tokens": max_tokens, "summary": summary})
        return summary


def history_outline(lines: Iterable[str]) -> str | None:
    """Return a history's counts per action and its last lines, or None if no line begins with `action:`."""
    action_lines = [(match[1], line) for line in lines if (match := _ACTION.match(line))]
    if not action_lines:
        return None
    counts = Counter(sorted(action for action, _ in action_lines)).most_common()
    count_summary = ", ".join(f"{action} ×{count}" for action, count in counts)
    return "\n".join([count_summary, *(f"last: {line}" for _, line in action_lines[-LAST_RESULTS:])])


def excerpt(text: str, max_tokens: int, token_counter: Callable[[str], int]) -> str:
    """Return the beginning (two thirds) and the end (one third) of a text, together at most `max_tokens`.

    The text is cut at line ends if possible. A mark between beginning and end says how many characters and lines were
    cut. If the mark does not fit, return as much of the beginning as fits.
    """
    for shorten, precision in ((_head_and_tail, 8), (lambda text, length: text[:length], 0)):
        low, high = 0, min(len(text), 16 * max_tokens)  # characters; `low` of them fit
        best = ""
        while high - low > max(precision, low // 50):  # stop early: each step counts tokens
            size = (low + high + 1) // 2
            shorter = shorten(text, size)
            if token_counter(shorter) <= max_tokens:
                low, best = size, shorter
            else:
                high = size - 1
        if best:
            break
    return best


def _head_and_tail(text: str, length: int) -> str:
    head, tail = text[: length * 2 // 3], text[len(text) - length // 3 :]
    line_break = head.rfind("\n")
    if line_break > len(head) // 2:
        head = head[: line_break + 1]
    line_break = tail.find("\n")
    if 0 <= line_break < len(tail) // 2:
        tail = tail[line_break + 1 :]
    omitted_text = text[len(head) : len(text) - len(tail)]
    line_count = omitted_text.count("\n")
    mark = f"[… {len(omitted_text)} characters, {line_count} lines cut …]"
    return "\n".join(part for part in (head.removesuffix("\n"), mark, tail) if part)


# -- outlines: Python by `ast`, other languages by tree-sitter if it is installed (extra `code`) ----------------------


def code_outline(text: str, suffix: str, *, docstrings: bool = True) -> str | None:
    """Return the imports of code, and its class and function signatures with line numbers and the first lines of docstrings.

    `suffix` is the file's extension and decides the language. Return None if the text cannot be parsed or has no
    declaration.
    """
    if len(text) > MAX_PARSED_LENGTH:
        return None
    with suppress(Unreadable), boundary("source"):  # the code is nested too deeply, or in another language
        if suffix not in (".py", ".pyi", ".pyw"):
            return _syntax_outline(text, suffix)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # for example an invalid escape sequence
            tree = ast.parse(text)
        return "\n".join(_signatures(tree, "", docstrings)) or None
    return None


def _signatures(node: ast.Module | ast.ClassDef, indent: str, docstrings: bool) -> Iterator[str]:
    inner = f"{indent}    "
    if not indent:
        yield from _first_line(node, indent, docstrings)
    for statement in node.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield indent + ast.unparse(statement)
        elif isinstance(statement, ast.ClassDef):
            bases = ", ".join(ast.unparse(base) for base in [*statement.bases, *statement.keywords])
            signature = f"class {statement.name}{f'({bases})' if bases else ''}"
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            word = "async def" if isinstance(statement, ast.AsyncFunctionDef) else "def"
            returns = f" -> {ast.unparse(statement.returns)}" if statement.returns else ""
            signature = f"{word} {statement.name}({ast.unparse(statement.args)}){returns}"
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{indent}{signature}:  # lines {statement.lineno}-{statement.end_lineno}"
            yield from _first_line(statement, inner, docstrings)
        if isinstance(statement, ast.ClassDef):
            yield from _signatures(statement, inner, docstrings)


def _first_line(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, indent: str, docstrings: bool
) -> Iterator[str]:
    if docstrings and (docstring := ast.get_docstring(node)):
        yield f'{indent}"""{docstring.splitlines()[0]}"""'


def markdown_outline(text: str) -> str | None:
    """Return each heading with the first sentence below it, or None if the text has no headings."""
    lines = text.splitlines()
    headings = list(_headings(lines))
    if not headings:
        return None
    outline = _first_sentence(lines[: headings[0][0]])
    for (start, level, title), end in zip(
        headings, [*(next_start for next_start, _, _ in headings[1:]), len(lines)], strict=True
    ):
        outline += [f"{'#' * level} {title}", *_first_sentence(lines[start + 1 : end])]
    return "\n".join(outline)


def _first_sentence(lines: list[str]) -> list[str]:
    text_lines = dropwhile(lambda line: not line, map(str.strip, lines))
    sentence = _SENTENCE.match(" ".join(takewhile(bool, text_lines)))
    return [sentence[0].strip()] if sentence else []


def _headings(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """Yield (0-based line number, level 1 to 6, title) of each ATX heading."""
    fence: str | None = None
    for line_number, line in enumerate(lines):
        fence_match = _FENCE.match(line)
        if fence is not None:
            if fence_match and fence_match[1].startswith(fence):
                fence = None
        elif fence_match:
            fence = fence_match[1]
        elif heading := _HEADING.match(line):
            yield line_number, len(heading[1]), heading[2]


def section(text: str, title: str) -> str:
    """Return the section of a Markdown text under the heading `title` (in any case). Without that heading, return the
    whole text.

    A section ends at the next heading of the same or a higher level.
    """
    lines = text.splitlines(keepends=True)
    start: tuple[int, int] | None = None
    for line_number, level, heading in _headings(lines):
        if start is not None and level <= start[1]:
            return "".join(lines[start[0] : line_number])
        if start is None and heading.casefold() == title.strip().casefold():
            start = line_number, level
    return text if start is None else "".join(lines[start[0] :])


def _syntax_outline(text: str, suffix: str) -> str | None:
    """Return the imports and signatures of code with line numbers; None if no parser of its language (`suffix`) is installed."""
    module = _GRAMMARS.get(suffix)
    if module is None or any(importlib.util.find_spec(name) is None for name in ("tree_sitter", module)):
        return None
    tree_sitter: Any = importlib.import_module("tree_sitter")  # an extra
    grammar: Any = importlib.import_module(module)
    language = getattr(grammar, "language", None) or getattr(grammar, f"language_{_DIALECTS[suffix]}")
    source = text.encode("utf-8", "surrogatepass")
    tree = tree_sitter.Parser(tree_sitter.Language(language())).parse(source)
    return "\n".join(_declarations(tree.root_node, source, 0)) or None


def _declarations(node: Any, source: bytes, depth: int) -> Iterator[str]:
    for child in node.named_children:
        kind = child.type
        if "comment" in kind or "call" in kind:
            continue
        body = next((part for part in child.named_children if _BODY.search(part.type)), None)
        is_declaration = _DECLARATION.search(kind) is not None
        if is_declaration:
            end = body.start_byte if body is not None else child.end_byte
            signature = " ".join(source[child.start_byte : end].decode("utf-8", "replace").split()).rstrip("{ ")
            first, last = child.start_point[0] + 1, child.end_point[0] + 1
            yield f"{'    ' * depth}{signature}  // lines {first}-{last}"
        if body is not None and depth < 3 and not re.search(r"function|method|constructor", kind):
            yield from _declarations(body, source, depth + is_declaration)
        elif not is_declaration and body is None and depth < 3 and "statement" in kind:
            yield from _declarations(child, source, depth)
