"""List, create and merge branches of a task's graph.

examples:
  hivemind graph branch create what-is-a-lease second-thoughts
  hivemind graph branch merge what-is-a-lease second-thoughts --dry-run
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from hivemind.cli.command import Arg, CommandOutput, command
from hivemind.cli.graph import graph_at, graph_of
from hivemind.cli.opening import open_hive, open_read_only
from hivemind.cli.output import table_lines
from hivemind.cli.text import one_line
from hivemind.errors import UserError
from hivemind.layout import HUMAN

if TYPE_CHECKING:
    from hivemind.hive import Hive
    from hivemind.reasoning import MergeConflict, MergeReport, ReasoningGraph, TaskGraph

_ALL = "all"


@command("graph branch list", open_read_only)
def branches(hive: Hive, task: str) -> CommandOutput:
    """List the branches of a task's graph.

    arguments:
      TASK  the task's id

    examples:
      hivemind graph branch list what-is-a-lease
    """
    rows = [asdict(branch) for branch in graph_of(hive, task).branches()]
    return CommandOutput(rows, table_lines(rows, ("name", "base", "base_seq"), empty="There are no branches."))


@command("graph branch create", open_hive)
def create(
    hive: Hive, task: str, name: str, *, from_: str | None = None, at: int | None = None, agent: str = HUMAN
) -> CommandOutput:
    """Create a branch from the present state of its base, or from its state after a line of the log.

    arguments:
      TASK  the task's id
      NAME  the new branch
      --from BRANCH  its base (default: main)
      --at SEQ  the line of the log (default: the last one)
      --agent WHO  who creates it (default: human)

    examples:
      hivemind graph branch create what-is-a-lease second-thoughts --from main --at 12
    """
    task_graph, journal_change = _open_graph(hive, task, agent)
    branch = task_graph.create_branch(
        name,
        base=from_,
        base_seq=at,
        agent_id=agent,
        commit=lambda commit_id, new_branch: journal_change(
            "created",
            new_branch.name,
            agent_id=agent,
            commit_id=commit_id,
            base=new_branch.base,
            base_seq=new_branch.base_seq,
        ),
    )
    return CommandOutput(asdict(branch), [f"Branch {branch.name} sees {branch.base} up to line {branch.base_seq}."])


def _open_graph(hive: Hive, task: str, agent: str) -> tuple[TaskGraph, Callable[..., object]]:
    """Return the graph and the function that records a change of branches in the journal, which makes it valid."""
    from hivemind.coordination import Commits, check_agent

    task_id = hive.tasks.get(task).id
    return graph_of(hive, task_id, check_agent(agent)), Commits(hive.journal, task_id).branch


def _part_label(name: str, graph: ReasoningGraph) -> str:
    """Return the name of a part of a graph; for a node with its kind and heading."""
    kind, _, node_id = name.partition(" ")
    if kind != "node":
        return name
    node = graph.node(node_id)
    return f"{name} [{node.kind.value}] {one_line(node.heading)}"


@command("graph branch merge", open_hive)
def merge(
    hive: Hive,
    task: str,
    source: str,
    *,
    into: str = "main",
    dry_run: bool = False,
    use_from: Annotated[list[str] | None, Arg(flag_value=_ALL)] = None,
    use_into: Annotated[list[str] | None, Arg(flag_value=_ALL)] = None,
    agent: str = HUMAN,
) -> CommandOutput:
    """Merge the changes of one branch into another.

    A part that both branches have changed is a conflict. Nothing is written while a conflict is unresolved (exit status
    1). --use-from and --use-into resolve the named conflict, or, without a name, all others.

    arguments:
      TASK  the task's id
      FROM  the branch with the changes
      --into BRANCH  the branch to change (default: main)
      --dry-run  only show what would be done
      --use-from CONFLICT  take the version of FROM: for this conflict (node 4, edge 3 -> 7), or for all
      --use-into CONFLICT  keep the version of the other branch: for this conflict (node 4, edge 3 -> 7), or for all
      --agent WHO  who merges (default: human)

    examples:
      hivemind graph branch merge what-is-a-lease second-thoughts --dry-run
      hivemind graph branch merge what-is-a-lease second-thoughts --use-from 'node 4' --use-into
    """
    task_graph, journal_change = _open_graph(hive, task, agent)
    resolution: dict[str, str] = {}
    if use_from or use_into:
        conflicts = task_graph.merge(source, into=into, dry_run=True).conflicts
        resolution = _resolution(use_from or (), use_into or (), [conflict.name for conflict in conflicts])
    report = task_graph.merge(
        source,
        into=into,
        resolve=resolution,
        dry_run=dry_run,
        agent_id=agent,
        commit=lambda commit_id, steps: journal_change(
            "merged", source, agent_id=agent, commit_id=commit_id, steps=dict.fromkeys(steps), into=into
        ),
    )
    if report.written:
        hive.graph_index.refresh(
            task_graph.folder.name
        )  # searches do not check the graphs of finished tasks for changes
    lines = _merge_lines(report, graph_at(task_graph, source), source, into)
    return CommandOutput(asdict(report), [*lines], 1 if report.conflicts else 0)


def _resolution(use_from: Sequence[str], use_into: Sequence[str], conflicts: Sequence[str]) -> dict[str, str]:
    """Return the side to use for each conflict. A named conflict takes precedence over "all". Raises UserError."""
    choices: dict[str, str] = {}
    sides_for_all = [
        side for side, conflict_names in (("use_from", use_from), ("use_into", use_into)) if _ALL in conflict_names
    ]
    if len(sides_for_all) > 1:
        raise UserError(
            "--use-from and --use-into cannot both apply to all", remedy="name the conflicts of one of them"
        )
    for side_name, names in (("use_from", use_from), ("use_into", use_into)):
        for name in map(_conflict_name, names):
            if name == _ALL:
                continue
            if name not in conflicts:
                raise UserError(f"there is no conflict {name!r}", remedy=f"there are: {', '.join(conflicts) or 'none'}")
            if choices.setdefault(name, side_name) != side_name:
                raise UserError(f"conflict {name!r} has two choices", remedy="leave one of them out")
    return {**(dict.fromkeys(conflicts, sides_for_all[0]) if sides_for_all else {}), **choices}


def _conflict_name(text: str) -> str:
    """Return the full name of a conflict from its short forms: `4`, `edge 3->7`."""
    name = " ".join(text.replace("->", " → ").split())
    return f"node {name}" if name.isdecimal() else name


def _merge_lines(report: MergeReport, graph: ReasoningGraph, source: str, into: str) -> Iterator[str]:
    direction, taken_count = f"{source} into {into}", len(report.merged_names)
    yield from (f"take {_part_label(name, graph)}" for name in report.merged_names)
    for conflict in report.conflicts:
        yield f"conflict {conflict.name}"
        yield from _conflict_lines(conflict, source, into)
    if not taken_count and not report.conflicts:
        yield (
            f"{direction}: settled, no change is taken over."
            if report.written
            else f"{direction}: no change is missing there."
        )
    elif report.written:
        yield f"{direction}: {taken_count} taken over."
    elif report.conflicts:
        name = report.conflicts[0].name
        yield (
            f"{direction}: nothing is written. Choose with --use-from and --use-into, for all or by name: --use-from '{name}'"
        )
    else:
        yield f"{direction}: {taken_count} would be taken over, nothing is written."


def _conflict_lines(conflict: MergeConflict, source: str, into: str) -> Iterator[str]:
    source_fields, into_fields = _flatten(conflict.use_from), _flatten(conflict.use_into)
    for key in sorted({*source_fields, *into_fields}):
        if source_fields.get(key) != into_fields.get(key):
            yield f"  {key}: {_field_text(source_fields, key)} ({source}), {_field_text(into_fields, key)} ({into})"


def _field_text(part: dict[str, Any], key: str) -> str:
    return one_line(str(part.get(key, "-")))


def _flatten(part: dict[str, Any] | None) -> dict[str, Any]:
    """Return the fields of a part of a graph merged with those of its `meta`."""
    fields = dict(part or {})
    meta: dict[str, Any] = fields.pop("meta", {})
    return fields | meta
