"""What a crash leaves of claims: finished by the same agent, or given up for one that will not come back."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from hivemind.errors import UserError
from hivemind.fs import move, write
from hivemind.layout import Layout
from hivemind.tasks.closing import ERROR, RESULT, leave
from hivemind.tasks.folder import held, read_task
from hivemind.tasks.inbox import Inbox
from hivemind.tasks.opening import BUILD, Opening, explained
from hivemind.tasks.records import CLAIM, PARKED, Claim, load_claim, load_handed
from hivemind.tasks.taking import Taken, Taking
from hivemind.tasks.task import Task, TaskState

__all__ = ["Orphan", "Recovery"]


@dataclass(frozen=True, slots=True)
class Orphan:
    """A claim whose agent is not there any more. `id` is the task's, or the drop's name if the claim is half-made."""

    agent: str | None
    id: str
    path: Path


class Recovery:
    """Goes on where claims were interrupted. Only the process that holds an agent's name recovers for that agent."""

    def __init__(
        self,
        layout: Layout,
        inbox: Inbox,
        taking: Taking,
        opening: Opening,
        *,
        max_bytes: int,
        durable: bool,
        roots: Collection[Path],
    ) -> None:
        self._layout = layout
        self._inbox = inbox
        self._taking = taking
        self._opening = opening
        self._max_bytes = max_bytes
        self._durable = durable
        self._roots = roots

    def finish_half_made(self, agent: str, incarnation: int) -> Iterator[Task]:
        """The tasks whose claim a crash interrupted, claimed to the end now."""
        folder = Path(self._taking.folder(agent))
        self._unbuild(folder)
        for name in sorted(os.listdir(folder)):
            if name.startswith("."):
                continue
            task = self._resume(Taken(agent, name, os.fspath(folder / name), None), incarnation)
            if task is not None:
                yield task

    def _unbuild(self, folder: Path) -> None:
        """Undo a folder that was being made: the drop lies beside it again, under its own name."""
        build = folder / BUILD
        if not build.is_dir():
            return
        try:
            claim = load_claim(build)
        except UserError:
            claim = None  # a power cut without fsync: the drop keeps the name that it was given
        for name in os.listdir(build):
            if name in (CLAIM, "error.md") or name.startswith("."):
                continue
            move(build / name, folder / (claim.source if claim else name), durable=self._durable)
        for name in os.listdir(build):
            os.unlink(build / name)
        os.rmdir(build)

    def _resume(self, taken: Taken, incarnation: int) -> Task | None:
        """Go on with a drop; one that is half-written or has dependencies is judged again, from the inbox."""
        entry = self._inbox.entry(taken.path, whole=taken.is_folder())  # a folder was whole when it was taken
        if entry is None or entry.dependencies:
            self._taking.put_back(taken.path)
            return None
        return self._opening.settle(taken, incarnation)

    def mine(self, agent: str, incarnation: int | None) -> list[Task]:
        """The agent's tasks in active/, oldest claim first; with an incarnation their claims are made anew under it."""
        half_made = list(self.finish_half_made(agent, incarnation or 0))
        renewed = {task.id for task in half_made}
        found: list[tuple[str, Task]] = []
        for path, claim in self._claims():
            if claim is None or claim.agent != agent:
                continue
            try:
                if self._was_handed_over(path, claim):
                    continue
                if incarnation is not None and path.name not in renewed:
                    self._renew(path, claim, incarnation)
                task = read_task(path, TaskState.ACTIVE, self._max_bytes, self._layout.root, self._roots)
            except FileNotFoundError:
                continue  # moved by hand this very moment
            except UserError as problem:
                self._give_up_spoiled(path, problem)
            else:
                found.append((claim.claimed, task))
        return [task for _, task in sorted(found, key=lambda one: (one[0], one[1].id))]

    def _was_handed_over(self, path: Path, claim: Claim) -> bool:
        """Put back what the agent handed over before it could let go of it. Raises UserError for a damaged record."""
        handed = load_handed(path)
        if handed is None or not handed.ends(claim):
            return False
        with held(path, wait=True):
            (path / PARKED).unlink(missing_ok=True)
            self._taking.put_back(path)
        return True

    def _give_up_spoiled(self, path: Path, problem: UserError) -> None:
        """A task whose text was changed, while it was worked on, into something that is no task."""
        write(path / ERROR, explained(path.name, problem), durable=self._durable)
        leave(self._layout, path, self._layout.failed, durable=self._durable)

    def _renew(self, path: Path, claim: Claim, incarnation: int) -> None:
        """A new key for a claim: what the agent's earlier process still writes under the old one is turned away."""
        with held(path, wait=True):
            renewed = replace(claim, key=os.urandom(8).hex(), incarnation=incarnation)
            renewed.save(path, durable=self._durable)

    def _claims(self) -> Iterator[tuple[Path, Claim | None]]:
        """Every folder in active/ with its claim; None for one that a person put there, or whose record is damaged."""
        for name in sorted(os.listdir(self._layout.active)):
            path = self._layout.active / name
            if name.startswith(".") or not path.is_dir():
                continue
            try:
                yield path, load_claim(path)
            except UserError:
                yield path, None  # `list` says what is wrong with it

    def orphans(self, alive: Collection[str]) -> list[Orphan]:
        """The claims, whole and half-made, of agents that are not among `alive`; agent None for nobody's."""
        found = [
            Orphan(claim.agent if claim else None, path.name, path)
            for path, claim in self._claims()
            if claim is None or claim.agent not in alive
        ]
        for agent in sorted(os.listdir(self._layout.claimed)) if self._layout.claimed.is_dir() else ():
            folder = self._layout.claimed / agent
            if agent not in alive and folder.is_dir():
                found += [Orphan(agent, name, folder / name) for name in sorted(os.listdir(folder))]
        return found

    def reclaim(self, agent: str) -> list[Path]:
        """Give up every claim of an agent whose process is gone; where its tasks lie now.

        They go back to the inbox with their log, so that whoever claims them goes on; one whose result (or error) was
        written to the end goes on its last way to done/ (failed/).
        """
        folder = Path(self._taking.folder(agent))
        self._unbuild(folder)
        names = sorted(name for name in os.listdir(folder) if not name.startswith("."))
        back = [self._taking.put_back(folder / name) for name in names]
        back += [self._give_up(path) for path, claim in self._claims() if claim and claim.agent == agent]
        return back

    def _give_up(self, path: Path) -> Path:
        with held(path, wait=True):
            for name, place in ((RESULT, self._layout.done), (ERROR, self._layout.failed)):
                if (path / name).is_file():
                    return leave(self._layout, path, place, durable=self._durable)
            return self._taking.put_back(path)
