"""News: what has happened since that a conversation should know, each thing once."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from hivemind.agent.opening import letter, material, source_of
from hivemind.agent.pictures import Pictures
from hivemind.agent.select import select_memory
from hivemind.agent.window import ContextWindow
from hivemind.agent.working_memory import WorkingMemory
from hivemind.errors import UserError
from hivemind.taskrun.conversation import Conversation
from hivemind.taskrun.task_run import TaskRun
from hivemind.tools import Session
from hivemind.tools.path_access import readable

_BUDGET_NEWS = 0.8  # of a task's budget
_LINE_CHARS = 160


class News:
    """Appends the news of a turn to its conversation."""

    def __init__(self, memory: WorkingMemory, pictures: Pictures) -> None:
        self._memory, self.pictures = memory, pictures
        self.read_files = ReadFiles()

    def tell(self, session: Session, window: ContextWindow) -> None:
        """Append what happened since that this conversation should know, with where it is from."""
        focus, talk = session.focus, window.talk
        if focus.work is not None:
            self._tell_of_task(focus.work, session, talk)
            self._tell_blocks(session, window)
            return
        message = session.message
        if message.id not in talk.letters and talk.epoch is not None and talk.turns:
            told = letter(message, stranger=focus.stranger)
            talk.tell(told, self.pictures.of_letter(message), letter=message.id)

    def _tell_of_task(self, work: TaskRun, session: Session, talk: Conversation) -> None:
        for number, said in enumerate(work.task.said[talk.said :], talk.said + 1):
            who = "The operator" if said.by == "human" else said.by
            by = "person" if said.by == "human" else said.by
            talk.tell(f"{who} adds to the task:\n\n{said.text.strip()}", said=number, by=by)
        if changed := sorted(self.read_files.changed(talk, session)):
            talk.tell(f"Changed by someone else since you read it: {', '.join(changed)}.", files=changed)
        most, was_told = session.config.budget.task.tokens, any((one.news or {}).get("budget") for one in talk.messages)
        if most is not None and not was_told and (spent := work.spent().tokens) >= most * _BUDGET_NEWS:
            talk.tell(f"{spent:,} of the task's {most:,} tokens are used. Come to an end.", budget=True)
        if (lost := work.lost_lease()) is not None:
            work.lease = None
            talk.tell(f"{lost} Look at what has changed.", lease=True)

    def _tell_blocks(self, session: Session, window: ContextWindow) -> None:
        """Refer to each block that an opening made now would show and this one could not: documents and memories. (Mail has
        news of its own.) Contents are recalled."""
        talk = window.talk
        if not self._memory.has_news(session.focus):
            return
        known = {row["id"] for row in (talk.epoch or {}).get("selected", ())}
        known |= {block for one in talk.messages for block in (one.news or {}).get("blocks", ())}
        entries = [
            one
            for one in select_memory(session.focus, window, self._memory, window.texts()).entries
            if one["metadata"]["type"] == "knowledge"
            and one["id"] not in known
            and one["metadata"].get("path") not in talk.files
        ]
        if entries:
            lines = (material(source_of(one), f"{one['id']}: {_first_line(str(one['content']))}") for one in entries)
            told = "\n".join(["New in the hive, and about this; recall shows more of it.", *lines])
            talk.tell(told, blocks=[str(one["id"]) for one in entries])


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]}…"


_Stamp = tuple[int, int, int] | None


class ReadFiles:
    """Which of them differ from what their conversation knows. That stands in the conversation: a file that has changed while no
    process was there is noticed too. Here is only kept how files looked that were the same, so that each is read again only
    if it was written."""

    def __init__(self) -> None:
        self._same: dict[Path, tuple[str | None, _Stamp]] = {}

    def changed(self, talk: Conversation, session: Session) -> dict[str, str | None]:
        """Those that are not what they were when they were shown or noted last, with their digests now; None: it is gone."""
        found = {}
        for name, digest in talk.files.items():
            with suppress(UserError, OSError):
                now = self._digest(readable(session, name).path, digest)
                if now != digest:
                    found[name] = now
        return found

    def _digest(self, path: Path, known: str | None) -> str | None:
        stamp = _stamp(path)
        if self._same.get(path) == (known, stamp):
            return known
        try:
            with open(path, "rb") as file:
                now = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            now = None
        self._same[path] = now, stamp
        return now


def _stamp(path: Path) -> _Stamp:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
