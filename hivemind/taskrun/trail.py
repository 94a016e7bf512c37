"""The trail of a task: its reasoning graph, as the agent that works on it writes and reads it.

The task is the root, each step a subtask below it (both in the shared lane), what is found and concluded are cards below
the step, drafts in the agent's lane until the answer is published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any

from hivemind.boundary import boundary, checked
from hivemind.coordination import Commits
from hivemind.frozen import frozen
from hivemind.masking import mask
from hivemind.presence.parts import Parts
from hivemind.reasoning import LOG_NAME, Branch, MergeReport, NodeKind, ReasoningGraph, ReasoningNode, TaskGraph
from hivemind.taskrun.planned_step import PlannedStep
from hivemind.taskrun.review import Citation
from hivemind.tasks import Task

WITHDRAWN = "rejected"


@frozen
class StepCard:
    """A card of a step: its text, and where it was quoted from or which file it is about, if it is."""

    node: int
    kind: str
    text: str
    citation: Citation | None = None
    artifact: str | None = None


class TaskTrail:
    """One task's graph in the hands of one agent, whose drafts go to its `lane`.

    What was folded is unfolded where its step is taken up again. What is written is on the disk before the journal rests on it
    (`sync`), and at the end; not at once: most of it stands in the task's log as well, or is made again.
    """

    def __init__(self, hive: Parts, task: Task, agent: str, shown: Callable[[str], Mapping[str, Any]]) -> None:
        """`shown` says what a change of a step has to show: `agent_id`, `generation`."""
        self._task, self.agent, self._steps, self._shown = task, agent, hive.steps, shown
        self.lane = hive.agents[agent].lane or f"agent/{agent}"
        self._commits = Commits(hive.journal, task.id)
        self.store = TaskGraph(
            task.path, durable=hive.config.durable, lazy=True, committed=self._commits.has, guard=self._guard
        )
        self._has_new_cards = (task.path / LOG_NAME).exists()  # a process before this one may have written some

    def _guard(self, steps: Sequence[str]) -> AbstractContextManager[None]:
        """Refuses to write what belongs to a step that another holds by now, and holds that off while it is written."""
        return self._steps.freeze_leases(self._generations(steps), self.agent)

    def _generations(self, steps: Sequence[str]) -> dict[str, int | None]:
        return {step: self._shown(step)["generation"] for step in steps}

    def planned(self, steps: Sequence[PlannedStep]) -> None:
        """Put the task and its steps into the graph; those that are there stay as they are."""
        with self.store.change(self.agent) as graph:
            for step in steps:
                if self.subtask(step.id) is None:
                    self._subtask(graph, step)

    def rooted(self, graph: ReasoningGraph) -> ReasoningNode:
        """The task node of this task's graph (or of a copy of it), made where it is missing."""
        return graph.root or graph.add_node(
            NodeKind.TASK, mask(self._task.text or self._task.title), title=mask(self._task.title)
        )

    def subtask(self, step_id: str) -> ReasoningNode | None:
        """The node of a step, if it has one."""
        return next((node for node in self.store.graph.by_step(step_id) if node.kind is NodeKind.SUBTASK), None)

    def _subtask(self, graph: ReasoningGraph, step: PlannedStep) -> ReasoningNode:
        root, found = self.rooted(graph), self.subtask(step.id)
        if found is None:
            found = graph.add_node(NodeKind.SUBTASK, step.todo.title, title=step.todo.title, step=step.id)
            graph.add_edge(root.node_id, found.node_id, "decompose")
        _unfold(graph, found)
        return found

    def card(
        self,
        step: PlannedStep,
        kind: str,
        text: str,
        *,
        title: str = "",
        citation: Citation | None = None,
        tags: Iterable[str] = (),
        meta: Mapping[str, Any] | None = None,
    ) -> int:
        """Add a card under a step, under its lease; returns its node's id. The same card again (a step done anew after a crash)
        is the same. A quote is evidence: its receipt is captured with the step, and the card counts once the journal has that.
        """

        def capture(commit_id: str) -> None:
            assert citation is not None
            receipt = {"kind": "LINK", "text": citation.place, "digest": citation.digest}
            self._steps.capture(step.id, receipt, commit_id=commit_id, **self._shown(step.id))

        told, text, title = dict(meta or {}), mask(text), mask(title)
        if citation is not None:
            told["citation"] = asdict(citation)
        for known in self.store.graph.by_step(step.id):
            if self._counts(known) and known.kind == kind and known.text == text and known.title == title:
                return known.node_id
        with self.store.change(self.agent, commit=None if citation is None else capture) as graph:
            parent = self._subtask(graph, step)
            node = graph.add_node(kind, text, title=title, tags=tuple(tags), lane=self.lane, step=step.id, meta=told)
            graph.add_edge(parent.node_id, node.node_id, "support" if kind == NodeKind.EVIDENCE else "")
            self._has_new_cards = True
            return node.node_id

    def brought(self, task_id: str, title: str, text: str, step_id: str | None) -> None:
        """Keep what a subtask has come to as one settled node, which stands for that task's own graph."""
        if any(node.meta.get("task") == task_id for node in self.store.graph.nodes.values()):
            return
        with self.store.change(self.agent) as graph:
            above = (None if step_id is None else self.subtask(step_id)) or self.rooted(graph)
            node = graph.add_node(
                NodeKind.SUBTASK, mask(text), title=mask(title), status="closed", meta={"task": task_id}
            )
            graph.add_edge(above.node_id, node.node_id, "decompose")

    def link(self, src: int, dst: int, relation: str) -> None:
        with self.store.change(self.agent) as graph:
            graph.add_link(src, dst, relation)
            self._has_new_cards = True

    def finished(self, step_id: str) -> None:
        """The step's node is closed."""
        with self.store.change(self.agent) as graph:
            for node in graph.by_step(step_id):
                if node.kind is NodeKind.SUBTASK and node.status != "closed":
                    graph.update_node(node.node_id, status="closed")

    def withdraw(self, step_id: str, cards: Sequence[int]) -> None:
        """Reject quotes of a step, by their nodes; they stay in the graph. A step that has none left can be asked anew."""
        with self.store.change(self.agent) as graph:
            for node in cards:
                graph.update_node(node, status=WITHDRAWN)
            step = self.subtask(step_id)
            if step is not None and all(card.citation is None for card in self.of_step(step_id)):
                _unfold(graph, step)
                graph.update_node(step.node_id, status="open")

    def of_step(self, step_id: str) -> list[StepCard]:
        """The step's cards in the order of their making, without what was withdrawn and without published copies."""
        return [_card(node) for node in self.store.graph.by_step(step_id) if self._counts(node)]

    def publish_all(self) -> None:
        """Promote this agent's drafts into the shared lane; what is published already stays as it is.

        So does what belongs to no step: that are notes of the conversation, and no findings.
        """
        for draft in [node for node in self.store.graph.by_lane(self.lane) if node.step and self._counts(node)]:
            if not self._is_published(draft):
                self.publish(draft.node_id, hidden=True)

    def publish(self, card: int, *, hidden: bool = False) -> int:
        """Promote one draft, with `hidden` also one that is folded or flushed; returns the id of its copy in the shared lane.
        Raises GraphError."""
        step = self.store.graph.node(card).step

        def commit(commit_id: str) -> None:
            held = self._shown(step)["generation"] if step is not None else None
            self._commits.publish(
                commit_id, card=card, agent_id=self.agent, step_id=step, generation=held, lane=self.lane
            )

        return self.store.publish(card, agent_id=self.agent, commit=commit, hidden=hidden).node_id

    def branch(self, name: str, base: str) -> Branch:
        """Make a branch of the graph. Raises GraphError."""
        return self.store.create_branch(
            name,
            base=base,
            agent_id=self.agent,
            commit=lambda commit_id, made: self._commits.branch(
                "created", name, agent_id=self.agent, commit_id=commit_id, base=made.base, base_seq=made.base_seq
            ),
        )

    def merge(self, source: str, into: str, resolve: Mapping[str, str], *, dry_run: bool) -> MergeReport:
        """Bring what changed in one branch of the graph into another. Raises GraphError."""
        return self.store.merge(
            source,
            into=into,
            resolve=dict(resolve),
            dry_run=dry_run,
            agent_id=self.agent,
            commit=lambda commit_id, steps: self._commits.branch(
                "merged", source, agent_id=self.agent, commit_id=commit_id, steps=self._generations(steps), into=into
            ),
        )

    def _is_published(self, draft: ReasoningNode) -> bool:
        graph = self.store.graph
        copies = (graph.nodes[link.src] for link in graph.links_to(draft.node_id, "supports"))
        return any(copy.meta.get("origin", {}).get("node") == draft.node_id for copy in copies)

    def trace(self, actions: Iterable[tuple[str, str]], step_id: str | None) -> None:
        """Actions (kind, text) for the trace."""
        self.store.add_traces(actions, agent_id=self.agent, lane=self.lane, step=step_id)

    def sync(self) -> None:
        """See to it that the cards are on the disk, before something is written elsewhere that rests on one."""
        if self._has_new_cards:
            self.store.sync()
            self._has_new_cards = False

    def save(self) -> None:
        """Write graph.json, the whole graph for people and other programs."""
        self.store.save_snapshot()

    @staticmethod
    def _counts(node: ReasoningNode) -> bool:
        cards = node.kind not in (NodeKind.TASK, NodeKind.SUBTASK, NodeKind.SUMMARY)
        return cards and node.status != WITHDRAWN and "origin" not in node.meta


def _unfold(graph: ReasoningGraph, node: ReasoningNode) -> None:
    """Bring a node back that is folded away; what else its summaries stood for stays as small as it can."""
    while (summary := graph.standing(node.node_id)) is not node:
        graph.unfold(summary.node_id)


def _card(node: ReasoningNode) -> StepCard:
    told = node.meta.get("citation")
    where = f"node {node.node_id}"
    with boundary("citation", where):
        citation = None if told is None else checked(Citation, told, "citation", where)
    return StepCard(node.node_id, str(node.kind), node.text, citation, node.meta.get("artifact"))
