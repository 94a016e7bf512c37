"""Proposals: a commit that adds a root's lessons to its AGENTS.md and removes retired ones. It lands as a task that only the
lander claims."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from itertools import count

from hivemind.errors import UserError
from hivemind.fs import ring
from hivemind.landing.merging import read_file, write_file
from hivemind.landing.target import Target
from hivemind.layout import LANDING
from hivemind.lessons.choice import book_of, edited, root_name
from hivemind.lessons.lesson_file import Lesson, with_changes
from hivemind.presence.parts import Parts
from hivemind.taskrun.landing_entry import LandingBranch, LandingEntry
from hivemind.taskrun.target_branch import target_branch

FILE, _HEADING, _MAX_ID = "AGENTS.md", "## Lessons", 48


def propose(hive: Parts, name: str) -> str:
    """Put a task into the inbox that lands the lessons of the root `name` in its AGENTS.md. Return the task's id. Raises
    UserError."""
    roots = {root_name(hive, root): root for root in hive.config.worktree_roots(hive.layout)}
    if name not in roots:
        raise UserError(f"no root is named {name!r}", remedy=f"there are {', '.join(roots) or 'none'}")
    branch = target_branch(hive, roots[name])
    if branch is None or hive.config.repository_roots(hive.layout)[roots[name]].land == "off":
        raise UserError("nothing lands there", location=roots[name], remedy="set land: ask and branch: in hive.yaml")
    target = Target.of(hive, roots[name], branch)
    tip = target.tip
    text = read_file(target.repository, tip, FILE).decode("utf-8", "surrogateescape")
    with edited(hive, book_of(hive, roots[name])) as records:
        live = [record for record in records if record.state == "live" and record.is_visible]
        added = [record for record in live if not record.is_proposed or record.has_new_proposal]
        removed = [
            record for record in records if record.is_proposed and (record.state == "retired" or record in added)
        ]
        if not added and not removed:
            message = "no lesson is new or retired since the last proposal"
            raise UserError(message, location=name, remedy="hivemind lessons lists what there is")
        if _HEADING not in text:
            text = f"{text.rstrip()}\n\n{_HEADING}\n".lstrip()
        old_digests = {Lesson.parse(record.proposed or record.text).digest for record in removed}
        new_text = with_changes(text, [record.proposal for record in added], old_digests, FILE)
        start = re.sub(r"[^a-z0-9]+", "-", f"lessons-{name}".lower()).strip("-")[:_MAX_ID]
        task_id = next(f"{start}-{at}" for at in count(1) if not hive.tasks.inbox.has_id(f"{start}-{at}"))
        subject = f"Lessons in {FILE}: {len(added)} more, {len(removed)} less"
        commit = write_file(target.repository, tip, FILE, new_text.encode("utf-8", "surrogateescape"), subject)
        work_branch = f"hive/{task_id}"
        target.repository.begin(work_branch, tip, task_id)
        target.repository.move(work_branch, commit, tip, subject)
        landing_branch = LandingBranch(os.fspath(roots[name]), work_branch, tip, commit, branch)
        entry = LandingEntry(LANDING, None, datetime.now(UTC).isoformat(), 0, (landing_branch,))
        hive.tasks.add(f"{subject}.\n", id=task_id, title=subject, assignee=LANDING, kept=entry.save())
        for record in (*added, *removed):
            record.is_proposed, record.proposed = record.state == "live", record.proposal.line
    ring(hive.layout.doorbells, LANDING)
    return task_id
