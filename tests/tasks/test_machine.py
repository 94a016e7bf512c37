"""Whatever people and agents do in whatever order: each task lies in one place, has one owner, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hivemind.layout import Layout
from hivemind.tasks import Task, TaskMoved, Tasks

from .conftest import opened, texts

AGENTS = st.sampled_from(["scout", "clerk"])


class Inbox(RuleBasedStateMachine):
    """The model: where each task lies, and under which claim its agent believes to work on it."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="hivemind-machine-"))
        self.layout = Layout.at(self.root)
        for folder in self.layout.folders():
            folder.mkdir(parents=True)
        self.places: dict[str, str] = {}
        self.working: dict[str, Task] = {}
        self.late: list[Task] = []
        self.tasks: Tasks = opened(self.layout, settle_ms=0)

    def teardown(self) -> None:
        self.tasks.close()
        shutil.rmtree(self.root)

    @rule(priority=st.integers(1, 4))
    def drop(self, priority: int) -> None:
        name = f"t{len(self.places)}"
        (self.layout.inbox / f"{name}.md").write_text(f"---\npriority: {priority}\n---\nmarker-{name}.")
        self.places[name] = "inbox"

    @rule(agent=AGENTS)
    def claim(self, agent: str) -> None:
        task = self.tasks.claim(agent)
        waiting = [name for name, place in self.places.items() if place == "inbox"]
        assert (task is None) == (not waiting)
        if task is not None:
            assert task.id in waiting
            assert task.owner == agent
            self.places[task.id] = "active"
            self.working[task.id] = task

    def chosen(self, data: st.DataObject) -> Task:
        task_id = data.draw(st.sampled_from(sorted(self.working)))
        return self.working.pop(task_id)

    @precondition(lambda self: self.working)
    @rule(data=st.data(), end=st.sampled_from(["done", "failed", "inbox"]))
    def end(self, data: st.DataObject, end: str) -> None:
        task = self.chosen(data)
        {"done": self.tasks.finish, "failed": self.tasks.fail}.get(end, lambda one, _: self.tasks.release(one))(
            task, "r"
        )
        self.places[task.id] = end
        self.late.append(task)

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def move_by_hand(self, data: st.DataObject) -> None:
        task = self.chosen(data)
        os.rename(task.path, self.layout.inbox / task.id)
        self.places[task.id] = "inbox"
        self.late.append(task)

    @precondition(lambda self: "done" in self.places.values() or "failed" in self.places.values())
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        ended = sorted(name for name, place in self.places.items() if place in ("done", "failed"))
        task_id = data.draw(st.sampled_from(ended))
        self.tasks.retry(task_id)
        self.places[task_id] = "inbox"

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def come_too_late(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(self.late))
        try:
            self.tasks.finish(task, "late")
        except TaskMoved as moved:
            assert moved.kept is not None  # noqa: PT017 - both ways out are looked at
        else:
            raise AssertionError("a claim that was over ended a task")

    @rule(agent=AGENTS)
    def restart(self, agent: str) -> None:
        self.tasks.close()
        self.tasks = opened(self.layout, settle_ms=0)
        mine = {task.id: task for task in self.tasks.mine(agent, incarnation=7)}
        assert set(mine) == {name for name, task in self.working.items() if task.owner == agent}
        self.late += [task for name, task in self.working.items() if name in mine]
        self.working |= mine

    @rule()
    def lose_the_queue(self) -> None:
        self.layout.task_queue.unlink(missing_ok=True)

    @invariant()
    def each_task_lies_in_one_place(self) -> None:
        for name, place in self.places.items():
            found = texts(self.layout, f"marker-{name}.".encode())
            assert [path.relative_to(self.layout.tasks).parts[0] for path in found] == [place]


Inbox.TestCase.settings = settings(max_examples=12, stateful_step_count=20, deadline=None)
TestInbox = Inbox.TestCase
