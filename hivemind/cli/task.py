"""Add, list, show, await, compare, retry, cancel and replay tasks, read their conversations, and add to them.

A task is a file: dropping one into tasks/inbox/ has the same effect as `task add`.

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
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hivemind.boundary import boundary
from hivemind.cli.command import Arg, AttachedFiles, CommandOutput, Positive, Text, command
from hivemind.cli.open_hive import caller, known_agent, open_hive, open_read_only, split_lists
from hivemind.cli.output import DiffText, MarkdownText, headed_text, separated, table_lines, warn
from hivemind.cli.text import age, fit, is_terminal, one_line
from hivemind.errors import HivemindError, UserError
from hivemind.layout import ANY, EXCHANGE, LANDING
from hivemind.outcome import ENDED, OUTCOME_FILES
from hivemind.trace_context import TraceContext

if TYPE_CHECKING:
    from hivemind.hive import Hive
    from hivemind.replay import Replay
    from hivemind.tasks import Task, TaskSummary

_COLUMNS = ("id", "state", "owner", "hive", "since", "parent", "title", "note")
_OPTIONAL_COLUMNS = ("hive", "parent")  # shown if at least one task has a value
_DIFFERENCE_CHARS = 160
_MAX_ROWS = 50  # default limit per state on a terminal


@command("task add", open_hive, for_agents=True)
def add(
    hive: Hive,
    text: Text | None = None,
    *,
    file: Annotated[str | None, Arg(is_file=True)] = None,
    title: str | None = None,
    assignee: str | None = None,
    role: str | None = None,
    where: str | None = None,
    priority: str | None = None,
    project: str | None = None,
    depends: list[str] | None = None,
    deadline: str | None = None,
    every: str | None = None,
    budget: Positive | None = None,
    id_: str | None = None,
    attach: AttachedFiles = None,
) -> CommandOutput:
    """Add a task to the inbox, and print its id.

    The text is Markdown, with or without front matter; options override the front matter. tasks/README.md describes
    its fields (steps, success criteria, proof).

    arguments:
      TEXT  the text of the task; - reads standard input
      --file FILE  take the text from a file (Markdown, or YAML with a text: key)
      --title TEXT  the task's title (default: its first line)
      --assignee AGENT  only this agent may claim it
      --role ROLE  only agents of this role may claim it
      --where HIVE  the linked hive that works on it; any: one with an idle agent
      --priority P  critical, high, medium, low, or 0 (first) to 99 (last)
      --project NAME  the project that the task belongs to
      --depends TASK[,TASK]  tasks that must be done first
      --deadline WHEN  2026-11-21, or 2026-11-21T18:00Z
      --every WHEN  add it again and again: 1h, 07:30, "Mon-Fri 07:30"
      --budget TOKENS  the most tokens that it may use
      --id ID  the task's id (default: derived from the title)
      --attach FILE  a file or folder to attach

    examples:
      hivemind task add "What is a lease?"
      hivemind task add --file survey.md --attach figures.csv --priority high
      echo "Summarise the notes" | hivemind task add - --assignee researcher
    """
    if file is not None and text is not None:
        raise UserError("TEXT and --file exclude each other", remedy="leave one of them out")
    if file is None and text is None and title is None:
        raise UserError("a task needs a text", remedy='hivemind task add "What is a lease?", or - for standard input')
    if text is not None and os.path.isfile(text):
        raise UserError("is a file, but --file is missing", location=text, remedy=f"hivemind task add --file {text}")
    task_text = text if file is None else _read_task_file(Path(file))
    if (
        assignee is not None
        and where is None
        and not any(assignee in agent_roles for agent_roles in hive.linked_hives.agents.values())
    ):
        known_agent(hive, assignee)
    hives = sorted({hive.config.workspace.lower(), *hive.linked_hives.agents, ANY})
    is_known = bool(hive.linked_hives.agents) or not hive.linked_hives.is_linked  # else the exchange has not run yet
    if where is not None and where.strip().lower() not in hives:
        problem = f"no linked hive is called {where!r}"
        if is_known:
            raise UserError(problem, remedy=f"write one of {', '.join(hives)}")
        warn(f"{problem} yet; the task waits for it")
    task_id = hive.tasks.add(
        task_text,
        by=caller(hive.layout),
        id=id_,
        title=title,
        project=project,
        priority=priority,
        traceparent=TraceContext.checked(os.environ.get("TRACEPARENT")),
        assignee=assignee,
        role=role if role is None or where is not None else _known_role(hive, role),
        where=where,
        dependencies=[hive.tasks.get(dependency).id for dependency in split_lists(depends)],
        deadline=deadline,
        every=every,
        budget=budget,
        attachments=attach or (),
    )
    from hivemind.tasks.step import moment  # late: other commands need no forms

    if deadline is not None and moment(deadline) < datetime.now(UTC):
        warn(f"{task_id}: its deadline is over ({deadline})")
    return CommandOutput({"id": task_id}, [task_id])


def _read_task_file(path: Path) -> str:
    """Return the text of a task file; convert a YAML file to front matter and text. Raises TaskProblem."""
    import yaml

    from hivemind.frontmatter import parse
    from hivemind.tasks.form import is_yaml, read_text

    try:
        raw = path.read_bytes()
    except OSError as error:
        remedy = "hivemind task add - reads standard input" if str(path) == "-" else None
        raise UserError(f"cannot be read ({error.strerror})", location=path, remedy=remedy) from None
    read_text(raw, str(path))
    with boundary("task file", path):
        text = raw.decode("utf-8")
    if not is_yaml(path.name):
        return text
    fields = parse(text, path).values
    body = fields.pop("text", None) or ""
    return f"---\n{yaml.safe_dump(fields, allow_unicode=True, sort_keys=False)}---\n{body}"


def _known_role(hive: Hive, text: str) -> str:
    linked_roles = (role for agents in hive.linked_hives.agents.values() for role in agents.values())
    roles = sorted({role for role in (*(agent.role for agent in hive.agents.values()), *linked_roles) if role})
    role = text.strip().lower()
    if role not in roles:
        raise UserError(
            f"no agent of this hive has the role {text!r}", remedy=f"their roles: {', '.join(roles) or 'none'}"
        )
    return role


@command("task list", open_read_only, for_agents=True)
def tasks(
    hive: Hive,
    *,
    state: Annotated[Literal["inbox", "active", "done", "failed"] | None, Arg(exclusive_group="which")] = None,
    ignored: Annotated[bool, Arg(exclusive_group="which")] = False,
    archived: bool = False,
    limit: Positive | None = None,
    json: bool,
) -> CommandOutput:
    """List tasks: waiting tasks in the order in which they will be claimed, other tasks by time.

    arguments:
      --state  only tasks in this state
      --ignored  only the files in tasks/inbox and tasks/active that are not tasks, with the reasons
      --archived  only archived tasks, by the time when they ended
      --limit N  at most N tasks of each state: the next ones to be claimed, and the latest of the others (default: 50
          on a terminal, otherwise all)

    examples:
      hivemind task list --state failed
    """
    from hivemind.swarm.until_idle import with_wait_reasons

    ignored_files = hive.tasks.listing.ignored()
    if ignored:
        rows = [asdict(ignored_file) for ignored_file in ignored_files]
        return CommandOutput(rows, table_lines(rows, ("name", "why"), empty="Nothing is ignored."))
    if archived:
        summaries = hive.tasks.listing.list_archived(state)[-(limit or 0) :]
    else:
        limit = limit or (_MAX_ROWS if is_terminal() and not json else None)
        summaries = with_wait_reasons(hive, hive.tasks.list(state, limit=limit))
    records = [_summary_record(task) for task in summaries]

    def lines() -> Iterator[str]:
        rows = [
            {**record, "owner": _agent_of(task), "since": age(task.since), "note": _note(task)}
            for record, task in zip(records, summaries, strict=True)
        ]
        visible_columns = [name for name in _COLUMNS if name not in _OPTIONAL_COLUMNS or any(row[name] for row in rows)]
        yield from table_lines(rows, visible_columns, empty=f"No tasks{f' in {state}' if state else ''}.")
        if any(task.state not in ENDED for task in summaries):
            yield from _swarm_notes(hive)
        if limit is not None and not archived:
            yield from _omission_lines(hive, summaries, limit)
        ignored_count = sum(ignored_file.name.lower() != "readme.md" for ignored_file in ignored_files)
        if ignored_count and state not in ("done", "failed") and not archived:
            yield f"ignored names in tasks/: {ignored_count}; hivemind task list --ignored shows why"

    return CommandOutput(records, lines())


def _swarm_notes(hive: Hive) -> Iterator[str]:
    from hivemind.presence.watching import supervisor_lock

    if supervisor_lock(hive.layout.locks).holder() is None:
        yield "no swarm is up: hivemind up starts it"


def _omission_lines(hive: Hive, summaries: Iterable[TaskSummary], limit: int) -> Iterator[str]:
    """Yield a line for each state with more tasks than the limit: it says how many are not listed."""
    rows = Counter(task.state.value for task in summaries)
    for state, total in hive.tasks.listing.counts().items():
        if rows[state] == limit < total:
            position = "first" if state == "inbox" else "latest"
            yield f"{total:,} are in {state}, the {position} {limit:,} are shown: --limit {total} shows all"


def _summary_record(task: TaskSummary) -> dict[str, Any]:
    # asdict copies deeply, which takes half of the time of a listing
    attributes = {attribute.name: getattr(task, attribute.name) for attribute in fields(task)}
    return {**attributes, "state": task.state.value, "parked": None if task.parked is None else asdict(task.parked)}


def _agent_of(task: TaskSummary) -> str | None:
    return None if task.owner == LANDING else task.owner


def _note(task: TaskSummary) -> str | None:
    """Return why the task failed or nobody works on it, and a remark if its deadline is over. Return None if there is neither."""
    from hivemind.tasks import landing_state

    parked = f"parked: {task.parked.reason}" if task.parked else None
    is_late = task.state not in ENDED and task.deadline is not None and task.deadline < datetime.now(UTC)
    reason = landing_state(task) or task.error or task.problem or task.waiting or parked or task.unanswered
    return "; ".join(filter(None, (reason, "its deadline is over" if is_late else None))) or None


@command("task show", open_read_only)
def show(hive: Hive, ids: list[str]) -> CommandOutput:
    """Show tasks: the state of each, and its result or the reason why it failed.

    arguments:
      TASK  the task's id

    examples:
      hivemind task show what-is-a-lease
    """
    records = [_task_record(hive, task_id) for task_id in ids]
    lines = separated(map(_task_lines, records), "=")
    return CommandOutput(records if len(records) > 1 else records[0], lines)


@command("task wait", open_read_only)
def wait(hive: Hive, ids: list[str], *, timeout: Positive | None = None) -> CommandOutput:
    """Wait until all tasks are done or failed, and print how each ended. The exit status is 1 if one failed.

    arguments:
      TASK  the task's id

    options:
      --timeout S  how long to wait for each task, in seconds (default: for ever); then the exit status is 2

    examples:
      hivemind task wait what-is-a-lease && hivemind task show what-is-a-lease
    """
    if any(hive.tasks.listing.outcome(task_id) is None for task_id in ids):
        for note in _swarm_notes(hive):
            warn(note)
    tasks = [hive.tasks.wait(task_id, timeout, watch=hive.config.watch) for task_id in ids]
    lines = (f"{task.id} is {task.state}: {hive.layout.relative(task.path)}" for task in tasks)
    return CommandOutput([*map(_common_fields, tasks)], lines, int(any(task.state == "failed" for task in tasks)))


def _task_record(hive: Hive, task_id: str) -> dict[str, Any]:
    """Return a task's fields with the text of its result.md or error.md, if it has one.

    A file in the inbox that cannot be parsed as a task has only its path and the reason.
    """
    from hivemind.taskrun.published import stale_sources
    from hivemind.tasks import TaskProblem, landing_state, read_outcome

    try:
        task = hive.tasks.get(task_id)
    except TaskProblem:
        unread = hive.tasks.listing.unreadable_summary(task_id)
        if unread is None:
            raise
        record = _common_fields(unread)
        notes = [unread.problem] if unread.problem and not (unread.waiting or record["error"]) else []
        empty_fields = dict.fromkeys(("subtasks", "dependencies", "said", "attachments"), ())
        return (
            record
            | empty_fields
            | {"waiting": unread.waiting, "notes": notes}
            | dict.fromkeys(("deadline", "parked", "text", "used", "hive", "agent", "landing"))
        )
    agent = task.owner if task.owner != LANDING else task.kept.get(LANDING, {}).get("agent")
    notes = [*task.notes, *(stale_sources(hive, task) if task.state.value == "done" else ())]
    if (end := OUTCOME_FILES.get(task.state)) is not None and read_outcome(task.path) is None:
        notes.append(f"there is no {end}: the task was moved here, or the file deleted")
    return _common_fields(task) | {
        "subtasks": task.subtasks,
        "dependencies": task.dependencies,
        "deadline": task.deadline,
        "waiting": hive.tasks.listing.waiting_for(task.id) if task.state.value == "inbox" else None,
        "parked": asdict(task.parked) if task.parked else None,
        "said": [asdict(addition) for addition in task.said],
        "notes": notes,
        "attachments": [str(path) for path in task.attachments],
        "text": task.text,
        "used": _usage(hive, task.id),
        "hive": task.kept.get("hive"),
        "agent": agent if agent != LANDING else None,
        "landing": landing_state(task),
    }


def _usage(hive: Hive, task_id: str) -> dict[str, Any] | None:
    """Return the usage of the task's turns so far; None before the first turn, or if the task's log cannot be read."""
    from hivemind.taskrun.report import Account

    with suppress(HivemindError, OSError):
        usage = Account(hive.tasks.listing.read_log(task_id)).usage()
        return asdict(usage) if usage.cycles else None
    return None


def _common_fields(task: Task | TaskSummary) -> dict[str, Any]:
    from hivemind.tasks import read_outcome

    attribute_names = ("id", "title", "owner", "maker", "parent", "priority", "project", "assignee", "role")
    return {
        **{name: getattr(task, name) for name in attribute_names},
        "state": task.state.value,
        "path": str(task.path),
        "result": read_outcome(task.path) if task.state.value == "done" else None,
        "error": read_outcome(task.path) if task.state.value == "failed" else None,
    }


def _task_lines(task: dict[str, Any]) -> Iterator[str]:
    from hivemind.taskrun.report import TaskUsage

    parked = task["parked"]
    is_due = parked and parked["until"] and task["owner"] != EXCHANGE
    until_text = f" (until {parked['until']:%Y-%m-%d %H:%M:%S} UTC)" if is_due else ""
    headers = (
        ("Task", f"{task['id']}: {task['title']}" if task["title"] != task["id"] else task["id"]),
        ("State", f"{task['state']}, in {task['path']}"),
        ("Agent", task["agent"]),
        ("Landing", task["landing"]),
        ("Done by hive", task.get("hive")),
        ("Made by", None if task["maker"] == "human" else task["maker"]),
        (
            "For",
            (task["assignee"] if task["assignee"] != LANDING else None)
            or (f"role {task['role']}" if task["role"] else None),
        ),
        ("Part of", task["parent"]),
        ("Parts", ", ".join(task["subtasks"])),
        ("After", ", ".join(task["dependencies"])),
        ("Deadline", task["deadline"]),
        ("Waiting", task["waiting"]),
        ("Parked", f"{parked['reason']}{until_text}" if parked and task["landing"] is None else None),
        ("Used", TaskUsage(**task["used"]).summary if task["used"] else None),
        *(("Added", f"by {addition['by']} at {addition['at']}: {addition['text']}") for addition in task["said"]),
        *(("Note", note) for note in task["notes"]),
    )
    outcome = task["result"] or task["error"]
    return headed_text(headers, MarkdownText(outcome) if outcome else None)


@command("task say", open_hive)
def say_more(hive: Hive, id_: str, text: Text) -> CommandOutput:
    """Add a text to a task that an agent has claimed, or reopen a finished task with it.

    If the text says that the result is wrong, the result's quotes are listed in tasks/wrong-quotes.yaml. They are not
    quoted again, in any task, until their files change. If the text names places of quotes, this applies to these quotes
    only. Name the places if the result has quotes for several questions.

    arguments:
      TASK  the task's id
      TEXT  the text; - reads standard input

    examples:
      hivemind task say what-is-a-lease "And what is a lane?"
      hivemind task say what-is-a-lease "That is wrong."
    """
    from hivemind.taskrun.published import say

    said = say(hive, id_, text, by=caller(hive.layout))
    line = f"added to {id_}: {hive.layout.relative(said.path)}"
    if said.path.parent == hive.layout.inbox:
        line = f"{id_} is back in the inbox with what you said: {hive.layout.relative(said.path)}"
    record = {"id": id_, "path": str(said.path), "wrong": said.wrong_places}
    return CommandOutput(record, filter(None, (line, said.consequence)))


@command("task replay", open_read_only)
def replay(hive: Hive, id_: str) -> CommandOutput:
    """Run a finished task again from its log, without its model.

    Shows each turn that would differ now: another tool call, or another result. The replay works on a temporary copy: no
    model is called, no program is run, no mail is sent, and the hive is not changed. Exit status: 0 if no turn differs,
    else 1.

    arguments:
      TASK  the task's id

    examples:
      hivemind task replay what-is-a-lease
    """
    from hivemind.hive import Hive
    from hivemind.replay import replay

    replay_report = replay(hive, id_, Hive)
    return CommandOutput(
        {**asdict(replay_report), "differs": replay_report.has_differences},
        _replay_lines(replay_report),
        1 if replay_report.has_differences else 0,
    )


def _replay_lines(report: Replay) -> Iterator[str]:
    changed_count = sum(bool(turn.differences) for turn in report.turns)
    summary = f"{changed_count} of them another way" if changed_count else "all of them as they went"
    yield f"{report.task}: {len(report.turns)} turns of {', '.join(report.agents)} taken again, {summary}."
    for turn in report.turns:
        if turn.differences:
            agent_suffix = f" of {turn.agent}" if len(report.agents) > 1 else ""
            yield f"\nTurn {turn.number}{agent_suffix}{f', step {turn.step}' if turn.step else ''}:"
        for difference in turn.differences:
            yield f"  {difference.what} {one_line(difference.where)}"
            yield fit(f"    was  {_as_text(difference.was)}", _DIFFERENCE_CHARS)
            yield fit(f"    now  {_as_text(difference.now)}", _DIFFERENCE_CHARS)


def _as_text(value: Any) -> str:
    if value is None:
        return "nothing"
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


@command("task retry", open_hive)
def retry(hive: Hive, ids: list[str]) -> CommandOutput:
    """Put failed or finished tasks back into the inbox.

    arguments:
      TASK  the task's id

    examples:
      hivemind task retry what-is-a-lease
    """
    return _move_tasks(hive, ids, hive.tasks.retry, "is back in the inbox")


@command("task cancel", open_hive)
def cancel(hive: Hive, ids: list[str]) -> CommandOutput:
    """End waiting or active tasks: they go to tasks/failed/.

    arguments:
      TASK  the task's id

    examples:
      hivemind task cancel what-is-a-lease
    """
    return _move_tasks(hive, ids, partial(hive.tasks.cancel, by=caller(hive.layout)), "is cancelled")


def _move_tasks(hive: Hive, ids: list[str], move: Callable[[str], Path], message: str) -> CommandOutput:
    """Call `move` with each task, and report the new paths. After a failure, report the moved tasks, then the error."""
    new_paths: dict[str, Path] = {}
    error: Exception | None = None
    for task_id in ids:
        try:
            new_paths[task_id] = move(task_id)
        except (HivemindError, OSError) as move_error:
            error = move_error
            break
    record = [{"id": task_id, "path": str(path)} for task_id, path in new_paths.items()]
    lines = (f"{task_id} {message}: {hive.layout.relative(path)}" for task_id, path in new_paths.items())
    return CommandOutput(record, lines, error=error)


@command("task diff", open_read_only)
def diff(hive: Hive, id_: str, *, stat: bool = False) -> CommandOutput:
    """Show what a task has changed in git repositories, also after it has landed.

    arguments:
      TASK  the task's id
      --stat  only the files, with the number of changed lines

    examples:
      hivemind task diff what-is-a-lease --stat
    """
    from hivemind.landing.changes import branch_diffs

    diffs = [*branch_diffs(hive, hive.tasks.get(id_), *(["--stat"] if stat else []))]
    if not any(text for _, text in diffs):
        return CommandOutput([], [f"{id_} has changed nothing in a repository."])
    lines = (line for branch, text in diffs for line in (f"# {branch}", DiffText(text)))
    return CommandOutput([{"branch": branch, "diff": text} for branch, text in diffs], lines)
