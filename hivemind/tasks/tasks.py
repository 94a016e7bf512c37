"""The tasks of a hive, put together from their parts. README.md describes the files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path

from hivemind.coordination import Journal
from hivemind.fs import DeadlyInputs, is_settled, make_folder
from hivemind.layout import Layout
from hivemind.tasks.claimed_tasks import ClaimedTasks
from hivemind.tasks.claims import Claims
from hivemind.tasks.drop import DropReader
from hivemind.tasks.drop_claims import DropClaims, rename
from hivemind.tasks.form import TextReader
from hivemind.tasks.inbox import Inbox
from hivemind.tasks.listing import Listing
from hivemind.tasks.outbox import Outbox
from hivemind.tasks.queue_cache import QueueCache
from hivemind.tasks.record import Records
from hivemind.tasks.recovery import Recovery
from hivemind.tasks.schedule import Schedule
from hivemind.tasks.settings import Settings, Settled
from hivemind.tasks.task_builder import TaskBuilder

MAX_BYTES = 1024 * 1024


class Tasks:
    """The tasks of one hive. The folder of a task is its state: inbox, active, done or failed.

    `inbox` adds tasks. `claims` assigns them to agents. `recovery` continues or
    takes back the claims of agents that ended. `active` works on claimed tasks and ends them.
    `listing` reads them. `schedule` adds recurring tasks. `outbox` holds notices for people. The methods `add`, `get`,
    `list`, `wait`, `say`, `retry`, `cancel`, `claim`, `mine`, `release`, `finish` and `fail` are set on the object: read
    `help(hive.tasks.add)` and so on.

    `agents` returns the roles of the hive's agents by name. `max_bytes` limits a task's text. Where the file system
    cannot tell who has a file open, a drop must be unchanged for `settle_ms` before it is claimed. For `grace_s`
    seconds, a task may name an unknown dependency. Links among attachments may lead to the folders in `roots`. With
    `ask_about_files`, a drop that is not text becomes a question to a person. `local_hives` returns the values of
    `where:` that mean this hive. Every change of a task's record is written to the `journal`; without a journal,
    changes by other programs are not noticed. Without `has_lander`, no task has candidates.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        agents: Callable[[], Mapping[str, str | None]] = dict,
        max_bytes: int = MAX_BYTES,
        settle_ms: float = 250,
        grace_s: float = 2.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        roots: Collection[Path] = (),
        settled: Settled = is_settled,
        rename: Callable[[str, str], None] = rename,
        ask_about_files: bool = False,
        tell_of: Collection[str] = (),
        zone: str = "UTC",
        local_hives: Callable[[], tuple[str, ...]] = tuple,
        journal: Journal | None = None,
        has_lander: bool = True,
    ) -> None:
        folders = (layout.inbox, layout.active, layout.done, layout.failed, layout.locks)
        for folder in () if layout.read_only else folders:
            make_folder(folder)
        self._crashes = DeadlyInputs(layout.reading, read_only=layout.read_only)
        self.outbox = Outbox(layout, tell_of)
        text_reader = TextReader(self._crashes, max_bytes, has_lander=has_lander)
        settings = Settings(
            layout, text_reader, Records(journal), agents, settle_ms,
            grace_s, clock, roots, settled, rename, ask_about_files, self.outbox, local_hives,
        )  # fmt: skip
        reader = DropReader(settings)
        self.inbox = Inbox(settings)
        self._queue = QueueCache(settings, reader)
        self.listing = Listing(settings, reader, self._queue.read_drops)
        builder = TaskBuilder(settings, DropClaims(settings, reader, self._queue))
        self.recovery = Recovery(settings, reader, builder)
        self.claims = Claims(settings, self._queue, self.listing, builder, self.recovery)
        self.active = ClaimedTasks(settings, self.listing, self.claims, self.recovery)
        self.schedule = Schedule(settings, zone, self.inbox)
        # the operations that most callers use
        self.add, self.claim, self.mine = self.inbox.add, self.claims.claim, self.recovery.resume
        self.get, self.list, self.wait = self.listing.get, self.listing.list, self.listing.wait
        self.say, self.release, active = self.active.say, self.active.release, self.active
        self.finish, self.fail, self.retry, self.cancel = active.finish, active.fail, active.retry, active.cancel

    def close(self) -> None:
        """Close the open files. The object can still be used."""
        self._queue.close()
        self._crashes.close()
