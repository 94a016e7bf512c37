"""Checking an answer before it is published: another agent looks whether each quote stands where it is said to stand.

The request is a mail with the citations as a fenced JSON block, so that `cat` shows what is asked and a program reads it;
the verdict is the reply. A hive of one agent checks for itself, and the result says so.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from hivemind.boundary import boundary, checked
from hivemind.documents import Citation, Verdict
from hivemind.frozen import frozen
from hivemind.mail import Message

__all__ = [
    "Citation", "Review", "is_about_check", "problems_of", "read_request", "read_verdict", "rejected_sources",
    "request_body", "request_id",
]  # fmt: skip

MAX_ROUNDS = 2
_BLOCK = re.compile(r"^```json hivemind-review\n(.*?)^```\s*$", re.DOTALL | re.MULTILINE)
_PROBLEM = re.compile(r"(?P<source>.+:\d+(?:-\d+)? \(sha256 [^)]*\)): ")
_VERDICT = re.compile(r"\A\s*(approved|rejected)\b", re.IGNORECASE)


State = Literal["asked", "approved", "rejected", "self", "none"]


@frozen
class Review:
    """How far the checking of one task's answer has come; kept in the task's record under `review`.

    `problems` is why the reviewer rejected it, `dropped` what it said of quotes that the answer goes without.
    """

    state: State = "none"
    reviewer: str | None = None
    message_id: str | None = None
    asked_at: float = 0.0
    round: int = 0
    tried: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    @classmethod
    def of(cls, kept: Mapping[str, Any] | None) -> Review:
        """The review whose fields were kept; a new one for None. Raises Unreadable for anything else."""
        return cls() if kept is None else checked(cls, kept, "task's review")


def request_id(task: str, workspace: str) -> str:
    """A new Message-ID of a request to check the sources of a task's answer."""
    return f"review.{task}.{secrets.token_hex(8)}@{workspace}"


def is_about_check(message: Message, workspace: str) -> bool:
    """Whether a message is such a request, or the verdict: mail of the program's own, which tells a mind nothing."""
    ids = (message.id, message.in_reply_to or "")
    return any(one.startswith("review.") and one.endswith(f"@{workspace}") for one in ids)


def request_body(title: str, citations: Sequence[Citation]) -> str:
    """The text of a request to check these citations."""
    shown = [f"{at}. {citation.place}" for at, citation in enumerate(citations, 1)]
    block = json.dumps([asdict(citation) for citation in citations], ensure_ascii=False, indent=1)
    return "\n".join(
        [
            f"Please check the sources of: {title}",
            "",
            "Does each quote stand, word for word, in the lines named, in the version of the file with that SHA-256?",
            "Answer with a first line `approved` or `rejected: why`.",
            "",
            *shown,
            "",
            "```json hivemind-review",
            block,
            "```",
            "",
        ]
    )


def read_request(body: str) -> list[Citation] | None:
    """The citations that a mail asks to be checked, or None if it is no such request.

    Raises Unreadable.
    """
    found = _BLOCK.search(body.replace("\r\n", "\n"))
    if found is None:
        return None
    with boundary("review request", mend="ask the sender to send it again"):
        return [checked(Citation, item, "review request") for item in json.loads(found[1])]


def problems_of(citations: Sequence[Citation], verify: Callable[[Citation], Verdict]) -> list[str]:
    """Check each quote; returns a line for each that does not stand where it is cited: its source, and the reason."""
    verdicts = [(citation.source, verify(citation)) for citation in citations]
    return [f"{source}: {verdict.reason}" for source, verdict in verdicts if not verdict.stands]


def rejected_sources(problems: Sequence[str]) -> set[str]:
    """The sources of the quotes that a verdict rejects; none where it names none."""
    return {match["source"] for problem in problems if (match := _PROBLEM.match(problem)) is not None}


def read_verdict(body: str) -> tuple[Literal["approved", "rejected"], tuple[str, ...]] | None:
    """(verdict, problems) of a reply, or None if its first word is neither `approved` nor `rejected`."""
    found = _VERDICT.match(body)
    if found is None:
        return None
    lines = [line.strip() for line in body.strip().splitlines()]
    if found[1].lower() == "approved":
        return "approved", ()
    return "rejected", tuple(line for line in lines[1:] if line and not line.startswith(">")) or (lines[0],)
