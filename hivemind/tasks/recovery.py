"""The recovery of claims: an agent's tasks after its restart, half-made claims, and the claims of dead agents.

Only the process that holds the lock of an agent's name recovers that agent's claims.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.fs import Lock, crash_point, make_folder, write
from hivemind.fs.paths import names_in
from hivemind.layout import HUMAN
from hivemind.logger import logger
from hivemind.names import check_name
from hivemind.tasks.drop import NOT_MOVABLE, DropReader, is_movable
from hivemind.tasks.drop_claims import ClaimedDrop
from hivemind.tasks.folder import locked_folder, move_task, read_task, remove_ends
from hivemind.tasks.record import CLAIM_ANEW, ENDS, RECORD, TaskRecord, load, load_sound
from hivemind.tasks.settings import Settings
from hivemind.tasks.task import Task, TaskProblem, TaskState
from hivemind.tasks.task_builder import BUILD, TaskBuilder, error_report

_log = logger(__name__)


@frozen
class Orphan:
    """A claim of an agent that is gone. `id` is the task's id, or the drop's name if the claim is half-made."""

    agent: str | None
    id: str
    path: Path


class Recovery:
    """Resumes, finishes and takes back the claims of one hive."""

    def __init__(self, settings: Settings, reader: DropReader, builder: TaskBuilder) -> None:
        self._settings, self._layout, self._records = settings, settings.layout, settings.records
        self._reader, self.drops, self._builder = reader, builder.drops, builder
        self.recovered: set[str] = set()  # agents without half-made claims

    def resume(self, agent: str, incarnation: int | None = None) -> list[Task]:
        """Return the agent's claimed tasks, oldest claim first, for the agent to continue after a restart.

        Claims that a crash left half-made are finished first. With `incarnation`, each claim gets a new key, and an
        earlier process of the agent can no longer write.
        """
        agent = check_name(agent, "agent name")
        self._return_human_drops()
        half_made = {task.id for task in self.finish_half_made(agent, incarnation or 0)}
        tasks: list[Task | None] = []
        for path, record in self._active_folders():
            claim = None if record is None else record.claim
            if claim.agent == agent if claim is not None else self._records.is_claimed_by(path.name, agent):
                try:
                    tasks.append(self._resume_task(path, agent, None if path.name in half_made else incarnation))
                except (FileNotFoundError, NotADirectoryError):
                    continue  # moved by hand meanwhile, or a link
                except UserError as problem:
                    self.fail_damaged(path, agent, problem)
        return sorted(map(self._records.follow, filter(None, tasks)), key=lambda task: (task.claimed or "", task.id))

    def _return_human_drops(self) -> None:
        """Move drops back to the inbox if a person's command was killed while it cancelled them."""
        folder = self._layout.claimed / HUMAN
        lock = self.human_lock()
        if names_in(folder) and lock.acquire(wait=False):
            try:
                self.reclaim(HUMAN)
            finally:
                lock.release()

    def human_lock(self) -> Lock:
        """Return the lock that a command holds while it claims drops in a person's name."""
        return Lock(self._layout.locks / f"agent-{HUMAN}.lock")

    def finish_half_made(self, agent: str, incarnation: int) -> Iterator[Task]:
        """Finish the claims that a crash interrupted, and yield their tasks. `incarnation` is the number of the agent's process.

        Half-written drops and drops with dependencies go back to the inbox.
        """
        for path in self._half_made_drops(agent):
            drop = ClaimedDrop(agent, path.name, os.fspath(path), os.lstat(path))
            current_drop = self._reader.drop(
                drop.path, is_whole=drop.is_folder
            )  # a folder was complete when it was claimed
            queued = None if current_drop is None else current_drop.queued
            if queued is None or queued.dependencies:
                self.drops.put_back(path)
            elif task := self._builder.make_task(drop, incarnation):
                yield task
        self.recovered.add(agent)

    def _half_made_drops(self, agent: str) -> list[Path]:
        """Return the drops that an agent claimed and that are not tasks yet, sorted by name. Log and leave out folders that
        cannot be moved.
        """
        folder = self._layout.claimed / agent
        make_folder(folder)
        for build in sorted(folder.glob(f"{BUILD}*/")):
            try:
                self._builder.unbuild(build)
            except PermissionError as error:
                _log.warning("%s: %s; its claim continues at the agent's next start", error.filename, NOT_MOVABLE)
        paths = []
        for path in (folder / name for name in sorted(os.listdir(folder)) if not name.startswith(".")):
            if path.is_dir() and not is_movable(path):
                _log.warning("%s: %s; its claim continues at the agent's next start", path, NOT_MOVABLE)
            else:
                paths.append(path)
        return paths

    def _resume_task(self, path: Path, agent: str, incarnation: int | None) -> Task | None:
        """Return the task in `path`. If its agent had handed it over, move it to the inbox and return None. `incarnation` is as
        for `resume`.
        """
        is_in_journal = self._records.is_claimed_by(path.name, agent)
        with locked_folder(path, wait=True):
            record = self._records.load(path, path.name) if is_in_journal else load(path)
            if record is None or record.claim is None:
                raise TaskProblem(f"has no {RECORD} with a claim", location=path, remedy=CLAIM_ANEW)
            if record.handed is not None and record.handed.ends(record.claim):
                self._records.save(path, replace(record, parked=None), agent_id=agent)
                self.drops.put_back(path)
                return None
            if incarnation is not None:
                claim = replace(record.claim, key=os.urandom(8).hex(), incarnation=incarnation)
                record = replace(record, claim=claim)
                if is_in_journal:  # an earlier process of the agent still has the old key
                    self._records.save(path, record, agent_id=agent)
                else:
                    write(path / RECORD, record.encode())
                    crash_point("tasks.claim.recorded")
        task = read_task(path, TaskState.ACTIVE, self._settings.reader, self._layout.root, self._settings.roots)
        if not is_in_journal:
            self._records.note_claim(path.name, record, task.title)
        return task

    def fail_damaged(self, path: Path, agent: str | None, problem: UserError) -> Path:
        """Move a task from active/ to failed/ because its folder has a problem. Return its new folder. `agent` had claimed it, or
        None.
        """
        remove_ends(path)
        self._settings.outbox.put("failed", path.name, None, None)
        write(path / "error.md", error_report(path.name, problem, "could not go on"))
        target = move_task(self._layout, path, self._layout.failed)
        self._records.note_failure(path.name, agent, str(problem))
        return target

    def _active_folders(self) -> Iterator[tuple[Path, TaskRecord | None]]:
        """Yield each folder in active/ with its record, or with None if the record is missing or damaged."""
        for name in sorted(os.listdir(self._layout.active)):
            path = self._layout.active / name
            if name.startswith(".") or not path.is_dir():
                continue
            yield path, load_sound(path)  # `list` reports a damaged record

    def orphans(self, alive: Collection[str]) -> list[Orphan]:
        """Return the claims of all agents that are not in `alive`, half-made claims included. A folder without a claim has the
        agent None.
        """
        orphans = []
        for path, record in self._active_folders():
            agent = record.claim.agent if record is not None and record.claim is not None else None
            if agent is None or agent not in alive:
                orphans.append(Orphan(agent, path.name, path))
        for agent in sorted(names_in(self._layout.claimed)):
            if agent not in alive:
                folder = self._layout.claimed / agent
                orphans += [Orphan(agent, name, folder / name) for name in sorted(names_in(folder))]
        return orphans

    def reclaim(self, agent: str) -> list[Path]:
        """Take back all claims of an agent that will not come back. Return the new paths.

        The agent's tasks go to the inbox with their logs, and the next agent continues them. A task with a complete
        result.md or error.md goes to done/ or failed/.
        """
        agent = check_name(agent, "agent name")
        back = [self.drops.put_back(path) for path in self._half_made_drops(agent)]
        for path, record in list(self._active_folders()):
            if record and record.claim and record.claim.agent == agent:
                back.append(self._give_back(path))
        return back

    def _give_back(self, path: Path) -> Path:
        with locked_folder(path, wait=True):
            for name, place in zip(ENDS, (self._layout.failed, self._layout.done), strict=True):
                end = path / name
                if end.is_file() and not end.is_symlink() and self._records.is_announced(path.name, end.read_bytes()):
                    return move_task(self._layout, path, place)
            remove_ends(path)
            return self.drops.put_back(path)
