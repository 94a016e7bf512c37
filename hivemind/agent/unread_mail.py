"""An agent's mail, from the intake of each letter until it is answered, read or given up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from hivemind.boundary import Unreadable
from hivemind.errors import UserError, is_disk_full
from hivemind.layout import HUMAN
from hivemind.mail import Intake, Message
from hivemind.minds import Turn
from hivemind.presence.parts import Parts
from hivemind.taskrun.waits import ParkedRest, disk_full_parking

MAX_TURNS = 20
"""The turns that one letter may take. After these turns it is given up."""
_ANSWERS = frozenset({"check_citations", "reply_mail"})
_BATCH = 20
_MAX_WAITING = 1000  # open letters in memory: an answer behind a usual backlog is still delivered
_MAX_DEATHS = 5  # of processes in turns about one letter; other kills do not count


@dataclass(slots=True)
class _OpenLetter:
    """An open letter: the id of the task that waited for it (or None), whether it needs a turn of the mind, and the number of its
    turns so far."""

    message: Message
    awaited_by: str | None = None
    needs_turn: bool = False
    turns: int = 0


class UnreadMail:
    """One agent's letters, in the order of their turns.

    A letter is open until it is answered, or until the mind makes no further calls. After three problems, twenty turns, or five
    turns in which the process died, the hive gives it up: it tells the sender, and moves the letter to `.Dead` with a file that
    says why.
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
        """Return True if the letter is open."""
        return message.key in self._open_letters

    def __len__(self) -> int:
        return len(self._open_letters)

    @property
    def unsettled(self) -> int:
        """The number of mail files that are still being written."""
        return self._intake.unsettled_count

    def sense(self, deliver: Callable[[Message], str | None]) -> None:
        """Take in new letters. `deliver` passes each to the tasks that wait for it, and returns the id of one, or None."""
        for message in (
            self._intake.new_messages(_BATCH, self._open_letters) if len(self._open_letters) < _MAX_WAITING else ()
        ):
            if self._policy != "answer" and not self._mail.is_known_sender(message.sender):
                self._refuse(message)
                continue
            self._open_letters[message.key] = _OpenLetter(message)
            self._open_letters[message.key].awaited_by = deliver(message)

    def _refuse(self, message: Message) -> None:
        """Bounce a letter from an unknown sender, or copy it to the operator, as hive.yaml says. The mind does not see it."""
        try:
            if self._policy == "bounce":
                self._intake.give_up(message)
            else:
                self._mail.copy_to(HUMAN, message)
                self._intake.mark_taken(message)
        except FileNotFoundError:  # a mail program is moving it: the next look finds it
            return
        except (OSError, UserError) as error:
            if not is_disk_full(error):
                raise
            self.rest = ParkedRest.of(disk_full_parking(), self.rest)

    def first(self, *, needs_turn: bool) -> Message | None:
        """Begin a turn and return its letter: the next that needs a turn of the mind or, without `needs_turn`, the next new one.

        Return None without an open letter, or while mail is parked because the mind is not available. The turn lasts until
        `end_turn`, `count_problem`, `mark_for_turn` or the next call of `first`. If the process dies during the turn, this is
        counted.
        """
        self._turn.close()
        while self.rest is None or self.rest.is_over:
            letters = (letter for letter in self._open_letters.values() if letter.needs_turn == needs_turn)
            message = next((letter.message for letter in letters), None)
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
        """Record that a new letter needs a turn."""
        self._turn.close()
        self._open_letters[message.key].needs_turn = True

    def open_messages(self) -> list[Message]:
        """Return the open letters, oldest first."""
        return [letter.message for letter in self._open_letters.values()]

    def is_awaited(self, message: Message) -> bool:
        return message in self and self._open_letters[message.key].awaited_by is not None

    def task_of(self, message: Message) -> str | None:
        """Return the id of the task that waited for an open letter, else of the task that the letter names, or None."""
        return self._open_letters[message.key].awaited_by or message.task

    def end_turn(self, message: Message, turn: Turn) -> None:
        """Apply the consequences of a turn about a letter."""
        self._turn.close()
        if turn.parking is not None:
            self.rest = ParkedRest.of(turn.parking, self.rest)
            return
        self.rest = None
        if turn.problem is None and not turn.results:
            self.close_letter(message)
        elif any(result.call.tool in _ANSWERS and result.ok for result in turn.results):
            self.close_letter(message)  # the sender has the answer; later problems are in the log
        elif turn.problem is not None:
            self.count_problem(message, turn.problem)
        else:
            self._count_turn(message, turn)

    def count_problem(self, message: Message, reason: str) -> None:
        """Count a problem of a letter and move it to the end of the queue. After the third problem it goes to `.Dead`."""
        self._turn.close()
        is_dead = self._intake.count_failure(message, reason)
        open_letter = self._open_letters.pop(message.key, None)
        if not is_dead:
            self._open_letters[message.key] = open_letter or _OpenLetter(message)

    def close(self) -> None:
        self._turn.close()
        self._crashes.close()

    def close_letter(self, message: Message) -> None:
        self._turn.close()
        self._intake.mark_taken(message)
        del self._open_letters[message.key]

    def _count_turn(self, message: Message, turn: Turn) -> None:
        self._open_letters[message.key].turns += 1
        if self._open_letters[message.key].turns >= MAX_TURNS:
            last = turn.results[-1]
            reason = "" if last.ok else f"; its last call failed: {last.problem}"
            self._give_up(message, f"its mind had {MAX_TURNS} turns for it and did not answer{reason}")

    def _give_up(self, message: Message, reason: str) -> None:
        self._intake.give_up(message, reason)
        del self._open_letters[message.key]
