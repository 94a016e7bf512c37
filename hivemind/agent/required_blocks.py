"""What stands in every context of a task, whatever else does: its text, its steps, its conversation, each in its share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hivemind.agent.agenda import agenda, still_to_do
from hivemind.memory import MemoryType, Priority, TaskMemoryBlock, WorkingMemoryManager
from hivemind.memory.excerpt import excerpt
from hivemind.memory.weighing import Weigher
from hivemind.taskrun.conversation import Shown, TaskConversation
from hivemind.taskrun.focus import Focus

__all__ = ["Essentials", "forget_others", "place_essentials"]

CONVERSATION, STEPS, TEXT = 0.45, 0.12, 0.18  # of the room, at most; the text gets what the others leave of their sum
_ROUNDING = 8  # tokens by which the parts of an entry may add up to more than they count alone
_OF_ONE_TASK = ("conversation_context", "steps", "view")


@dataclass(frozen=True, slots=True)
class Essentials:
    """What of them stands in a context, for the log.

    `text` is the form of the task's text: full, excerpt, or selected where it took its chance; `steps` are the positions
    of those still to do.
    """

    text: str
    steps: str
    conversation: Shown | None

    def as_dict(self) -> dict[str, Any]:
        told = None if self.conversation is None else self.conversation.as_dict()
        return {"text": self.text, "steps": self.steps, "conversation": told}


def forget_others(memory: WorkingMemoryManager, focus: Focus) -> None:
    """Take away what earlier turns have derived about other tasks and messages."""
    for block in memory.blocks_by_type(MemoryType.CONTEXT):
        if getattr(block, "context_type", None) in _OF_ONE_TASK and not block.id.endswith(f":{focus.id}"):
            memory.remove_memory(block.id)


def place_essentials(
    memory: WorkingMemoryManager,
    focus: Focus,
    conversation: TaskConversation,
    room: int,
    weigher: Weigher,
    where: str,
) -> Essentials:
    """Put them into working memory, as CRITICAL blocks that have at most three quarters of `room` tokens together.

    A text that is longer is excerpted, and names the file `where` the whole of it is. What does not fit even so is left
    to be selected like anything else. Raises Parking if what is to be folded is in another agent's hands.
    """
    work, task = focus.work, focus.id
    assert work is not None
    steps = work.steps()
    told = conversation.block(task, int(room * CONVERSATION))
    plan = agenda(task, steps, focus.step.id if focus.step else None, int(room * STEPS), weigher)
    left = int(room * (CONVERSATION + STEPS + TEXT))
    for block in (told[0] if told else None, plan):
        if block is not None:
            memory.add_memory(block)
            left -= weigher.tokens(block)
    text = memory.get(f"task:{task}")
    assert isinstance(text, TaskMemoryBlock)
    form = _fit(text, left, weigher, where)
    return Essentials(form, still_to_do(steps), told[1] if told else None)


def _fit(block: TaskMemoryBlock, room: int, weigher: Weigher, where: str) -> str:
    """Make the task's block CRITICAL if it, or an excerpt of its text, has at most `room` tokens; gives its form."""
    text, form = block.description, "full"
    if weigher.tokens(block) > room:
        form = "excerpt"
        block.metadata["whole"] = where
        block.description = ""
        rest = room - weigher.tokens(block) - _ROUNDING
        block.description = excerpt(text, rest, lambda part: weigher.count(json.dumps(part))) if rest > 0 else text
    if weigher.tokens(block) > room:
        del block.metadata["whole"]
        return "selected"
    block.priority = Priority.CRITICAL
    return form
