"""The scope of a view: the state that the view reads from a hive for one caller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from hivemind.coordination import (
    CoordinateResolver,
    Coordinates,
    Event,
    Journal,
    Step,
    StepLease,
    check_agent,
    is_lane_visible,
)
from hivemind.coordination.branches import BranchOverlap, branch_overlaps
from hivemind.frozen import frozen
from hivemind.layout import Layout
from hivemind.reasoning import LOG_NAME, Note, ReasoningNode, TaskGraph, Trace
from hivemind.tasks.folder import folder_of

if TYPE_CHECKING:
    from hivemind.config import AgentConfig, HiveConfig

_RECENT_EVENTS = 500
_Entry = TypeVar("_Entry", Note, Trace)


class Readable(Protocol):
    """The parts of a hive that views read. `hivemind.Hive` implements this interface."""

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
    """The state of a hive at one moment as one caller may see it. Every view is computed from a scope."""

    coordinates: Coordinates
    agent_id: str | None
    all_lanes: bool
    explicit_step: bool
    seq: int
    card_seq: int
    title: str | None
    is_over: bool
    steps: tuple[Step, ...]
    leases: dict[str, StepLease]
    events: tuple[Event, ...]
    graph: TaskGraph | None
    notes: tuple[Note, ...]
    traces: tuple[Trace, ...]
    overlaps: tuple[BranchOverlap, ...] = ()
    question: str | None = None
    """The Message-ID of the question to a person that the task waits for; None if it waits for none."""

    @property
    def step(self) -> Step | None:
        """The step in focus; None if no step is in focus."""
        return next((step for step in self.steps if step.id == self.coordinates.step), None)

    def cards(self) -> list[ReasoningNode]:
        """Return the nodes of the task's graph that the caller may see, sorted by id."""
        if self.graph is None:
            return []
        return self.graph.graph.visible(self.agent_id, all_lanes=self.all_lanes, lane=self.coordinates.lane)


def scope_of(
    hive: Readable,
    agent_id: str | None,
    task: str | None,
    step: str | None,
    *,
    all_lanes: bool,
    since: int | None = None,
) -> Scope:
    """Return the scope for the agent `agent_id`; without one, only what is shared. `task` and `step` default to the step that the
    agent leased last. With `all_lanes` the scope includes the drafts of all agents.

    The scope contains all events after the seq `since`, or only the newest events if `since` is None.
    """
    agent = None if agent_id is None else check_agent(agent_id)
    draft_lane = None if agent is None or agent not in hive.agents else hive.agents[agent].lane
    coordinates = CoordinateResolver(hive.journal, hive.config.workspace).resolve(agent, task, step, draft_lane)
    name = coordinates.task or ""
    seq, entry, steps, leases = hive.journal.view(
        lambda state: (
            state.seq,
            state.task(name),
            tuple(state.steps_of(name)) if name else (),
            {step.id: lease for step in state.steps_of(name) if (lease := state.lease(step.id))},
        )
    )
    start = max(0, seq - _RECENT_EVENTS) if since is None else since
    question = None
    if (
        entry is not None
        and entry.state == "parked"
        and (parked_event := next(hive.journal.events(entry.seq - 1), None))
    ):
        question = parked_event.payload.get("asks")
    folders = (folder_of(hive.layout, name), hive.layout.inbox / name) if name else ()
    graph = next(
        (TaskGraph(folder) for folder in folders if folder is not None and (folder / LOG_NAME).is_file()), None
    )
    # card_seq is read before the cards: a card that is added meanwhile is shown twice rather than never
    card_seq = 0 if graph is None else graph.seq

    def visible(entries: Iterable[_Entry]) -> tuple[_Entry, ...]:
        return tuple(entry for entry in entries if is_lane_visible(entry.lane, agent, all_lanes, coordinates.lane))

    return Scope(
        coordinates=coordinates,
        agent_id=agent,
        all_lanes=all_lanes,
        explicit_step=step is not None and step != "focus",
        seq=seq,
        card_seq=card_seq,
        title=None if entry is None else entry.title,
        is_over=entry is not None and entry.is_over,
        steps=steps,
        leases=leases,
        events=tuple(
            event
            for event in hive.journal.read(start)
            if event.seq <= seq and coordinates.task in (None, _task_of(event.payload))
        ),
        graph=graph,
        notes=() if graph is None else visible(graph.notes()),
        traces=() if graph is None else visible(graph.traces()),
        overlaps=tuple(branch_overlaps(hive.layout, name)) if name else (),
        question=question if isinstance(question, str) else None,
    )


def _task_of(payload: Mapping[str, Any]) -> object:
    return payload.get("task_id", str(payload.get("step_id", "")).rpartition(".s")[0])
