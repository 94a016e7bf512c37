"""The check of an answer before it is published: another agent checks that each quote is at its cited place.

The request is a mail that lists the citations, also as a fenced JSON block for programs. The reply is the verdict. In a hive with
one agent the agent checks its own quotes, and the result says so.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal

from hivemind.boundary import as_dataclass, boundary
from hivemind.documents import Citation, Verdict
from hivemind.frozen import frozen
from hivemind.mail import Message

MAX_ROUNDS = 2
_BLOCK = re.compile(r"^```json hivemind-review\n(.*?)^```\s*$", re.DOTALL | re.MULTILINE)
_PROBLEM = re.compile(r"(?P<source>.+:\d+(?:-\d+)? \(sha256 [^)]*\)): ")
_VERDICT = re.compile(r"\A\s*(approved|rejected)\b", re.IGNORECASE)


State = Literal["asked", "approved", "rejected", "self", "none"]


@frozen
class Review:
    """The state of one answer's check, kept in the task's record under `review`.

    `problems` are the reviewer's reasons to reject the answer, `dropped` the reasons about quotes that were then removed.
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
    def of(cls, fields: Mapping[str, Any] | None) -> Review:
        """Return the review with these fields, or a new one for None. Raises Unreadable for invalid fields."""
        return cls() if fields is None else as_dataclass(cls, fields, "task's review")


def request_id(task: str, workspace: str) -> str:
    """Return a new Message-ID for a request to check the sources of a task's answer."""
    return f"review.{task}.{secrets.token_hex(8)}@{workspace}"


def is_citation_check(message: Message, workspace: str) -> bool:
    """Check whether a message is a request to check sources, or a verdict: the runtime handles both, and no mind sees them."""
    ids = (message.id, message.in_reply_to or "")
    return any(message_id.startswith("review.") and message_id.endswith(f"@{workspace}") for message_id in ids)


def request_body(title: str, citations: Sequence[Citation]) -> str:
    """Return the text of a request to check these citations."""
    listing = [f"{at}. {citation.place}" for at, citation in enumerate(citations, 1)]
    block = json.dumps([asdict(citation) for citation in citations], ensure_ascii=False, indent=1)
    return "\n".join(
        [
            f"Please check the sources of: {title}",
            "",
            "Is each quote, word for word, at the named lines of the file, in the version with that SHA-256?",
            "Answer with a first line `approved` or `rejected: reason`.",
            "",
            *listing,
            "",
            "```json hivemind-review",
            block,
            "```",
            "",
        ]
    )


def read_request(body: str) -> list[Citation] | None:
    """Return the citations in a request to check sources; None for other mail. Raises Unreadable."""
    match = _BLOCK.search(body.replace("\r\n", "\n"))
    if match is None:
        return None
    with boundary("review request", remedy="ask the sender to send it again"):
        return [as_dataclass(Citation, fields, "review request") for fields in json.loads(match[1])]


def problems_of(citations: Sequence[Citation], verify: Callable[[Citation], Verdict]) -> list[str]:
    """Check each citation. Return a line with source and reason for each quote that is not at its cited place."""
    verdicts = [(citation.source, verify(citation)) for citation in citations]
    return [f"{source}: {verdict.reason}" for source, verdict in verdicts if not verdict.is_confirmed]


def rejected_sources(problems: Sequence[str]) -> set[str]:
    """Return the sources of the quotes that a verdict's problems name; empty if they name none."""
    return {match["source"] for problem in problems if (match := _PROBLEM.match(problem)) is not None}


def read_verdict(body: str) -> tuple[Literal["approved", "rejected"], tuple[str, ...]] | None:
    """Return the verdict and the problems in a reply; None if its first word is neither `approved` nor `rejected`."""
    match = _VERDICT.match(body)
    if match is None:
        return None
    lines = [line.strip() for line in body.strip().splitlines()]
    if match[1].lower() == "approved":
        return "approved", ()
    return "rejected", tuple(line for line in lines[1:] if line and not line.startswith(">")) or (lines[0],)
