"""Choice: which lessons a task is shown, and how often lessons were shown, used and found wrong."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hivemind.config import AgentConfig
from hivemind.errors import UserError
from hivemind.lessons import retirement
from hivemind.lessons.lesson_file import Lesson
from hivemind.lessons.record import GENERAL, LessonBook
from hivemind.lessons.tracked_lesson import TrackedLesson
from hivemind.memory import KnowledgeMemoryBlock, MemoryBlock
from hivemind.presence.parts import Parts
from hivemind.taskrun.target_branch import root_folder
from hivemind.taskrun.task_run import TaskRun

MAX_SHOWN = 5


def root_name(hive: Parts, root: Path | None) -> str:
    """Return the name of a root's lesson file: the root's folder name, with a digest if that name is not unique or not printable.
    Return the name for general lessons if `root` is None."""
    if root is None:
        return GENERAL
    names = [GENERAL, "readme", *(other.name.lower() for other in hive.config.worktree_roots(hive.layout))]
    is_clear = names.count(root.name.lower()) == 1 and root.name.isprintable()
    return root.name if is_clear else root_folder(hive.layout, root).name


def book_of(hive: Parts, root: Path | None) -> LessonBook:
    """Return the lessons of a root; the general lessons for None."""
    trusts_file = not any(config.may_write_unseen for config in hive.agents.values())
    return LessonBook(hive.layout, root_name(hive, root), trusts_file=trusts_file)


def all_books(hive: Parts) -> list[LessonBook]:
    return [book_of(hive, root) for root in (*hive.config.worktree_roots(hive.layout), None)]


@contextmanager
def edited(hive: Parts, book: LessonBook, agent: str | None = None) -> Iterator[list[TrackedLesson]]:
    """Yield the lessons of a book, so that the block can change them. After the block, each change of a lesson's state becomes an
    event of the journal, with the reason and the `agent`."""
    states = {record.id: record.state for record in book.saved()}
    with book.edit() as records:
        yield records
    foreign_ids = {lesson_id for lesson_id, state in states.items() if state == "foreign"}
    for lesson_id in sorted(foreign_ids - {record.id for record in records}):
        hive.journal.append("lesson.withdrawn", lesson=lesson_id)
    words = {"live": "adopted", "foreign": "offered", "waiting": "waits", "retired": "retired"}
    for record in records:
        if states.get(record.id) != record.state:
            is_new = record.id not in states and record.author == "work" and record.state == "live"
            kind = "learned" if is_new else words[record.state]
            fields = {"lesson": record.id, "text": record.text, "reason": record.reason, "agent_id": agent}
            hive.journal.append(f"lesson.{kind}", **fields, **({"task_id": record.task} if is_new else {}))


def choose(
    hive: Parts, work: TaskRun, config: AgentConfig, factor: Callable[[MemoryBlock], float] = lambda _: 1.0
) -> list[TrackedLesson]:
    """Return at most five lessons whose places the task names. Lessons with the highest relevance (`factor`) come first, then the
    most helpful; lessons of other hives come last."""
    if hive.config.lessons == "off":
        return []
    text = work.task.full_text or work.task.title
    lessons = list[TrackedLesson]()
    for root in (*hive.config.worktree_roots(hive.layout), None):
        records = [record for record in book_of(hive, root).read() if record.is_visible]
        if records:
            projects = [project for project in work.projects if root in (None, project.root)]
            named = [path for project in projects for path in project.named_paths(text)]
            # a word that is also the name of a folder counts only in a text that names nothing else
            paths = [path for path in named if "/" in path or "." in path or f"{path}/" in text] or named
            instructions = "\n".join(file or "" for project in projects for file in project.instructions(text).values())
            near_records = [record for record in records if _holds(record, text, paths, config)]
            lessons += [record for record in near_records if not (record.is_proposed and record.text in instructions)]
    lessons.sort(
        key=lambda record: (record.state == "foreign", -factor(lesson_block(record)), record.wrong - record.helped)
    )
    return lessons[:MAX_SHOWN]


def _holds(record: TrackedLesson, text: str, paths: Sequence[str], config: AgentConfig) -> bool:
    places = [place.strip("/").removeprefix("./") for place in record.places if "/" in place or "." in place]
    programs = [place for place in record.places if "/" not in place and "." not in place]
    is_close = any(
        f"{path}/".startswith(f"{place}/") or place.startswith(f"{path}/") for place in places for path in paths
    )
    is_named = any(posixpath.basename(place).lower() in text.lower().split() for place in places if place)
    runs_any = not programs or config.shell or config.runs_program or config.outside
    can_run = runs_any or any(program in config.commands or program in text.split() for program in programs)
    return (not places or is_close or is_named) and can_run


def lesson_block(record: TrackedLesson) -> KnowledgeMemoryBlock:
    """Return a lesson as a block of the memory."""
    return KnowledgeMemoryBlock(topic=record.text, location=f"lesson:{record.id}")


def lesson_line(record: TrackedLesson) -> str:
    """Return a lesson as a line for an agent: its id, by which the agent can refer to it, and its text."""
    source = f", from {record.source}, not adopted" if record.state == "foreign" else ""
    source += ", changed since AGENTS.md" if record.has_new_proposal else ""
    return f"{record.id}{source}: {record.text}"


def change_lessons(hive: Parts, ids: Sequence[str], change: Callable[[TrackedLesson], object]) -> list[str]:
    """Call `change` with each lesson of these ids, and save the result. Return the unknown ids."""
    unknown = dict.fromkeys(ids)
    for book in all_books(hive):
        if any(lesson_id.rpartition("-")[0] == book.name for lesson_id in ids):
            with edited(hive, book) as records:
                for record in records:
                    if record.id in unknown:
                        change(record)
                        del unknown[record.id]
    return [*unknown]


def count_shown(hive: Parts, work: TaskRun, lessons: Sequence[TrackedLesson]) -> None:
    """Count the lessons that a task was shown."""
    change_lessons(hive, [record.id for record in lessons], lambda record: retirement.count_shown(record, work.task.id))


def count_use(hive: Parts, work: TaskRun, used: Sequence[str], wrong: Sequence[str]) -> list[str]:
    """Count the lessons that an agent names as used or wrong, each at most once per task. Return the ids that do not exist, or
    that the task was not shown."""
    task, unseen = work.task.id, list[str]()

    def count(record: TrackedLesson) -> None:
        if task not in record.tasks:
            unseen.append(record.id)
        elif record.id in wrong and task not in record.wrong_in:
            retirement.count_wrong(record, task)
        elif record.id in used and task not in record.used_in:
            record.used_in, record.unused = [*record.used_in, task], 0

    return [*change_lessons(hive, [*used, *wrong], count), *unseen]


def decide(hive: Parts, ids: Sequence[str], *, adopts: bool) -> None:
    """Record a person's decision on lessons: adopt them, which makes them live, or retire them. Raises UserError for unknown
    ids."""

    def change(record: TrackedLesson) -> None:
        record.author = "person"
        record.change("live" if adopts else "retired", "a person adopted it" if adopts else "a person deleted it")

    if unknown := change_lessons(hive, ids, change):
        raise no_lesson(unknown)


def rewrite(hive: Parts, lesson_id: str, text: str) -> str:
    """Retire a lesson, and add a person's text in its place. Return the new lesson's id. Raises UserError."""
    lesson = Lesson.parse(text)
    if not lesson.text:
        raise UserError("the lesson is empty", location=lesson_id, remedy="write a sentence")
    for book in all_books(hive):
        with edited(hive, book) as records:
            for record in records:
                if record.id == lesson_id:
                    new_id = book.new_id(records)
                    new_record = TrackedLesson(new_id, lesson.text, lesson.places or record.places, author="person")
                    new_record.change("live", f"a person wrote it in place of {lesson_id}")
                    record.author = "person"
                    record.change("retired", f"a person changed it: see {new_id}")
                    records.append(new_record)
                    return new_id
    raise no_lesson([lesson_id])


def no_lesson(ids: Sequence[str]) -> UserError:
    return UserError(f"there is no lesson {', '.join(ids)}", remedy="hivemind lessons --all lists them")
