"""result.md: what was asked, what was found, where it stands, who checked it, what it cost."""

from __future__ import annotations

import hashlib
import html
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from hivemind import fs
from hivemind.boundary import boundary
from hivemind.errors import HivemindError, UserError
from hivemind.frozen import frozen
from hivemind.minds import Usage
from hivemind.taskrun.conversation import used
from hivemind.taskrun.review import Citation, Review

_PRINTED_BYTES = 8192
_OWN_HEADINGS = {"sources", "howitcameabout"}
_CHANGED = "[the file with its output is not what it printed: something has changed it since]"


@frozen
class StepReport:
    """What one step gave. `status` and `printed` are its command's, `files` what it wrote (paths within the task)."""

    title: str
    text: str = ""
    citations: tuple[Citation, ...] = ()
    command: str | None = None
    status: int | None = None
    printed: str | None = None
    files: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether the step has given nothing (yet)."""
        return not (self.text.strip() or self.citations or self.files) and self.command is None


@frozen
class Spent:
    """What the task has used: turns of its agents, tokens of requests and answers, money, the seconds that its turns have
    taken, commands included, how many of the tokens have a price that nobody knows, and how many a provider's cache had."""

    cycles: int = 0
    tokens: int = 0
    money: float = 0.0
    seconds: float = 0.0
    unpriced: int = 0
    cached: int = 0

    @property
    def in_words(self) -> str:
        cached = f" ({self.cached:,} cached)" if self.cached else ""
        told = [
            f"{self.cycles:,} turn{'s' if self.cycles != 1 else ''}",
            f"{self.tokens:,} tokens{cached}",
            f"{self.seconds:.1f} s",
            self.cost,
        ]
        return ", ".join(filter(None, told))

    @property
    def cost(self) -> str:
        """What it cost, in words; empty where nothing costs anything."""
        known = f"{self.money:.4f}" if self.money else ""
        unknown = f"{self.unpriced:,} tokens at an unknown price" if self.unpriced else ""
        return ", ".join(filter(None, [known and f"cost {known}", unknown]))


class Account:
    """What a task has used so far, booked line by line of its conversation: so no turn reads the whole of it again.

    A request stands there before it is sent, with what it may use up at most, and again with what it did use: a program's run
    each time that it reports, and its last report counts. A request whose end is missing (the process was killed meanwhile)
    has used up what it might. May be used by several threads.
    """

    def __init__(self, records: Iterable[Mapping[str, Any]] = ()) -> None:
        self._mutex = threading.Lock()
        self._cycles, self._used = 0, Usage()
        self._requests: dict[str, Usage] = {}  # whose answer is no message, or is not there yet
        self._seconds = 0.0
        for record in records:
            self.book(record)

    def book(self, record: Mapping[str, Any]) -> None:
        """Take a line of the conversation in; answers and requests count. What people have made of it counts as nothing."""
        with self._mutex, suppress(HivemindError), boundary("line of a conversation"):
            if "reserved" in record or "answered" in record:
                self._requests[str(record.get("answered") or record["request"])] = used(record)
            elif record.get("role") == "assistant":
                self._requests.pop(str(record.get("request")), None)
                self._cycles += 1
                self._used += used(record)
            if record.get("role") in ("assistant", "tool"):
                self._seconds += record.get("seconds", 0.0)

    def spent(self) -> Spent:
        """Cycles and their seconds, tokens and money, those of requests under way as they may come to."""
        with self._mutex:
            used = sum(self._requests.values(), self._used)
            return Spent(self._cycles, used.tokens, used.money, self._seconds, used.unpriced, used.cached)


def compose(
    title: str,
    answer: str,
    findings: Sequence[StepReport],
    review: Review,
    agent: str,
    spent: Spent | None,
    notes: Sequence[str] = (),
    more: Sequence[str] = (),
    changes: Sequence[str] = (),
) -> str:
    """The text of result.md. Each quote is followed by its citation `path:line-line` and the file's digest.

    Without `spent` nothing is said of the costs: they are not over yet, and another number each time. `more` are further
    lines of how it came about, `changes` sections on the branches of its worktrees and on its files. The runtime's own sections
    stand last; what looks like the heading of one in an agent's words is marked.
    """
    parts = [f"# {title}", ""]
    if answer.strip():
        parts += [_said(answer.strip()), ""]
    for finding in findings:
        parts += _section(finding, title)
    parts += changes
    sources = _sources(findings)
    if sources:
        parts += ["## Sources", "", *sources, ""]
    parts += ["## How it came about", "", *_provenance(review, agent, spent, bool(sources))]
    parts += [f"* {one}" for one in more] + [f"* Note: {note.splitlines()[0]}" for note in notes] + [""]
    return "\n".join(parts)


def _end(file: BinaryIO) -> str:
    """The last 8 KiB of an output."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _PRINTED_BYTES))
    text = file.read().decode("utf-8", "replace")
    return text if size <= _PRINTED_BYTES else f"[the first {size - _PRINTED_BYTES} bytes are in artifacts/]\n{text}"


def printed(output: Path, digest: str | None, excerpt: Callable[[BinaryIO], str] = _end) -> str:
    """An excerpt of what a command printed, from the file that has it; in its place a line that says so where the file is not
    the one with the receipt's digest. Nothing if a person has taken it away."""
    try:
        with open(fs.file_below(output.parent, (output.name,)), "rb") as file:
            if digest is not None and hashlib.file_digest(file, "sha256").hexdigest() != digest:
                return _CHANGED
            file.seek(0)
            return excerpt(file)
    except FileNotFoundError:
        return ""
    except (OSError, UserError):
        return _CHANGED


def _section(finding: StepReport, title: str) -> Iterable[str]:
    if finding.title != title:
        yield f"## {_said(finding.title)}"
        yield ""
    if finding.text.strip():
        yield _said(finding.text.strip())
        yield ""
    for citation in finding.citations:
        yield from (f"> {line}".rstrip() for line in citation.text.splitlines())
        yield ""
        yield f"— `{citation.place}` (sha256 {citation.digest[:12]})"
        yield ""
    if finding.command is not None:
        fence = _fence(finding.printed or "")
        failed = f"ended with status {finding.status} and " if finding.status else ""
        yield _said(f"`{finding.command}` {failed}printed:")
        yield ""
        yield fence
        yield (finding.printed or "(nothing)").rstrip("\n")
        yield fence
        yield ""
    for path in finding.files:
        yield f"Written: `{path}`"
        yield ""


def _said(text: str) -> str:
    said, paragraph = [], ""  # a heading that is underlined may have several lines
    for line in text.splitlines():
        letters = _letters(line)
        paragraph = letters and paragraph + letters
        said.append(f"{line} (not by the runtime)" if {letters, paragraph} & _OWN_HEADINGS else line)
    return "\n".join(said)


def _letters(line: str) -> str:
    """All that is left of a line when it is read without its signs, spaces and HTML."""
    return "".join(filter(str.isalpha, html.unescape(re.sub("<[^>]*>", "", line)))).casefold()


def _fence(text: str) -> str:
    """A fence longer than any run of backquotes in the text."""
    return "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))


def _sources(findings: Sequence[StepReport]) -> list[str]:
    seen: dict[str, str] = {}
    for finding in findings:
        for citation in finding.citations:
            seen.setdefault(citation.place, citation.digest)
    return [f"{at}. `{place}` sha256 {digest}" for at, (place, digest) in enumerate(seen.items(), 1)]


def _provenance(review: Review, agent: str, spent: Spent | None, cited: bool) -> Iterable[str]:
    if spent is None:
        yield f"* Worked on by {agent}."
    else:
        yield f"* Worked on by {agent}: {spent.in_words}."
    if review.state == "approved":
        yield f"* Checked by {review.reviewer}: every quote stands where it is said to stand."
    elif review.state == "self":
        yield f"* Checked by {agent} itself: no other agent was there to do it."
    elif not cited:
        yield "* It quotes nothing, so there were no sources to check."
    yield from (f"* Not confirmed, and so not quoted: {problem}" for problem in review.dropped)
    yield "* The trail: `task.md`, `graph.json` (what was asked, found, concluded), `messages.jsonl` (every turn and call)."
