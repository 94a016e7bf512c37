"""A preview of an agent's next opening, and the reasons for its selection (`hivemind context AGENT`)."""

from __future__ import annotations

from collections.abc import Sequence
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


def preview_context(hive: Parts, name: str) -> Preview:
    """Build the opening of the agent's next epoch from the files on disk, read-only."""
    config = hive.agents[name]
    memory = WorkingMemory(hive, name, read_only=True)
    works = [
        TaskRun(hive, hive.tasks.get(summary.id), name)
        for summary in hive.tasks.list(TaskState.ACTIVE)
        if summary.owner == name
    ]
    ready = [work for work in works if work.task.parked is None] or works
    run = min(ready, key=lambda work: (work.task.priority, work.task.id)) if ready else None
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
