"""A task's trail as updates of an editor's session: messages, calls, plan and outcome."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from hivemind.coordination import JournalState, Step
from hivemind.hive import Hive
from hivemind.layout import HUMAN
from hivemind.taskrun.transcript import TranscriptEntry, TranscriptReader
from hivemind.tasks import Task, TaskState
from hivemind.words import truncate

Update = dict[str, Any]
_KINDS = {
    "read": ("read_file", "list_files", "read_mail", "read_skill", "doc_expand"),
    "search": ("search_files", "doc_find", "search_memory", "recall"),
    "edit": ("write_file", "edit_file", "apply_patch"),
    "execute": ("run_command",),
    "think": ("plan_steps", "add_card", "add_evidence", "note_step", "finish_step", "finish_task"),
}
_KIND_OF = {tool: kind for kind, tools in _KINDS.items() for tool in tools}
_PROTOCOL_KINDS = {*_KINDS, "delete", "move", "fetch", "switch_mode", "other"}
_SUBJECTS = ("command", "path", "query", "question", "title", "text", "reason", "name", "step")
"""The arguments of a call that say what it is about, the most telling first."""
_MAX_TITLE, _MAX_OUTPUT = 120, 4_000
_SOURCE = re.compile(r"^\d+\. `(?P<path>.+):(?P<first>\d+)(?:-(?P<last>\d+))?` sha256 ", re.MULTILINE)


def message_chunk(
    text: str, speaker: Literal["agent_message", "agent_thought", "user_message"] = "agent_message"
) -> Update:
    """Return one paragraph of a message or thought. Editors join the paragraphs, so each ends with an empty line."""
    return {"sessionUpdate": f"{speaker}_chunk", "content": {"type": "text", "text": text.rstrip() + "\n\n"}}


class TaskUpdates:
    """The updates about one task. Each call of `read` yields the new ones since the last call."""

    def __init__(self, hive: Hive) -> None:
        self._hive = hive
        self._reader = TranscriptReader()
        self._entry_count = 0  # turns and notes that are sent and complete
        self._message_ids: set[str] = set()
        self._call_states: dict[str, str] = {}
        self._addition_count = 0
        self._plan: list[Update] = []
        self.own_keys: set[str] = set()
        """The keys of additions that this session's editor has sent, and shows already."""

    def read(self, task: Task) -> Iterator[Update]:
        entries = [entry for entry in self._reader.read(task.path).entries if entry.kind in ("turn", "news")]
        if len(entries) < self._entry_count:  # the task was tried again
            self._entry_count = 0
        for entry in entries[self._entry_count :]:
            yield from self._additions(task, str(entry.record.get("at")))
            if entry.kind == "turn":
                yield from self._turn(task, entry)
            elif "event" in entry.record:  # a coding agent's thought, its own plan, a call that was denied
                label = "" if entry.record["event"] == "thought" else f"{entry.record['event']}: "
                yield message_chunk(f"{label}{entry.record['text']}", "agent_thought")
            if entry.is_open and entry.kind == "turn":
                break
            self._entry_count += 1
        yield from self._additions(task)
        yield from self._plan_update(task)

    def _additions(self, task: Task, before: str | None = None) -> Iterator[Update]:
        for addition in task.said[self._addition_count :]:
            if before is not None and addition.at > before:
                return
            self._addition_count += 1
            if addition.key is None or addition.key not in self.own_keys:
                is_person = addition.by == HUMAN
                text = addition.text if is_person else f"{addition.by}: {addition.text}"
                yield message_chunk(text, "user_message" if is_person else "agent_message")

    def _turn(self, task: Task, turn: TranscriptEntry) -> Iterator[Update]:
        record, calls = turn.record, turn.calls
        # The text with a finish_task that has no result is the result, which comes with the task's end.
        is_result = any(call["tool"] == "finish_task" and not call["arguments"].get("result") for call in calls)
        message_id = f"{record.get('agent')}/{record.get('id')}/{record.get('at')}"
        if message_id not in self._message_ids and record.get("text") and not is_result:
            yield message_chunk(str(record["text"]))
        self._message_ids.add(message_id)
        for call in calls:
            call_id = f"{task.id}/{record.get('id')}/{call['id']}"
            # the last results may come after the end
            is_ok = call.get("ok", True if task.state in (TaskState.DONE, TaskState.FAILED) else None)
            state = {None: "in_progress", True: "completed", False: "failed"}[is_ok]
            if self._call_states.get(call_id) == state:
                continue
            name = "tool_call_update" if call_id in self._call_states else "tool_call"
            self._call_states[call_id] = state
            # again with the state, because a worktree is made by the first call that needs it
            fields = self._call_fields(task, call)
            update: Update = {"sessionUpdate": name, "toolCallId": call_id, "status": state, **fields}
            if state != "in_progress":
                text = {"type": "text", "text": truncate(call.get("text", ""), _MAX_OUTPUT)}
                update["content"] = [*_diffs(task, self._hive, call), {"type": "content", "content": text}]
            yield update

    def _call_fields(self, task: Task, call: Mapping[str, Any]) -> Update:
        """Return title, kind, arguments and files of a call. For a coding agent's own call, they are in its recorded result."""
        arguments, details = call["arguments"], call.get("result") or {}
        subject = next((arguments[name] for name in _SUBJECTS if arguments.get(name)), "")
        words = subject if isinstance(subject, str) else json.dumps(subject, ensure_ascii=False)
        title, kind = details.get("title"), details.get("kind", _KIND_OF.get(call["tool"]))
        named_path = _file_of(task, self._hive, arguments)
        paths = details.get("paths") or ([] if named_path is None else [str(named_path)])
        line = arguments.get("start_line")
        position = {"line": line} if isinstance(line, int) else {}
        return {
            "title": truncate(" ".join(str(title or f"{call['tool']} {words}").split()), _MAX_TITLE),
            "kind": kind if kind in _PROTOCOL_KINDS else "other",
            "rawInput": arguments,
            "locations": [{"path": path, **position} for path in paths],
        }

    def _plan_update(self, task: Task) -> Iterator[Update]:
        def entry(state: JournalState, step: Step) -> Update:
            is_leased = step.status == "open" and state.lease(step.id) is not None
            status = "in_progress" if is_leased else "completed" if step.status == "done" else "pending"
            return {"content": step.title, "priority": "medium", "status": status}

        plan = self._hive.journal.view(
            lambda state: [entry(state, step) for step in state.steps_of(task.id) if not step.meta.get("implicit")]
        )
        if plan != self._plan:
            self._plan = plan
            yield {"sessionUpdate": "plan", "entries": plan}


def outcome_updates(hive: Hive, text: str) -> Iterator[Update]:
    """Yield the text of a result, and a link to each of its sources."""
    yield message_chunk(text)
    for source in _SOURCE.finditer(text.rpartition("\n## Sources\n")[2]):
        path = hive.layout.root / source["path"]
        if path.is_file():
            lines = f"{source['first']}:{source['last'] or source['first']}"
            uri, name = f"{path.resolve().as_uri()}#L{lines}", source[0].split("`")[1]
            link = {"type": "resource_link", "uri": uri, "name": name}
            yield {"sessionUpdate": "agent_message_chunk", "content": link}


def _file_of(task: Task, hive: Hive, arguments: Mapping[str, Any]) -> Path | None:
    """Return the file or folder that a call names: in the task's worktree, in its work folder, or below the hive. Return None if
    it has no `path`."""
    if not isinstance(path := arguments.get("path"), str):
        return None
    folders = [hive.layout.root / str(worktree["path"]) for worktree in task.kept.get("worktrees", ())]
    paths = [folder / path for folder in (*folders, task.files, hive.layout.root)]
    return next(filter(os.path.exists, paths), paths[0])


def _diffs(task: Task, hive: Hive, call: Mapping[str, Any]) -> list[Update]:
    arguments = call["arguments"]
    new_text, path = arguments.get("new", arguments.get("text")), _file_of(task, hive, arguments)
    if _KIND_OF.get(call["tool"]) != "edit" or path is None or not isinstance(new_text, str):
        return []
    return [{"type": "diff", "path": str(path), "oldText": arguments.get("old"), "newText": new_text}]
