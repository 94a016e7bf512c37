"""hivemind task: give the swarm work, see what became of it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hivemind.boundary import boundary
from hivemind.cli.given import standard_input
from hivemind.cli.hive_of import hive_of, known_agent, listed, look_at
from hivemind.cli.output import print_json, print_table, say
from hivemind.cli.parser import Commands, Parser, add_command, add_group, add_json
from hivemind.cli.replay import add_replay
from hivemind.cli.text import age, one_line
from hivemind.cli.transcript import add_transcript
from hivemind.errors import UserError

if TYPE_CHECKING:
    from hivemind.hive import Hive
    from hivemind.tasks import Task, TaskSummary

__all__ = ["add_to"]

STATES = ("inbox", "active", "done", "failed")
_COLUMNS = ("id", "state", "owner", "since", "parent", "title", "note")


def add_to(commands: Commands, common: Parser) -> None:
    task = add_group(
        commands,
        common,
        "task",
        "add, list, show, retry, cancel and replay tasks, read what was said in one, and say more to it",
        examples='  hivemind task add "What is a lease?"\n  hivemind task list\n  hivemind task show what-is-a-lease\n\n'
        "A task is a file: dropping one into tasks/inbox/ does the same as `task add`.",
    )
    _add_add(task, common)
    listing = add_command(
        task, common, "list", _list, "list tasks: waiting ones in the order in which they will be claimed, others by time",
        examples="  hivemind task list --state failed",
    )  # fmt: skip
    which = listing.add_mutually_exclusive_group()
    which.add_argument("--state", choices=STATES, help="only those")
    which.add_argument(
        "--ignored", action="store_true", help="what lies in the inbox and is not taken for a task, and why"
    )
    add_json(listing)
    showing = add_command(
        task, common, "show", _show, "show tasks: where each stands, and its result or why it failed",
        examples="  hivemind task show what-is-a-lease",
    )  # fmt: skip
    showing.add_argument("id", nargs="+", metavar="ID", help="the task's id")
    add_json(showing)
    saying = add_command(
        task, common, "say", _say, "add to a task that was claimed already; its agent goes on with it",
        examples='  hivemind task say what-is-a-lease "And what is a lane?"',
    )  # fmt: skip
    saying.add_argument("id", metavar="ID", help="the task's id")
    saying.add_argument("text", metavar="TEXT", help="what is to be added; - reads standard input")
    add_json(saying)
    add_transcript(task, common)
    add_replay(task, common)
    for name, run, line in (
        ("retry", _retry, "put failed or finished tasks back into the inbox"),
        ("cancel", _cancel, "end waiting or active tasks: they go to tasks/failed/"),
    ):
        parser = add_command(task, common, name, run, line, examples=f"  hivemind task {name} what-is-a-lease")
        parser.add_argument("id", nargs="+", metavar="ID", help="the task's id")
        add_json(parser)


def _add_add(task: Commands, common: Parser) -> None:
    parser = add_command(
        task,
        common,
        "add",
        _add,
        "give the swarm a task; prints its id",
        about="The text is Markdown, with or without front matter; options win over the front matter. tasks/README.md says\n"
        "what it may hold (steps, success criteria, proof).",
        examples='  hivemind task add "What is a lease?"\n'
        "  hivemind task add --file survey.md --attach figures.csv --priority high\n"
        '  echo "Summarise the notes" | hivemind task add - --assignee researcher',
    )
    parser.add_argument("text", nargs="?", metavar="TEXT", help="what is to be done; - reads standard input")
    parser.add_argument("--file", metavar="FILE", help="take the text from a file (Markdown, or YAML with a text: key)")
    parser.add_argument("--title", metavar="TEXT", help="its title (default: the first line)")
    parser.add_argument("--assignee", metavar="AGENT", help="only this agent may claim it")
    parser.add_argument("--role", metavar="ROLE", help="only agents of this role may claim it")
    parser.add_argument("--priority", metavar="P", help="critical, high, medium, low, or 0 (first) to 99 (last)")
    parser.add_argument("--project", metavar="NAME", help="the project that it belongs to")
    parser.add_argument("--depends", action="append", metavar="ID[,ID]", help="tasks that must be done before")
    parser.add_argument("--deadline", metavar="WHEN", help="2026-11-21, or 2026-11-21T18:00Z")
    parser.add_argument("--id", metavar="ID", help="its id (default: made from the title)")
    parser.add_argument("--attach", action="append", default=[], metavar="FILE", help="a file or folder to go with it")
    add_json(parser)


def _add(arguments: argparse.Namespace) -> int:
    hive = hive_of(arguments)
    text = _text_of(arguments)
    if arguments.assignee is not None:
        known_agent(hive, arguments.assignee)
    task_id = hive.tasks.add(
        text,
        id=arguments.id,
        title=arguments.title,
        project=arguments.project,
        priority=arguments.priority,
        assignee=arguments.assignee,
        role=None if arguments.role is None else _known_role(hive, arguments.role),
        dependencies=[_known_task(hive, one) for one in listed(arguments.depends or ())],
        deadline=arguments.deadline,
        attachments=[_readable(path) for path in arguments.attach],
    )
    if arguments.json:
        print_json({"id": task_id})
    else:
        say(task_id)
    return 0


def _text_of(arguments: argparse.Namespace) -> str | None:
    """The task's text. Raises UserError for none, for two, and for what is no UTF-8."""
    if arguments.file is not None and arguments.text is not None:
        raise UserError("a text and --file are two tasks", mend="give one of them")
    if arguments.file is None and arguments.text is None and arguments.title is None:
        raise UserError("there is nothing to do", mend='hivemind task add "What is a lease?", or - for standard input')
    if arguments.file is not None:
        return _read(Path(arguments.file))
    if arguments.text == "-":
        return standard_input()
    return None if arguments.text is None else str(arguments.text)


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
    roles = sorted({agent.role for agent in hive.agents.values() if agent.role})
    role = text.strip().lower()
    if role not in roles:
        raise UserError(
            f"no agent of this hive has the role {text!r}", mend=f"their roles: {', '.join(roles) or 'none'}"
        )
    return role


def _known_task(hive: Hive, text: str) -> str:
    return hive.tasks.get(text).id


def _list(arguments: argparse.Namespace) -> int:
    from hivemind.swarm.overview import said_why

    hive = look_at(arguments)
    ignored = hive.tasks.ignored()
    if arguments.ignored:
        rows = [asdict(one) for one in ignored]
        if arguments.json:
            print_json(rows)
        else:
            print_table(rows, ("name", "why"), empty="Nothing in the inbox is ignored.")
        return 0
    found = said_why(hive, hive.tasks.list(arguments.state))
    if arguments.json:
        print_json([_record(task) for task in found])
        return 0
    rows = [{**_record(task), "since": age(task.since), "note": _note(task)} for task in found]
    shown = [name for name in _COLUMNS if name != "parent" or any(row["parent"] for row in rows)]
    print_table(rows, shown, empty=f"No tasks{f' in {arguments.state}' if arguments.state else ''}.")
    strange = [one for one in ignored if one.name.lower() != "readme.md"]
    if strange and arguments.state in (None, "inbox"):
        say(f"{len(strange)} of the names in the inbox are ignored: hivemind task list --ignored")
    return 0


def _record(task: TaskSummary) -> dict[str, Any]:
    return {**asdict(task), "state": task.state.value, "parked": None if task.parked is None else asdict(task.parked)}


def _note(task: TaskSummary) -> str | None:
    """Why it does not go on, if it does not."""
    return task.error or task.problem or task.waiting or (f"parked: {task.parked.reason}" if task.parked else None)


def _show(arguments: argparse.Namespace) -> int:
    hive = look_at(arguments)
    shown = [_told(hive, task_id) for task_id in arguments.id]
    if arguments.json:
        print_json(shown if len(shown) > 1 else shown[0])
        return 0
    for at, one in enumerate(shown):
        if at:
            say("\n" + "=" * 72)
        _print_task(one)
    return 0


def _told(hive: Hive, task_id: str) -> dict[str, Any]:
    """A task with its outcome: the text of result.md or error.md, if it has one."""
    from hivemind.tasks import TaskProblem

    try:
        task = hive.tasks.get(task_id)
    except TaskProblem:
        for one in hive.tasks.list():
            if one.id == task_id:
                return _told_unread(one)
        raise
    return {
        "id": task.id,
        "title": task.title,
        "state": task.state.value,
        "path": str(task.path),
        "owner": task.owner,
        "maker": task.maker,
        "parent": task.parent,
        "subtasks": list(task.subtasks),
        "priority": task.priority,
        "project": task.project,
        "assignee": task.assignee,
        "role": task.role,
        "dependencies": list(task.dependencies),
        "deadline": task.deadline,
        "waiting": hive.tasks.waiting_for(task.id) if task.state.value == "inbox" else None,
        "parked": asdict(task.parked) if task.parked else None,
        "said": [asdict(said) for said in task.said],
        "notes": list(task.notes),
        "attachments": [str(path) for path in task.attachments],
        "text": task.text,
        "result": _outcome(task, "done", "result.md"),
        "error": _outcome(task, "failed", "error.md"),
    }


def _told_unread(one: TaskSummary) -> dict[str, Any]:
    """The same of a drop whose text cannot be read as a task: where it lies and why are what a person looks for."""
    error, result = _outcome(one, "failed", "error.md"), _outcome(one, "done", "result.md")
    return {
        "id": one.id,
        "title": one.title,
        "state": one.state.value,
        "path": str(one.path),
        "owner": one.owner,
        "maker": one.maker,
        "parent": one.parent,
        "subtasks": [],
        "priority": one.priority,
        "project": one.project,
        "assignee": one.assignee,
        "role": one.role,
        "dependencies": [],
        "deadline": None,
        "waiting": one.waiting,
        "parked": None,
        "said": [],
        "notes": [one.problem] if one.problem and not (one.waiting or error) else [],
        "attachments": [],
        "text": None,
        "result": result,
        "error": error,
    }


def _outcome(task: Task | TaskSummary, state: str, name: str) -> str | None:
    if task.state.value != state:
        return None
    try:
        return (task.path / name).read_text("utf-8", "replace")
    except FileNotFoundError:
        return None


def _print_task(task: dict[str, Any]) -> None:
    parked = task["parked"]
    heads = (
        ("Task", f"{task['id']}: {task['title']}" if task["title"] != task["id"] else task["id"]),
        ("State", f"{task['state']}, in {task['path']}"),
        ("Agent", task["owner"]),
        ("Made by", None if task["maker"] == "human" else task["maker"]),
        ("For", task["assignee"] or (f"role {task['role']}" if task["role"] else None)),
        ("Part of", task["parent"]),
        ("Parts", ", ".join(task["subtasks"])),
        ("After", ", ".join(task["dependencies"])),
        ("Deadline", task["deadline"]),
        ("Waiting", task["waiting"]),
        (
            "Parked",
            f"{parked['reason']}" + (f" (until {parked['until']})" if parked["until"] else "") if parked else None,
        ),
        *(("Added", f"by {said['by']} at {said['at']}: {said['text']}") for said in task["said"]),
        *(("Note", note) for note in task["notes"]),
    )
    for name, value in heads:
        if value:
            say(f"{name + ':':9} {one_line(str(value))}")
    outcome = task["result"] or task["error"]
    if outcome:
        say()
        say(outcome.rstrip("\n"))


def _say(arguments: argparse.Namespace) -> int:
    from hivemind.fs import ring

    hive = hive_of(arguments)
    text = standard_input() if arguments.text == "-" else arguments.text
    where = hive.tasks.say(arguments.id, text)
    owner = hive.tasks.get(arguments.id).owner
    if owner is not None:
        ring(hive.layout.doorbells, owner)
    if arguments.json:
        print_json({"id": arguments.id, "path": str(where)})
    else:
        say(f"{arguments.id} is told: {hive.layout.relative(where)}")
    return 0


def _retry(arguments: argparse.Namespace) -> int:
    hive = hive_of(arguments)
    return _moved(hive, arguments, hive.tasks.retry, "is back in the inbox")


def _cancel(arguments: argparse.Namespace) -> int:
    hive = hive_of(arguments)
    return _moved(hive, arguments, hive.tasks.cancel, "is cancelled")


def _moved(hive: Hive, arguments: argparse.Namespace, move: Callable[[str], Path], said: str) -> int:
    """Move each task and say where it lies now, also of those that were moved before one could not be."""
    moved: list[dict[str, str]] = []
    try:
        for task_id in arguments.id:
            path = move(task_id)
            moved.append({"id": task_id, "path": str(path)})
            if not arguments.json:
                say(f"{task_id} {said}: {hive.layout.relative(path)}")
    finally:
        if arguments.json:
            print_json(moved)
    return 0
