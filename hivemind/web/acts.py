"""The actions that a person can take on the page. They do what commands do; the journal records them as done by `human`."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.hive import Hive
from hivemind.landing.queue import approve, get_queued
from hivemind.landing.target import hold_roots
from hivemind.layout import HUMAN, LANDING
from hivemind.lessons.choice import decide, rewrite
from hivemind.names import check_name
from hivemind.presence.identity import holder_pid
from hivemind.presence.watching import ring_all
from hivemind.swarm.archive import archive_named
from hivemind.taskrun.published import say

_STOP_TIMEOUT_S = 5.0


@frozen
class ActionOutcome:
    """The outcome of an action: a message, the path of the page to show next, and the fields of the journal's event."""

    message: str
    path: str
    event_fields: Mapping[str, object]


@frozen
class Upload:
    name: str
    file: BinaryIO


Form = Mapping[str, str]
ActionHandler = Callable[[Hive, Form, Sequence[Upload]], ActionOutcome]


def add_task(hive: Hive, form: Form, files: Sequence[Upload]) -> ActionOutcome:
    """Add a task to the inbox, with the uploaded files as attachments."""
    text = form.get("text", "").replace("\r\n", "\n")
    if not text.strip():
        raise UserError("the task has no text", remedy="describe what to do")
    with tempfile.TemporaryDirectory(prefix="hivemind-web-") as folder:
        attachments = [_save_upload(Path(folder), upload) for upload in files]
        task = hive.tasks.add(
            text,
            title=form.get("title") or None,
            assignee=form.get("assignee") or None,
            role=form.get("role") or None,
            priority=form.get("priority") or None,
            attachments=attachments,
        )
    ring_all(hive)
    return ActionOutcome(f"{task} waits in the inbox.", f"/tasks/{task}", {"act": "task add", "task_id": task})


def _save_upload(folder: Path, upload: Upload) -> str:
    """Save an upload under its file name, and return the path. Raises UserError if the name is invalid or taken."""
    file_name = upload.name.replace("\\", "/").rpartition("/")[2].strip()
    if not file_name or file_name.startswith(".") or not file_name.isprintable() or len(file_name.encode()) > 200:
        raise UserError("a file with this name cannot be attached", location=repr(upload.name), remedy="rename it")
    path = folder / file_name
    if path.exists():
        raise UserError("two files have this name", location=file_name, remedy="rename one of them")
    with open(path, "wb") as file:
        shutil.copyfileobj(upload.file, file)
    return os.fspath(path)


def retry_task(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    task = form["task"]
    hive.tasks.retry(task)
    ring_all(hive)
    return ActionOutcome(f"{task} is back in the inbox.", f"/tasks/{task}", {"act": "task retry", "task_id": task})


def archive_task(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    task = form["task"]
    archive_named(hive, [task])
    return ActionOutcome(f"{task} is archived.", "/", {"act": "archive", "task_id": task})


def cancel_task(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    task = form["task"]
    hive.tasks.cancel(task, reason=form.get("reason", ""))
    return ActionOutcome(f"{task} is cancelled.", f"/tasks/{task}", {"act": "task cancel", "task_id": task})


def add_note(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    task = form["task"]
    said = say(hive, task, form.get("text", "").replace("\r\n", "\n"))
    message = f"Added to {task}."
    if said.path.parent == hive.layout.inbox:
        message = f"{task} is back in the inbox with what you said."
        ring_all(hive)
    message = f"{message} {said.consequence}".strip()
    return ActionOutcome(message, f"/tasks/{task}", {"act": "task say", "task_id": task})


def land_task(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    task = form["task"]
    if approve(hive, task):
        return ActionOutcome(f"{task} has landed already.", "/landing", {"act": "land", "task_id": task})
    is_running = holder_pid(hive.layout, LANDING) is not None
    message = f"{task} lands when it is its turn{'' if is_running else ', once the swarm is up'}."
    return ActionOutcome(message, f"/landing?open={task}", {"act": "land", "task_id": task})


def return_task(hive: Hive, form: Form, files: Sequence[Upload]) -> ActionOutcome:
    """Send a task, which waits to land (to be merged), back to its agent. The form's text says what to change."""
    get_queued(hive, form["task"])
    outcome = add_note(hive, form, files)
    return replace(outcome, message=f"{form['task']} goes back to its agent.", path="/landing")


def hold_root(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    hold_roots(hive, [form["root"]], form.get("reason") or "a person has stopped it")
    return ActionOutcome(f"{form['root']} is held.", "/landing", {"act": "land --hold", "root": form["root"]})


def resume_root(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    hold_roots(hive, [form["root"]], None)
    return ActionOutcome(f"{form['root']} goes on.", "/landing", {"act": "land --resume", "root": form["root"]})


def reply_to_letter(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    """Reply to a letter. A task that waits for the reply can then continue.

    Instead of a text, the form may have a `verdict`: it approves or rejects a result, or answers a coding agent that
    asks for permission.
    """
    text, verdict = form.get("text", "").replace("\r\n", "\n").strip(), form.get("verdict", "")
    bodies = {"approved": "approved", "rejected": f"rejected: {text or 'no reason'}", "deny": f"deny {text}".strip()}
    body = bodies.get(verdict, verdict if verdict in ("once", "always") else text)
    if not body:
        raise UserError("the answer is empty", remedy="write an answer")
    report = hive.mail.reply(HUMAN, form["id"], body + "\n")
    _check_delivered(report.failed)
    message = {"approved": "The result is approved.", "rejected": "The result is rejected."}.get(verdict, "Answered.")
    return ActionOutcome(
        message, form.get("from", "/"), {"act": "mail reply", "id": form["id"], "answer": report.message_id}
    )


def send_letter(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    names = [name.strip() for name in form.get("to", "").split(",") if name.strip()]
    receivers = hive.mail.recipients(names)
    if not receivers:
        raise UserError("the letter has no recipient", remedy="name an agent")
    report = hive.mail.send(HUMAN, receivers, form.get("subject", ""), form.get("text", "").replace("\r\n", "\n"))
    _check_delivered(report.failed)
    path = f"/mail/{HUMAN}?folder=sent"
    return ActionOutcome(f"Sent to {', '.join(report.delivered)}.", path, {"act": "mail send", "id": report.message_id})


def _check_delivered(failures: Mapping[str, str]) -> None:
    if failures:
        raise UserError("; ".join(f"not delivered to {name}: {reason}" for name, reason in failures.items()))


def remember(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    """Store the form's text as a person's note in the long-term memory."""
    from hivemind.longterm import format_namespace, provenance

    text, namespace = form.get("text", "").strip(), _form_namespace(hive, form)
    if not text:
        raise UserError("the note is empty", remedy="write what to remember")
    origin = provenance(text, "", author=HUMAN, session=None, time=None)
    upsert_result = hive.memory.upsert_memory(namespace, text, None, form.get("key") or None, provenance=origin)
    return ActionOutcome(
        upsert_result.message,
        "/memory",
        {"act": "memory remember", "namespace": format_namespace(namespace), "entry": upsert_result.key},
    )


def forget(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    from hivemind.longterm import format_namespace

    namespace, key = _form_namespace(hive, form), form["key"]
    if not hive.memory.delete(namespace, key):
        raise UserError(f"{key!r} is not in the memory", location=format_namespace(namespace))
    return ActionOutcome(
        f"{key} is forgotten.",
        "/memory",
        {"act": "memory forget", "namespace": format_namespace(namespace), "entry": key},
    )


def _form_namespace(hive: Hive, form: Form) -> tuple[str, ...]:
    """Return the namespace of memories that the form names, by default the namespace of the whole workspace."""
    from hivemind.longterm import check_namespace, parse_namespace
    from hivemind.tools.memory import namespaces_of

    text = form.get("namespace", "")
    return check_namespace(parse_namespace(text)) if text else namespaces_of(hive, HUMAN)[1]


def decide_lesson(hive: Hive, form: Form, _: Sequence[Upload], *, adopts: bool) -> ActionOutcome:
    verb = "adopt" if adopts else "forget"
    decide(hive, [form["id"]], adopts=adopts)
    message = f"{form['id']} is {'live' if adopts else 'deleted'}."
    return ActionOutcome(message, "/lessons", {"act": f"lessons {verb}", "lesson": form["id"]})


def edit_lesson(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    new_id = rewrite(hive, form["id"], form.get("text", ""))
    fields = {"act": "lessons edit", "lesson": form["id"], "new": new_id}
    return ActionOutcome(f"{form['id']} is now {new_id}.", "/lessons", fields)


def mark_read(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    box = check_name(form["box"], "mailbox")
    message = hive.mail.read(box, form["id"], mark=True)
    return ActionOutcome(
        "Marked as read.", form.get("from", f"/mail/{box}"), {"act": "mail read", "box": box, "id": message.id}
    )


def stop_named_agent(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    """Stop an agent, which then stays stopped until a person starts it."""
    from hivemind.swarm.shutdown import stop_agent

    name = check_name(form["agent"], "agent name")
    has_ended = stop_agent(hive, name, timeout_s=_STOP_TIMEOUT_S).is_over
    message = f"{name} has stopped." if has_ended else f"{name} was asked to stop and is still running."
    return ActionOutcome(message, f"/agents/{name}", {"act": "agent stop", "agent": name})


def start_named_agent(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    from hivemind.swarm.shutdown import start_agent

    name = check_name(form["agent"], "agent name")
    was_stopped = start_agent(hive, name)
    message = f"{name} is started, if the swarm is up." if was_stopped else f"{name} was not stopped."
    return ActionOutcome(message, f"/agents/{name}", {"act": "agent start", "agent": name})


ACTIONS: Mapping[str, ActionHandler] = {
    "stop": stop_named_agent,
    "start": start_named_agent,
    "add": add_task,
    "retry": retry_task,
    "cancel": cancel_task,
    "archive": archive_task,
    "say": add_note,
    "land": land_task,
    "return": return_task,
    "hold": hold_root,
    "resume": resume_root,
    "reply": reply_to_letter,
    "send": send_letter,
    "read": mark_read,
    "remember": remember,
    "forget": forget,
    "lesson-adopt": partial(decide_lesson, adopts=True),
    "lesson-forget": partial(decide_lesson, adopts=False),
    "lesson-edit": edit_lesson,
}
