"""The conversations of one agent."""

from __future__ import annotations

import os

from hivemind.fs import make_folder
from hivemind.presence.parts import Parts
from hivemind.taskrun.conversation import Conversation, open_thread
from hivemind.taskrun.focus import Focus


class Conversations:
    """One agent's conversations. A task's conversation belongs to its run; a thread's is kept here while a letter is
    open."""

    def __init__(self, hive: Parts, name: str) -> None:
        self._layout, self._durable, self._name = hive.layout, hive.config.durable, name
        self._threads: dict[str, Conversation] = {}

    def about(self, focus: Focus) -> Conversation:
        """Return the conversation about the task, or the letter's thread, in focus."""
        if focus.work is not None:
            conversation: Conversation = focus.work.conversation
            return conversation
        assert focus.message is not None
        thread = focus.message.thread_id
        if thread not in self._threads:
            self._threads[thread] = self._open(thread)
        return self._threads[thread]

    def forget(self, thread: str) -> None:
        """Close the conversation of a thread. The thread's next letter reads the file again."""
        self._threads.pop(thread, None)

    def _open(self, thread: str) -> Conversation:
        """Read the conversation of a thread, which is named by the Message-ID of its first letter."""
        log = open_thread(self._layout, self._name, thread, durable=self._durable)
        make_folder(os.path.dirname(log.path), durable=self._durable)
        return Conversation(
            log.records(),
            lambda records, durable: log.append(*records, sync_now=durable, separate_lines=True),
            self._name,
        )
