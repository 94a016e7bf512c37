"""The text of result.md: the task, the findings with their sources, the review, the costs."""

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
from hivemind.documents import Citation
from hivemind.errors import HivemindError, UserError
from hivemind.frozen import frozen
from hivemind.minds import Usage
from hivemind.taskrun.conversation import usage_of
from hivemind.taskrun.quote_check import Review

_PRINTED_BYTES = 8192
_RUNTIME_HEADINGS = {"sources", "howitcameabout"}
_SOURCES_NOTE = "These are the files as they were quoted: `hivemind task show` says which have changed since."
_CHANGED_OUTPUT = "[the output file was changed after the command ran]"


@frozen
class StepOutcome:
    """The outcome of one step. `status` and `output` are from the step's command; `files` are the files that the step wrote
    (paths in the task)."""

    title: str
    text: str = ""
    citations: tuple[Citation, ...] = ()
    command: str | None = None
    status: int | None = None
    output: str | None = None
    files: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if the step has no outcome (yet)."""
        return not (self.text.strip() or self.citations or self.files) and self.command is None


@frozen
class TaskUsage:
    """The usage of a task: turns, tokens of requests and answers, money, seconds of its turns with their commands, tokens without
    a known price, tokens from a provider's cache."""

    cycles: int = 0
    tokens: int = 0
    money: float = 0.0
    seconds: float = 0.0
    unpriced: int = 0
    cached: int = 0

    @property
    def summary(self) -> str:
        cache_note = f" ({self.cached:,} cached)" if self.cached else ""
        parts = [
            f"{self.cycles:,} turn{'s' if self.cycles != 1 else ''}",
            f"{self.tokens:,} tokens{cache_note}",
            f"{self.seconds:.1f} s",
            self.cost,
        ]
        return ", ".join(filter(None, parts))

    @property
    def cost(self) -> str:
        """The cost in words; empty if it is zero."""
        known_cost = f"{self.money:.4f}" if self.money else ""
        unknown_cost = f"{self.unpriced:,} tokens at an unknown price" if self.unpriced else ""
        return ", ".join(filter(None, [known_cost and f"cost {known_cost}", unknown_cost]))


class Account:
    """The usage of a task so far, added up line by line from its conversation, so no turn reads the whole file again.

    A request is recorded before it is sent, with its maximal usage, and later with its actual usage. Without an end (the process
    was killed), the maximal usage counts. Of a coding agent's repeated reports the last counts. May be used by several threads.
    """

    def __init__(self, records: Iterable[Mapping[str, Any]] = ()) -> None:
        self._mutex = threading.Lock()
        self._cycles, self._usage = 0, Usage()
        self._requests: dict[str, Usage] = {}  # requests without an answer message, at the end or so far
        self._seconds = 0.0
        self.has_failed_call = False
        for record in records:
            self.book(record)

    def book(self, record: Mapping[str, Any]) -> None:
        """Add a line of the conversation. Damaged lines do not count."""
        with self._mutex, suppress(HivemindError), boundary("line of a conversation"):
            if "reserved" in record or "answered" in record:
                self._requests[str(record.get("answered") or record["request"])] = usage_of(record)
            elif record.get("role") == "assistant":
                self._requests.pop(str(record.get("request")), None)
                self._cycles += 1
                self._usage += usage_of(record)
            if record.get("role") == "tool":
                self.has_failed_call |= not record.get("ok") or bool((record.get("result") or {}).get("exit_status"))
            if record.get("role") in ("assistant", "tool"):
                self._seconds += record.get("seconds", 0.0)

    def usage(self) -> TaskUsage:
        """Return the usage so far. Open requests count with their maximal usage."""
        with self._mutex:
            total = sum(self._requests.values(), self._usage)
            return TaskUsage(self._cycles, total.tokens, total.money, self._seconds, total.unpriced, total.cached)


def compose(
    title: str,
    answer: str,
    findings: Sequence[StepOutcome],
    review: Review,
    agent: str,
    usage: TaskUsage | None,
    notes: Sequence[str] = (),
    extra_lines: Sequence[str] = (),
    changes: Sequence[str] = (),
) -> str:
    """Return the text of result.md. Each quote is followed by its citation `path:line-line` and the file's digest.

    Without `usage` the text omits the costs: a draft must not change while costs grow. `extra_lines` are added to the
    section "How it came about"; `changes` are sections on worktree branches and files. The runtime's sections come last. A line
    of the agent that looks like the heading of a runtime's section is marked.
    """
    parts = [f"# {title}", ""]
    if answer.strip():
        parts += [_mark_headings(answer.strip()), ""]
    for finding in findings:
        parts += _section(finding, title)
    parts += changes
    sources = _sources(findings)
    if sources:
        parts += ["## Sources", "", *sources, "", _SOURCES_NOTE, ""]
    parts += ["## How it came about", "", *_provenance(review, agent, usage, bool(sources), "\n> " in "\n".join(parts))]
    parts += [f"* {line}" for line in extra_lines] + [f"* Note: {note.splitlines()[0]}" for note in notes] + [""]
    return "\n".join(parts)


def _tail(file: BinaryIO) -> str:
    """Return the last 8 KiB of an output."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _PRINTED_BYTES))
    text = file.read().decode("utf-8", "replace")
    return (
        text if size <= _PRINTED_BYTES else f"[the last {_PRINTED_BYTES:,} of the {size:,} bytes in artifacts/]\n{text}"
    )


def output_excerpt(output: Path, digest: str | None, excerpt: Callable[[BinaryIO], str] = _tail) -> str:
    """Return what `excerpt` takes from a command's output file, by default the end. If the file does not have the receipt's
    `digest` (None: not checked), return a line that says so; if the file is gone, ""."""
    try:
        with open(fs.file_below(output.parent, (output.name,)), "rb", buffering=0) as file:
            if digest is not None and hashlib.file_digest(file, "sha256").hexdigest() != digest:
                return _CHANGED_OUTPUT
            return excerpt(file)
    except FileNotFoundError:
        return ""
    except (OSError, UserError):
        return _CHANGED_OUTPUT


def _section(finding: StepOutcome, title: str) -> Iterable[str]:
    if finding.title != title:
        yield f"## {_mark_headings(finding.title)}"
        yield ""
    if finding.text.strip():
        yield _mark_headings(finding.text.strip())
        yield ""
    for citation in finding.citations:
        yield citation.as_markdown
        yield ""
    if finding.command is not None:
        fence = _fence(finding.output or "")
        failure_note = f"ended with status {finding.status} and " if finding.status else ""
        yield _mark_headings(f"`{finding.command}` {failure_note}printed:")
        yield ""
        yield fence
        yield (finding.output or "(no output)").rstrip("\n")
        yield fence
        yield ""
    for path in finding.files:
        yield f"Written: `{path}`"
        yield ""


def _mark_headings(text: str) -> str:
    lines, paragraph = [], ""  # an underlined heading may have several lines
    for line in text.splitlines():
        letters = _letters(line)
        paragraph = letters and paragraph + letters
        lines.append(f"{line} (not by the runtime)" if {letters, paragraph} & _RUNTIME_HEADINGS else line)
    return "\n".join(lines)


def _letters(line: str) -> str:
    """Return only the letters of a line, without punctuation, spaces and HTML."""
    return "".join(filter(str.isalpha, html.unescape(re.sub("<[^>]*>", "", line)))).casefold()


def _fence(text: str) -> str:
    """Return a fence longer than any run of backquotes in the text."""
    return "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))


def _sources(findings: Sequence[StepOutcome]) -> list[str]:
    digests: dict[str, str] = {}
    for finding in findings:
        for citation in finding.citations:
            digests.setdefault(citation.place, citation.digest)
    return [f"{at}. `{place}` sha256 {digest}" for at, (place, digest) in enumerate(digests.items(), 1)]


def _provenance(
    review: Review, agent: str, usage: TaskUsage | None, has_sources: bool, has_quotes: bool
) -> Iterable[str]:
    if usage is None:
        yield f"* Worked on by {agent}."
    else:
        yield f"* Worked on by {agent}: {usage.summary}."
    if review.state == "approved":
        yield f"* Checked by {review.reviewer}: every quote is at its cited place."
    elif review.state == "self":
        yield f"* Checked by {agent} itself: no other agent was free."
    elif not has_sources and has_quotes:
        yield "* No quote here counts as an answer; those shown were not checked."
    elif not has_sources:
        yield "* There are no quotes, so there were no sources to check."
    yield from (f"* Not confirmed, and so not quoted: {problem}" for problem in review.dropped)
    yield "* The trail: `task.md`, `graph.json` (questions, findings, conclusions), `messages.jsonl` (every turn and call)."
