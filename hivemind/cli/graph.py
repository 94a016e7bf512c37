"""Show a task's reasoning graph, find nodes in all graphs, publish cards, work with branches.

examples:
  hivemind graph show what-is-a-lease
  hivemind graph find "why did we take a lease?"
  hivemind graph branch list what-is-a-lease
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from hivemind.cli.command import CommandOutput, Positive, command
from hivemind.cli.open_hive import open_hive, open_read_only
from hivemind.cli.output import cut_lines, warn
from hivemind.cli.styled import progress
from hivemind.cli.text import card_line, one_line
from hivemind.errors import UserError

if TYPE_CHECKING:
    from hivemind.hive import Hive
    from hivemind.reasoning import NodeHit, ReasoningGraph, ReasoningNode, TaskGraph


def tree_lines(graph: ReasoningGraph, *, every: bool) -> Iterator[str]:
    """Yield a line per node, below its oldest parent. `every` adds hidden nodes, and below a summary the nodes folded into it."""
    for depth, node in graph.outline(include_hidden=every):
        if node is None:
            yield "Without a parent:"
        else:
            line = card_line(node.node_id, node.kind.value, _marks(graph, node), node.title, node.text)
            yield "  " * depth + line


def _marks(graph: ReasoningGraph, node: ReasoningNode) -> Iterator[str]:
    """Yield a mark for each fact about a node that is unusual. The usual node is open, active, in the shared lane, with
    one parent and no links."""
    if node.status != "open":
        yield node.status
    if node.active is not True:
        yield "folded" if node.active is False else "flushed"
    if node.lane != "shared":
        yield node.lane
    if node.pinned:
        yield "pinned"
    yield from node.tags
    if node.active is True and node.meta.get("folded"):
        yield f"stands for {ranges(node.meta['folded'])}"
    parents = sorted(graph.parent_ids(node.node_id))
    if len(parents) > 1:
        yield f"below {ranges(parents)}"
    for link in graph.links_from(node.node_id):
        yield f"{link.relation} {link.dst}"


def ranges(numbers: Iterable[int]) -> str:
    """Format numbers in order as `3–5 9`: three or more consecutive numbers are written as a range."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else " ".join(map(str, run)) for run in runs)


def graph_of(hive: Hive, task_id: str, agent: str | None = None) -> TaskGraph:
    """Open the graph of a task, which may have ended, for changes by `agent`. Raises UserError if the task has no graph.

    A change to a card of a step raises StepLeaseHeld while another agent than `agent` has the step's lease.
    """
    from hivemind.coordination import Commits
    from hivemind.reasoning import LOG_NAME, TaskGraph
    from hivemind.tasks import TaskState

    task = hive.tasks.get(task_id)
    log = task.path / LOG_NAME
    if not log.is_file() or not log.stat().st_size:  # locking creates the file before the first write
        shown = f"hivemind task show {task.id}"
        if task.state in (TaskState.DONE, TaskState.FAILED):
            raise UserError("the task has ended without a graph", location=task.id, remedy=f"see {shown}")
        raise UserError(
            "the task has no graph yet", location=task.id, remedy=f"it gets a graph with its first step: {shown}"
        )

    def guard(steps: Sequence[str]) -> AbstractContextManager[None]:
        return hive.steps.freeze_leases(dict.fromkeys(steps), agent)

    return TaskGraph(task.path, is_committed=Commits(hive.journal, task.id).has, guard=guard)


@command("graph show", open_read_only)
def show(hive: Hive, task: str, *, at: int | None = None, branch: str = "main", all_: bool = False) -> CommandOutput:
    """Show a task's graph as a tree.

    A node is open, active and in the shared lane, unless the brackets before its title say otherwise.

    arguments:
      TASK  the task's id
      --at SEQ  the graph after this line of its log (default: now)
      --branch NAME  the branch (default: main)
      --all  include folded and flushed nodes

    examples:
      hivemind graph show what-is-a-lease --all
      hivemind graph show what-is-a-lease --at 12
    """
    task_graph = graph_of(hive, task)
    graph, current_task = task_graph.at(task_graph.seq if at is None else at, branch), hive.tasks.get(task)
    hidden = Counter(
        "folded" if node.active is False else "flushed" for node in graph.nodes.values() if node.active is not True
    )
    counts = ", ".join([f"{len(graph.nodes)} nodes", *(f"{number} {word}" for word, number in sorted(hidden.items()))])

    def lines() -> Iterator[str]:
        yield f"{current_task.id} ({current_task.state.value}), branch {branch}, line {graph.seq} of {task_graph.seq}: {counts}"
        yield from tree_lines(graph, every=all_)
        for conflict in graph.conflicts():
            yield f"Conflict: {conflict.kind.value} {ranges(conflict.node_ids)} of tag {one_line(conflict.tag)} disagree."
        if hidden and not all_:
            yield "--all shows folded and flushed nodes, too."

    record = {
        "task": current_task.id,
        "state": current_task.state.value,
        "branch": branch,
        "of_seq": task_graph.seq,
        **graph.to_dict(),
    }
    return CommandOutput(record, cut_lines(lines()))


@command("graph publish", open_hive)
def publish(hive: Hive, task: str, node: int, *, agent: str) -> CommandOutput:
    """Copy a draft from an agent's lane to the shared one.

    Publishing the same draft again has no effect. If the draft has changed, its copy becomes a new revision.

    arguments:
      TASK  the task's id
      NODE  the draft's number, as shown by `graph show`
      --agent AGENT  the agent that wrote the draft

    examples:
      hivemind graph publish what-is-a-lease 7 --agent researcher
    """
    from hivemind.coordination import Commits, check_agent, is_lane_visible

    check_agent(agent)
    task_id = hive.tasks.get(task).id
    task_graph = graph_of(hive, task_id, agent)
    draft = task_graph.graph.node(node)
    lane = hive.agents[agent].lane if agent in hive.agents else None  # the lane for drafts that the agent's file names
    if not is_lane_visible(draft.lane, agent, draft_lane=lane):
        owners = [name for name, other_agent in hive.agents.items() if other_agent.lane == draft.lane]
        owner = owners[0] if owners else draft.lane.partition("/")[2]
        raise UserError(f"node {draft.node_id} is a draft of {draft.lane}", remedy=f"--agent {owner}")
    commits = Commits(hive.journal, task_id)
    copy = task_graph.publish(
        draft.node_id,
        agent_id=agent,
        commit=lambda commit_id: commits.publish(
            commit_id, card=draft.node_id, agent_id=agent, step_id=draft.step, lane=lane
        ),
    )
    hive.graph_index.refresh(task_id)  # searches do not check the graphs of finished tasks for changes
    origin = copy.meta["origin"]
    line = f"Node {draft.node_id} is in the shared lane as node {copy.node_id}, revision {origin['revision']}."
    return CommandOutput({"node": copy.node_id, "origin": origin}, [line])


@command("graph find", open_read_only)
def find(hive: Hive, query: str, *, task: str | None = None, limit: Positive = 10) -> CommandOutput:
    """Find nodes in the graphs of all tasks, by words and by meaning.

    Searches nodes of every status and lane, of tasks in every state. First updates the index, .hive/graphs.db, from the
    graphs' files.

    arguments:
      QUERY  words or a question; any characters
      --task TASK  only in the graph of this task
      --limit N  at most N nodes (default: 10)

    examples:
      hivemind graph find "why did we take a lease?"
      hivemind graph find lease --task what-is-a-lease --limit 3 --json
    """
    if not query.strip():
        raise UserError("the query is empty", remedy="give words, or a question")
    with progress() as report:
        search_report = hive.graph_index.find(
            query,
            task=None if task is None else hive.tasks.get(task).path.name,
            limit=limit,
            progress=lambda done, total: report("reading graphs", done, total),
        )
    for remark in search_report.remarks:
        warn(remark)
    lines = cut_lines(line for hit in search_report.hits for line in _hit_lines(hit))
    return CommandOutput(
        [hit.as_dict() for hit in search_report.hits], lines if search_report.hits else ["Nothing was found."]
    )


def _hit_lines(hit: NodeHit) -> Iterator[str]:
    text = hit.text if hit.text.startswith(hit.title) else f"{hit.title}: {hit.text}"
    yield f"{one_line(hit.task)} {hit.node_id} [{hit.kind}, {hit.state}, {hit.lane}]  {one_line(hit.path)}"
    yield f"    {one_line(text)}"
    yield f"    score {hit.score:.2f}, similarity {hit.similarity:.2f}: {one_line(hit.why)}"
