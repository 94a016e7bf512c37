"""`Citation`: a quote and its place, made once, with the quote, and then noted, reviewed and shown as it is."""

from __future__ import annotations

from hivemind.frozen import frozen

__all__ = ["Citation", "Verdict"]


@frozen
class Citation:
    """A quote and its place: the first and last line, from 1 and both included, in the version of the file with this SHA-256.

    Of HTML they are the lines of the elements in the source, of a PDF the pages.
    """

    path: str
    start_line: int
    end_line: int
    digest: str
    text: str

    @property
    def place(self) -> str:
        """`path:line` or `path:line-line`."""
        lines = str(self.start_line) if self.start_line == self.end_line else f"{self.start_line}-{self.end_line}"
        return f"{self.path}:{lines}"

    @property
    def source(self) -> str:
        """The place, and the beginning of the file's digest."""
        return f"{self.place} (sha256 {self.digest[:12]})"


@frozen
class Verdict:
    """Whether a quote stands where it is said to stand: true or false as a condition, with the reason in words.

    `lines` are those at which it stands now, or None; `changed` says that the file is not the one that was read.
    """

    stands: bool
    reason: str
    lines: tuple[int, int] | None = None
    changed: bool = False

    def __bool__(self) -> bool:
        return self.stands
