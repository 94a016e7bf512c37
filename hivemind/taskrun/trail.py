"""The trail of a task: its reasoning graph, as its agent writes and reads it.

The task is the root, and each step is a subtask node below it, both in the shared lane. Findings and conclusions are cards below
the step. They are drafts in the agent's lane until they are published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any

from hivemind.boundary import as_dataclass, boundary
from hivemind.coordination import Commits
from hivemind.documents import Citation
from hivemind.frozen import frozen
from hivemind.masking import mask
from hivemind.minds.mind import UNANSWERED
from hivemind.presence.parts import Parts
from hivemind.reasoning import LOG_NAME, Branch, MergeReport, NodeKind, ReasoningGraph, ReasoningNode, TaskGraph
from hivemind.taskrun.planned_step import PlannedStep
from hivemind.tasks import Task

WITHDRAWN = "rejected"


@frozen
class StepCard:
    """A card of a step: its text, and its citation or file, if any. `is_unanswered`: it says that there is no answer."""

    node: int
    kind: str
    text: str
    citation: Citation | None = None
    artifact: str | None = None
    is_unanswered: bool = False


class TaskTrail:
    """One task's graph for the agent that works on the task. Drafts of the agent are in the lane `lane`, which others do not see.

    A step's folded nodes are unfolded when work on the step continues. New cards reach the disk (`sync`) only before the journal
    refers to them, and at the end.
    """

    def __init__(self, hive: Parts, task: Task, agent: str, authority: Callable[[str], Mapping[str, Any]]) -> None:
        """Open the graph. `authority` returns the arguments that authorise a change of a step: `agent_id` and `generation`."""
        self._task, self.agent, self._steps, self._authority = task, agent, hive.steps, authority
        self.lane = hive.agents[agent].lane or f"agent/{agent}"
        self._commits = Commits(hive.journal, task.id)
        self.store = TaskGraph(task.path, lazy=True, is_committed=self._commits.has, guard=self._guard)
        self._has_new_cards = (task.path / LOG_NAME).exists()  # an earlier process may have written some

    def _guard(self, steps: Sequence[str]) -> AbstractContextManager[None]:
        """Return a context manager for a write to the steps: no lease can change in its block. Entering it fails if another agent
        has taken the lease of one of them."""
        return self._steps.freeze_leases(self._generations(steps), self.agent)

    def _generations(self, steps: Sequence[str]) -> dict[str, int | None]:
        return {step: self._authority(step)["generation"] for step in steps}

    def add_steps(self, steps: Sequence[PlannedStep]) -> None:
        """Add the task and its steps to the graph, and close the nodes of steps that are done."""
        if all(self._has_current_node(step) for step in steps):
            return
        with self.store.change(self.agent) as graph:
            for step in steps:
                node = self.subtask(step.id) or (None if step.is_implicit else self._ensure_subtask(graph, step))
                if node is not None and step.step.status == "done" and node.status != "closed":
                    graph.update_node(node.node_id, status="closed")

    def _has_current_node(self, step: PlannedStep) -> bool:
        node = self.subtask(step.id)
        return step.is_implicit if node is None else step.step.status != "done" or node.status == "closed"

    def ensure_root(self, graph: ReasoningGraph) -> ReasoningNode:
        """Return the task node of this task's graph (or of a copy of it); add it if it is missing."""
        return graph.root or graph.add_node(
            NodeKind.TASK, mask(self._task.text or self._task.title), title=mask(self._task.title)
        )

    def subtask(self, step_id: str) -> ReasoningNode | None:
        """Return the node of a step; None if the graph has none for it."""
        return next((node for node in self.store.graph.by_step(step_id) if node.kind is NodeKind.SUBTASK), None)

    def _ensure_subtask(self, graph: ReasoningGraph, step: PlannedStep) -> ReasoningNode:
        root, node = self.ensure_root(graph), self.subtask(step.id)
        if node is None:
            node = graph.add_node(NodeKind.SUBTASK, step.todo.title, title=step.todo.title, step=step.id)
            graph.add_edge(root.node_id, node.node_id, "decompose")
        _unfold(graph, node)
        return node

    def add_card(
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
        """Add a card below a step, under the step's lease, and return its id. If the step has an equal card, return that one's
        id: after a crash the step is repeated. For a card with a `citation`, also capture a receipt for the quote in the journal;
        without a receipt the card does not count."""

        def capture(commit_id: str) -> None:
            assert citation is not None
            receipt = {"kind": "LINK", "text": citation.place, "digest": citation.digest}
            self._steps.capture(step.id, receipt, commit_id=commit_id, **self._authority(step.id))

        card_meta, text, title = dict(meta or {}), mask(text), mask(title)
        if citation is not None:
            card_meta["citation"] = asdict(citation)
        for existing in self.store.graph.by_step(step.id):
            if self._is_card(existing) and existing.kind == kind and existing.text == text and existing.title == title:
                return existing.node_id
        with self.store.change(self.agent, commit=None if citation is None else capture) as graph:
            parent = self._ensure_subtask(graph, step)
            node = graph.add_node(
                kind, text, title=title, tags=tuple(tags), lane=self.lane, step=step.id, meta=card_meta
            )
            graph.add_edge(parent.node_id, node.node_id, "support" if kind == NodeKind.EVIDENCE else "")
            self._has_new_cards = True
            return node.node_id

    def add_subtask_result(self, task_id: str, title: str, text: str, step_id: str | None) -> None:
        """Add a subtask's result as one closed node, which represents the subtask's whole graph."""
        if any(node.meta.get("task") == task_id for node in self.store.graph.nodes.values()):
            return
        with self.store.change(self.agent) as graph:
            parent = (None if step_id is None else self.subtask(step_id)) or self.ensure_root(graph)
            node = graph.add_node(
                NodeKind.SUBTASK, mask(text), title=mask(title), status="closed", meta={"task": task_id}
            )
            graph.add_edge(parent.node_id, node.node_id, "decompose")

    def link(self, src: int, dst: int, relation: str) -> None:
        with self.store.change(self.agent) as graph:
            graph.add_link(src, dst, relation)
            self._has_new_cards = True

    def withdraw(self, step_id: str, cards: Sequence[int]) -> None:
        """Mark quotes of a step as rejected; the nodes stay in the graph. Reopen the step's node if no quote is left."""
        with self.store.change(self.agent) as graph:
            for node in cards:
                graph.update_node(node, status=WITHDRAWN)
            step = self.subtask(step_id)
            if step is not None and all(card.citation is None for card in self.cards_of(step_id)):
                _unfold(graph, step)
                graph.update_node(step.node_id, status="open")

    def cards_of(self, step_id: str) -> list[StepCard]:
        """Return the step's cards in order of creation, without withdrawn cards and published copies."""
        return [_card(node) for node in self.store.graph.by_step(step_id) if self._is_card(node)]

    def publish_all(self) -> None:
        """Publish this agent's drafts to the shared lane, except already published ones.

        Cards without a step stay drafts: they are notes of the conversation, not findings.
        """
        for draft in [node for node in self.store.graph.by_lane(self.lane) if node.step and self._is_card(node)]:
            if not self._is_published(draft):
                self.publish(draft.node_id, include_hidden=True)

    def publish(self, card: int, *, include_hidden: bool = False) -> int:
        """Publish one draft, and return the id of its copy in the shared lane. A folded draft, or a draft taken out of the
        context, needs `include_hidden`. Raises GraphError."""
        step = self.store.graph.node(card).step

        def commit(commit_id: str) -> None:
            generation = self._authority(step)["generation"] if step is not None else None
            self._commits.publish(
                commit_id, card=card, agent_id=self.agent, step_id=step, generation=generation, lane=self.lane
            )

        return self.store.publish(card, agent_id=self.agent, commit=commit, hidden=include_hidden).node_id

    def branch(self, name: str, base: str) -> Branch:
        """Create a branch of the task's graph from the branch `base`. Raises GraphError."""
        return self.store.create_branch(
            name,
            base=base,
            agent_id=self.agent,
            commit=lambda commit_id, new_branch: self._commits.branch(
                "created",
                name,
                agent_id=self.agent,
                commit_id=commit_id,
                base=new_branch.base,
                base_seq=new_branch.base_seq,
            ),
        )

    def merge(self, source: str, into: str, resolve: Mapping[str, str], *, dry_run: bool) -> MergeReport:
        """Merge the changes of one branch of the graph into another, and return what changed and conflicts. `resolve` says how to
        resolve conflicts; with `dry_run` nothing is written. Raises GraphError."""
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

    def trace(self, actions: Iterable[tuple[str, str]], step_id: str | None, finished: Sequence[PlannedStep]) -> None:
        """Add actions (kind, text) to the trace, and close the nodes of finished steps."""
        with self.store.change(self.agent):
            self.add_steps(finished)
            self.store.add_traces(actions, agent_id=self.agent, lane=self.lane, step=step_id)

    def sync(self) -> None:
        """Sync new cards to the disk, before a write elsewhere refers to them."""
        if self._has_new_cards:
            self.store.sync()
            self._has_new_cards = False

    def save(self) -> None:
        """Write graph.json: the whole graph, for people and other programs. Sync it, unless all nodes are steps: those are in
        the journal, too."""
        graph = self.store.graph
        has_more = any(not self._is_step(node) and node is not graph.root for node in graph.nodes.values())
        self.store.save_snapshot(sync=has_more or bool(self.store.notes()))

    @staticmethod
    def _is_step(node: ReasoningNode) -> bool:
        return node.kind is NodeKind.SUBTASK and node.step is not None

    @staticmethod
    def _is_card(node: ReasoningNode) -> bool:
        is_content = node.kind not in (NodeKind.TASK, NodeKind.SUBTASK, NodeKind.SUMMARY)
        return is_content and node.status != WITHDRAWN and "origin" not in node.meta


def _unfold(graph: ReasoningGraph, node: ReasoningNode) -> None:
    """Unfold each summary that contains the node, until the node itself is visible."""
    while (summary := graph.representative(node.node_id)) is not node:
        graph.unfold(summary.node_id)


def _card(node: ReasoningNode) -> StepCard:
    fields = node.meta.get("citation")
    location = f"node {node.node_id}"
    with boundary("citation", location):
        citation = None if fields is None else as_dataclass(Citation, fields, "citation", location)
    is_unanswered = UNANSWERED in node.tags
    return StepCard(node.node_id, str(node.kind), node.text, citation, node.meta.get("artifact"), is_unanswered)
