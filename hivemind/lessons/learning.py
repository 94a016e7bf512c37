"""Learning: what the end of a task adds to the lessons, and which of them its trail contradicts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from hivemind.layout import HUMAN, LANDING
from hivemind.lessons.admission import Candidate, admit, candidate_of, has_proof, places_of, read_candidates
from hivemind.lessons.choice import book_of, edited, is_near, split_places
from hivemind.lessons.evidence import Pair, Trail, read_trail, stands_in, tokens
from hivemind.lessons.record import LessonRecord
from hivemind.presence.parts import Parts
from hivemind.taskrun.project import Project
from hivemind.taskrun.task_run import TaskRun
from hivemind.tasks.folder import ended_folder, open_log


def learn(hive: Parts, work: TaskRun, ask: Callable[[], str] | None) -> None:
    """Learn from a task that has ended: from its commands, from landing's returns, and from the answer of its mind.

    `ask` puts the question to the mind; it is called only if something failed, and once a task. Raises UserError, OSError,
    and what `ask` raises, after all else is learned.
    """
    returns = [addition.text.strip() for addition in work.task.said if addition.by == LANDING]
    if not (returns or work.has_failed_call):
        return
    folder = work.task.path if work.task.path.is_dir() else ended_folder(hive.layout, work.task.id)
    if folder is None:
        return
    records = [*open_log(folder).records()]
    trail = read_trail(records, returns, is_from_operator=work.task.maker == HUMAN)
    if not trail.has_trouble:
        return
    candidates: list[tuple[Candidate, Pair | None]] = [
        (candidate, pair) for pair in trail.pairs() if (candidate := candidate_of(pair)) is not None
    ]
    try:
        if ask is not None and not any(record.get("cause") == "lesson" for record in records):
            answers = read_candidates(ask())  # its words come first, since they may say why
            candidates = [*((candidate, _proof(trail, candidate)) for candidate in answers), *candidates]
    finally:
        _add(hive, work, trail, candidates)


def _proof(trail: Trail, candidate: Candidate) -> Pair | None:
    return trail.proof(candidate.failed, candidate.passed, candidate.changed, candidate.lesson)


def _add(hive: Parts, work: TaskRun, trail: Trail, candidates: Sequence[tuple[Candidate, Pair | None]]) -> None:
    """Admit candidates to the lessons of the task's first root, and retire lessons that the trail contradicts."""
    project = next(iter(work.projects), None)
    book = book_of(hive, None if project is None else project.root)
    if not candidates and not any(_contradiction(record, trail) for record in book.read()):
        return
    instructions = (
        "" if project is None else "\n".join(filter(None, project.instructions(work.task.full_text).values()))
    )
    edits = [*_in_worktree(work, trail.edited_paths)]
    with edited(hive, book, work.agent) as records:
        for record in records:
            if reason := _contradiction(record, trail):
                record.change("retired", f"{reason}, in {work.task.id}")
        for candidate, pair in candidates:
            if pair is not None:
                places = (*candidate.places, *places_of(pair, _named_paths(project, pair), edits))
                places = tuple(dict.fromkeys(places))
                candidate = replace(candidate, places=_widened(records, pair, places, work.task.id))
            previous = [record for record in records if record.is_settled]
            new_record, _ = admit(candidate, pair, trail, work.task.id, previous, instructions)
            if new_record is not None:
                new_record.id = book.new_id(records)
                records.append(new_record)


def _contradiction(record: LessonRecord, trail: Trail) -> str | None:
    """Return how a trail contradicts a lesson of the runtime: the command that failed passes, or the command that passed
    fails and another one passed in its place."""
    if record.state != "live" or record.author != "work" or not record.failed or record.failed == record.passed:
        return None
    runs = [action for action in trail.actions if action.command]
    if any(run.is_ok and tokens(run.command) == tokens(record.failed) for run in runs):
        return f"`{record.failed}` passes now"
    outcomes = {run.is_ok for run in runs if tokens(run.command) == tokens(record.passed)}
    replacement = next((run for run in runs if run.is_ok and stands_in(run.command, record.failed)), None)
    if outcomes != {False} or replacement is None:
        return None
    return f"`{record.passed}` fails now, and `{replacement.command}` passes"


def _widened(records: Iterable[LessonRecord], pair: Pair, places: tuple[str, ...], task: str) -> tuple[str, ...]:
    """Return the places of a pair: if it came in another folder in an earlier task, only its program. The lesson of then is
    retired."""
    folders, programs = split_places(places)
    for record in records:
        is_own = record.state == "live" and record.author == "work" and record.task != task
        if is_own and has_proof(record, pair):
            known_folders, _ = split_places(record.places)
            if (
                folders
                and known_folders
                and not any(is_near(folder, known_folder) for folder in folders for known_folder in known_folders)
            ):
                record.change("retired", "it came again in another folder, and now holds in both")
                return programs
    return places


def _named_paths(project: Project | None, pair: Pair) -> list[str]:
    """Return the paths of the project that a pair's commands name, also as the names of modules."""
    text = f"{pair.failed.command} {pair.passed.command}"
    return [] if project is None else project.named_paths(f"{text} {text.replace('.', '/')}")


def _in_worktree(work: TaskRun, paths: Iterable[str]) -> Iterable[str]:
    """Yield the paths relative to the task's worktree."""
    folders = [worktree.path for worktree in work.worktrees.recorded]
    for path in paths:
        folder = next((folder for folder in folders if folder in (folder / path).parents and os.path.isabs(path)), None)
        yield os.path.relpath(path, folder) if folder is not None else path
