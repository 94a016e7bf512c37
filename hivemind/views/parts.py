"""What a view reads of a hive, and the scope of one call: what is in view for whom (seed 002, *Scope resolver*)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from hivemind.coordination import Coordinates, Event, Journal, Place, Step, StepLease, check_agent, lane_visible
from hivemind.coordination.entries import TaskEntry
from hivemind.layout import Layout
from hivemind.reasoning import LOG_NAME, Note, ReasoningNode, TaskGraph, Trace

__all__ = ["Readable", "Scope", "open_graph", "scope_of"]

_RECENT = 500


class Workspace(Protocol):
    """What hive.yaml says, as far as a view cares."""

    @property
    def workspace(self) -> str: ...


class Drafting(Protocol):
    """What an agent's file says, as far as a view cares: the lane that it drafts in, if not in the one of its name."""

    @property
    def lane(self) -> str | None: ...


class Readable(Protocol):
    """What a view needs of a hive; `hivemind.Hive` is one. Nothing of it is written."""

    @property
    def agents(self) -> Mapping[str, Drafting]: ...
    @property
    def layout(self) -> Layout: ...
    @property
    def config(self) -> Workspace: ...
    @property
    def journal(self) -> Journal: ...


@dataclass(frozen=True, slots=True)
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

    def visible(self, lane: str | None) -> bool:
        """Whether what lies in a lane is shown: in the shared one, and in those that the agent drafts in."""
        return lane_visible(lane, self.agent_id, self.all_lanes, self.place.lane)


def open_graph(layout: Layout, task: str) -> TaskGraph | None:
    """The graph of a task, wherever its folder is, or None if it has none yet."""
    for state in (layout.active, layout.done, layout.failed, layout.inbox):
        if (state / task / LOG_NAME).is_file():
            return TaskGraph(state / task)
    return None


def scope_of(
    hive: Readable,
    agent_id: str | None,
    task: str | None,
    step: str | None,
    *,
    all_lanes: bool,
    graph: TaskGraph | None = None,
    since: int | None = None,
) -> Scope:
    """Where the caller is, and what is there. `since` widens the events to all that came after that seq."""
    who = None if agent_id is None else check_agent(agent_id)
    drafts = None if who is None or who not in hive.agents else hive.agents[who].lane
    place = Coordinates(hive.journal, hive.config.workspace).resolve(who, task, step, drafts)
    seq, entry, steps, leases = hive.journal.view(
        lambda state: (
            state.seq,
            state.tasks.get(place.task or ""),
            tuple(state.steps_of(place.task)) if place.task else (),
            {key: lease for key in state.by_task.get(place.task or "", ()) if (lease := state.lease(key))},
        )
    )
    start = max(0, seq - _RECENT) if since is None else since
    events = tuple(event for event in hive.journal.read(start) if event.seq <= seq and _concerns(event, place.task))
    if graph is None and place.task is not None:
        graph = open_graph(hive.layout, place.task)
    card_seq = (
        0 if graph is None else graph.seq
    )  # before the rest: what comes meanwhile is shown twice rather than never
    notes, traces = ((), ()) if graph is None else (graph.notes(), graph.traces())
    return Scope(
        place,
        who,
        all_lanes,
        step is not None and step != "focus",
        seq,
        card_seq,
        None if entry is None else entry.title,
        entry is not None and entry.over,
        steps,
        leases,
        events,
        graph,
        tuple(note for note in notes if lane_visible(note.lane, who, all_lanes, place.lane)),
        tuple(trace for trace in traces if lane_visible(trace.lane, who, all_lanes, place.lane)),
        None if entry is None else _question(hive.journal, entry),
    )


def _question(journal: Journal, entry: TaskEntry) -> str | None:
    if entry.state != "parked":
        return None
    said = next(journal.events(entry.seq - 1), None)
    asks = None if said is None else said.payload.get("asks")
    return asks if isinstance(asks, str) else None


def _concerns(event: Event, task: str | None) -> bool:
    if task is None:
        return True
    found = event.payload.get("task_id")
    step = event.payload.get("step_id")
    return found == task or (found is None and isinstance(step, str) and step.rpartition(".s")[0] == task)
