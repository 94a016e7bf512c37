"""Unified diffs: read, and applied to texts exactly (spec 8, *Tools for work*: `apply_patch`).

A hunk is applied where its lines stand, word for word, at the line that it names or the nearest one to it: no line of context
is left out or guessed. The line counts in `@@` are not relied on, since models miscount. An empty line is one of context whose
blank got lost. Modes, copies and binary patches are not read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import StringIO
from itertools import takewhile

from hivemind.errors import UserError

_HUNK = re.compile(r"@@(?: -(?P<old>\d+)(?:,(?P<lines>\d+))? \+\d+(?:,\d+)? @@.*| @@.*)?$")
_NOTHING = "/dev/null"
_SHOWN_CHARS = 120
_IGNORED = ("index ", "similarity index ", "dissimilarity index ", "new file mode ", "deleted file mode ")
_REFUSED = {
    "old mode ": "changes a mode",
    "new mode ": "changes a mode",
    "copy from ": "copies a file",
    "Binary files ": "is binary",
    "GIT binary patch": "is binary",
}


class PatchProblem(UserError):
    """A patch that cannot be read, or does not fit what it is for."""


@dataclass(slots=True)
class Hunk:
    """Lines that stand together, each with its sign (` `, `-`, `+`); `at` is the number of the first, where it says one."""

    head: str
    at: int | None
    lines: list[tuple[str, str]] = field(default_factory=list)

    @property
    def old(self) -> list[str]:
        """The lines as they stand before."""
        return [line for sign, line in self.lines if sign != "+"]


@dataclass(slots=True)
class FilePatch:
    """What becomes of one file: `old` is None for one that is made, `new` for one that is deleted."""

    old: str | None
    new: str | None
    hunks: list[Hunk] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.new or self.old or ""


def read_patch(text: str) -> list[FilePatch]:
    """The files of a unified diff, as `diff -u` or git writes it. Raises PatchProblem that names the line."""
    lines = text.replace("\r\n", "\n").split("\n")
    files: list[FilePatch] = []
    current: FilePatch | None = None
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("diff --git "):
            current = None
        elif line.startswith("rename from ") and lines[at + 1 : at + 2] and lines[at + 1].startswith("rename to "):
            current = FilePatch(line[12:], lines[at + 1][10:])
            files.append(current)
            at += 1
        elif _begins_file(lines, at):
            old, new = _names(line[4:], lines[at + 1][4:])
            if current is None or (current.old, current.new) != (old, new):
                current = FilePatch(old, new)
                files.append(current)
            at += 1
        elif line.startswith("@@"):
            at = _read_hunk(lines, at, current)
            continue
        elif refused := next((why for start, why in _REFUSED.items() if line.startswith(start)), None):
            raise PatchProblem(f"line {at + 1} of the patch {refused}, which is not done here")
        elif line.strip() and current is not None and not line.startswith(_IGNORED):
            raise PatchProblem(f"line {at + 1} of the patch begins with none of ` `, `+`, `-`, `@@`: {_cut(line)}")
        at += 1
    if not files:
        raise PatchProblem(
            "is no unified diff", remedy="begin each file with --- a/PATH and +++ b/PATH, then its @@ hunks"
        )
    if empty := next((one for one in files if not one.hunks and one.old == one.new), None):
        raise PatchProblem(f"{empty.name} has no hunk in the patch")
    return files


def _begins_file(lines: Sequence[str], at: int) -> bool:
    return lines[at].startswith("--- ") and lines[at + 1 : at + 2] != [] and lines[at + 1].startswith("+++ ")


def _names(old: str, new: str) -> tuple[str | None, str | None]:
    """Both paths, without `a/` and `b/`, and without the times that diff writes after a tab."""
    old, new = old.split("\t")[0].rstrip(), new.split("\t")[0].rstrip()
    if old in (_NOTHING, new) and new == _NOTHING:
        raise PatchProblem("makes nothing of nothing (/dev/null on both sides)")
    if (old == _NOTHING or old.startswith("a/")) and (new == _NOTHING or new.startswith("b/")):
        old, new = (one if one == _NOTHING else one[2:] for one in (old, new))
    return None if old == _NOTHING else old, None if new == _NOTHING else new


def _read_hunk(lines: Sequence[str], at: int, file: FilePatch | None) -> int:
    """Read the hunk that begins here into its file; returns the number of the line after it."""
    head = lines[at]
    found = _HUNK.match(head)
    if file is None or found is None:
        why = "is no hunk's head" if found is None else "belongs to no file: --- and +++ come before it"
        raise PatchProblem(f"line {at + 1} of the patch {why}: {_cut(head)}")
    start, counted = found["old"], found["lines"]
    hunk = Hunk(head, None if start is None else int(start))
    at += 1
    while at < len(lines) and (not lines[at] or lines[at][0] in " +-\\"):
        if _begins_file(lines, at) and lines[at + 2 : at + 3] and lines[at + 2].startswith("@@"):
            break
        if lines[at].startswith("\\") and hunk.lines:  # the line before is the last of its file, and has no end
            sign, line = hunk.lines[-1]
            hunk.lines[-1] = (sign, line.removesuffix("\n"))
        else:
            hunk.lines.append((lines[at][:1] or " ", f"{lines[at][1:]}\n"))
        at += 1
    told = None if start is None else int(counted or 1)
    while hunk.lines and lines[at - 1] == "" and hunk.lines[-1] == (" ", "\n") and len(hunk.old) != told:
        hunk.lines.pop()  # empty lines between this hunk and what follows it
        at -= 1
    if all(sign == " " for sign, _ in hunk.lines):
        raise PatchProblem(f"the hunk {_cut(head)} of {file.name} changes nothing")
    file.hunks.append(hunk)
    return at


def patched(text: str, file: FilePatch) -> str:
    """The text after all hunks of a file. Raises PatchProblem that names the hunk which does not fit, and why."""
    lines = list(StringIO(text))
    done: list[str] = []
    used = moved = 0
    for number, hunk in enumerate(file.hunks, 1):
        where = _place(lines, hunk, used, moved)
        if where is None:
            why = _why(lines, hunk, used)
            raise PatchProblem(f"hunk {number} of {file.name} ({_cut(hunk.head)}) does not fit: {why}")
        done += lines[used:where]
        used = where
        for sign, line in hunk.lines:
            if sign == " ":
                done.append(lines[used])  # as the file has it
            elif sign == "+":
                done.append(line)
            used += sign != "+"
        if hunk.at is not None:
            moved = where - _wanted(hunk, hunk.at)
    done += lines[used:]
    return "".join([*(line if line.endswith("\n") else f"{line}\n" for line in done[:-1]), *done[-1:]])


def _wanted(hunk: Hunk, at: int) -> int:
    """How many lines come before the hunk by its own word: one that only adds names the line that it comes after."""
    return at - 1 if hunk.old else at


def _place(lines: Sequence[str], hunk: Hunk, used: int, moved: int) -> int | None:
    """How many lines come before the hunk where it fits, nearest to where it says; None if it fits nowhere."""
    old = hunk.old
    if hunk.at is None:
        found = [at for at in range(used, len(lines)) if old and _matching(lines, at, old) == len(old)]
        return found[0] if len(found) == 1 else None
    wanted = max(used, _wanted(hunk, hunk.at) + moved)
    if not old:
        return wanted if wanted <= len(lines) else None
    near = sorted(range(used, len(lines) - len(old) + 1), key=lambda at: (abs(at - wanted), at))
    return next((at for at in near if _matching(lines, at, old) == len(old)), None)


def _matching(lines: Sequence[str], at: int, old: Sequence[str]) -> int:
    """How many lines of a hunk stand there, from its first one on; the end of the file's last line may be missing."""
    pairs = zip(lines[at : at + len(old)], old, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0].removesuffix("\n") == pair[1].removesuffix("\n"), pairs))


def _why(lines: Sequence[str], hunk: Hunk, used: int) -> str:
    """What a mind needs to mend a hunk: where most of it stands, and the first line that differs."""
    old = hunk.old
    if not old:
        return f"it has no line of context, and the file has {len(lines)} lines"
    best = max(range(used, max(used + 1, len(lines))), key=lambda at: (_matching(lines, at, old), -at))
    count = _matching(lines, best, old)
    if count == len(old):
        return "it names no line, and its lines stand there more than once"
    if count == 0:
        after = f" after line {used}, where the hunk before it ends" if used else ""
        return f"no line is {_cut(old[0])!r}{after}"
    there = (
        f"is {_cut(lines[best + count])!r}" if best + count < len(lines) else "is not there: the file ends before it"
    )
    return f"line {best + count + 1} {there}, the hunk has {_cut(old[count])!r}"


def _cut(line: str) -> str:
    line = line.rstrip("\n")
    return line if len(line) <= _SHOWN_CHARS else f"{line[:_SHOWN_CHARS]}…"
