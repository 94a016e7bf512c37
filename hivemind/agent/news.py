"""News: events since the last turn that a conversation should contain, each once."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from hivemind.agent.opening import Entry, letter, material, source_of
from hivemind.agent.pictures import Pictures
from hivemind.agent.select import select_memory
from hivemind.agent.window import ContextWindow
from hivemind.agent.working_memory import WorkingMemory
from hivemind.coordination.branches import branch_overlaps
from hivemind.errors import UserError
from hivemind.taskrun.conversation import Conversation
from hivemind.taskrun.task_run import TaskRun
from hivemind.tools import ToolContext
from hivemind.tools.path_access import readable

_BUDGET_NEWS = 0.8  # of a task's budget
_LINE_CHARS = 160


class News:
    """Appends the news of a turn to the turn's conversation."""

    def __init__(self, memory: WorkingMemory, pictures: Pictures) -> None:
        self._memory, self.pictures = memory, pictures
        self.read_files = ReadFiles()

    def tell(self, context: ToolContext, window: ContextWindow) -> None:
        """Append what has happened since the last turn to the conversation, each piece with its source."""
        focus, talk = context.focus, window.talk
        if focus.work is not None:
            self._tell_of_task(focus.work, context, talk)
            self._tell_blocks(context, window)
            return
        message = context.message
        if message.id not in talk.letters and talk.epoch is not None and talk.turns:
            text = letter(message, stranger=focus.stranger)
            talk.add_news(text, self.pictures.of_letter(message), letter=message.id)

    def _tell_of_task(self, work: TaskRun, context: ToolContext, talk: Conversation) -> None:
        for number, remark in enumerate(work.task.said[talk.said :], talk.said + 1):
            author, by = ("The operator", "person") if remark.by == "human" else (remark.by, remark.by)
            talk.add_news(f"{author} adds to the task:\n\n{remark.text.strip()}", said=number, by=by)
        if changed_names := sorted(self.read_files.changed_files(talk, context)):
            talk.add_news(
                f"Changed by someone else since you read it: {', '.join(changed_names)}.", files=changed_names
            )
        if context.hive.config.worktree_roots(context.hive.layout):
            self._tell_overlaps(work, context, talk)
        limit = context.config.budget.task.tokens
        is_told = any((message.news or {}).get("budget") for message in talk.messages)
        if limit is not None and not is_told and (spent := work.total_usage().tokens) >= limit * _BUDGET_NEWS:
            talk.add_news(f"{spent:,} of the task's {limit:,} tokens are used. Come to an end.", budget=True)
        if (lease_problem := work.lost_lease()) is not None:
            work.lease = None
            talk.add_news(f"{lease_problem} Look at what has changed.", lease=True)

    def _tell_overlaps(self, work: TaskRun, context: ToolContext, talk: Conversation) -> None:
        """Append where the task's branches conflict with those of other tasks, each path once."""
        for overlap in branch_overlaps(context.hive.layout, work.task.id):
            pairs = [[overlap.task, path] for path in overlap.paths]
            if any(tuple(pair) not in talk.overlaps for pair in pairs):
                talk.add_news(
                    f"{overlap.text}. Keep what both set out to do, or your work will not land.", overlaps=pairs
                )

    def _tell_blocks(self, context: ToolContext, window: ContextWindow) -> None:
        """Append references to the documents and memories that an opening would show now and that the conversation does
        not contain. The mind can recall the contents. Letters are separate news."""
        talk = window.talk
        if not self._memory.has_news(context.focus):
            return
        known_ids = {row["id"] for row in (talk.epoch or {}).get("selected", ())}
        known_ids |= {block for message in talk.messages for block in (message.news or {}).get("blocks", ())}
        entries = [
            entry
            for entry in select_memory(context.focus, window, self._memory, window.known_text_test()).entries
            if entry["metadata"]["type"] == "knowledge"
            and entry["id"] not in known_ids
            and entry["metadata"].get("path") not in talk.files
        ]
        if entries:
            lines = (material(source_of(entry), f"{entry['id']}: {_first_line(entry)}") for entry in entries)
            text = "\n".join(["New in the hive, and about this; recall shows more of it.", *lines])
            talk.add_news(text, blocks=[str(entry["id"]) for entry in entries])


def _first_line(entry: Entry) -> str:
    line = str(entry["content"]).strip().partition("\n")[0]
    return line if len(line) <= _LINE_CHARS else f"{line[:_LINE_CHARS]}…"


_Stamp = tuple[int, int, int] | None


class ReadFiles:
    """Finds the files that have changed since the conversation saw them, even if they changed while no process ran.

    The conversation has the digests of these files. This object keeps the size and time of unchanged files, so a file is read
    again only after it was written.
    """

    def __init__(self) -> None:
        self._unchanged: dict[Path, tuple[str | None, _Stamp]] = {}

    def changed_files(self, talk: Conversation, context: ToolContext) -> dict[str, str | None]:
        """Return the files that changed since the conversation showed or noted them, with their new digests (None:
        deleted)."""
        changed_digests = {}
        for name, digest in talk.files.items():
            with suppress(UserError, OSError):
                digest_now = self._digest(readable(context, name).path, digest)
                if digest_now != digest:
                    changed_digests[name] = digest_now
        return changed_digests

    def _digest(self, path: Path, known_digest: str | None) -> str | None:
        stamp = _stamp(path)
        if self._unchanged.get(path) == (known_digest, stamp):
            return known_digest
        try:
            with open(path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            digest = None
        self._unchanged[path] = digest, stamp
        return digest


def _stamp(path: Path) -> _Stamp:
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
