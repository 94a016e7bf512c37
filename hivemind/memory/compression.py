"""Making content smaller (spec 2, *Load, build, compress*; seed 004, *Compression Techniques*).

Code becomes its outline by a real parser, Markdown its headings and first sentences, a history its counts, anything else
its head and tail with a mark of what was cut. A mind's summary, where one is configured, stands beside the original in a
folder and never in its place.
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
"""A mind's summary of a text within a number of tokens."""
LAST = 5  # so many last results of a history are shown
_MARKDOWN = (".md", ".markdown", ".mdx")
_ACTION = re.compile(r"([a-z][a-z0-9_.-]*)(?::|$)")
LONGEST = 2_000_000  # characters: beyond this parsing takes too long for a cycle
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
"""The grammar's module by suffix. Each is a small package with the compiled grammar in it: nothing is ever downloaded."""

_DIALECTS = {".ts": "typescript", ".tsx": "tsx"}
_SHOWN = re.compile(
    r"import|include|use_decl|using|package|namespace|module|class|interface|struct|enum|trait|impl|function|method|constructor|type_(alias|decl)|protocol|object_decl"
)
_BODY = re.compile(r"block|body|declaration_list|compound_statement|field_declaration_list|enum_variant_list|do_block")
"""Which kinds of nodes are shown, and which of their children are left out: grammars differ, their words hardly do."""


class MemoryCompressor:
    """Makes contents smaller by rule, or by `summarizer` (a mind), whose summaries are kept in `folder` if one is given."""

    def __init__(
        self,
        token_counter: Callable[[str], int] = count_tokens,
        *,
        summarizer: Summarizer | None = None,
        folder: str | os.PathLike[str] | None = None,
        durable: bool = True,
    ) -> None:
        self.token_counter = token_counter
        self.summarizer = summarizer
        self.folder = folder
        self.durable = durable

    def compress_if_needed(self, content: str, block: MemoryBlock, max_tokens: int) -> str:
        """The content if it has at most `max_tokens`, else something smaller that has. A ROM is never compressed."""
        return self.compress(content, block, max_tokens)[0]

    def compress(self, content: str, block: MemoryBlock, max_tokens: int) -> tuple[str, str]:
        """The content within `max_tokens`, and its form: full, outline or excerpt."""
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
        # No token has more than some hundred characters: what is far too long need not be counted.
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
        """What the mind makes of it, from the folder if it has done so before; None if there is none that fits."""
        if self.summarizer is None:
            return None
        digest = hashlib.sha256(f"{max_tokens}\0{content}".encode("utf-8", "surrogatepass")).hexdigest()
        path = None if self.folder is None else os.path.join(self.folder, f"{digest}.json")
        kept = None if path is None else load_record(path, "summary", 1)
        if kept is not None:
            return str(kept["summary"])
        try:
            summary = self.summarizer(content, max_tokens)
        except HivemindError:  # a mind that is down or refuses: the rules still hold
            return None
        if not summary.strip() or not self._fits(summary, max_tokens):
            return None
        if path is not None:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            save_record(path, "summary", 1, {"max_tokens": max_tokens, "summary": summary}, durable=self.durable)
        return summary


def history_outline(lines: Iterable[str]) -> str | None:
    """Lines `action: detail → result` as counts per action and the last of them; None if there are no such lines."""
    taken = [(found[1], line) for line in lines if (found := _ACTION.match(line))]
    if not taken:
        return None
    counts = Counter(sorted(action for action, _ in taken)).most_common()
    often = ", ".join(f"{action} ×{count}" for action, count in counts)
    return "\n".join([often, *(f"last: {line}" for _, line in taken[-LAST:])])


def excerpt(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """The beginning (two thirds) and the end (one third) of a text in at most `max_tokens`, cut at line ends where it can.

    The mark between them says how many characters and lines are missing. If not even the mark fits: as much of the beginning
    as does.
    """
    for cut, near in ((_cut, 8), (lambda text, keep: text[:keep], 0)):
        low, high = 0, min(len(text), 16 * max_tokens)  # characters kept: low is known to fit
        best = ""
        while high - low > max(near, low // 50):  # near enough: each look costs a count
            keep = (low + high + 1) // 2
            shorter = cut(text, keep)
            if count(shorter) <= max_tokens:
                low, best = keep, shorter
            else:
                high = keep - 1
        if best:
            break
    return best


def _cut(text: str, keep: int) -> str:
    head, tail = text[: keep * 2 // 3], text[len(text) - keep // 3 :]
    at = head.rfind("\n")
    if at > len(head) // 2:
        head = head[: at + 1]
    at = tail.find("\n")
    if 0 <= at < len(tail) // 2:
        tail = tail[at + 1 :]
    missing = text[len(head) : len(text) - len(tail)]
    lines = missing.count("\n")
    mark = f"[… {len(missing)} characters, {lines} lines cut …]"
    return "\n".join(part for part in (head.removesuffix("\n"), mark, tail) if part)


# -- outlines: Python by `ast`; other languages by tree-sitter where it is installed (extra `code`), else none -----------


def code_outline(text: str, suffix: str, *, docstrings: bool = True) -> str | None:
    """Imports, class and function signatures with their lines, and, unless told otherwise, the first lines of docstrings.

    None if the text cannot be read so.
    """
    if len(text) > LONGEST:
        return None
    with suppress(Unreadable), boundary("source"):  # nested beyond what a parser bears, or in another language
        if suffix not in (".py", ".pyi", ".pyw"):
            return _syntax_outline(text, suffix)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape in someone's code is not ours to report
            tree = ast.parse(text)
        return "\n".join(_signatures(tree, "", docstrings)) or None
    return None


def _signatures(node: ast.Module | ast.ClassDef, indent: str, docstrings: bool) -> Iterator[str]:
    inner = f"{indent}    "
    if not indent:
        yield from _first_line(node, indent, docstrings)
    for item in node.body:
        if isinstance(item, ast.Import | ast.ImportFrom):
            yield indent + ast.unparse(item)
        elif isinstance(item, ast.ClassDef):
            bases = ", ".join(ast.unparse(base) for base in [*item.bases, *item.keywords])
            signature = f"class {item.name}{f'({bases})' if bases else ''}"
        elif isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            word = "async def" if isinstance(item, ast.AsyncFunctionDef) else "def"
            returns = f" -> {ast.unparse(item.returns)}" if item.returns else ""
            signature = f"{word} {item.name}({ast.unparse(item.args)}){returns}"
        if isinstance(item, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{indent}{signature}:  # lines {item.lineno}-{item.end_lineno}"
            yield from _first_line(item, inner, docstrings)
        if isinstance(item, ast.ClassDef):
            yield from _signatures(item, inner, docstrings)


def _first_line(
    node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, indent: str, docstrings: bool
) -> Iterator[str]:
    if docstrings and (docstring := ast.get_docstring(node)):
        yield f'{indent}"""{docstring.splitlines()[0]}"""'


def markdown_outline(text: str) -> str | None:
    """Each heading with the first sentence under it; None if there are no headings."""
    lines = text.splitlines()
    found = list(_headings(lines))
    if not found:
        return None
    outline = _first_sentence(lines[: found[0][0]])
    for (at, level, title), end in zip(found, [*(at for at, _, _ in found[1:]), len(lines)], strict=True):
        outline += [f"{'#' * level} {title}", *_first_sentence(lines[at + 1 : end])]
    return "\n".join(outline)


def _first_sentence(lines: list[str]) -> list[str]:
    plain = dropwhile(lambda line: not line, map(str.strip, lines))
    found = _SENTENCE.match(" ".join(takewhile(bool, plain)))
    return [found[0].strip()] if found else []


def _headings(lines: list[str]) -> Iterator[tuple[int, int, str]]:
    """(0-based line, level 1 to 6, title) of each ATX heading."""
    fence: str | None = None
    for at, line in enumerate(lines):
        mark = _FENCE.match(line)
        if fence is not None:
            if mark and mark[1].startswith(fence):
                fence = None
        elif mark:
            fence = mark[1]
        elif found := _HEADING.match(line):
            yield at, len(found[1]), found[2]


def section(text: str, title: str) -> str:
    """The part of a Markdown text under the heading `title` (in any case), down to the next of its level; else all."""
    lines = text.splitlines(keepends=True)
    start: tuple[int, int] | None = None
    for at, level, found in _headings(lines):
        if start is not None and level <= start[1]:
            return "".join(lines[start[0] : at])
        if start is None and found.casefold() == title.strip().casefold():
            start = at, level
    return text if start is None else "".join(lines[start[0] :])


def _syntax_outline(text: str, suffix: str) -> str | None:
    """Imports and signatures with their lines; None for an unknown language, or where its parser is not installed."""
    module = _GRAMMARS.get(suffix)
    if module is None or any(importlib.util.find_spec(name) is None for name in ("tree_sitter", module)):
        return None
    tree_sitter: Any = importlib.import_module("tree_sitter")  # an extra
    grammar: Any = importlib.import_module(module)
    language = getattr(grammar, "language", None) or getattr(grammar, f"language_{_DIALECTS[suffix]}")
    raw = text.encode("utf-8", "surrogatepass")
    tree = tree_sitter.Parser(tree_sitter.Language(language())).parse(raw)
    return "\n".join(_declarations(tree.root_node, raw, 0)) or None


def _declarations(node: Any, raw: bytes, depth: int) -> Iterator[str]:
    for child in node.named_children:
        kind = child.type
        if "comment" in kind or "call" in kind:
            continue
        body = next((part for part in child.named_children if _BODY.search(part.type)), None)
        shown = _SHOWN.search(kind) is not None
        if shown:
            end = body.start_byte if body is not None else child.end_byte
            signature = " ".join(raw[child.start_byte : end].decode("utf-8", "replace").split()).rstrip("{ ")
            first, last = child.start_point[0] + 1, child.end_point[0] + 1
            yield f"{'    ' * depth}{signature}  // lines {first}-{last}"
        if body is not None and depth < 3 and not re.search(r"function|method|constructor", kind):
            yield from _declarations(body, raw, depth + shown)
        elif not shown and body is None and depth < 3 and "statement" in kind:
            yield from _declarations(child, raw, depth)
