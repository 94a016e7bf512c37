"""The inbox: adding tasks from a program, as `hivemind task add` and agents' tools do."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias, TypedDict, Unpack

from hivemind.errors import UserError
from hivemind.frontmatter import parse, split
from hivemind.fs import Lock, copy_tree, crash_point, create, fsync_folder, make_folder, move, remove_tree, write
from hivemind.fs.atomic import TEMPORARY_PREFIX
from hivemind.layout import HUMAN
from hivemind.names import check_maker, check_name, slug
from hivemind.tasks.folder import folder_of, free_name, is_being_claimed
from hivemind.tasks.form import SHORT_FORM, read_text
from hivemind.tasks.ids import ENDINGS, ignored_why, is_task_name
from hivemind.tasks.record import RECORD, TaskRecord
from hivemind.tasks.settings import Settings
from hivemind.tasks.step import TaskStep, as_written
from hivemind.tasks.task import TaskProblem

Attachment: TypeAlias = str | os.PathLike[str] | tuple[str, bytes]
"""A file or folder to attach to a task, or a file's name and content."""


class TaskFields(TypedDict, total=False):
    """The fields that `Inbox.add` takes besides the text: the keys of front matter (README.md, *The text*)."""

    id: str | None
    title: str | None
    project: str | None
    priority: int | str | None
    assignee: str | None
    role: str | None
    candidates: int | Iterable[str] | None
    where: str | None
    dependencies: Iterable[str] | str
    deadline: datetime | str | None
    steps: Iterable[TaskStep | Mapping[str, Any] | str] | str
    proof: str | None
    view: str | None
    max_tokens: int | None
    fresh: bool | None
    review: Mapping[str, Any] | None
    budget: Mapping[str, Any] | int | None
    notify: Iterable[str] | None
    every: str | None
    until: datetime | str | None
    missed: str | None
    traceparent: str | None


def _front_matter(text: str, fields: TaskFields) -> tuple[dict[str, Any], str]:
    """Return (keys, text after the front matter). The keys are those of the front matter and `fields`, which take precedence."""
    if not isinstance(text, str):
        raise TaskProblem(f"must be a text, not {type(text).__name__}", location="the text")
    arguments: dict[str, Any] = {**fields}
    arguments["dependencies"] = _as_list(fields.get("dependencies"), str) or None
    arguments["steps"] = [*map(as_written, _as_list(fields.get("steps"), str, Mapping, TaskStep))] or None
    if (notify := fields.get("notify")) is not None:
        arguments["notify"] = [*notify] or "never"
    arguments = {key: value for key, value in arguments.items() if value is not None}
    _refuse_surrogates(text, *(value for value in arguments.values() if isinstance(value, str)))
    head, body, _ = split(text)
    return {**(parse(head, "the text", 2).values if head is not None else {}), **arguments}, body


def _as_list(argument: Any, *kinds: type) -> list[Any]:
    """Return [] for None, a list of the argument itself if it is of one of the types `kinds`, and a list of its elements in other
    cases.
    """
    return [argument] if isinstance(argument, kinds) else [*(argument or ())]


def _attach(folder: Path, files: list[Attachment]) -> None:
    if not files:
        return
    folder.mkdir()
    for attachment in files:
        path = Path(attachment[0] if isinstance(attachment, tuple) else attachment)
        target = folder / free_name(path.name, lambda name: os.path.lexists(folder / name))
        if isinstance(attachment, tuple):
            write(target, attachment[1])
        elif path.is_dir():
            copy_tree(path, target)
        else:
            write(target, path.read_bytes())
    fsync_folder(folder)


def compose(fields: Mapping[str, Any], body: str) -> bytes:
    """Return a task file: front matter, if there are fields, and text."""
    front_matter = {key: value for key, value in fields.items() if value is not None}
    if not front_matter and not body.startswith("---"):
        return body.encode()
    if SHORT_FORM.fullmatch(head := "".join(f"{key}: {value}\n" for key, value in front_matter.items())):
        return f"---\n{head}---\n{body}".encode()
    import yaml  # late: not for a list of tasks

    head = yaml.safe_dump(front_matter, allow_unicode=True, sort_keys=False) if front_matter else ""
    return f"---\n{head}---\n{body}".encode()


def _refuse_surrogates(*texts: str) -> None:
    """Raise TaskProblem if a terminal with another encoding has garbled a text. It cannot be written as UTF-8."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise TaskProblem(f"is not UTF-8 text (character {error.start + 1})", location="the text") from None


class Inbox:
    def __init__(self, settings: Settings) -> None:
        self._layout = settings.layout
        self._max_bytes = settings.reader.max_bytes

    def add(
        self,
        text: str | None = None,
        *,
        by: str = HUMAN,
        parent: str | None = None,
        attachments: Iterable[Attachment] | str | os.PathLike[str] = (),
        files: Mapping[str, bytes] = MappingProxyType({}),
        kept: Mapping[str, Any] = MappingProxyType({}),
        **fields: Unpack[TaskFields],
    ) -> str:
        """Add a task to the inbox and return its id.

        `by` is the maker, set by the runtime and never by a mind. `parent` is the id of the parent task. `files` maps
        the paths of attachments to their contents, `kept` has values of the runtime. `text` may have front matter;
        `fields` take precedence. A record next to the text names the maker of an agent's task, because front matter has
        no key for it. Raises TaskProblem for a task that the inbox would not accept, and for an id that is taken.
        """
        by, (keys, body) = check_maker(by), _front_matter(text or "", fields)
        try:
            title = read_text(compose(keys, body), "the task").title
        except TaskProblem as problem:  # without a line, because the author did not write the lines
            raise TaskProblem(problem.message, location="the task", remedy=problem.remedy) from None
        copies = _as_list(attachments, str, os.PathLike)
        for path in copies:
            if not isinstance(path, tuple) and not os.path.exists(path):
                raise UserError("does not exist and cannot be attached", location=path)
        for task_id in _as_list(fields.get("dependencies"), str):
            if not self.has_id(str(task_id)):
                raise TaskProblem(f"dependencies: there is no task {task_id!r}", location="the task")
        comes_again = keys.get("every") is not None
        if comes_again and (by != HUMAN or parent is not None or copies):
            message = "every: allows no attachments" if copies else "only people make recurring tasks (every:)"
            raise TaskProblem(message, location="the task")
        # Only concurrent calls could choose the same id; people's drops and claims need no lock.
        with Lock(self._layout.locks / "tasks-add.lock"):
            while True:
                task_id = self._free_id(keys.get("id"), title)
                content = compose({**keys, "id": task_id}, body)
                if len(content) > self._max_bytes:
                    raise TaskProblem(f"has {len(content):,} bytes, at most {self._max_bytes:,}", location=task_id)
                try:
                    if comes_again:
                        make_folder(self._layout.schedule)
                        create(self._layout.schedule / f"{task_id}.md", content)
                        return task_id
                    self._put(task_id, content, TaskRecord(by, parent, kept=dict(kept)), copies, files)
                except FileExistsError:
                    if not self.has_id(task_id):  # two of its files have the same name: another id would not help
                        raise
                    continue  # the name was taken meanwhile
                return task_id

    def _free_id(self, explicit_id: object, title: str) -> str:
        if explicit_id is None:
            return free_name(slug(title), lambda name: self.has_id(name) or not is_task_name(f"{name}.md"))
        task_id = check_name(str(explicit_id), "id")
        if (reason := ignored_why(f"{task_id}.md")) is not None:
            raise TaskProblem(f"id: {task_id}.md in the inbox would be {reason}", location=task_id)
        if self.has_id(task_id):
            raise TaskProblem(f"id: {task_id!r} is taken", location=task_id, remedy="give another id, or none")
        return task_id

    def has_id(self, task_id: str) -> bool:
        """Check that a task, in any state, or a file of the schedule has the id.

        The folders are checked in the order in which tasks move, so a task that is being moved is not missed.
        """
        folders = self._layout.inbox, self._layout.schedule
        if any(os.path.lexists(folder / (task_id + ending)) for folder in folders for ending in ENDINGS):
            return True
        return is_being_claimed(self._layout, task_id) or folder_of(self._layout, task_id) is not None

    def _put(
        self, task_id: str, content: bytes, record: TaskRecord, copies: list[Attachment], files: Mapping[str, bytes]
    ) -> None:
        if record == TaskRecord() and not copies and not files:
            create(self._layout.inbox / f"{task_id}.md", content)
            crash_point("tasks.add.dropped")
            return
        folder = self._layout.inbox / f"{TEMPORARY_PREFIX}{task_id}"
        remove_tree(folder)  # left by a crash; this process has the lock
        folder.mkdir()
        try:
            for name, inside in files.items():
                make_folder((folder / name).parent)
                create(folder / name, inside)
            write(folder / "task.md", content)
            _attach(folder / "attachments", copies)
            record = replace(record, inode=folder.stat().st_ino)
            write(folder / RECORD, record.encode())
            crash_point("tasks.add.written")
            move(folder, self._layout.inbox / task_id)
            crash_point("tasks.add.dropped")
        except BaseException:
            remove_tree(folder)
            raise
