"""A preview of an agent's next opening, and the reasons for its selection (`hivemind context AGENT`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from hivemind.agent.knowledge import confidence_of
from hivemind.agent.opening import material, task_opening
from hivemind.agent.recall import subjects_of
from hivemind.agent.window import ContextWindow
from hivemind.agent.working_memory import SelectedMemory, WorkingMemory
from hivemind.frozen import frozen
from hivemind.lessons.choice import choose, lesson_block
from hivemind.lessons.tracked_lesson import TrackedLesson
from hivemind.minds import ChatMessage
from hivemind.presence.parts import Parts
from hivemind.taskrun.conversation import Conversation
from hivemind.taskrun.focus import Focus, focus_on
from hivemind.taskrun.task_run import TaskRun
from hivemind.tasks import TaskState
from hivemind.tools import allowed_tools


@frozen
class Preview:
    """A preview of an opening, with its selection and its lessons. `target` is the task that it is about; None if the agent has
    no task."""

    messages: Sequence[ChatMessage]
    selected: SelectedMemory
    target: dict[str, str] | None
    tokens: int
    budget: int
    lessons: Sequence[TrackedLesson] = ()

    def choices(self) -> list[dict[str, Any]]:
        """Return the candidate blocks with score, reason and chance of use. The selected ones come first, then the others, each
        group by falling score."""
        return [
            {
                "block": choice.id, "type": choice.block.type.value, "priority": choice.block.priority.name.lower(),
                "in": is_in, "score": choice.score, "parts": self.selected.explain(choice.block),
                "tokens": choice.tokens, "because": choice.reason, "use": self.selected.relevance.explain(choice.block),
            }
            for is_in, choice in self.selected.ranking
        ]  # fmt: skip

    def use_lines(self) -> Iterator[str]:
        """Yield a line with the chance of use for each lesson, and for each block that was almost relevant. Then yield a line on
        what the hive has learned about use."""
        relevance = self.selected.relevance
        for lesson in self.lessons:
            yield ": ".join(filter(None, (f"lesson {lesson.id}", relevance.explain(lesson_block(lesson)))))
        for block in self.selected.nearest:
            name = f"not shown: {block.id}, confidence {confidence_of(block).value:.2f}"
            yield ": ".join(filter(None, (name, relevance.explain(block))))
        yield relevance.state


def preview_context(hive: Parts, name: str, task_id: str | None = None) -> Preview:
    """Return the opening of the agent's next epoch, built from the files on disk; write nothing. With `task_id=None` it is about
    the task that the agent works on, or else about the next waiting task.

    Raises UserError if the task does not exist.
    """
    config = hive.agents[name]
    memory = WorkingMemory(hive, name, read_only=True)
    next_id = _next_task(hive, name) if task_id is None else task_id
    run = None if next_id is None else _run(hive, name, next_id)
    focus = Focus("rest") if run is None else focus_on(run, reads=True)
    task = None if run is None else run.task
    talk = Conversation((), lambda *_: None, name)
    window = ContextWindow(hive, name, allowed_tools(config), memory, hive.count_tokens, talk, task)
    room = window.opening_room
    selected = memory.select(focus, [] if run is None else subjects_of(focus), window.selection_room)
    lessons = list[TrackedLesson]()
    if run is not None:
        lessons = choose(hive, run, config, selected.relevance.factor)
        text = task_opening(hive, run, config, selected.entries, room, lessons=lessons)
    else:
        text = "\n\n".join(material(str(entry["id"]), str(entry["content"])) for entry in selected.entries)
    messages = [ChatMessage("system", window.system), *([ChatMessage("user", text)] if text else [])]
    tokens = window.fixed_tokens + hive.count_tokens(text)
    return Preview(messages, selected, None if run is None else focus.subject, tokens, window.max_tokens, lessons)


def _next_task(hive: Parts, name: str) -> str | None:
    """Return the id of the task that the agent works on, or else of the next waiting task that it may claim. Return None if there
    is neither."""
    own_tasks = [task for task in hive.tasks.list(TaskState.ACTIVE) if task.owner == name]
    candidates = [task for task in own_tasks if task.parked is None] or own_tasks
    if not candidates:
        waiting_tasks = [task for task in hive.tasks.list(TaskState.INBOX) if task.problem is None]
        names, roles = (None, name), (None, hive.agents[name].role)
        candidates = [task for task in waiting_tasks if task.assignee in names and task.role in roles]
    first = min(candidates, key=lambda task: (task.priority, task.id), default=None)
    return None if first is None else first.id


def _run(hive: Parts, name: str, task_id: str) -> TaskRun:
    """Return the run of a task. A waiting task gets the path that it will have once it is claimed."""
    task = hive.tasks.get(task_id)
    if task.state is TaskState.INBOX:
        task = replace(task, path=hive.layout.active / task.id)
    return TaskRun(hive, task, name)
