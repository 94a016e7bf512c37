"""Learning: at the end of a task, add new lessons, and retire lessons that its trail contradicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from hivemind.layout import HUMAN, LANDING
from hivemind.lessons.admission import Candidate, admit, candidate_of, places_of, read_candidates
from hivemind.lessons.choice import book_of, edited
from hivemind.lessons.evidence import Pair, TaskFolders, Trail, read_trail, stands_in, tokens
from hivemind.lessons.tracked_lesson import TrackedLesson
from hivemind.presence.parts import Parts
from hivemind.taskrun.task_run import TaskRun

ProvenCandidate = tuple[Candidate, Pair | None]


def learn(hive: Parts, work: TaskRun, ask: Callable[[], str] | None) -> None:
    """Learn from a task that has ended: from its commands, from landing's returns, and from its mind's answer.

    `ask` asks the mind and returns its answer; None if the mind cannot be asked. It is called at most once per task, and only if
    something failed. Raises UserError, OSError, and (after all else is learned) what `ask` raises.
    """
    returns = [addition.text.strip() for addition in work.task.said if addition.by == LANDING]
    if not (returns or work.has_failed_call):
        return
    records = work.records()
    paths = {worktree.root: worktree.path for worktree in work.worktrees.recorded}
    roots = [root for root in hive.config.worktree_roots(hive.layout) if root in paths]
    folders = TaskFolders(hive.layout.root, {root: paths[root] for root in roots})
    trail = read_trail(records, returns, folders, is_from_operator=work.task.maker == HUMAN)
    if all(action.is_ok for action in trail.actions):
        return
    trails = {root: trail.at(root) for root in (*roots, None)}
    candidates = defaultdict[Path | None, list[ProvenCandidate]](list)
    try:
        if ask is not None and not any(record.get("cause") == "lesson" for record in records):
            # its words come before those of the rule, since they may say why
            for answer in read_candidates(ask()):
                root, proven_answer = _locate_lesson(answer, trails, folders)
                candidates[root].append(proven_answer)
    finally:
        for root, root_trail in trails.items():
            pairs = [(candidate, pair) for pair in root_trail.pairs() if (candidate := candidate_of(pair)) is not None]
            _add(hive, work, root, root_trail, [*candidates[root], *pairs])


def _locate_lesson(
    answer: Candidate, trails: Mapping[Path | None, Trail], folders: TaskFolders
) -> tuple[Path | None, ProvenCandidate]:
    """Return a mind's lesson with its root and the pair of commands that proves it (None: nothing does). The root is that of the
    pair, or else the one in which the lesson's places are."""
    candidates = dict[Path | None, Candidate]()
    for root, trail in trails.items():
        plain = partial(folders.without_worktree, root=root)
        texts = map(plain, (answer.failed, answer.passed, answer.changed))
        candidate = Candidate(plain(answer.lesson), tuple(filter(None, map(plain, answer.places))), *texts)
        if pair := trail.proof(candidate.failed, candidate.passed, candidate.changed, candidate.lesson):
            return root, (candidate, pair)
        candidates[root] = candidate
    default_root, _ = folders.locate(".")
    roots = (folders.locate(place)[0] for place in answer.places)
    root = next((root for root in roots if root != default_root), default_root)
    return root, (candidates[root], None)


def _add(hive: Parts, work: TaskRun, root: Path | None, trail: Trail, candidates: Sequence[ProvenCandidate]) -> None:
    """Admit candidates to the lessons of a root, and retire lessons that the trail contradicts."""
    book = book_of(hive, root)
    if not candidates and not any(_contradiction(record, trail) for record in book.read()):
        return
    project = next((project for project in work.projects if project.root == root), None)
    texts = project.instructions(work.task.full_text).values() if project else ()
    instructions = "\n".join(filter(None, texts))
    with edited(hive, book, work.agent) as records:
        for record in records:
            if reason := _contradiction(record, trail):
                record.change("retired", f"{reason}, in {work.task.id}")
        for candidate, pair in candidates:
            if pair is not None:
                text = f"{pair.failed.command} {pair.passed.command}"  # also the names of modules are paths
                named_paths = project.named_paths(f"{text} {text.replace('.', '/')}") if project else []
                places = dict.fromkeys((*candidate.places, *places_of(pair, named_paths)))
                candidate = replace(candidate, places=tuple(places))
            previous = [record for record in records if record.is_settled]
            new_record, _ = admit(candidate, pair, trail, work.task.id, previous, instructions)
            if new_record is not None:
                new_record.id = book.new_id(records)
                records.append(new_record)


def _contradiction(record: TrackedLesson, trail: Trail) -> str | None:
    """Return how a trail contradicts a lesson of the runtime: the failed command passes now, or the passed command fails and
    another one passes in its place. Return None if it does not."""
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
