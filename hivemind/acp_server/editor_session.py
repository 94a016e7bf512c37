"""A session of an editor: a series of tasks, the last of which may be open. A prompt's turn lasts while its task works."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from hivemind.acp_server.prompt import Prompt, place_note, read_prompt, unreadable_note
from hivemind.acp_server.threads import thread_tasks
from hivemind.acp_server.updates import TaskUpdates, Update, message_chunk, outcome_updates
from hivemind.acp_server.waiting import Question, obstacle_of, question_of, reply
from hivemind.errors import HivemindError, UserError
from hivemind.fs import write
from hivemind.hive import Hive
from hivemind.json_rpc import JsonRpc, Request, Response
from hivemind.outcome import OUTCOME_FILES
from hivemind.presence.watching import ring_all
from hivemind.tasks import Task, TaskState, read_outcome
from hivemind.tasks.folder import free_name
from hivemind.tasks.record import SESSION

_MAX_EARLIER = 5  # tasks of the session that a new one names


class EditorSession:
    """One session. `task_id` is the open task that it follows, `prompts` are the prompts of unfinished turns."""

    def __init__(self, hive: Hive, connection: JsonRpc, session_id: str, cwd: str) -> None:
        self.id, self.cwd = session_id, cwd
        self._hive, self._connection = hive, connection
        self.task_id: str | None = None
        self._task_ids = set[str]()
        self.prompts: list[Request] = []
        self._updates = TaskUpdates(hive)
        self._question: Question | None = None
        self._permission: tuple[int, Question] | None = None  # the request to the editor, and what it asks
        self._obstacle: str | None = None
        self._is_cancelled = self._is_cwd_checked = False

    # What the editor does

    def prompt(self, request: Request) -> None:
        """Add a prompt to the session's open task, as an answer or an addition. If no task is open, add a task."""
        prompt = read_prompt(request.params.get("prompt"), self._hive)
        try:
            tasks = thread_tasks(self._hive, self.id, self._task_ids)
            if self.task_id is not None and all(task.id != self.task_id for task in tasks):
                tasks.append(self._hive.tasks.get(self.task_id))  # raises UserError while it is being moved
            open_task = next((task for task in tasks if not _is_over(task)), None)
            if open_task is None:
                self._add_task(prompt, tasks)
            else:
                self._add_to_task(open_task, prompt)
        except (HivemindError, OSError) as error:
            self._send(message_chunk(f"Not accepted: {error}"))
            self._connection.respond(request, {"stopReason": "end_turn"})
        else:
            self.prompts.append(request)

    def _add_task(self, prompt: Prompt, tasks: list[Task]) -> None:
        layout, cwd = self._hive.layout, Path(self.cwd)
        if not self._is_cwd_checked and (note := unreadable_note(cwd, self._hive)):
            self._send(message_chunk(note))
        self._is_cwd_checked = True
        paths = [task.path / OUTCOME_FILES[task.state.value] for task in tasks[-_MAX_EARLIER:]]
        earlier = [f"`{layout.relative(path)}`" for path in paths]
        earlier_note = f"> Earlier in this conversation: {', '.join(earlier)}" if earlier else ""
        text = "\n\n".join(filter(None, (prompt.text.strip(), place_note(cwd, self._hive), earlier_note)))
        mark = {SESSION: {"id": self.id, "cwd": self.cwd, "at": datetime.now(UTC).isoformat()}}
        self._follow(self._hive.tasks.add(text, attachments=prompt.attachments, kept=mark), TaskUpdates(self._hive))
        ring_all(self._hive)

    def _add_to_task(self, task: Task, prompt: Prompt) -> None:
        if task.id != self.task_id:  # it comes from another editor with this session
            self.open([task], replay=True)
        paths = [f"`{path}`" for path in self._save_attachments(task, prompt)]
        text = "\n\n".join(filter(None, (prompt.text.strip(), f"Attached: {', '.join(paths)}" if paths else "")))
        question = question_of(self._hive, task)
        if question is not None and question.letter_id is not None:
            reply(self._hive, question.letter_id, text)
        else:
            key = f"{self.id}.{os.urandom(4).hex()}"
            self._updates.own_keys.add(key)
            self._hive.tasks.say(task.id, text, key=key)
        self._withdraw_permission()

    def _save_attachments(self, task: Task, prompt: Prompt) -> Iterator[str]:
        for attachment in prompt.attachments:
            name, content = attachment if isinstance(attachment, tuple) else (attachment.name, attachment.read_bytes())
            task.files.mkdir(exist_ok=True)
            path = task.files / free_name(name, set(os.listdir(task.files)).__contains__)
            write(path, content)
            yield self._hive.layout.relative(path)

    def cancel(self) -> None:
        """Cancel the task at the next refresh if a prompt's turn is open. Without an open turn do nothing: the editor only shows
        the task, which goes on."""
        self._is_cancelled = bool(self.prompts)

    def answer(self, response: Response) -> None:
        """Act on the person's choice. Ignore a response to another session's question, or to a question that is no longer
        open."""
        if self._permission is None or response.id != self._permission[0]:
            return
        question, self._permission = self._permission[1], None
        outcome = response.result.get("outcome") if isinstance(response.result, dict) else None
        fields = outcome if isinstance(outcome, dict) else {}
        if fields.get("outcome") == "cancelled":  # as the whole turn is
            return
        choice = next((choice for choice in question.choices if choice.name == fields.get("optionId")), None)
        if choice is None or choice.act is None:
            self._ask_in_words(question)
            return
        try:
            choice.act()
        except (HivemindError, OSError) as error:
            self._send(message_chunk(f"Not done: {error}"))
            self._end_turn()

    # What the task does

    def open(self, tasks: list[Task], *, replay: bool) -> None:
        """Follow the open task among the session's `tasks`. With `replay`, first send what has happened in all of them."""
        self._task_ids.update(task.id for task in tasks)
        for task in tasks:
            updates = TaskUpdates(self._hive)
            trail = [message_chunk(task.text, "user_message"), *updates.read(task)]
            for update in trail if replay else ():
                self._send(update)
            if not _is_over(task):
                self._follow(task.id, updates)
            elif replay:
                self._send_end(task)

    def _follow(self, task_id: str, updates: TaskUpdates) -> None:
        self.task_id, self._updates = task_id, updates
        self._task_ids.add(task_id)
        self._question = self._obstacle = self._permission = None
        self._is_cancelled = False

    def refresh(self) -> None:
        """Send the news about the followed task, and end the turn if the task is over or needs the person."""
        if self.task_id is None:
            return
        if self._is_cancelled:
            with suppress(UserError):  # it is being moved: the next change brings us here again
                self._hive.tasks.cancel(self.task_id, reason="Stopped in the editor.")
        try:
            task = self._hive.tasks.get(self.task_id)
        except UserError as error:
            if not self._hive.tasks.inbox.has_id(self.task_id) or self._hive.tasks.listing.outcome(self.task_id):
                self._send(message_chunk(str(error)))
                self._end_turn()
                self.task_id = None
            return
        for update in self._updates.read(task):
            self._send(update)
        if _is_over(task):
            self._send_end(task)
            self._end_turn("cancelled" if self._is_cancelled and task.state is TaskState.FAILED else "end_turn")
            self.task_id = self._permission = None
            return
        obstacle = obstacle_of(self._hive, task)
        if obstacle is not None and obstacle != self._obstacle:
            self._send(message_chunk(obstacle))
        self._obstacle = obstacle
        self._show_question(question_of(self._hive, task) if task.state is TaskState.ACTIVE else None)

    def _send_end(self, task: Task) -> None:
        text = read_outcome(task.path) or ""
        if task.state is TaskState.FAILED and self._is_cancelled:
            text = f"Stopped: the task is cancelled. `hivemind task retry {task.id}` begins it again; or write here how to go on."
        elif task.state is TaskState.FAILED:
            remedy = f"`hivemind task retry {task.id}` tries it again; or write here how to go on."
            text = f"The task has failed.\n\n{text.rstrip()}\n\n{remedy}"
        for update in outcome_updates(self._hive, text):
            self._send(update)

    def _show_question(self, question: Question | None) -> None:
        """Ask the person a question, if it is new: by the editor's dialog if it has choices and a turn is open, else in words.
        With None, withdraw the last question."""
        if question is not None and self._question is not None and question.key == self._question.key:
            return
        self._withdraw_permission()
        self._question = question
        if question is None:
            return
        if not (question.choices and self.prompts):
            self._ask_in_words(question)
            return
        options = [{"optionId": choice.name, "name": choice.name, "kind": choice.kind} for choice in question.choices]
        call = {
            "toolCallId": f"{self.task_id}/question/{question.key}",
            "title": question.text.partition("\n")[0],
            "kind": "other",
            "status": "pending",
            "content": [{"type": "content", "content": {"type": "text", "text": question.text}}],
        }
        fields = {"sessionId": self.id, "toolCall": call, "options": options}
        self._permission = self._connection.request("session/request_permission", fields), question

    def _ask_in_words(self, question: Question) -> None:
        words = "Your next message answers it." if question.letter_id else "Your next message goes to its agent."
        self._send(message_chunk(f"{question.text}\n\n{words}"))
        self._end_turn()

    def _withdraw_permission(self) -> None:
        if self._permission is not None:
            self._connection.notify("$/cancel_request", {"requestId": self._permission[0]})
            self._permission = None

    def _send(self, update: Update) -> None:
        self._connection.notify("session/update", {"sessionId": self.id, "update": update})

    def _end_turn(self, stop_reason: str = "end_turn") -> None:
        prompts, self.prompts = self.prompts, []
        for request in prompts:
            self._connection.respond(request, {"stopReason": stop_reason})


def _is_over(task: Task) -> bool:
    return task.state in (TaskState.DONE, TaskState.FAILED)
