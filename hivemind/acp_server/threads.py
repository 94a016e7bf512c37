"""Threads: the tasks of an editor's session. Only the tasks' records say which session they belong to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from hivemind.errors import UserError
from hivemind.hive import Hive
from hivemind.layout import HUMAN, archived_folders
from hivemind.names import is_name
from hivemind.tasks import Task
from hivemind.tasks.record import RECORD, SESSION, load_sound

_MAX_LISTED = 100


def thread_tasks(hive: Hive, session_id: str, known_ids: Collection[str] | None = None) -> list[Task]:
    """Return the tasks of a session, oldest first. If `session_id` is the id of a task, the session begins with that task.

    `known_ids` are the ids of the session's tasks so far. With them, others are searched only among open tasks; with None also
    among ended ones, whose records are read once per session.
    """
    layout = hive.layout
    ended = (layout.done, layout.failed, *archived_folders(layout)) if known_ids is None else ()
    # in the order in which tasks move, or a moving task could be missed
    marked = _marked_tasks((layout.inbox, layout.active, *ended), session_id)
    tasks: dict[str, Task] = {}
    for task_id in (*([session_id] if is_name(session_id) else []), *(known_ids or ()), *marked):
        with suppress(UserError):
            tasks.setdefault(task_id, hive.tasks.get(task_id))
    return sorted(tasks.values(), key=lambda task: (task.id != session_id, task.kept.get(SESSION, {}).get("at", "")))


def _marked_tasks(folders: Iterable[Path], session_id: str) -> Iterator[str]:
    mark = session_id.encode()
    for folder in folders:
        for record_path in folder.glob(f"*/{RECORD}"):
            with suppress(OSError):
                if mark in record_path.read_bytes():
                    record = load_sound(record_path.parent)
                    if record is not None and record.kept.get(SESSION, {}).get("id") == session_id:
                        yield record_path.parent.name


def list_sessions(hive: Hive, cwd: str | None) -> list[dict[str, Any]]:
    """Return the latest sessions of people, newest first; with `cwd` only the sessions of this folder."""
    sessions: dict[str, dict[str, Any]] = {}
    summaries = (task for task in hive.tasks.list(limit=_MAX_LISTED) if task.maker == HUMAN and task.parent is None)
    for task in sorted(summaries, key=lambda summary: summary.since):
        record = load_sound(task.path) if task.path.is_dir() else None
        mark = {} if record is None else record.kept.get(SESSION, {})
        session_id, cwd_of_task = mark.get("id", task.id), mark.get("cwd", str(hive.layout.root))
        new_session = {"sessionId": session_id, "cwd": cwd_of_task, "title": task.title}
        session = sessions.setdefault(session_id, new_session)
        session["updatedAt"] = task.since.isoformat()
    visible_sessions = [session for session in sessions.values() if cwd in (None, session["cwd"])]
    return sorted(visible_sessions, key=lambda session: str(session["updatedAt"]), reverse=True)[:_MAX_LISTED]
