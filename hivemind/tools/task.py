"""Tools for the whole task: waiting, asking a person, handing over, ending, with the check of its quotes by another agent."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pydantic import Field

from hivemind.boundary import boundary
from hivemind.presence.identity import holder_of
from hivemind.presence.parts import Parts
from hivemind.presence.status import read_status
from hivemind.taskrun.review import (
    MAX_ROUNDS,
    Citation,
    Review,
    problems_of,
    rejected_sources,
    request_body,
    request_id,
)
from hivemind.taskrun.waits import Parking
from hivemind.taskrun.waits import StepWait as StepWait
from hivemind.tools.criteria import check_no_review, judge
from hivemind.tools.delegation import check_whom
from hivemind.tools.session import Session
from hivemind.tools.steps import ask_person
from hivemind.tools.tool import Arguments, ToolProblem, tool

REVIEWER = "reviewer"
_GRACE_S = _FIRST_LOOK_S = 2.0


def finish(session: Session, answer: str) -> dict[str, Any]:
    """Take the next step towards the end. Raises Parking while a reviewer has the answer.

    Nothing quoted: nothing to check. Approved: done. Rejected quotes are dropped, and steps that have none left are done anew
    once, with what is in the files now; the task fails, with the reviewer's words, if no quote is left then. No other agent
    alive: checked here, and the result says so.
    """
    work = session.work
    citations = work.citations()
    match work.review.state:
        case "approved" | "self":
            return _end(session, answer)
        case "rejected":
            return _without_rejected(session, answer)
        case "asked" if not _goes_to_another(session):
            return _send(session, citations, answer)  # again: a crash may have come between the record and the mail
    if not citations:
        return _end(session, answer)
    return _ask(session, citations, answer)


def _ask(session: Session, citations: list[Citation], answer: str) -> dict[str, Any]:
    """Choose who is to check, note it with the task, then ask. With nobody there: check here."""
    hive, work = session.hive, session.work
    review = work.review
    reviewer = choose_reviewer(hive, session.agent, work.task.id, review.tried)
    if reviewer is None:
        problems = problems_of(citations, hive.knowledge.verify)
        state: Literal["rejected", "self"] = "rejected" if problems else "self"
        work.set_review(replace(review, state=state, reviewer=session.agent, problems=tuple(problems)))
        return _without_rejected(session, answer) if problems else _end(session, answer)
    # Kept with the task before the mail is sent: the same request again after a crash, another one for another task
    # that happens to have this id.
    message_id = request_id(work.task.id, hive.config.workspace)
    tried = (*review.tried, reviewer)
    work.set_review(
        replace(review, state="asked", reviewer=reviewer, message_id=message_id, asked_at=time.time(), tried=tried)
    )
    return _send(session, citations, answer)


def _send(session: Session, citations: list[Citation], answer: str) -> dict[str, Any]:
    """Send the request, and wait. Sent again it is delivered only where it is missing: its Message-ID is the same."""
    hive, work = session.hive, session.work
    review = work.review
    assert review.reviewer is not None
    report = hive.mail.send(
        session.agent, [review.reviewer], f"Review: {work.task.title}", request_body(work.task.title, citations),
        message_id=review.message_id, task=work.task.id,
    )  # fmt: skip
    if report.failed:  # its mailbox can't be written: somebody else will do
        work.set_review(replace(review, state="none"))
        return _ask(session, citations, answer)
    with boundary(
        "task's review"
    ):  # looked at again after twice the time: whoever is idle by then may be asked instead
        waited = max(_FIRST_LOOK_S, 2 * (time.time() - review.asked_at))
        longest = hive.config.review_timeout_s
        until = datetime.fromtimestamp(review.asked_at, UTC) + timedelta(seconds=min(waited, longest))
    raise Parking(f"waits for {review.reviewer} to check the sources", until)


def choose_reviewer(hive: Parts, agent: str, task: str, tried: tuple[str, ...]) -> str | None:
    """Choose another agent that is alive and was not asked yet: one of the role `reviewer` if there is one, then by turns; but
    whoever is idle goes before who is busy.

    The task's id decides among equals, so that reviews spread over the swarm and a test can tell who is asked. Who thinks
    outside (MCP) is asked only if it has that role: nothing wakes such a program.
    """
    others = [name for name in hive.agents if name != agent and name not in tried]
    alive = [name for name in others if holder_of(hive.layout, name) is not None]
    named = [name for name in alive if hive.agents[name].role == REVIEWER]
    able = [name for name in alive if name in named or not _thinks_outside(hive, name)]
    idle = [name for name in able if _rests(hive, name)]
    choice = [name for name in idle if name in named] or idle or named or able
    return choice[sum(task.encode()) % len(choice)] if choice else None


def _rests(hive: Parts, name: str) -> bool:
    status = read_status(hive.layout.agent_state(name), name)
    return status is not None and status.state == "idle"


def _thinks_outside(hive: Parts, name: str) -> bool:
    """True for a member by its file, and for any other agent that a client uses just now."""
    status = read_status(hive.layout.agent_state(name), name)
    return hive.agents[name].outside or (status is not None and status.mind == "mcp")


def _goes_to_another(session: Session) -> bool:
    """Check whether the request goes to another agent: after the timeout, or where the one who was asked is busy and another
    idle. A clock that was set back counts as late too, rather than waiting for ever."""
    hive, review = session.hive, session.work.review
    waited, timeout_s = time.time() - review.asked_at, hive.config.review_timeout_s
    if waited >= timeout_s or waited < -timeout_s:
        return True
    other = choose_reviewer(hive, session.agent, session.work.task.id, review.tried)
    is_busy = review.reviewer is not None and not _rests(hive, review.reviewer)
    return waited >= _FIRST_LOOK_S and is_busy and other is not None and _rests(hive, other)


def _without_rejected(session: Session, answer: str) -> dict[str, Any]:
    """Drop the quotes that were rejected: those that the verdict names, or all. A step left without any is asked anew in the
    first round. In the last the task ends with the quotes that are left, and fails without any."""
    work, review = session.work, session.work.review
    problems, sources, again = list(review.problems), rejected_sources(review.problems), set[str]()
    missing = sources - {citation.source for citation in work.citations()}
    for step in work.steps():
        pairs = [(card.node, card.citation.source) for card in work.trail.of_step(step.id) if card.citation is not None]
        cards = [node for node, source in pairs if not sources or source in sources]
        if cards and len(cards) == len(pairs) and review.round + 1 < MAX_ROUNDS:
            again |= {source for _, source in pairs}
            if step.step.status == "done":  # before its quotes go: killed in between it is asked anew all the same
                session.hive.steps.reopen(step.id, reason="its sources were rejected", agent_id=session.agent)
        if cards:
            work.trail.withdraw(step.id, cards)
    dropped = (*review.dropped, *(problem for problem in problems if rejected_sources([problem]) - again))
    if again:
        work.set_review(Review(round=review.round + 1, problems=review.problems, dropped=dropped))
        return {"task": work.task.id, "state": "again", "problems": problems}
    if not work.citations():
        where = work.fail(f"{review.reviewer} rejected the sources {review.round + 1} times: {'; '.join(problems)}")
        return {"task": work.task.id, "state": "failed", "path": session.hive.layout.relative(where)}
    if missing:  # a process was killed that had begun to drop them: what was quoted since then is not checked
        work.set_review(replace(review, state="none", dropped=dropped))
        return _ask(session, work.citations(), answer)
    work.set_review(replace(review, state="self" if review.reviewer == session.agent else "approved", dropped=dropped))
    return _end(session, answer) | {"problems": problems}


def _end(session: Session, answer: str) -> dict[str, Any]:
    """The end, unless a review by criteria is wanted and says otherwise. Raises Parking while that is under way."""
    work = session.work
    again = judge(session, answer)
    if again is not None:
        return again
    where = work.finish(answer)
    result = session.hive.layout.relative(where / "result.md")
    return {"task": work.task.id, "state": "done", "path": result}


class WaitArguments(Arguments):
    step: str | None = None
    until: dict[str, Any] = Field(
        description="one of {seconds}, {until: ISO time}, {mail: agent}, {task: id}, {human: question}"
    )


class AskHuman(Arguments):
    question: str = Field(min_length=1)
    step: str | None = None


class HandOver(Arguments):
    to: str | None = Field(None, description="an agent's name")
    role: str | None = Field(None, description="or a role: any other agent that has it")
    reason: str = Field(min_length=1)


class FinishTask(Arguments):
    result: str = Field(
        "",
        description="the answer in your own words (default: what you say with the call); quotes and sources are added",
    )


class FailTask(Arguments):
    reason: str = Field(min_length=1)


@tool()
def wait(session: Session, arguments: WaitArguments) -> dict[str, Any]:
    """Wait for a time, a mail, a person or another task; the task rests until then."""
    if len(arguments.until) != 1 or not set(arguments.until) <= {"seconds", "until", "mail", "task", "human"}:
        raise ToolProblem("until is one of {seconds}, {until}, {mail}, {task}, {human}")
    step, work = session.step(arguments.step), session.work
    begun = work.waits.begin(step.id, arguments.until, datetime.now(UTC))
    if begun.kind == "human" and begun.message_id is None:
        ask_person(session, step.id, begun.what, step=step)
    _check_known(session, begun)
    over = work.waits.check(step.id, datetime.now(UTC), session.hive.tasks.listing.outcome)
    if over.answer is None:
        return {"step": step.id, "over": True}
    answer = session.hive.mail.read(session.agent, over.answer, mark=False)
    said = answer.answer
    work.trail.card(step, "note", said, title=f"{answer.sender} answered")
    return {"step": step.id, "over": True, "answer": said, "from": answer.sender}


def _check_known(session: Session, wait: StepWait) -> None:
    """What there is not may come in a moment, as a dependency may. Raises Parking, then ToolProblem."""
    hive, own, name = session.hive, session.work.task.id, wait.what
    if wait.kind == "task" and name == own:
        raise ToolProblem("it waits for itself to be done")
    if wait.kind == "task" and not hive.tasks.listing.is_known(name):
        told = f"it waits for the task {name!r}, and there is no such task"
    elif wait.kind == "mail" and wait.answer is None and not hive.layout.mailbox(name).is_dir():
        told = f"it waits for mail from {name!r}, and there is no such agent"
    else:
        return
    parked = hive.tasks.get(own).parked
    if parked is None or parked.reason != told:
        raise Parking(told, again_s=_GRACE_S)
    raise ToolProblem(told)


@tool()
def ask_human(session: Session, arguments: AskHuman) -> dict[str, Any]:
    """Ask the operator by mail; the task rests until the answer comes."""
    return wait.call(session, {"step": arguments.step, "until": {"human": arguments.question}})


@tool()
def hand_over(session: Session, arguments: HandOver) -> dict[str, Any]:
    """Give the task to another agent, with all that was done and why. (delegate gives away parts of it.)"""
    to, role = arguments.to, arguments.role
    check_whom(session, to, role, other="other ")
    if to is None and role is None:
        raise ToolProblem("say to whom: an agent (to), or a role")
    session.work.hand_over(to, role, arguments.reason)
    return {"task": session.work.task.id, "state": "handed over", "to": to or role}


@tool()
def finish_task(session: Session, arguments: FinishTask) -> dict[str, Any]:
    """End the task: its quotes are checked by another agent first, and the task's criteria by a reviewer if it wants that (what
    is missing comes back); then the answer is published and the result written."""
    check_no_review(session)
    still_open = [step.id for step in session.work.steps() if step.step.status != "done" and not step.is_implicit]
    if still_open:
        raise ToolProblem(f"steps are not done yet: {', '.join(still_open)}", remedy="finish_step closes one")
    return finish(session, arguments.result.strip() or _said_with(session))


def _said_with(session: Session) -> str:
    """What the mind said in the answer that has this call: the answer to the task, where the call itself has none."""
    said = (one for one in session.work.conversation.messages if session.call_id in {call.id for call in one.calls})
    return next((one.text for one in said), "")


@tool()
def fail_task(session: Session, arguments: FailTask) -> dict[str, Any]:
    """Give the task up, saying why in words that help a person."""
    where = session.work.fail(arguments.reason)
    return {"task": session.work.task.id, "state": "failed", "path": session.hive.layout.relative(where)}


TASK_TOOLS = (wait, ask_human, hand_over, finish_task, fail_task)
