"""Letters: an agent's mail from when it is taken in until it is answered, read, or put aside."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from hivemind.boundary import Unreadable
from hivemind.errors import UserError, is_disk_full
from hivemind.mail import Intake, Message
from hivemind.minds import Turn
from hivemind.presence.parts import Parts
from hivemind.taskrun.waits import ParkedRest, disk_full_parking

MAX_TURNS = 20
"""Turns that one message may take: a mind that has not answered it by then never will."""
_ANSWERS = frozenset({"check_citations", "reply_mail"})
_BATCH = 20
_MAX_WAITING = (
    1000  # that are not over: an answer behind so many is heard, and a larger backlog is in no process's memory
)
_MAX_DEATHS = 5  # processes that may die in turns about one message; a kill while it waits, or in another turn, is none


@dataclass(slots=True)
class _OpenLetter:
    """A message that is not over: which task waited for it, if one did (`Scheduler.hear`), whether it was found to need turns,
    how many it has had."""

    message: Message
    awaited_by: str | None = None
    needs_turn: bool = False
    turns: int = 0


class UnreadMail:
    """One agent's messages in the order in which it turns to them.

    A message is over when a reply to it was sent, when its mind wants nothing more, or when it lies in `.Dead`: after three
    problems, twenty turns, or five processes that died in a turn about it, with the reason beside it.
    """

    def __init__(self, hive: Parts, name: str) -> None:
        self._intake = Intake(hive.mail, name, hive.layout.agent_state(name))
        self._open_letters: dict[str, _OpenLetter] = {}
        self._turn_label = f"turn of {name} about a letter"
        self._mail, self._policy = hive.mail, hive.config.mail.unknown_sender
        self._crashes = hive.mail.reader.crashes
        self._turn = ExitStack()
        self.rest: ParkedRest | None = None

    def __contains__(self, message: Message) -> bool:
        """Whether it is not over."""
        return message.key in self._open_letters

    def __len__(self) -> int:
        return len(self._open_letters)

    @property
    def unsettled(self) -> int:
        """How many files are still being written."""
        return self._intake.unsettled_count

    def sense(self, deliver: Callable[[Message], str | None]) -> None:
        """Take in what is new; `heard` says of each which task waited for it."""
        for message in (
            self._intake.new_messages(_BATCH, self._open_letters) if len(self._open_letters) < _MAX_WAITING else ()
        ):
            if self._policy != "answer" and not self._mail.is_known_sender(message.sender):
                self._refuse(message)
                continue
            self._open_letters[message.key] = _OpenLetter(message)
            self._open_letters[message.key].awaited_by = deliver(message)

    def _refuse(self, message: Message) -> None:
        """No mind sees a letter from an unknown address, unless hive.yaml says so: it bounces, or a person is shown it."""
        try:
            if self._policy == "bounce":
                self._intake.give_up(message, self._mail.bounce(message))
            else:
                self._mail.copy_to_operator(message)
                self._intake.mark_taken(message)
        except FileNotFoundError:  # a mail program moves it just now: the next look has it
            return
        except (OSError, UserError) as error:
            if not is_disk_full(error):
                raise
            self.rest = ParkedRest.of(disk_full_parking(), self.rest)

    def first(self, *, needs_turn: bool) -> Message | None:
        """The message that is next, of those that need turns or of those that were not looked at yet. None: there is none, or
        the mail rests because what the mind needs is not there.

        A turn about it begins, and lasts until `after`, `failed`, `takes_turn` or the next call: should it kill the process,
        that is counted.
        """
        self._turn.close()
        while self.rest is None or self.rest.is_over:
            message = next(
                (letter.message for letter in self._open_letters.values() if letter.needs_turn == needs_turn), None
            )
            if message is None:
                break
            try:
                self._turn.enter_context(self._crashes.reading(self._turn_label, message.key, max_deaths=_MAX_DEATHS))
            except Unreadable:
                self._give_up(message, f"{_MAX_DEATHS} processes died in a turn about it")
            else:
                return message
        return None

    def mark_for_turn(self, message: Message) -> None:
        """A message was looked at, and needs turns of its own."""
        self._turn.close()
        self._open_letters[message.key].needs_turn = True

    def open_messages(self) -> list[Message]:
        """The messages that are not over, oldest first."""
        return [letter.message for letter in self._open_letters.values()]

    def is_awaited(self, message: Message) -> bool:
        return message in self and self._open_letters[message.key].awaited_by is not None

    def task_of(self, message: Message) -> str | None:
        """The task that waited for a message that is not over, or else the one that it is about."""
        return self._open_letters[message.key].awaited_by or message.task

    def end_turn(self, message: Message, turn: Turn) -> None:
        """Draw the consequences of a turn about a message."""
        self._turn.close()
        if turn.parking is not None:
            self.rest = ParkedRest.of(turn.parking, self.rest)
            return
        self.rest = None
        if turn.problem is None and not turn.results:
            self.close_letter(message)
        elif any(result.call.tool in _ANSWERS and result.ok for result in turn.results):
            self.close_letter(message)  # whoever wrote has the answer; what went wrong after it stands in the log
        elif turn.problem is not None:
            self.count_problem(message, turn.problem)
        else:
            self._count_turn(message)

    def count_problem(self, message: Message, reason: str) -> None:
        """A turn about it went wrong: it goes to the end of the queue, the third time into `.Dead`."""
        self._turn.close()
        is_dead = self._intake.count_failure(message, reason)
        open_letter = self._open_letters.pop(message.key, None)
        if not is_dead:
            self._open_letters[message.key] = open_letter or _OpenLetter(message)

    def close(self) -> None:
        self._turn.close()
        self._crashes.close()

    def close_letter(self, message: Message) -> None:
        """A message that is over."""
        self._turn.close()
        self._intake.mark_taken(message)
        del self._open_letters[message.key]

    def _count_turn(self, message: Message) -> None:
        self._open_letters[message.key].turns += 1
        if self._open_letters[message.key].turns >= MAX_TURNS:
            self._give_up(message, f"its mind had {MAX_TURNS} turns for it and did not answer")

    def _give_up(self, message: Message, reason: str) -> None:
        self._intake.give_up(message, reason)
        del self._open_letters[message.key]
