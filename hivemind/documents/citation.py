"""A citation: a quote with its place in a file, created together and never changed."""

from __future__ import annotations

from hivemind.frozen import frozen


@frozen
class Citation:
    """A quote with its first and last line (from 1, inclusive) in the version of the file with the SHA-256 `digest`.

    For HTML these are the lines of the elements in the source, for PDF they are pages.
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
        """The place and the first 12 characters of the file's digest."""
        return f"{self.place} (sha256 {self.digest[:12]})"


@frozen
class Verdict:
    """The result of comparing a quote with its file: true if the file contains the quote at the cited lines.

    `lines` are the quote's current lines, or None if it was not found. `is_file_changed`: the digest differs.
    """

    is_confirmed: bool
    reason: str
    lines: tuple[int, int] | None = None
    is_file_changed: bool = False

    def __bool__(self) -> bool:
        return self.is_confirmed
