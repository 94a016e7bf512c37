"""Reads unified diffs for the tool `apply_patch`, and applies them exactly.

A hunk applies where all its old lines match word for word, at the line that it names or the nearest match. No context line is
skipped or guessed. The line counts in `@@` are ignored, since models miscount. An empty line counts as a context line that lost
its leading blank. Changes of modes, copies and binary patches are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import StringIO
from itertools import takewhile

from hivemind.errors import UserError

_HUNK = re.compile(r"@@(?: -(?P<old>\d+)(?:,(?P<lines>\d+))? \+\d+(?:,\d+)? @@.*| @@.*)?$")
_DEV_NULL = "/dev/null"
_SHOWN_CHARS = 120
_IGNORED = ("index ", "similarity index ", "dissimilarity index ", "new file mode ", "deleted file mode ")
_UNSUPPORTED = {
    "old mode ": "changes a mode",
    "new mode ": "changes a mode",
    "copy from ": "copies a file",
    "Binary files ": "is binary",
    "GIT binary patch": "is binary",
}


class PatchProblem(UserError):
    """A patch that cannot be read or does not apply."""


@dataclass(slots=True)
class Hunk:
    """One hunk: its lines with their signs (` `, `-`, `+`). `start` is the number of its first old line, or None if the header
    has no numbers."""

    head: str
    start: int | None
    lines: list[tuple[str, str]] = field(default_factory=list)

    @property
    def old_lines(self) -> list[str]:
        """The hunk's lines as they were before the change."""
        return [line for sign, line in self.lines if sign != "+"]


@dataclass(slots=True)
class FilePatch:
    """The hunks of one file. `old_path` is None for a created file, `new_path` for a deleted one."""

    old_path: str | None
    new_path: str | None
    hunks: list[Hunk] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.new_path or self.old_path or ""


def read_patch(text: str) -> list[FilePatch]:
    """Return the hunks of each file in a unified diff, as `diff -u` or git writes it. Raises PatchProblem with the number of an
    invalid line."""
    lines = text.replace("\r\n", "\n").split("\n")
    files: list[FilePatch] = []
    file: FilePatch | None = None
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("diff --git "):
            file = None
        elif line.startswith("rename from ") and lines[at + 1 : at + 2] and lines[at + 1].startswith("rename to "):
            file = FilePatch(line[12:], lines[at + 1][10:])
            files.append(file)
            at += 1
        elif _begins_file(lines, at):
            old, new = _paths(line[4:], lines[at + 1][4:])
            if file is None or (file.old_path, file.new_path) != (old, new):
                file = FilePatch(old, new)
                files.append(file)
            at += 1
        elif line.startswith("@@"):
            at = _read_hunk(lines, at, file)
            continue
        elif problem := next((reason for prefix, reason in _UNSUPPORTED.items() if line.startswith(prefix)), None):
            raise PatchProblem(f"line {at + 1} of the patch {problem}, which apply_patch does not support")
        elif line.strip() and file is not None and not line.startswith(_IGNORED):
            raise PatchProblem(f"line {at + 1} of the patch begins with none of ` `, `+`, `-`, `@@`: {_shorten(line)}")
        at += 1
    if not files:
        raise PatchProblem(
            "is not a unified diff", remedy="begin each file with --- a/PATH and +++ b/PATH, then its @@ hunks"
        )
    if empty_file := next((file for file in files if not file.hunks and file.old_path == file.new_path), None):
        raise PatchProblem(f"{empty_file.name} has no hunk in the patch")
    return files


def _begins_file(lines: Sequence[str], at: int) -> bool:
    return lines[at].startswith("--- ") and lines[at + 1 : at + 2] != [] and lines[at + 1].startswith("+++ ")


def _paths(old: str, new: str) -> tuple[str | None, str | None]:
    """Return both paths of a file's header, None for /dev/null. Remove `a/`, `b/` and the times that diff writes after a tab."""
    old, new = old.split("\t")[0].rstrip(), new.split("\t")[0].rstrip()
    if old in (_DEV_NULL, new) and new == _DEV_NULL:
        raise PatchProblem("has /dev/null on both sides")
    if (old == _DEV_NULL or old.startswith("a/")) and (new == _DEV_NULL or new.startswith("b/")):
        old, new = (path if path == _DEV_NULL else path[2:] for path in (old, new))
    return None if old == _DEV_NULL else old, None if new == _DEV_NULL else new


def _read_hunk(lines: Sequence[str], at: int, file: FilePatch | None) -> int:
    """Add the hunk that begins at index `at` to its file. Return the index of the line after the hunk."""
    head = lines[at]
    match = _HUNK.match(head)
    if file is None or match is None:
        reason = "is not a hunk header" if match is None else "has no file: --- and +++ must come first"
        raise PatchProblem(f"line {at + 1} of the patch {reason}: {_shorten(head)}")
    old_start, old_count = match["old"], match["lines"]
    hunk = Hunk(head, None if old_start is None else int(old_start))
    at += 1
    while at < len(lines) and (not lines[at] or lines[at][0] in " +-\\"):
        if _begins_file(lines, at) and lines[at + 2 : at + 3] and lines[at + 2].startswith("@@"):
            break
        if lines[at].startswith("\\") and hunk.lines:  # the previous line is the last of its file, without a line end
            sign, line = hunk.lines[-1]
            hunk.lines[-1] = (sign, line.removesuffix("\n"))
        else:
            hunk.lines.append((lines[at][:1] or " ", f"{lines[at][1:]}\n"))
        at += 1
    expected_count = None if old_start is None else int(old_count or 1)
    while (
        hunk.lines and lines[at - 1] == "" and hunk.lines[-1] == (" ", "\n") and len(hunk.old_lines) != expected_count
    ):
        hunk.lines.pop()  # empty lines between this hunk and the next part
        at -= 1
    if all(sign == " " for sign, _ in hunk.lines):
        raise PatchProblem(f"the hunk {_shorten(head)} of {file.name} changes nothing")
    file.hunks.append(hunk)
    return at


def patched(text: str, file: FilePatch) -> str:
    """Return the text with all hunks applied. Raises PatchProblem that says which hunk does not apply, and why."""
    lines = list(StringIO(text))
    new_lines: list[str] = []
    position = offset = 0
    for number, hunk in enumerate(file.hunks, 1):
        hunk_position = _find_position(lines, hunk, position, offset)
        if hunk_position is None:
            reason = _mismatch(lines, hunk, position)
            raise PatchProblem(f"hunk {number} of {file.name} ({_shorten(hunk.head)}) does not apply: {reason}")
        new_lines += lines[position:hunk_position]
        position = hunk_position
        for sign, line in hunk.lines:
            if sign == " ":
                new_lines.append(lines[position])  # the line of the file, with its own line end
            elif sign == "+":
                new_lines.append(line)
            position += sign != "+"
        if hunk.start is not None:
            offset = hunk_position - _lines_before(hunk, hunk.start)
    new_lines += lines[position:]
    return "".join([*(line if line.endswith("\n") else f"{line}\n" for line in new_lines[:-1]), *new_lines[-1:]])


def _lines_before(hunk: Hunk, start: int) -> int:
    """Return how many lines come before the hunk. If a hunk only adds lines, its header names the line before it."""
    return start - 1 if hunk.old_lines else start


def _find_position(lines: Sequence[str], hunk: Hunk, position: int, offset: int) -> int | None:
    """Return how many lines come before the place where the hunk applies, at or after `position`: the nearest to the line that
    the hunk names, moved by `offset`. Return None if it applies nowhere."""
    old = hunk.old_lines
    if hunk.start is None:
        matches = [at for at in range(position, len(lines)) if old and _matching_count(lines, at, old) == len(old)]
        return matches[0] if len(matches) == 1 else None
    nominal = max(position, _lines_before(hunk, hunk.start) + offset)
    if not old:
        return nominal if nominal <= len(lines) else None
    by_distance = sorted(range(position, len(lines) - len(old) + 1), key=lambda at: (abs(at - nominal), at))
    return next((at for at in by_distance if _matching_count(lines, at, old) == len(old)), None)


def _matching_count(lines: Sequence[str], at: int, old: Sequence[str]) -> int:
    """Return how many old lines of a hunk match the file from index `at` on, whether or not the last line has a line end."""
    pairs = zip(lines[at : at + len(old)], old, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0].removesuffix("\n") == pair[1].removesuffix("\n"), pairs))


def _mismatch(lines: Sequence[str], hunk: Hunk, position: int) -> str:
    """Return why a hunk does not apply: the first line that differs at the position where most of the hunk matches."""
    old = hunk.old_lines
    if not old:
        return f"the hunk has no context line, and the file has {len(lines)} lines"
    best = max(range(position, max(position + 1, len(lines))), key=lambda at: (_matching_count(lines, at, old), -at))
    count = _matching_count(lines, best, old)
    if count == len(old):
        return "it names no line number, and its lines occur more than once"
    if count == 0:
        after_note = f" after line {position}, where the previous hunk ends" if position else ""
        return f"no line is {_shorten(old[0])!r}{after_note}"
    difference = (
        f"is {_shorten(lines[best + count])!r}"
        if best + count < len(lines)
        else "does not exist: the file ends before it"
    )
    return f"line {best + count + 1} {difference}, but the hunk has {_shorten(old[count])!r}"


def _shorten(line: str) -> str:
    line = line.rstrip("\n")
    return line if len(line) <= _SHOWN_CHARS else f"{line[:_SHOWN_CHARS]}…"
