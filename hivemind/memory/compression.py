"""Making content smaller (spec 2, *Load, build, compress*; seed 004, *Compression Techniques*).

Code becomes its outline by a real parser, Markdown its headings and first sentences, a history its counts, anything else
its head and tail with a mark of what was cut. A mind's summary, where one is configured, stands beside the original in a
folder and never in its place.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable

from hivemind.errors import HivemindError
from hivemind.fs import load_record, save_record
from hivemind.memory.blocks import HistoryMemoryBlock, KnowledgeMemoryBlock, MemoryBlock, MemoryType, MessageMemoryBlock
from hivemind.memory.outline import code_outline, markdown_outline
from hivemind.tokens import count_tokens

__all__ = ["MemoryCompressor", "Summarizer", "excerpt"]

Summarizer = Callable[[str, int], str]
"""A mind's summary of a text within a number of tokens."""
LAST = 5  # so many last results of a history are shown
_MARKDOWN = (".md", ".markdown", ".mdx")
_ACTION = re.compile(r"([a-z][a-z0-9_.-]*)(?::|$)")


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

    def compress_history(self, blocks: Iterable[HistoryMemoryBlock], max_tokens: int) -> str:
        """Many actions in one text: how often each was taken, and the last results."""
        lines = [f"{block.action_type}: {block.action_detail} → {block.result or ''}".rstrip(" →") for block in blocks]
        text = history_outline(lines) or ""
        return text if self._fits(text, max_tokens) else excerpt(text, max_tokens, self.token_counter)

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
    counts = Counter(action for action, _ in taken)
    often = ", ".join(
        f"{action} ×{count}" for action, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )
    return "\n".join([often, *(f"last: {line}" for _, line in taken[-LAST:])])


def excerpt(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """The beginning (two thirds) and the end (one third) of a text in at most `max_tokens`, cut at line ends where it can.

    The mark between them says how many characters and lines are missing. If not even the mark fits: as much of the beginning
    as does.
    """
    low, high = 0, min(len(text), 16 * max_tokens)  # characters kept: low is known to fit
    best = ""
    while low < high:
        keep = (low + high + 1) // 2
        cut = _cut(text, keep)
        if count(cut) <= max_tokens:
            low, best = keep, cut
        else:
            high = keep - 1
        if high - low <= max(8, low // 50):  # near enough: each look costs a count
            break
    return best or _beginning(text, max_tokens, count)


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


def _beginning(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    for length in range(min(len(text), 16 * max_tokens), 0, -1):
        if count(text[:length]) <= max_tokens:
            return text[:length]
    return ""
