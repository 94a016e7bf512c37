"""Outlines of other languages than Python, by tree-sitter where it is installed (`pip install hivemind[code]`)."""

from __future__ import annotations

import importlib
import importlib.util
import re
from typing import Any

__all__ = ["LANGUAGES", "syntax_outline"]

LANGUAGES = {
    ".c": "c", ".h": "c", ".cc": "cpp", ".cpp": "cpp", ".hpp": "cpp", ".cs": "csharp", ".go": "go", ".java": "java",
    ".js": "javascript", ".jsx": "javascript", ".mjs": "javascript", ".kt": "kotlin", ".lua": "lua", ".php": "php",
    ".rb": "ruby", ".rs": "rust", ".scala": "scala", ".sh": "bash", ".swift": "swift", ".ts": "typescript", ".tsx": "tsx",
}  # fmt: skip
"""Language by suffix, as the language pack names it."""

_SHOWN = re.compile(
    r"import|include|use_decl|using|package|namespace|module|class|interface|struct|enum|trait|impl|function|method|constructor|type_(alias|decl)|protocol|object_decl"
)
_BODY = re.compile(r"block|body|declaration_list|compound_statement|field_declaration_list|enum_variant_list|do_block")
"""Which kinds of nodes are shown, and which of their children are left out: grammars differ, their words hardly do."""


def syntax_outline(text: str, suffix: str) -> str | None:
    """Imports and signatures with their lines; None for an unknown language, or where no parser is installed."""
    language = LANGUAGES.get(suffix)
    if language is None or importlib.util.find_spec("tree_sitter_language_pack") is None:
        return None
    raw = text.encode("utf-8", "surrogatepass")
    lines: list[str] = []
    _walk(_parsed(language, raw), raw, 0, lines)
    return "\n".join(lines) or None


def _parsed(language: Any, raw: bytes) -> Any:
    pack = importlib.import_module("tree_sitter_language_pack")  # an extra, and slow to import
    return pack.get_parser(language).parse(raw).root_node


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
