"""Outlines of other languages than Python, by tree-sitter where it is installed (`pip install hivemind[code]`)."""

from __future__ import annotations

import importlib
import importlib.util
import re
from typing import Any

__all__ = ["LANGUAGES", "syntax_outline"]

LANGUAGES = {
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


def syntax_outline(text: str, suffix: str) -> str | None:
    """Imports and signatures with their lines; None for an unknown language, or where its parser is not installed."""
    module = LANGUAGES.get(suffix)
    if module is None or any(importlib.util.find_spec(name) is None for name in ("tree_sitter", module)):
        return None
    raw = text.encode("utf-8", "surrogatepass")
    lines: list[str] = []
    _walk(_parsed(module, suffix, raw), raw, 0, lines)
    return "\n".join(lines) or None


def _parsed(module: str, suffix: str, raw: bytes) -> Any:
    tree_sitter: Any = importlib.import_module("tree_sitter")  # an extra
    grammar: Any = importlib.import_module(module)
    language = getattr(grammar, "language", None) or getattr(grammar, f"language_{_DIALECTS[suffix]}")
    return tree_sitter.Parser(tree_sitter.Language(language())).parse(raw).root_node


def _walk(node: Any, raw: bytes, depth: int, lines: list[str]) -> None:
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
            lines.append(f"{'    ' * depth}{signature}  // lines {first}-{last}")
        if body is not None and depth < 3 and not re.search(r"function|method|constructor", kind):
            _walk(body, raw, depth + shown, lines)
        elif not shown and body is None and depth < 3 and "statement" in kind:
            _walk(child, raw, depth, lines)
