"""result.md: what was asked, what was found, where it stands, who checked it, what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hivemind.runtime.review import Citation, Review

__all__ = ["Account", "Finding", "Spent", "compose"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one step gave. `printed` is the output of its command, `files` what it wrote (paths within the task)."""

    title: str
    text: str = ""
    citations: tuple[Citation, ...] = ()
    command: str | None = None
    printed: str | None = None
    files: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether the step has given nothing (yet)."""
        return not (self.text.strip() or self.citations or self.files) and self.command is None


@dataclass(frozen=True, slots=True)
class Spent:
    """What the task has used: cycles of the agent, tokens of context and answer, money, seconds from claim to end."""

    cycles: int = 0
    tokens: int = 0
    money: float = 0.0
    seconds: float = 0.0


class Account:
    """What a task has used so far, booked record by record of its log: so no turn reads the whole log again."""

    def __init__(self, records: Iterable[Mapping[str, Any]] = ()) -> None:
        self._cycles, self._tokens, self._money = 0, 0, 0.0
        self._first: float | None = None
        self._last: float | None = None
        for record in records:
            self.book(record)

    def book(self, record: Mapping[str, Any]) -> None:
        """Take a record of the log in; only those of cycles count."""
        if record.get("kind") != "cycle":
            return
        self._cycles += 1
        self._tokens += int(record.get("tokens", 0))
        self._money += float(record.get("money", 0))
        self._last = record.get("time")
        self._first = self._last if self._first is None else self._first

    def spent(self) -> Spent:
        """Cycles, tokens and money, and the seconds from the first record to the last."""
        known = self._first is not None and self._last is not None
        seconds = max(0.0, float(self._last or 0) - float(self._first or 0)) if known else 0.0
        return Spent(self._cycles, self._tokens, self._money, seconds)


def compose(title: str, answer: str, findings: Sequence[Finding], review: Review, agent: str, spent: Spent) -> str:
    """The text of result.md. Each quote is followed by its citation `path:line-line` and the file's digest."""
    parts = [f"# {title}", ""]
    if answer.strip():
        parts += [answer.strip(), ""]
    for finding in findings:
        parts += list(_section(finding))
    sources = _sources(findings)
    if sources:
        parts += ["## Sources", "", *sources, ""]
    parts += ["## How it came about", "", *_provenance(review, agent, spent, bool(sources)), ""]
    return "\n".join(parts)


def _section(finding: Finding) -> Iterable[str]:
    yield f"## {finding.title}"
    yield ""
    if finding.text.strip():
        yield finding.text.strip()
        yield ""
    for citation in finding.citations:
        yield from (f"> {line}".rstrip() for line in citation.text.splitlines())
        yield ""
        yield f"— `{citation.place}` (sha256 {citation.digest[:12]})"
        yield ""
    if finding.command is not None:
        fence = _fence(finding.printed or "")
        yield f"`{finding.command}` printed:"
        yield ""
        yield fence
        yield (finding.printed or "(nothing)").rstrip("\n")
        yield fence
        yield ""
    for path in finding.files:
        yield f"Written: `{path}`"
        yield ""


def _fence(text: str) -> str:
    """A fence longer than any run of backquotes in the text."""
    longest = run = 0
    for char in text:
        run = run + 1 if char == "`" else 0
        longest = max(longest, run)
    return "`" * max(3, longest + 1)


def _sources(findings: Sequence[Finding]) -> list[str]:
    seen: dict[str, str] = {}
    for finding in findings:
        for citation in finding.citations:
            seen.setdefault(citation.place, citation.digest)
    return [f"{at}. `{place}` sha256 {digest}" for at, (place, digest) in enumerate(seen.items(), 1)]


def _provenance(review: Review, agent: str, spent: Spent, cited: bool) -> Iterable[str]:
    yield f"* Worked on by {agent}: {spent.cycles} cycles, {spent.tokens} tokens, {spent.seconds:.1f} s."
    if review.state == "approved":
        yield f"* Checked by {review.reviewer}: every quote stands where it is said to stand."
    elif review.state == "self":
        yield f"* Checked by {agent} itself: no other agent was there to do it."
    elif not cited:
        yield "* It quotes nothing, so there were no sources to check."
    yield "* The trail: `task.md`, `graph.json` (what was asked, found, concluded), `log.jsonl` (every cycle and action)."
