"""What a view reads of a hive, and the scope of one call: what is in view for whom (seed 002, *Scope resolver*)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from hivemind.coordination import Coordinates, Event, Journal, Place, Step, StepLease, check_agent, lane_visible
from hivemind.frozen import frozen
from hivemind.layout import Layout
from hivemind.reasoning import LOG_NAME, Note, ReasoningNode, TaskGraph, Trace
from hivemind.tasks.folder import place_of

if TYPE_CHECKING:
    from hivemind.config import AgentConfig, HiveConfig

_RECENT = 500
_Entry = TypeVar("_Entry", Note, Trace)


class Readable(Protocol):
    """What a view needs of a hive; `hivemind.Hive` is one. Nothing of it is written."""

    @property
    def agents(self) -> Mapping[str, AgentConfig]: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def config(self) -> HiveConfig: ...
    @property
    def journal(self) -> Journal: ...


@frozen
class Scope:
    """One moment of a hive, for one caller: everything a view is made of, read once."""

    place: Place
    agent_id: str | None
    all_lanes: bool
    explicit_step: bool
    seq: int
    card_seq: int
    title: str | None
    over: bool
    steps: tuple[Step, ...]
    leases: dict[str, StepLease]
    events: tuple[Event, ...]
    graph: TaskGraph | None
    notes: tuple[Note, ...]
    traces: tuple[Trace, ...]
    question: str | None = None
    """The Message-ID of what a person is asked, while the task rests until it is answered."""

    @property
    def step(self) -> Step | None:
        """The step in focus, or None."""
        return next((step for step in self.steps if step.id == self.place.step), None)

    def cards(self) -> list[ReasoningNode]:
        """The nodes of the task's graph that are shown, by id."""
        if self.graph is None:
            return []
        return self.graph.graph.visible(self.agent_id, all_lanes=self.all_lanes, lane=self.place.lane)


def scope_of(
    hive: Readable,
    agent_id: str | None,
    task: str | None,
    step: str | None,
    *,
    all_lanes: bool,
    since: int | None = None,
) -> Scope:
    """Where the caller is, and what is there. `since` widens the events to all that came after that seq."""
    who = None if agent_id is None else check_agent(agent_id)
    drafts = None if who is None or who not in hive.agents else hive.agents[who].lane
    place = Coordinates(hive.journal, hive.config.workspace).resolve(who, task, step, drafts)
    name = place.task or ""
    seq, entry, steps, leases = hive.journal.view(
        lambda state: (
            state.seq,
            state.task(name),
            tuple(state.steps_of(name)) if name else (),
            {one.id: lease for one in state.steps_of(name) if (lease := state.lease(one.id))},
        )
    )
    start = max(0, seq - _RECENT) if since is None else since
    question = None
    if entry is not None and entry.state == "parked" and (said := next(hive.journal.events(entry.seq - 1), None)):
        question = said.payload.get("asks")
    folders = (place_of(hive.layout, name), hive.layout.inbox / name) if name else ()
    graph = next((TaskGraph(one) for one in folders if one is not None and (one / LOG_NAME).is_file()), None)
    card_seq = 0 if graph is None else graph.seq  # first: what comes meanwhile is shown twice rather than never

    def visible(entries: Iterable[_Entry]) -> tuple[_Entry, ...]:
        return tuple(one for one in entries if lane_visible(one.lane, who, all_lanes, place.lane))

    return Scope(
        place=place,
        agent_id=who,
        all_lanes=all_lanes,
        explicit_step=step is not None and step != "focus",
        seq=seq,
        card_seq=card_seq,
        title=None if entry is None else entry.title,
        over=entry is not None and entry.over,
        steps=steps,
        leases=leases,
        events=tuple(event for event in hive.journal.read(start) if event.seq <= seq and _concerns(event, place.task)),
        graph=graph,
        notes=() if graph is None else visible(graph.notes()),
        traces=() if graph is None else visible(graph.traces()),
        question=question if isinstance(question, str) else None,
    )


def _concerns(event: Event, task: str | None) -> bool:
    step = str(event.payload.get("step_id", ""))
    return task is None or event.payload.get("task_id", step.rpartition(".s")[0]) == task
