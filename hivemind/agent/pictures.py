"""The pictures attached to letters and tasks, for a mind that takes pictures."""

from __future__ import annotations

from hivemind.agent.metering import MeteredMind
from hivemind.layout import Layout
from hivemind.mail import Message
from hivemind.minds.pictures import PICTURE_TOKENS, describe_picture, save_picture
from hivemind.tasks import Task

_PER_LETTER = 4


class Pictures:
    """Turns attached pictures into parts of messages: none for a mind that takes no pictures."""

    def __init__(self, layout: Layout, name: str, mind: MeteredMind) -> None:
        self._root, self._folder, self._mind = layout.root, layout.agent_state(name) / "pictures", mind

    def of_letter(self, message: Message) -> list[dict[str, str]]:
        """Save the pictures of a letter to files, because the letter may be deleted, and return them as message parts."""
        attachments = message.attachments[:_PER_LETTER] if self._mind.takes_pictures else ()
        parts = (save_picture(self._root, self._folder, attachment.content) for attachment in attachments)
        return [part for part in parts if part is not None]

    def of_task(self, task: Task, room: int) -> list[dict[str, str]]:
        """Return as many pictures of a task as fit into half of `room` tokens, as message parts."""
        attachments = task.attachments if self._mind.takes_pictures else ()
        parts = (describe_picture(self._root, path) for path in attachments)
        return [part for part in parts if part is not None][: room // (2 * PICTURE_TOKENS)]
