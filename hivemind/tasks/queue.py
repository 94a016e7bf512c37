"""The queue: which waiting task an agent claims next, and which agents may claim it."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import NamedTuple

from hivemind.tasks.form import DEFAULT_PRIORITY
from hivemind.tasks.ids import id_of

PROBLEM_PARTITION = "!"
UNKNOWN_SIZE = -1


class QueuedDrop(NamedTuple):
    """A waiting task as the queue knows it. `ino`, `mtime_ns` and `size` identify the file or folder.

    `size` is UNKNOWN_SIZE if a later change might not show in the file's time; the file is then read again. `explicit_id`
    is the id that the author wrote. `problem` is a problem with the file, `dependency_problem` a current problem with
    the dependencies. A task with either problem fails when it is claimed.
    """

    name: str
    ino: int
    mtime_ns: int
    size: int
    folder: bool
    explicit_id: str | None = None
    priority: int = DEFAULT_PRIORITY
    assignee: str | None = None
    role: str | None = None
    dependencies: tuple[str, ...] = ()
    problem: str | None = None
    dependency_problem: str | None = None
    target_hive: str | None = None

    def is_from(self, file_stat: os.stat_result) -> bool:
        """Check that the drop was read from the version of the file that has this stat."""
        return (self.ino, self.mtime_ns, self.size) == (file_stat.st_ino, file_stat.st_mtime_ns, file_stat.st_size)

    @property
    def id(self) -> str:
        """The id that the task will get, unless another task has it."""
        return self.explicit_id or id_of(self.name, self.folder)

    @property
    def partition(self) -> str:
        """The part of the queue that contains the task: `assignee/role[@HIVE]`, from which only certain agents may claim.

        A task with a problem is in a separate partition, from which any agent may claim it; it then fails.
        """
        if self.problem or self.dependency_problem:
            return PROBLEM_PARTITION
        return f"{self.assignee or ''}/{self.role or ''}" + (f"@{self.target_hive}" if self.target_hive else "")

    @property
    def order(self) -> tuple[int, int, str]:
        """The sort key: highest priority first, then oldest, then by name."""
        return (self.priority, self.mtime_ns, self.name)


def partitions_of(
    agent: str, role: str | None, local_hives: Collection[str] = (), *, named: bool = False
) -> tuple[str, ...]:
    """Return the partitions that an agent may claim from: of the tasks for the agent, for its role, and for the agent in that
    role.

    They include the tasks with a problem and, without `named`, the tasks for everybody. For each of `local_hives`, the same
    partitions with `@HIVE` follow.
    """
    names: tuple[str, ...] = (PROBLEM_PARTITION, f"{agent}/") if named else (PROBLEM_PARTITION, "/", f"{agent}/")
    names = names if role is None else (*names, f"/{role}", f"{agent}/{role}")
    return names if not local_hives else (*names, *(f"{name}@{hive}" for hive in local_hives for name in names))
