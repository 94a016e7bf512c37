"""Tools for the whole task: wait, ask a person, hand over, fail, finish. Another agent checks the quotes before the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pydantic import Field

from hivemind.boundary import boundary
from hivemind.documents import Citation
from hivemind.landing.merging import unresolved
from hivemind.landing.subtasks import wait_for_subtasks
from hivemind.lessons.choice import count_use
from hivemind.taskrun.landing_entry import current_entry
from hivemind.taskrun.published import mark_quotes
from hivemind.taskrun.quote_check import (
    MAX_ROUNDS,
    Review,
    choose_reviewer,
    is_idle,
    problems_of,
    rejected_sources,
    request_body,
    request_id,
)
from hivemind.taskrun.waits import Parking
from hivemind.tools.delegation import check_recipient
from hivemind.tools.review import advance_review, check_no_review
from hivemind.tools.tool import Arguments, ToolProblem, tool
from hivemind.tools.tool_context import ToolContext
from hivemind.tools.waiting import ask_human, wait

_FIRST_CHECK_S = 2.0


def finish(context: ToolContext, answer: str) -> dict[str, Any]:
    """Take the next step towards the end of the task, and return the fields of the call's result. Raises Parking while a reviewer
    has to answer.

    Another agent checks the quotes of the steps; if no step has quotes, nobody is asked. Rejected quotes are dropped. In the
    first round, steps that lose all their quotes are reopened and done once more with the current files. If no quote is left in
    the second round, the task fails with the reviewer's reasons. If no other agent is free, this agent checks the quotes itself,
    and the result says so. Quotes in the text of the answer are checked here, and marked if they are not confirmed.
    """
    work = context.work
    citations, answer = work.citations(), mark_quotes(answer, context.hive.knowledge.verify)
    match work.review.state:
        case "approved" | "self":
            return _end(context, answer)
        case "rejected":
            return _drop_rejected(context, answer)
        case "asked" if not _should_ask_another(context):
            return _send(context, citations, answer)
    if not citations:
        return _end(context, answer)
    return _ask(context, citations, answer)


def _ask(context: ToolContext, citations: list[Citation], answer: str) -> dict[str, Any]:
    """Choose a reviewer, record its name with the task, and send the request, which raises Parking. If no agent can review, check
    the quotes here and return the result."""
    hive, work = context.hive, context.work
    review = work.review
    reviewer = choose_reviewer(hive, context.agent, work.task.id, review.tried)
    if reviewer is None:
        problems = problems_of(citations, hive.knowledge.verify)
        state: Literal["rejected", "self"] = "rejected" if problems else "self"
        work.set_review(replace(review, state=state, reviewer=context.agent, problems=tuple(problems)))
        return _drop_rejected(context, answer) if problems else _end(context, answer)
    # Recorded before the mail is sent: after a crash the same request is sent again. The random part keeps requests of a later
    # task with the same id apart.
    message_id = request_id(work.task.id, hive.config.workspace)
    tried = (*review.tried, reviewer)
    work.set_review(
        replace(review, state="asked", reviewer=reviewer, message_id=message_id, asked_at=time.time(), tried=tried)
    )
    return _send(context, citations, answer)


def _send(context: ToolContext, citations: list[Citation], answer: str) -> dict[str, Any]:
    """Send the request to the reviewer and raise Parking. A repeated request has the same Message-ID: it arrives only once."""
    hive, work = context.hive, context.work
    review = work.review
    assert review.reviewer is not None
    report = hive.mail.send(
        context.agent, [review.reviewer], f"Review: {work.task.title}", request_body(work.task.title, citations),
        message_id=review.message_id, task=work.task.id, traceparent=context.traceparent,
    )  # fmt: skip
    if report.failed:  # the mailbox cannot be written: choose another reviewer
        work.set_review(replace(review, state="none"))
        return _ask(context, citations, answer)
    with boundary("task's review"):  # check again after twice the time: an idle agent may then replace the reviewer
        wait_s = max(_FIRST_CHECK_S, 2 * (time.time() - review.asked_at))
        longest = hive.config.review_timeout_s
        until = datetime.fromtimestamp(review.asked_at, UTC) + timedelta(seconds=min(wait_s, longest))
    raise Parking(f"waits for {review.reviewer} to check the sources", until)


def _should_ask_another(context: ToolContext) -> bool:
    """Return True if another agent should be asked: after the timeout, or if the reviewer is busy and another agent is idle. A
    clock that was set back counts as a timeout, so the task does not wait forever."""
    hive, review = context.hive, context.work.review
    waited_s, timeout_s = time.time() - review.asked_at, hive.config.review_timeout_s
    if waited_s >= timeout_s or waited_s < -timeout_s:
        return True
    is_busy = review.reviewer is not None and not is_idle(hive, review.reviewer)
    alternative = choose_reviewer(hive, context.agent, context.work.task.id, review.tried)
    return waited_s >= _FIRST_CHECK_S and is_busy and alternative is not None


def _drop_rejected(context: ToolContext, answer: str) -> dict[str, Any]:
    """Drop the rejected quotes: those that the verdict names, or all. In the first round, reopen each step that lost all its
    quotes, and return the reasons. In the last round, end the task with the remaining quotes, or fail it if no quote remains."""
    work, review = context.work, context.work.review
    problems, sources, retried_sources = list(review.problems), rejected_sources(review.problems), set[str]()
    withdrawn_sources = sources - {citation.source for citation in work.citations()}
    for step in work.steps():
        pairs = [
            (card.node, card.citation.source) for card in work.trail.cards_of(step.id) if card.citation is not None
        ]
        cards = [node for node, source in pairs if not sources or source in sources]
        if cards and len(cards) == len(pairs) and review.round + 1 < MAX_ROUNDS:
            retried_sources |= {source for _, source in pairs}
            if step.step.status == "done":  # before the quotes are withdrawn: after a crash in between the step is open
                context.hive.steps.reopen(step.id, reason="its sources were rejected", agent_id=context.agent)
        if cards:
            work.trail.withdraw(step.id, cards)
    dropped_problems = (
        *review.dropped,
        *(problem for problem in problems if rejected_sources([problem]) - retried_sources),
    )
    if retried_sources:
        work.set_review(Review(round=review.round + 1, problems=review.problems, dropped=dropped_problems))
        return {"task": work.task.id, "state": "again", "problems": problems}
    if not work.citations():
        folder = work.fail(f"{review.reviewer} rejected the sources {review.round + 1} times: {'; '.join(problems)}")
        return {"task": work.task.id, "state": "failed", "path": context.hive.layout.relative(folder)}
    if withdrawn_sources:  # a killed process had begun to drop quotes: later quotes are not checked yet
        work.set_review(replace(review, state="none", dropped=dropped_problems))
        return _ask(context, work.citations(), answer)
    work.set_review(
        replace(review, state="self" if review.reviewer == context.agent else "approved", dropped=dropped_problems)
    )
    return _end(context, answer) | {"problems": problems}


def _end(context: ToolContext, answer: str) -> dict[str, Any]:
    """Finish the task if it needs no review by criteria, or has passed it; return its new state. Else return the missing points,
    or raise Parking."""
    work = context.work
    outcome = advance_review(context, answer)
    if outcome is not None:
        return outcome
    folder = work.finish(answer)
    if work.is_landing:
        return {"task": work.task.id, "state": "landing"}
    result = context.hive.layout.relative(folder / "result.md")
    return {"task": work.task.id, "state": "done", "path": result}


class HandOver(Arguments):
    to: str | None = Field(None, description="an agent's name")
    role: str | None = Field(None, description="or a role: any other agent with it")
    reason: str = Field(min_length=1)


class FinishTask(Arguments):
    result: str = Field(
        "", description="the answer in your own words (default: your text with the call); quotes and sources are added"
    )
    resolved: list[str] = Field([], description="paths of a merge in conflict that are right as they are, unchanged")
    lessons_used: list[str] = Field([], description="ids of the lessons shown to you that you acted by")
    lessons_wrong: list[str] = Field([], description="ids of those that are wrong now")


class FailTask(Arguments):
    reason: str = Field(min_length=1)
    lessons_wrong: list[str] = Field([], description="ids of the lessons shown to you that are wrong now")


@tool()
def hand_over(context: ToolContext, arguments: HandOver) -> dict[str, Any]:
    """Give the whole task to another agent, with everything done so far and your reason. (delegate gives away parts.)"""
    to, role = arguments.to, arguments.role
    check_recipient(context, to, role, qualifier="other ")
    if to is None and role is None:
        raise ToolProblem("name an agent (to) or a role")
    context.work.hand_over(to, role, arguments.reason)
    return {"task": context.work.task.id, "state": "handed over", "to": to or role}


@tool()
def finish_task(context: ToolContext, arguments: FinishTask) -> dict[str, Any]:
    """Finish the task. Another agent checks its quotes first. If the task has review criteria, a reviewer judges the result, and
    you get the missing points. Then the cards are published and the result is written."""
    check_no_review(context)
    still_open = [step.id for step in context.work.steps() if step.step.status != "done" and not step.is_implicit]
    if still_open:
        raise ToolProblem(f"steps are not done yet: {', '.join(still_open)}", remedy="finish_step closes one")
    _check_merges(context, arguments.resolved)
    wait_for_subtasks(context.hive, context.work)
    outcome = finish(context, arguments.result.strip() or _text_with_call(context))
    return outcome | _count_lessons(context, arguments.lessons_used, arguments.lessons_wrong)


def _count_lessons(context: ToolContext, used: Sequence[str], wrong: Sequence[str]) -> dict[str, Any]:
    """Count the lessons that the agent names as used or wrong, if its task has ended. Return `lessons_unknown` with the ids that
    it was not shown, or {}."""
    if not context.work.is_ended or not (used or wrong):
        return {}
    unknown = count_use(context.hive, context.work, used, wrong)
    return {"lessons_unknown": unknown} if unknown else {}


def _check_merges(context: ToolContext, resolved: Sequence[str]) -> None:
    """Raise ToolProblem while a file has conflict marks of a merge that landing committed to the branch when it returned the
    task. The paths in `resolved` may have lines that look like marks."""
    work = context.work
    entry = current_entry(context.hive, work.task.kept)
    if entry is None or not entry.merges:
        return
    work.worktrees.commit(work.task.title, ends=True)
    for worktree in work.worktrees.recorded:
        for marks in entry.merges:
            if marks.root != str(worktree.root) or (tip := worktree.tip) is None:
                continue
            paths = (*marks.marked, *marks.unmarked)
            if left := unresolved(worktree.repository, tip, marks.commit, paths, resolved):
                remedy = (
                    "edit them and remove the marks; a file that is right as it is: finish_task(resolved=[its path])"
                )
                raise ToolProblem(f"still in conflict: {', '.join(left)}", remedy=remedy)


def _text_with_call(context: ToolContext) -> str:
    """Return the text of the mind's message that contains this call. If finish_task has no `result`, that text is the answer."""
    messages = (
        message
        for message in context.work.conversation.messages
        if context.call_id in {call.id for call in message.calls}
    )
    return next((message.text for message in messages), "")


@tool()
def fail_task(context: ToolContext, arguments: FailTask) -> dict[str, Any]:
    """Give up the task, with a reason that helps a person."""
    folder = context.work.fail(arguments.reason)
    outcome = {"task": context.work.task.id, "state": "failed", "path": context.hive.layout.relative(folder)}
    return outcome | _count_lessons(context, (), arguments.lessons_wrong)


TASK_TOOLS = (wait, ask_human, hand_over, finish_task, fail_task)
