"""Citations, and the verdict whether a cited quote is still in its file (found by `verification.py`)."""

from __future__ import annotations

from hivemind.frozen import frozen
from hivemind.masking import MASK, MASK_NOTE


@frozen
class Citation:
    """A quote `text` from a file, with its first and last line (from 1, inclusive) and the file's SHA-256 `digest`.

    In HTML, the lines are those of the quoted elements in the source. In PDF, `start_line` and `end_line` are pages.
    """

    path: str
    start_line: int
    end_line: int
    digest: str
    text: str

    @property
    def place(self) -> str:
        """Return `path:line` or `path:line-line`."""
        lines = str(self.start_line) if self.start_line == self.end_line else f"{self.start_line}-{self.end_line}"
        return f"{self.path}:{lines}"

    @property
    def source(self) -> str:
        """Return the citation's place and the first 12 characters of the file's digest."""
        return f"{self.place} (sha256 {self.digest[:12]})"

    @property
    def as_markdown(self) -> str:
        """The quote as a result shows it, with its place and digest, and a note if something in it is masked."""
        lines = "\n".join(f"> {line}".rstrip() for line in self.text.splitlines())
        note = f"\n\n{MASK_NOTE}" if MASK in self.text else ""
        return f"{lines}\n\n— `{self.place}` (sha256 {self.digest[:12]}){note}"


@frozen
class Verdict:
    """The result of looking for a quote in its file. It is truthy if the file contains the quote at the cited lines.

    `lines` are the quote's current lines, None if the file lacks it.
    """

    is_confirmed: bool
    reason: str
    lines: tuple[int, int] | None = None

    def __bool__(self) -> bool:
        return self.is_confirmed
