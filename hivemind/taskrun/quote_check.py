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
from hivemind.presence.identity import holder_pid
from hivemind.presence.parts import Parts
from hivemind.presence.status import read_status

MAX_ROUNDS = 2
REVIEWER = "reviewer"
_BLOCK = re.compile(r"^```json hivemind-review\n(.*?)^```\s*$", re.DOTALL | re.MULTILINE)
_PROBLEM = re.compile(r"(?P<source>.+:\d+(?:-\d+)? \(sha256 [^)]*\)): ")


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


def choose_reviewer(hive: Parts, agent: str, task: str, tried: tuple[str, ...]) -> str | None:
    """Choose a running agent to check the quotes of `agent`'s task; None if there is none. Prefer idle to busy agents, then the
    role `reviewer`. The agents `tried` have not answered. If there are any, choose only an idle agent: a task waits for one busy
    agent at most.

    Among equal candidates the task's id decides, so reviews spread over the swarm. A member (MCP) is asked only if its role is
    `reviewer`, since the runtime cannot wake members.
    """
    candidates = [name for name in hive.agents if name != agent and name not in tried]
    alive = [name for name in candidates if holder_pid(hive.layout, name) is not None]
    role_holders = [name for name in alive if hive.agents[name].role == REVIEWER]
    able = [name for name in alive if name in role_holders or not _thinks_outside(hive, name)]
    idle = [name for name in able if is_idle(hive, name)]
    choices = [name for name in idle if name in role_holders] or idle or (role_holders or able if not tried else [])
    return choices[sum(task.encode()) % len(choices)] if choices else None


def is_idle(hive: Parts, name: str) -> bool:
    """Check whether an agent is running and idle."""
    status = read_status(hive.layout.agent_state(name), name)
    return status is not None and status.state == "idle"


def _thinks_outside(hive: Parts, name: str) -> bool:
    """Return True for a member (MCP), and for another agent that an MCP client uses at the moment."""
    status = read_status(hive.layout.agent_state(name), name)
    return hive.agents[name].outside or (status is not None and status.mind == "mcp")


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
