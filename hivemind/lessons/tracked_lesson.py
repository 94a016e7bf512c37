"""A lesson with its record: where it comes from, its state, and in which tasks it was shown, used or wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from hivemind.lessons.lesson_file import MAX_CHARS, Lesson

LessonState = Literal["live", "foreign", "waiting", "retired"]


@dataclass
class TrackedLesson:
    """A lesson with its record. `author` is `work` until a person writes, changes or adopts it.

    `state`: a `live` lesson is shown to agents, a `waiting` one needs a person, a `retired` one is kept for its reason (the last
    line of `history`), a `foreign` one is offered by the linked hive `hive`. `failed` and `passed` are the commands that prove
    it. `shown` counts the tasks to which it was shown; `tasks` are the last of these. `unused` counts such tasks since the last
    use. `used_in` and `wrong_in` are the tasks that named it as used or as wrong. `proposed` is the line that was proposed to
    AGENTS.md.
    """

    id: str
    text: str
    places: tuple[str, ...] = ()
    evidence: str = ""
    author: Literal["work", "person"] = "work"
    state: LessonState = "live"
    task: str = ""
    failed: str = ""
    passed: str = ""
    shown: int = 0
    unused: int = 0
    tasks: list[str] = field(default_factory=list)
    used_in: list[str] = field(default_factory=list)
    wrong_in: list[str] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    is_in_file: bool = False
    is_proposed: bool = False
    proposed: str = ""
    hive: str = ""

    @property
    def lesson(self) -> Lesson:
        return Lesson(self.text, tuple(self.places), self.evidence)

    @property
    def has_new_proposal(self) -> bool:
        """True if the lesson was proposed to AGENTS.md and its line would be different now."""
        return self.is_proposed and (self.proposed or self.text) != self.proposal.line

    @property
    def proposal(self) -> Lesson:
        return Lesson(self.text, tuple(self.places))

    @property
    def source(self) -> str:
        """`person`, or `work` for a lesson of agents. For a lesson of a linked hive that no person here has adopted, it is `hive`
        and that hive's name."""
        return f"hive {self.hive}" if self.hive and self.author == "work" else self.author

    @property
    def helped(self) -> int:
        return len(self.used_in)

    @property
    def wrong(self) -> int:
        return len(self.wrong_in)

    @property
    def reason(self) -> str:
        """The reason of the last change; "" without any."""
        return self.history[-1].partition(": ")[2] if self.history else ""

    @property
    def is_visible(self) -> bool:
        """True if agents may be shown the lesson."""
        return self.state in ("live", "foreign") and len(self.text) <= MAX_CHARS

    @property
    def is_settled(self) -> bool:
        """True if the same lesson is not learned again: it is live or waiting, or a person has decided on it."""
        return self.state in ("live", "waiting") or self.author == "person"

    def change(self, state: LessonState, reason: str) -> None:
        """Change the state, with the reason in the history."""
        self.state = state
        self.history.append(f"{datetime.now(UTC):%Y-%m-%d}: {reason}")
