"""List, create and merge branches of a task's graph.

examples:
  hivemind graph branch create what-is-a-lease second-thoughts
  hivemind graph branch merge what-is-a-lease second-thoughts --dry-run
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from hivemind.cli.command import Answer, Arg, command
from hivemind.cli.graph import graph_at, graph_of
from hivemind.cli.opening import look_at, open_hive
from hivemind.cli.output import table_lines
from hivemind.cli.text import one_line
from hivemind.errors import UserError
from hivemind.layout import HUMAN

if TYPE_CHECKING:
    from hivemind.hive import Hive
    from hivemind.reasoning import MergeConflict, MergeReport, ReasoningGraph, TaskGraph

_ALL = "all"


@command("graph branch list", look_at)
def branches(hive: Hive, task: str) -> Answer:
    """List the branches of a task's graph.

    arguments:
      TASK  the task's id

    examples:
      hivemind graph branch list what-is-a-lease
    """
    found = [asdict(one) for one in graph_of(hive, task).branches()]
    return Answer(found, table_lines(found, ("name", "base", "base_seq"), empty="There are no branches."))


@command("graph branch create", open_hive)
def create(
    hive: Hive, task: str, name: str, *, from_: str | None = None, at: int | None = None, agent: str = HUMAN
) -> Answer:
    """Make a branch that sees its base up to now, or up to a line of the log.

    arguments:
      TASK  the task's id
      NAME  the new branch
      --from BRANCH  its base (default: main)
      --at SEQ  up to this line (default: now)
      --agent WHO  who does it (default: human)

    examples:
      hivemind graph branch create what-is-a-lease second-thoughts --from main --at 12
    """
    store, tell = _opened(hive, task, agent)
    made = store.create_branch(
        name,
        base=from_,
        base_seq=at,
        agent_id=agent,
        commit=lambda commit_id, made: tell(
            "created", made.name, agent_id=agent, commit_id=commit_id, base=made.base, base_seq=made.base_seq
        ),
    )
    return Answer(asdict(made), [f"Branch {made.name} sees {made.base} up to line {made.base_seq}."])


def _opened(hive: Hive, task: str, agent: str) -> tuple[TaskGraph, Callable[..., object]]:
    """(the graph, how the journal is told of a change: it counts once the journal has it)."""
    from hivemind.coordination import Commits, check_agent

    task_id = hive.tasks.get(task).id
    return graph_of(hive, task_id, check_agent(agent)), Commits(hive.journal, task_id).branch


def _part(name: str, graph: ReasoningGraph) -> str:
    """A part of a graph by its name, a node with what it says."""
    kind, _, rest = name.partition(" ")
    if kind != "node":
        return name
    node = graph.node(rest)
    return f"{name} [{node.kind.value}] {one_line(node.heading)}"


@command("graph branch merge", open_hive)
def merge(
    hive: Hive,
    task: str,
    source: str,
    *,
    into: str = "main",
    dry_run: bool = False,
    use_from: Annotated[list[str] | None, Arg(bare=_ALL)] = None,
    use_into: Annotated[list[str] | None, Arg(bare=_ALL)] = None,
    agent: str = HUMAN,
) -> Answer:
    """Merge what changed in one branch into another.

    What both have changed is a conflict; nothing is written while one is unresolved (exit status 1). --use-from and
    --use-into resolve the conflict that is named, or, without a name, all others.

    arguments:
      TASK  the task's id
      FROM  the branch whose changes are taken
      --into BRANCH  the branch that gets them (default: main)
      --dry-run  say what would be done, write nothing
      --use-from CONFLICT  take what FROM has: in this conflict (node 4, edge 3 -> 7), or in all
      --use-into CONFLICT  take what the other has: in this conflict (node 4, edge 3 -> 7), or in all
      --agent WHO  who does it (default: human)

    examples:
      hivemind graph branch merge what-is-a-lease second-thoughts --dry-run
      hivemind graph branch merge what-is-a-lease second-thoughts --use-from 'node 4' --use-into
    """
    store, tell = _opened(hive, task, agent)
    resolve: dict[str, str] = {}
    if use_from or use_into:
        conflicts = store.merge(source, into=into, dry_run=True).conflicts
        resolve = _resolved(use_from or (), use_into or (), [one.name for one in conflicts])
    report = store.merge(
        source,
        into=into,
        resolve=resolve,
        dry_run=dry_run,
        agent_id=agent,
        commit=lambda commit_id, steps: tell(
            "merged", source, agent_id=agent, commit_id=commit_id, steps=dict.fromkeys(steps), into=into
        ),
    )
    if report.written:
        hive.graph_index.refresh(store.folder.name)  # of a finished task no search looks whether its graph has changed
    lines = _merge_lines(report, graph_at(store, source), source, into)
    return Answer(asdict(report), [*lines], 1 if report.conflicts else 0)


def _resolved(use_from: Sequence[str], use_into: Sequence[str], conflicts: Sequence[str]) -> dict[str, str]:
    """What is chosen for each conflict; one that is named wins over all. Raises UserError for a choice that can't be."""
    chosen: dict[str, str] = {}
    rest = [word for word, given in (("use_from", use_from), ("use_into", use_into)) if _ALL in given]
    if len(rest) > 1:
        raise UserError("--use-from and --use-into can't both be for all", mend="name the conflicts of one of them")
    for word, given in (("use_from", use_from), ("use_into", use_into)):
        for name in map(_conflict_name, given):
            if name == _ALL:
                continue
            if name not in conflicts:
                raise UserError(f"there is no conflict {name!r}", mend=f"there are: {', '.join(conflicts) or 'none'}")
            if chosen.setdefault(name, word) != word:
                raise UserError(f"conflict {name!r} has two choices", mend="leave one of them out")
    return {**(dict.fromkeys(conflicts, rest[0]) if rest else {}), **chosen}


def _conflict_name(text: str) -> str:
    """A conflict as it is named, from what is easier to type: `4`, `edge 3->7`."""
    name = " ".join(text.replace("->", " → ").split())
    return f"node {name}" if name.isdecimal() else name


def _merge_lines(report: MergeReport, graph: ReasoningGraph, source: str, into: str) -> Iterator[str]:
    where, taken = f"{source} into {into}", len(report.taken)
    yield from (f"take {_part(name, graph)}" for name in report.taken)
    for conflict in report.conflicts:
        yield f"conflict {conflict.name}"
        yield from _conflict_lines(conflict, source, into)
    if not taken and not report.conflicts:
        yield f"{where}: settled, nothing of it is taken over." if report.written else f"{where}: it has all of it."
    elif report.written:
        yield f"{where}: {taken} taken over."
    elif report.conflicts:
        name = report.conflicts[0].name
        yield (
            f"{where}: nothing is written. Choose with --use-from and --use-into, for all or by name: --use-from '{name}'"
        )
    else:
        yield f"{where}: {taken} would be taken over, nothing is written."


def _conflict_lines(conflict: MergeConflict, source: str, into: str) -> Iterator[str]:
    one, other = _flat(conflict.use_from), _flat(conflict.use_into)
    for key in sorted({*one, *other}):
        if one.get(key) != other.get(key):
            yield f"  {key}: {_value(one, key)} ({source}), {_value(other, key)} ({into})"


def _value(part: dict[str, Any], key: str) -> str:
    return one_line(str(part.get(key, "-")))


def _flat(part: dict[str, Any] | None) -> dict[str, Any]:
    """The fields of a part of a graph, those of its meta among them."""
    found = dict(part or {})
    meta: dict[str, Any] = found.pop("meta", {})
    return found | meta
