"""The retirement of lessons: of lessons that tasks do not use or find wrong and, if there are too many, of the least useful ones.

A lesson that a person has written, changed or adopted is never retired.
"""

from __future__ import annotations

from hivemind.lessons.tracked_lesson import TrackedLesson

MAX_UNUSED, MAX_LIVE, MAX_RETIRED = 50, 40, 200
_MAX_WRONG = 2
_MAX_TASKS = 50  # the tasks that a lesson's record names


def count_shown(lesson: TrackedLesson, task: str) -> None:
    """Count a task that was shown the lesson, once. Retire the lesson after too many of these tasks without use."""
    if task in lesson.tasks:
        return
    lesson.tasks = [*lesson.tasks, task][-_MAX_TASKS:]
    lesson.shown, lesson.unused = lesson.shown + 1, lesson.unused + 1
    if lesson.unused > MAX_UNUSED and lesson.author == "work" and lesson.is_visible:
        lesson.change("retired", f"no use in {MAX_UNUSED} tasks that were shown it")


def count_wrong(lesson: TrackedLesson, task: str) -> None:
    """Count a task that found the lesson wrong. Retire the lesson after the second."""
    lesson.wrong_in.append(task)
    if len(lesson.wrong_in) >= _MAX_WRONG and lesson.author == "work" and lesson.is_visible:
        lesson.change("retired", f"found wrong in {' and '.join(lesson.wrong_in)}")


def retire_surplus(lessons: list[TrackedLesson]) -> None:
    """Retire the least useful live lessons and the oldest waiting ones above `MAX_LIVE`. Remove the oldest retired ones."""
    live = [lesson for lesson in lessons if lesson.state == "live"]
    own_live = [lesson for lesson in live if lesson.author == "work"]
    own_live.sort(key=lambda lesson: (lesson.helped - lesson.wrong, -lesson.unused))
    for lesson in own_live[: max(0, len(live) - MAX_LIVE)]:
        lesson.change("retired", f"more than {MAX_LIVE} lessons, and this one of the least use")
    waiting = [lesson for lesson in lessons if lesson.state == "waiting" and not lesson.is_in_file]
    for lesson in waiting[: max(0, len(waiting) - MAX_LIVE)]:
        lesson.change("retired", f"more than {MAX_LIVE} wait, and this one is the oldest")
    own_retired = [lesson for lesson in lessons if lesson.state == "retired" and lesson.author == "work"]
    for lesson in own_retired[:-MAX_RETIRED]:  # the oldest: an id is never given twice
        if not lesson.is_in_file and not lesson.is_proposed:
            lessons.remove(lesson)
