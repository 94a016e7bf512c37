"""The pictures that a mind is shown: those attached to letters and tasks."""

from __future__ import annotations

from hivemind.agent.metering import MeteredMind
from hivemind.layout import Layout
from hivemind.mail import Message
from hivemind.minds.pictures import PICTURE_TOKENS, describe_picture, save_picture
from hivemind.tasks import Task

_PER_LETTER = 4


class Pictures:
    """Attachments as parts of messages. Empty for a mind that takes no pictures."""

    def __init__(self, layout: Layout, name: str, mind: MeteredMind) -> None:
        self._root, self._folder, self._mind = layout.root, layout.agent_state(name) / "pictures", mind

    def of_letter(self, message: Message) -> list[dict[str, str]]:
        """Save the pictures of a letter, since the letter may be deleted, and return them."""
        attachments = message.attachments[:_PER_LETTER] if self._mind.takes_pictures else ()
        parts = (save_picture(self._root, self._folder, attachment.content) for attachment in attachments)
        return [part for part in parts if part is not None]

    def of_task(self, task: Task, room: int) -> list[dict[str, str]]:
        """Return as many pictures of a task as fit into half of `room` tokens."""
        attachments = task.attachments if self._mind.takes_pictures else ()
        parts = (describe_picture(self._root, path) for path in attachments)
        return [part for part in parts if part is not None][: room // (2 * PICTURE_TOKENS)]
