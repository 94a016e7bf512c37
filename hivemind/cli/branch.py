"""List, create and merge branches of a task's graph.

examples:
  hivemind graph branch create what-is-a-lease second-thoughts
  hivemind graph branch merge what-is-a-lease second-thoughts --dry-run
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from hivemind.cli.command import CommandOutput, command
from hivemind.cli.graph import graph_of
from hivemind.cli.open_hive import open_hive, open_read_only
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
    """Create a branch from the present state of its base branch, or from an earlier state (--at).

    arguments:
      TASK  the task's id
      NAME  the new branch
      --from BRANCH  the base branch (default: main)
      --at SEQ  the state of the base branch after this line of the log (default: the last line)
      --agent WHO  who creates the branch (default: human)

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
    """Return the graph, and a function that records a change of branches in the journal. A change without this record
    has no effect."""
    from hivemind.coordination import Commits, check_agent

    task_id = hive.tasks.get(task).id
    return graph_of(hive, task_id, check_agent(agent)), Commits(hive.journal, task_id).branch


def _part_label(name: str, graph: ReasoningGraph) -> str:
    """Return the name of a node, edge or link of a graph. After the name of a node, add its kind and heading."""
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
    use_from: list[str] | None = None,
    use_into: list[str] | None = None,
    agent: str = HUMAN,
) -> CommandOutput:
    """Merge the changes of one branch into another.

    A part that both branches have changed is a conflict. Nothing is written while a conflict is unresolved (exit status
    1). --use-from and --use-into resolve the named conflict; `all` stands for all conflicts that are not named.

    arguments:
      TASK  the task's id
      FROM  the branch with the changes
      --into BRANCH  the branch to change (default: main)
      --dry-run  only show what would be done
      --use-from CONFLICT  take FROM's version for this conflict, named as in the output of the merge, or for `all`
      --use-into CONFLICT  keep the version of the --into branch for this conflict, or for `all`
      --agent WHO  who merges (default: human)

    examples:
      hivemind graph branch merge what-is-a-lease second-thoughts --dry-run
      hivemind graph branch merge what-is-a-lease second-thoughts --use-from 'node 4' --use-into all
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
        # searches do not check the graphs of finished tasks for changes
        hive.graph_index.refresh(task_graph.folder.name)
    lines = _merge_lines(report, task_graph.at(task_graph.seq, source), source, into)
    return CommandOutput(asdict(report), [*lines], 1 if report.conflicts else 0)


def _resolution(use_from: Sequence[str], use_into: Sequence[str], conflicts: Sequence[str]) -> dict[str, str]:
    """Return "use_from" or "use_into" for each conflict that the options decide. A choice by name overrides "all".
    Raises UserError."""
    choices = {**dict.fromkeys(use_from, "use_from"), **dict.fromkeys(use_into, "use_into")}
    if twice := sorted({*use_from} & {*use_into}):
        raise UserError(f"conflict {twice[0]!r} has two choices", remedy="leave one of them out")
    if unknown := sorted(choices.keys() - {*conflicts, _ALL}):
        raise UserError(f"there is no conflict {unknown[0]!r}", remedy=f"there are: {', '.join(conflicts) or 'none'}")
    return {**(dict.fromkeys(conflicts, choices[_ALL]) if _ALL in choices else {}), **choices}


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
            else f"{direction}: no change is missing in {into}."
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
    """Yield a line for each field that differs between the two branches' versions of the part, including the fields of `meta`."""
    sides = [{**(part or {}), **(part or {}).get("meta", {})} for part in (conflict.use_from, conflict.use_into)]
    for key in sorted(set().union(*sides) - {"meta"}):
        source_text, into_text = (one_line(str(side.get(key, "-"))) for side in sides)
        if source_text != into_text:
            yield f"  {key}: {source_text} ({source}), {into_text} ({into})"
