"""See a task's reasoning graph, find nodes in all of them, publish cards, work with branches.

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

from hivemind.cli.command import Answer, Positive, command
from hivemind.cli.opening import look_at, open_hive
from hivemind.cli.output import cut, progress, warn
from hivemind.cli.text import card_line, one_line
from hivemind.errors import UserError
from hivemind.frozen import frozen

if TYPE_CHECKING:
    from hivemind.hive import Hive
    from hivemind.reasoning import NodeHit, ReasoningGraph, ReasoningNode, TaskGraph


def tree_lines(graph: ReasoningGraph, *, every: bool) -> Iterator[str]:
    """One line a node, below its oldest parent. `every` shows what is folded below its summary, and what is flushed."""
    for depth, node in graph.outline(every=every):
        yield "Hanging on nothing:" if node is None else "  " * depth + _line(graph, node)


def _line(graph: ReasoningGraph, node: ReasoningNode) -> str:
    return card_line(node.node_id, node.kind.value, _marks(graph, node), node.title, node.text)


def _marks(graph: ReasoningGraph, node: ReasoningNode) -> Iterator[str]:
    """What is not as usual: open, active, shared, below one parent and said of nothing."""
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
    """`3–5 9`: numbers in their order, runs of three and more by their ends."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else " ".join(map(str, run)) for run in runs)


@frozen(kw_only=True)
class Which:
    """Which state of a graph is shown.

    arguments:
      --at SEQ  as it was after this line of its log (default: now)
      --branch NAME  a branch of it (default: main)
      --all  with what is folded and flushed
    """

    at: int | None = None
    branch: str | None = None
    all_: bool = False


def graph_of(hive: Hive, task_id: str, agent: str | None = None) -> TaskGraph:
    """The graph of a task, wherever it lies, open for `agent` to change. Raises UserError if it has none.

    A change of what belongs to a step is refused while another holds it (StepLeaseHeld).
    """
    from hivemind.coordination import Commits
    from hivemind.reasoning import LOG_NAME, TaskGraph
    from hivemind.tasks import TaskState

    task = hive.tasks.get(task_id)
    log = task.path / LOG_NAME
    if not log.is_file() or not log.stat().st_size:  # it is made when it is first locked, before anything is written
        shown = f"hivemind task show {task.id}"
        if task.state in (TaskState.DONE, TaskState.FAILED):
            raise UserError("the task has ended without a graph", where=task.id, mend=f"see what it has: {shown}")
        raise UserError("the task has no graph yet", where=task.id, mend=f"it gets one with its first step: {shown}")

    def guard(steps: Sequence[str]) -> AbstractContextManager[None]:
        return hive.steps.guard_all(dict.fromkeys(steps), agent)

    return TaskGraph(task.path, durable=hive.config.durable, committed=Commits(hive.journal, task.id).has, guard=guard)


def graph_at(store: TaskGraph, branch: str | None, seq: int | None = None) -> ReasoningGraph:
    """The graph of a branch as it is, or as it was after line `seq` of its log. Raises GraphError."""
    return store.at(store.seq if seq is None else seq, branch)


@command("graph show", look_at)
def show(hive: Hive, task: str, *, which: Which) -> Answer:
    """Show the graph as a tree.

    Unless its brackets say otherwise, a node is open, active and in the shared lane.

    arguments:
      TASK  the task's id

    examples:
      hivemind graph show what-is-a-lease --all
      hivemind graph show what-is-a-lease --at 12
    """
    store = graph_of(hive, task)
    graph = graph_at(store, which.branch, which.at)
    found, branch = hive.tasks.get(task), which.branch or "main"
    hidden = Counter(
        "folded" if one.active is False else "flushed" for one in graph.nodes.values() if one.active is not True
    )
    counts = ", ".join([f"{len(graph.nodes)} nodes", *(f"{number} {word}" for word, number in sorted(hidden.items()))])

    def lines() -> Iterator[str]:
        yield f"{found.id} ({found.state.value}), branch {branch}, line {graph.seq} of {store.seq}: {counts}"
        yield from tree_lines(graph, every=which.all_)
        for one in graph.conflicts():
            yield f"Conflict: {one.kind.value} {ranges(one.node_ids)} of tag {one_line(one.tag)} disagree."
        if hidden and not which.all_:
            yield "--all shows what is folded and flushed."

    record = {"task": found.id, "state": found.state.value, "branch": branch, "of_seq": store.seq, **graph.to_dict()}
    return Answer(record, cut(lines()))


@command("graph publish", open_hive)
def publish(hive: Hive, task: str, node: int, *, agent: str) -> Answer:
    """Copy a draft from an agent's lane to the shared one.

    Publishing it again changes nothing, unless the draft has changed: then its copy gets a new revision.

    arguments:
      TASK  the task's id
      NODE  its number, as `graph show` has it
      --agent AGENT  whose draft it is

    examples:
      hivemind graph publish what-is-a-lease 7 --agent researcher
    """
    from hivemind.coordination import Commits, check_agent, lane_visible

    check_agent(agent)
    task_id = hive.tasks.get(task).id
    store = graph_of(hive, task_id, agent)
    draft = store.graph.node(node)
    lane = hive.agents[agent].lane if agent in hive.agents else None  # the one that its file names for its drafts
    if not lane_visible(draft.lane, agent, drafts=lane):
        named = [name for name, one in hive.agents.items() if one.lane == draft.lane]
        owner = named[0] if named else draft.lane.partition("/")[2]
        raise UserError(f"node {draft.node_id} is a draft of {draft.lane}", mend=f"--agent {owner}")
    commits = Commits(hive.journal, task_id)
    copy = store.publish(
        draft.node_id,
        agent_id=agent,
        commit=lambda name: commits.publish(name, card=draft.node_id, agent_id=agent, step_id=draft.step, lane=lane),
    )
    hive.graph_index.refresh(task_id)  # of a finished task no search looks whether its graph has changed
    origin = copy.meta["origin"]
    line = f"Node {draft.node_id} stands in the shared lane as node {copy.node_id}, revision {origin['revision']}."
    return Answer({"node": copy.node_id, "origin": origin}, [line])


@command("graph find", look_at)
def find(hive: Hive, query: str, *, task: str | None = None, limit: Positive = 10) -> Answer:
    """Find nodes in the graphs of all tasks, by words and by meaning.

    Nodes of every status and every lane, of tasks in any state. The index, .hive/graphs.db, is built from the graphs'
    own files, and brought up to date first.

    arguments:
      QUERY  words or a question; any characters
      --task TASK  only in the graph of this task
      --limit N  at most so many (default: 10)

    examples:
      hivemind graph find "why did we take a lease?"
      hivemind graph find lease --task what-is-a-lease --limit 3 --json
    """
    if not query.strip():
        raise UserError("there is nothing to look for", mend="give words, or a question")
    with progress() as tell:
        found = hive.graph_index.find(
            query,
            task=None if task is None else hive.tasks.get(task).path.name,
            limit=limit,
            progress=lambda done, total: tell(f"reading graph {done:,} of {total:,}"),
        )
    for remark in found.remarks:
        warn(remark)
    lines = cut(line for hit in found.hits for line in _hit_lines(hit))
    return Answer([hit.as_dict() for hit in found.hits], lines if found.hits else ["Nothing was found."])


def _hit_lines(hit: NodeHit) -> Iterator[str]:
    said = hit.text if hit.text.startswith(hit.title) else f"{hit.title}: {hit.text}"
    yield f"{one_line(hit.task)} {hit.node_id} [{hit.kind}, {hit.state}, {hit.lane}]  {one_line(hit.path)}"
    yield f"    {one_line(said)}"
    yield f"    score {hit.score:.2f}, similarity {hit.similarity:.2f}: {one_line(hit.why)}"
