"""A preview of an agent's next opening, and the reasons for its selection (`hivemind context AGENT`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hivemind.agent.opening import material, task_opening
from hivemind.agent.recall import subjects_of
from hivemind.agent.window import ContextWindow
from hivemind.agent.working_memory import SelectedMemory, WorkingMemory
from hivemind.frozen import frozen
from hivemind.minds import ChatMessage
from hivemind.presence.parts import Parts
from hivemind.taskrun.conversation import Conversation
from hivemind.taskrun.focus import Focus, focus_on
from hivemind.taskrun.task_run import TaskRun
from hivemind.tasks import TaskState
from hivemind.tools import allowed_tools


@frozen
class Preview:
    """An opening with its selection. `target` is None if the agent has no task."""

    messages: Sequence[ChatMessage]
    selected: SelectedMemory
    target: dict[str, str] | None
    tokens: int
    budget: int

    def choices(self) -> list[dict[str, Any]]:
        """Return each candidate block with its score and the reason: selected blocks first, each group by falling score."""
        inside = {entry["id"] for entry in self.selected.entries}
        choices = [
            {
                "block": choice.id, "type": choice.block.type.value, "priority": choice.block.priority.name.lower(),
                "in": choice.id in inside, "score": choice.score, "parts": self.selected.explain(choice.block),
                "tokens": choice.tokens, "because": choice.reason,
            }
            for choice in self.selected.selection
        ]  # fmt: skip
        return sorted(choices, key=lambda choice: (not choice["in"], -choice["score"], choice["block"]))


def preview_context(hive: Parts, name: str, task_id: str | None = None) -> Preview:
    """Build the opening of the agent's next epoch from the files on disk, read-only: for a task, by default the one that it
    works on, else the next one that waits.

    Raises UserError if there is no such task.
    """
    config = hive.agents[name]
    memory = WorkingMemory(hive, name, read_only=True)
    run = _next_run(hive, name) if task_id is None else _run(hive, name, task_id)
    focus = Focus("rest") if run is None else focus_on(run, reads=True)
    task = None if run is None else run.task
    talk = Conversation((), lambda *_: None, name)
    window = ContextWindow(hive, name, allowed_tools(config), memory, hive.count_tokens, talk, task)
    room = window.opening_room
    selected = memory.select(focus, [] if run is None else subjects_of(focus), window.selection_room)
    if run is not None:
        text = task_opening(hive, run, config, selected.entries, room)
    else:
        text = "\n\n".join(material(str(entry["id"]), str(entry["content"])) for entry in selected.entries)
    messages = [ChatMessage("system", window.system), *([ChatMessage("user", text)] if text else [])]
    tokens = window.fixed_tokens + hive.count_tokens(text)
    return Preview(messages, selected, None if run is None else focus.target, tokens, window.max_tokens)


def _next_run(hive: Parts, name: str) -> TaskRun | None:
    """Return the task that the agent works on, else the next waiting task that it may claim."""
    summaries = [summary for summary in hive.tasks.list(TaskState.ACTIVE) if summary.owner == name]
    runs = [_run(hive, name, summary.id) for summary in summaries]
    runs = [run for run in runs if run.task.parked is None] or runs
    if not runs:
        readable = [summary.id for summary in hive.tasks.list(TaskState.INBOX) if summary.problem is None]
        waiting = [_run(hive, name, task_id) for task_id in readable]
        role = hive.agents[name].role
        runs = [run for run in waiting if run.task.assignee in (None, name) and run.task.role in (None, role)]
    return min(runs, key=lambda run: (run.task.priority, run.task.id), default=None)


def _run(hive: Parts, name: str, task_id: str) -> TaskRun:
    """Return a task, one that waits in the folder that it will have."""
    task = hive.tasks.get(task_id)
    return TaskRun(
        hive, replace(task, path=hive.layout.active / task.id) if task.state is TaskState.INBOX else task, name
    )
