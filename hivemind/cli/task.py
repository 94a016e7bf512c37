"""Add, list, show, retry, cancel, merge and replay tasks, read what was said in one, and say more to it.

A task is a file: dropping one into tasks/inbox/ does the same as `task add`.

examples:
  hivemind task add "What is a lease?"
  hivemind task list
  hivemind task show what-is-a-lease
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hivemind.boundary import boundary
from hivemind.cli.command import Answer, Arg, Attached, Positive, Text, command
from hivemind.cli.opening import caller, known_agent, listed, look_at, open_hive
from hivemind.cli.output import say, sheet, table_lines
from hivemind.cli.text import age, fit, is_terminal, one_line
from hivemind.errors import HivemindError, UserError
from hivemind.layout import EXCHANGE

if TYPE_CHECKING:
    from hivemind.hive import Hive
    from hivemind.replay import Replay
    from hivemind.tasks import Task, TaskSummary

_COLUMNS = ("id", "state", "owner", "hive", "since", "parent", "title", "note")
_SELDOM = ("hive", "parent")  # shown where a task has one
_DIFFERENCE_CHARS = 160
_AT_ONCE = 50  # so many rows of each state a person is shown unasked


@command("task add", open_hive, agents=True)
def add(
    hive: Hive,
    text: Text | None = None,
    *,
    file: Annotated[str | None, Arg(file=True)] = None,
    title: str | None = None,
    assignee: str | None = None,
    role: str | None = None,
    where: str | None = None,
    priority: str | None = None,
    project: str | None = None,
    depends: list[str] | None = None,
    deadline: str | None = None,
    id_: str | None = None,
    attach: Attached = None,
) -> Answer:
    """Give the swarm a task; prints its id.

    The text is Markdown, with or without front matter; options win over the front matter. tasks/README.md says
    what it may hold (steps, success criteria, proof).

    arguments:
      TEXT  what is to be done; - reads standard input
      --file FILE  take the text from a file (Markdown, or YAML with a text: key)
      --title TEXT  its title (default: the first line)
      --assignee AGENT  only this agent may claim it
      --role ROLE  only agents of this role may claim it
      --where HIVE  this linked hive works on it; any: whichever has an idle agent
      --priority P  critical, high, medium, low, or 0 (first) to 99 (last)
      --project NAME  the project that it belongs to
      --depends TASK[,TASK]  tasks that must be done before
      --deadline WHEN  2026-11-21, or 2026-11-21T18:00Z
      --id ID  its id (default: made from the title)
      --attach FILE  a file or folder to go with it

    examples:
      hivemind task add "What is a lease?"
      hivemind task add --file survey.md --attach figures.csv --priority high
      echo "Summarise the notes" | hivemind task add - --assignee researcher
    """
    if file is not None and text is not None:
        raise UserError("a text and --file are two tasks", mend="give one of them")
    if file is None and text is None and title is None:
        raise UserError("a task needs a text", mend='hivemind task add "What is a lease?", or - for standard input')
    if text is not None and os.path.isfile(text):
        raise UserError("is a file, and --file was not said", where=text, mend=f"hivemind task add --file {text}")
    told = text if file is None else _read(Path(file))
    if assignee is not None and where is None and not any(assignee in one for one in hive.linked.agents.values()):
        known_agent(hive, assignee)
    task_id = hive.tasks.add(
        told,
        by=caller(hive.layout),
        id=id_,
        title=title,
        project=project,
        priority=priority,
        assignee=assignee,
        role=role if role is None or where is not None else _known_role(hive, role),
        where=where,
        dependencies=[hive.tasks.get(one).id for one in listed(depends)],
        deadline=deadline,
        attachments=[_readable(path) for path in attach or ()],
    )
    return Answer({"id": task_id}, [task_id])


def _read(path: Path) -> str:
    """The text of a task file; one that is YAML as a whole becomes front matter and text. Raises TaskProblem."""
    import yaml

    from hivemind.frontmatter import parse
    from hivemind.tasks.form import is_yaml, read_text

    try:
        raw = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot be read ({error.strerror})", where=path) from None
    read_text(raw, str(path))
    with boundary("task file", path):
        text = raw.decode("utf-8")
    if not is_yaml(path.name):
        return text
    fields = parse(text, path).values
    body = fields.pop("text", None) or ""
    return f"---\n{yaml.safe_dump(fields, allow_unicode=True, sort_keys=False)}---\n{body}"


def _readable(path: str) -> str:
    if not Path(path).exists():
        raise UserError("is not there to be attached", where=path)
    return path


def _known_role(hive: Hive, text: str) -> str:
    linked = (role for agents in hive.linked.agents.values() for role in agents.values())
    roles = sorted({role for role in (*(agent.role for agent in hive.agents.values()), *linked) if role})
    role = text.strip().lower()
    if role not in roles:
        raise UserError(
            f"no agent of this hive has the role {text!r}", mend=f"their roles: {', '.join(roles) or 'none'}"
        )
    return role


@command("task list", look_at, agents=True)
def tasks(
    hive: Hive,
    *,
    state: Annotated[Literal["inbox", "active", "done", "failed"] | None, Arg(apart="which")] = None,
    ignored: Annotated[bool, Arg(apart="which")] = False,
    archived: bool = False,
    limit: Positive | None = None,
    json: bool,
) -> Answer:
    """List tasks: waiting ones in the order in which they will be claimed, others by time.

    arguments:
      --state  only those
      --ignored  names in tasks/inbox and tasks/active that are not tasks, and why
      --archived  those in the archive, by the time of their end
      --limit N  at most so many of each state: those that are claimed next, and the latest of the others (default: 50
          on a terminal, else all)

    examples:
      hivemind task list --state failed
    """
    from hivemind.swarm.idle import said_why

    strange = hive.tasks.ignored()
    if ignored:
        rows = [asdict(one) for one in strange]
        return Answer(rows, table_lines(rows, ("name", "why"), empty="Nothing is ignored."))
    if archived:
        found = hive.tasks.archived(state)[-(limit or 0) :]
    else:
        limit = limit or (_AT_ONCE if is_terminal() and not json else None)
        found = said_why(hive, hive.tasks.list(state, most=limit))
    records = [_record(task) for task in found]

    def lines() -> Iterator[str]:
        rows = [
            {**one, "since": age(task.since), "note": _note(task)} for one, task in zip(records, found, strict=True)
        ]
        shown = [name for name in _COLUMNS if name not in _SELDOM or any(row[name] for row in rows)]
        yield from table_lines(rows, shown, empty=f"No tasks{f' in {state}' if state else ''}.")
        if limit is not None and not archived:
            yield from _left_out(hive, found, limit)
        passed_over = sum(one.name.lower() != "readme.md" for one in strange)
        if passed_over and state not in ("done", "failed") and not archived:
            yield f"ignored names in tasks/: {passed_over}; hivemind task list --ignored shows why"

    return Answer(records, lines())


def _left_out(hive: Hive, shown: Iterable[TaskSummary], limit: int) -> Iterator[str]:
    """Of which states more than the limit are there."""
    rows = Counter(task.state.value for task in shown)
    for state, there in hive.tasks.counts().items():
        if rows[state] == limit < there:
            which = "first" if state == "inbox" else "latest"
            yield f"{there:,} are in {state}, the {which} {limit:,} are shown: --limit {there} shows all"


def _record(task: TaskSummary) -> dict[str, Any]:
    shown = {
        one.name: getattr(task, one.name) for one in fields(task)
    }  # asdict copies all that is in it: half of a listing
    return {**shown, "state": task.state.value, "parked": None if task.parked is None else asdict(task.parked)}


def _note(task: TaskSummary) -> str | None:
    """Why it does not go on, if it does not."""
    return task.error or task.problem or task.waiting or (f"parked: {task.parked.reason}" if task.parked else None)


@command("task show", look_at)
def show(hive: Hive, ids: list[str]) -> Answer:
    """Show tasks: where each stands, and its result or why it failed.

    arguments:
      TASK  the task's id

    examples:
      hivemind task show what-is-a-lease
    """
    shown = [_whole(hive, task_id) for task_id in ids]
    rule = "\n" + "=" * 72
    lines = (line for at, one in enumerate(shown) for line in [*([rule] if at else ()), *_task_lines(one)])
    return Answer(shown if len(shown) > 1 else shown[0], lines)


def _whole(hive: Hive, task_id: str) -> dict[str, Any]:
    """A task with its outcome: the text of result.md or error.md, if it has one.

    Of a drop whose text cannot be read as a task: where it lies and why, which is what a person looks for.
    """
    from hivemind.tasks import TaskProblem

    try:
        task = hive.tasks.get(task_id)
    except TaskProblem:
        unread = hive.tasks.unread(task_id)
        if unread is None:
            raise
        told = _common(unread)
        notes = [unread.problem] if unread.problem and not (unread.waiting or told["error"]) else []
        nothing = dict.fromkeys(("subtasks", "dependencies", "said", "attachments"), ())
        return (
            told
            | nothing
            | {"waiting": unread.waiting, "notes": notes}
            | dict.fromkeys(("deadline", "parked", "text", "used", "hive"))
        )
    return _common(task) | {
        "subtasks": task.subtasks,
        "dependencies": task.dependencies,
        "deadline": task.deadline,
        "waiting": hive.tasks.waiting_for(task.id) if task.state.value == "inbox" else None,
        "parked": asdict(task.parked) if task.parked else None,
        "said": [asdict(said) for said in task.said],
        "notes": task.notes,
        "attachments": [str(path) for path in task.attachments],
        "text": task.text,
        "used": _used(hive, task.id),
        "hive": task.kept.get("hive"),
    }


def _used(hive: Hive, task_id: str) -> dict[str, Any] | None:
    """What its turns have used so far; None before the first, and for a record that cannot be read."""
    from hivemind.taskrun.report import Account

    with suppress(HivemindError, OSError):
        spent = Account(hive.tasks.read_log(task_id)).spent()
        return asdict(spent) if spent.cycles else None
    return None


def _common(task: Task | TaskSummary) -> dict[str, Any]:
    from hivemind.tasks import read_outcome

    same = ("id", "title", "owner", "maker", "parent", "priority", "project", "assignee", "role")
    return {
        **{name: getattr(task, name) for name in same},
        "state": task.state.value,
        "path": str(task.path),
        "result": read_outcome(task.path) if task.state.value == "done" else None,
        "error": read_outcome(task.path) if task.state.value == "failed" else None,
    }


def _task_lines(task: dict[str, Any]) -> Iterator[str]:
    from hivemind.taskrun.report import Spent

    parked = task["parked"]
    until = f" (until {parked['until']})" if parked and parked["until"] and task["owner"] != EXCHANGE else ""
    heads = (
        ("Task", f"{task['id']}: {task['title']}" if task["title"] != task["id"] else task["id"]),
        ("State", f"{task['state']}, in {task['path']}"),
        ("Agent", task["owner"]),
        ("Done by hive", task.get("hive")),
        ("Made by", None if task["maker"] == "human" else task["maker"]),
        ("For", task["assignee"] or (f"role {task['role']}" if task["role"] else None)),
        ("Part of", task["parent"]),
        ("Parts", ", ".join(task["subtasks"])),
        ("After", ", ".join(task["dependencies"])),
        ("Deadline", task["deadline"]),
        ("Waiting", task["waiting"]),
        ("Parked", f"{parked['reason']}{until}" if parked else None),
        ("Used", Spent(**task["used"]).in_words if task["used"] else None),
        *(("Added", f"by {said['by']} at {said['at']}: {said['text']}") for said in task["said"]),
        *(("Note", note) for note in task["notes"]),
    )
    return sheet(heads, task["result"] or task["error"] or None)


@command("task say", open_hive)
def say_more(hive: Hive, id_: str, text: Text) -> Answer:
    """Say more about a task that an agent has already claimed.

    arguments:
      TASK  the task's id
      TEXT  what is to be added; - reads standard input

    examples:
      hivemind task say what-is-a-lease "And what is a lane?"
    """
    where = hive.tasks.say(id_, text, by=caller(hive.layout))
    return Answer({"id": id_, "path": str(where)}, [f"{id_} is told: {hive.layout.relative(where)}"])


@command("task replay", look_at)
def replay(hive: Hive, id_: str, *, script: bool = False) -> Answer | None:
    """Run a finished task again from its log, without its model.

    Shows each turn that would differ now: another tool call, or another result. Everything happens in a copy that is
    thrown away: no model is asked, no program is run, nothing is sent, and the hive stays as it is. Exit status: 0 if
    no turn differs, 1 if any does.

    arguments:
      TASK  the task's id
      --script  print its thoughts as a script for a scripted mind instead

    examples:
      hivemind task replay what-is-a-lease
      hivemind task replay what-is-a-lease --script > thoughts.jsonl
    """
    from hivemind.hive import Hive
    from hivemind.replay import replay, script_lines

    if script:
        for line in script_lines(hive.tasks.read_log(id_)):
            say(line)
        return None
    found = replay(hive, id_, Hive)
    return Answer({**asdict(found), "differs": found.differs}, _replay_lines(found), 1 if found.differs else 0)


def _replay_lines(found: Replay) -> Iterator[str]:
    other = sum(bool(turn.differences) for turn in found.turns)
    ends = f"{other} of them another way" if other else "all of them as they went"
    yield f"{found.task}: {len(found.turns)} turns of {', '.join(found.agents)} taken again, {ends}."
    for turn in found.turns:
        if turn.differences:
            whose = f" of {turn.agent}" if len(found.agents) > 1 else ""
            yield f"\nTurn {turn.number}{whose}{f', step {turn.step}' if turn.step else ''}:"
        for one in turn.differences:
            yield f"  {one.what} {one_line(one.where)}"
            yield fit(f"    was  {_in_words(one.was)}", _DIFFERENCE_CHARS)
            yield fit(f"    now  {_in_words(one.now)}", _DIFFERENCE_CHARS)


def _in_words(value: Any) -> str:
    if value is None:
        return "nothing"
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


@command("task retry", open_hive)
def retry(hive: Hive, ids: list[str]) -> Answer:
    """Put failed or finished tasks back into the inbox.

    arguments:
      TASK  the task's id

    examples:
      hivemind task retry what-is-a-lease
    """
    return _moved(hive, ids, hive.tasks.retry, "is back in the inbox")


@command("task cancel", open_hive)
def cancel(hive: Hive, ids: list[str]) -> Answer:
    """End waiting or active tasks: they go to tasks/failed/.

    arguments:
      TASK  the task's id

    examples:
      hivemind task cancel what-is-a-lease
    """
    return _moved(hive, ids, partial(hive.tasks.cancel, by=caller(hive.layout)), "is cancelled")


def _moved(hive: Hive, ids: list[str], move: Callable[[str], Path], said: str) -> Answer:
    """Move each task and say where it lies now, also of those that were moved before one could not be."""
    moved: dict[str, Path] = {}
    error: Exception | None = None
    for task_id in ids:
        try:
            moved[task_id] = move(task_id)
        except (HivemindError, OSError) as refused:
            error = refused
            break
    record = [{"id": task_id, "path": str(path)} for task_id, path in moved.items()]
    lines = (f"{task_id} {said}: {hive.layout.relative(path)}" for task_id, path in moved.items())
    return Answer(record, lines, error=error)


@command("task merge", open_hive)
def merge(hive: Hive, ids: list[str], *, json: bool) -> None:
    """Merge the branches of finished tasks into the branches that they were made from.

    arguments:
      TASK  the task's id

    examples:
      hivemind task merge what-is-a-lease
    """
    from hivemind.taskrun.worktree import merge_task

    for task_id in ids:  # each is said as soon as it is done: a later one may be refused
        done = merge_task(hive, task_id)
        Answer({"id": task_id, "merged": done}, done).tell(json)
