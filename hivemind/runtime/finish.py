"""The way out of a task: its quotes are checked by another agent, then the answer is published and the task is done."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from hivemind.runtime.identity import holder_of
from hivemind.runtime.parking import Parking
from hivemind.runtime.review import MAX_ROUNDS, Citation, Review, request_body
from hivemind.runtime.work import Work

if TYPE_CHECKING:
    from hivemind.runtime.parts import Parts
    from hivemind.runtime.tools.session import Session

__all__ = ["choose_reviewer", "finish"]

REVIEWER = "reviewer"


def finish(session: Session, answer: str) -> dict[str, Any]:
    """Take the next step towards the end. Raises Parking while a reviewer has the answer.

    Nothing quoted: nothing to check. Approved: done. Rejected: the steps are done anew once, with what is in the files
    now; rejected again: the task fails with the reviewer's words. No other agent alive: checked here, and the result says so.
    """
    work = session.work
    citations = work.citations()
    match work.review.state:
        case "approved" | "self":
            return _end(session, answer)
        case "rejected":
            return _again_or_fail(session)
        case "asked" if not _overdue(work.review, session.hive.config.review_timeout_s):
            raise _waiting(work.review, session.hive.config.review_timeout_s)
    if not citations:
        return _end(session, answer)
    return _ask(session, work, citations, answer)


def _ask(session: Session, work: Work, citations: list[Citation], answer: str) -> dict[str, Any]:
    hive, review = session.hive, work.review
    reviewer = choose_reviewer(hive, session.agent, work.task.id, review.tried)
    if reviewer is None:
        problems = [
            f"{one.place}: {found.reason}" for one in citations if not (found := hive.knowledge.verify(one)).stands
        ]
        verdict = review.with_(
            state="rejected" if problems else "self", reviewer=session.agent, problems=tuple(problems)
        )
        work.set_review(verdict)
        return _again_or_fail(session) if problems else _end(session, answer)
    turn = len(review.tried) + 1
    message_id = f"review.{work.task.id}.{work.attempt}.{review.round}.{turn}@{hive.config.workspace}"
    asked = review.with_(
        state="asked", reviewer=reviewer, message_id=message_id, asked_at=time.time(), tried=(*review.tried, reviewer)
    )
    work.set_review(asked)
    report = hive.mail.send(
        session.agent, [reviewer], f"Review: {work.task.title}", request_body(work.task.title, citations),
        message_id=message_id, task=work.task.id,
    )  # fmt: skip
    if report.failed:  # its mailbox can't be written: somebody else will do
        work.set_review(asked.with_(state="none"))
        return _ask(session, work, citations, answer)
    raise _waiting(asked, hive.config.review_timeout_s)


def choose_reviewer(hive: Parts, agent: str, task: str, tried: tuple[str, ...]) -> str | None:
    """Another agent that is alive and was not asked yet: one of the role `reviewer` if there is one, then by turns.

    The task's id decides among equals, so that reviews spread over the swarm and a test can tell who is asked.
    """
    others = [name for name in hive.agents if name != agent and name not in tried]
    alive = [name for name in others if holder_of(hive.layout, name) is not None]
    named = [name for name in alive if hive.agents[name].role == REVIEWER]
    choice = named or alive
    return choice[sum(task.encode()) % len(choice)] if choice else None


def _overdue(review: Review, timeout_s: float) -> bool:
    """Later than the timeout; a clock that was set back counts as overdue too, rather than waiting for ever."""
    waited = time.time() - review.asked_at
    return waited >= timeout_s or waited < -timeout_s


def _waiting(review: Review, timeout_s: float) -> Parking:
    until = datetime.fromtimestamp(review.asked_at, UTC) + timedelta(seconds=timeout_s)
    return Parking(f"{review.reviewer} checks the sources", until)


def _again_or_fail(session: Session) -> dict[str, Any]:
    """A rejected answer: ask anew the steps that it came from, or give up after the second round."""
    work = session.work
    review = work.review
    if review.round + 1 >= MAX_ROUNDS:
        reasons = "; ".join(review.problems)
        where = work.fail(f"{review.reviewer} rejected the sources {MAX_ROUNDS} times: {reasons}")
        return {"task": work.task.id, "state": "failed", "path": session.hive.layout.relative(where)}
    for step in work.steps():
        if work.trail.withdraw(step.id):
            session.hive.steps.reopen(step.id, reason="its sources were rejected", agent_id=session.agent)
    work.set_review(Review(round=review.round + 1, problems=review.problems))
    return {"task": work.task.id, "state": "again", "problems": list(review.problems)}


def _end(session: Session, answer: str) -> dict[str, Any]:
    work = session.work
    where = work.finish(answer)
    result = session.hive.layout.relative(where / "result.md")
    return {"task": work.task.id, "state": "done", "path": result}
