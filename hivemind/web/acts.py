"""What a person does on the page: the same operations as the command line's, each told in the journal under `human`."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.hive import Hive
from hivemind.layout import HUMAN
from hivemind.names import check_name
from hivemind.presence.watching import ring_all

_ENDS_S = 5.0


@frozen
class ActionOutcome:
    """What was done, in words, where that is seen, and what the journal says of it."""

    said: str
    place: str
    about: Mapping[str, object]


@frozen
class Upload:
    """A file that was dropped on the page."""

    name: str
    file: BinaryIO


Form = Mapping[str, str]
Act = Callable[[Hive, Form, Sequence[Upload]], ActionOutcome]


def add_task(hive: Hive, form: Form, files: Sequence[Upload]) -> ActionOutcome:
    """Drop a task into the inbox, with what was dropped on the page."""
    text = form.get("text", "").replace("\r\n", "\n")
    if not text.strip():
        raise UserError("there is nothing to do", remedy="say in the text what is to be done")
    with tempfile.TemporaryDirectory(prefix="hivemind-web-") as folder:
        kept = [_kept(Path(folder), upload) for upload in files]
        task = hive.tasks.add(
            text,
            title=form.get("title") or None,
            assignee=form.get("assignee") or None,
            role=form.get("role") or None,
            priority=form.get("priority") or None,
            attachments=kept,
        )
    ring_all(hive)
    return ActionOutcome(f"{task} waits in the inbox.", f"/tasks/{task}", {"act": "task add", "task_id": task})


def _kept(folder: Path, upload: Upload) -> str:
    """The file under the last part of its name, where no other has that."""
    plain = upload.name.replace("\\", "/").rpartition("/")[2].strip()
    if not plain or plain.startswith(".") or not plain.isprintable() or len(plain.encode()) > 200:
        raise UserError("a file of that name cannot be attached", location=repr(upload.name), remedy="rename it")
    path = folder / plain
    if path.exists():
        raise UserError("two files have that name", location=plain, remedy="rename one of them")
    with open(path, "wb") as file:
        shutil.copyfileobj(upload.file, file)
    return os.fspath(path)


def retry(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    task = form["task"]
    hive.tasks.retry(task)
    ring_all(hive)
    return ActionOutcome(f"{task} is back in the inbox.", f"/tasks/{task}", {"act": "task retry", "task_id": task})


def cancel(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    task = form["task"]
    hive.tasks.cancel(task, reason=form.get("reason", ""))
    return ActionOutcome(f"{task} is cancelled.", f"/tasks/{task}", {"act": "task cancel", "task_id": task})


def say(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    task = form["task"]
    hive.tasks.say(task, form.get("text", "").replace("\r\n", "\n"))
    return ActionOutcome(f"{task} is told.", f"/tasks/{task}", {"act": "task say", "task_id": task})


def reply(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    """Answer a letter: a question's task goes on with that. `verdict` approves a result, or rejects it with the text."""
    text, verdict = form.get("text", "").replace("\r\n", "\n").strip(), form.get("verdict", "")
    body = {"approved": "approved", "rejected": f"rejected: {text or 'no reason was given'}"}.get(verdict, text)
    if not body:
        raise UserError("an answer says something", remedy="write one")
    report = hive.mail.reply(HUMAN, form["id"], body + "\n")
    _check(report.failed)
    said = {"approved": "The result is approved.", "rejected": "The result is rejected."}.get(verdict, "Answered.")
    return ActionOutcome(
        said, form.get("from", "/"), {"act": "mail reply", "id": form["id"], "answer": report.message_id}
    )


def send(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    to = [one.strip() for one in form.get("to", "").split(",") if one.strip()]
    receivers = hive.mail.recipients(to)
    if not receivers:
        raise UserError("nobody is named to send it to", remedy="name an agent")
    report = hive.mail.send(HUMAN, receivers, form.get("subject", ""), form.get("text", "").replace("\r\n", "\n"))
    _check(report.failed)
    place = f"/mail/{HUMAN}?folder=sent"
    return ActionOutcome(
        f"Sent to {', '.join(report.delivered)}.", place, {"act": "mail send", "id": report.message_id}
    )


def _check(failed: Mapping[str, str]) -> None:
    if failed:
        raise UserError("; ".join(f"{name} has it not: {why}" for name, why in failed.items()))


def remember(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    """Note something in the hive's long-term memory, as a person says it."""
    from hivemind.longterm import format_namespace, provenance

    text, namespace = form.get("text", "").strip(), _namespace(hive, form)
    if not text:
        raise UserError("there is nothing to be remembered", remedy="write it down")
    said = provenance(text, "", known=HUMAN, session=None, time=None)
    made = hive.memory.upsert_memory(namespace, text, None, form.get("key") or None, provenance=said)
    return ActionOutcome(
        made.message, "/memory", {"act": "memory remember", "namespace": format_namespace(namespace), "entry": made.key}
    )


def forget(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    from hivemind.longterm import format_namespace

    namespace, key = _namespace(hive, form), form["key"]
    if not hive.memory.delete(namespace, key):
        raise UserError(f"nothing is remembered as {key!r}", location=format_namespace(namespace))
    return ActionOutcome(
        f"{key} is forgotten.",
        "/memory",
        {"act": "memory forget", "namespace": format_namespace(namespace), "entry": key},
    )


def _namespace(hive: Hive, form: Form) -> tuple[str, ...]:
    """The one that the form names, or the one that the workspace shares."""
    from hivemind.longterm import check_namespace, parse_namespace
    from hivemind.tools.memory import namespaces_of

    text = form.get("namespace", "")
    return check_namespace(parse_namespace(text)) if text else namespaces_of(hive, HUMAN)[1]


def mark_read(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    box = check_name(form["box"], "mailbox")
    message = hive.mail.read(box, form["id"], mark=True)
    return ActionOutcome(
        "Marked as read.", form.get("from", f"/mail/{box}"), {"act": "mail read", "box": box, "id": message.id}
    )


def stop_one(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    """Have an agent end; it is not started again until somebody says so."""
    from hivemind.swarm.shutdown import stop_agent

    name = check_name(form["agent"], "agent name")
    over = stop_agent(hive, name, timeout_s=_ENDS_S).over
    said = f"{name} is stopped." if over else f"{name} is told to end, and has not yet."
    return ActionOutcome(said, f"/agents/{name}", {"act": "agent stop", "agent": name})


def start_one(hive: Hive, form: Form, _: Sequence[Upload]) -> ActionOutcome:
    from hivemind.swarm.shutdown import start_agent

    name = check_name(form["agent"], "agent name")
    was = start_agent(hive, name)
    said = f"{name} is started, if the swarm is up." if was else f"{name} was not stopped."
    return ActionOutcome(said, f"/agents/{name}", {"act": "agent start", "agent": name})


ACTS: Mapping[str, Act] = {
    "stop": stop_one,
    "start": start_one,
    "add": add_task,
    "retry": retry,
    "cancel": cancel,
    "say": say,
    "reply": reply,
    "send": send,
    "read": mark_read,
    "remember": remember,
    "forget": forget,
}
