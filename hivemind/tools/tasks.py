"""Tools for members that choose their tasks themselves (MCP): the tasks of the hive, and where the member is. An agent's tasks
are chosen by the runtime, which builds its context, too."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Literal

from pydantic import Field

from hivemind.masking import mask, masked
from hivemind.taskrun.task_run import TaskRun
from hivemind.tasks import TaskSummary
from hivemind.tools.excerpt import as_lines
from hivemind.tools.session import Session
from hivemind.tools.tool import Arguments, ToolProblem, tool
from hivemind.views import capsule
from hivemind.views import resume as view_of
from hivemind.views import signals as signals_of

_TEXT_CHARS = 8000


class ListTasks(Arguments):
    state: Literal["inbox", "mine", "active", "done", "failed"] = Field("inbox", description="inbox: those that wait")
    limit: int = Field(20, ge=1, le=200)


class ClaimTask(Arguments):
    task: str | None = Field(None, description="a certain one; default: the next for you")


class AddTask(Arguments):
    title: str = Field(min_length=1, max_length=200)
    text: str = ""
    id: str | None = Field(None, description="one that is taken is refused: added again, it is there once")
    assignee: str | None = None
    role: str | None = None
    dependencies: list[str] = []


def _tasks(result: Mapping[str, Any]) -> str:
    lines = []
    for one in result["tasks"]:
        for_ = one.get("assignee") or (f"the role {one['role']}" if "role" in one else None)
        notes = [
            one.get("owner") and f"with {one['owner']}",
            for_ and f"for {for_}",
            one.get("waiting"),
            one.get("parked"),
        ]
        told = ", ".join(str(note) for note in (*notes, one.get("problem")) if note)
        lines.append(f"{one['task']}: {one['title']}{f' ({told})' if told else ''}")
    return "\n".join([*lines, *(["… and more: say a higher limit"] if result["cut"] else [])]) or "no tasks"


def _claimed(result: Mapping[str, Any]) -> str:
    head = as_lines({name: result[name] for name in ("task", "title", "maker", "path", "worktrees", "attachments")})
    steps = [f"{one['id']} ({one['status']}): {one['title']}" for one in result["steps"]]
    return "\n".join([head, *(["steps:", *steps] if steps else []), "", result["text"]])


@tool(text=_tasks, reads=True)
def list_tasks(session: Session, arguments: ListTasks) -> dict[str, Any]:
    """List tasks: those that wait (with the reason if they can't be claimed yet), yours, all active, done or failed ones."""
    state = "active" if arguments.state == "mine" else arguments.state
    found = session.hive.tasks.list(state)
    if arguments.state == "mine":
        found = [one for one in found if one.owner == session.agent]
    if state in ("done", "failed"):
        found.reverse()  # newest first
    return {"tasks": [_row(session, one) for one in found[: arguments.limit]], "cut": len(found) > arguments.limit}


@tool(text=_claimed)
def claim_task(session: Session, arguments: ClaimTask) -> dict[str, Any]:
    """Claim a task and work on it from now on: nobody else gets it. One that is yours already is taken up again."""
    work = next((one for one in session.hand.works() if one.task.id == arguments.task), None)
    if work is None:
        work = session.hand.claim(arguments.task)
    if work is None:
        raise ToolProblem(
            "there is no task for you now", location=arguments.task, remedy="list_tasks says what waits, and why"
        )
    session.hand.turn_to(work)
    return _task(session, work)


@tool()
def add_task(session: Session, arguments: AddTask) -> dict[str, Any]:
    """Put a task into the hive's inbox, for any agent, one agent or a role. It carries your name as its maker."""
    given = masked(arguments.model_dump(exclude_none=True))
    if given.get("id") != arguments.id:
        raise ToolProblem("looks like a secret, which no task is named after", location="id")
    text = given.pop("text") or given["title"]
    return {"task": session.hive.tasks.add(text, by=session.agent, **given)}


def _row(session: Session, one: TaskSummary) -> dict[str, Any]:
    told = {
        "task": one.id, "title": one.title, "owner": one.owner, "assignee": one.assignee, "role": one.role,
        "waiting": one.waiting, "parked": one.parked.reason if one.parked else None, "problem": one.problem,
        "path": session.hive.layout.relative(one.path),
    }  # fmt: skip
    return {key: value for key, value in told.items() if value is not None}


def _task(session: Session, work: TaskRun) -> dict[str, Any]:
    task, relative = work.task, session.hive.layout.relative
    text = mask(task.full_text)
    text = text if len(text) <= _TEXT_CHARS else f"{text[:_TEXT_CHARS]}… (the whole: read_file)"
    return {
        "task": task.id,
        "title": task.title,
        "text": text,
        "maker": task.maker,
        "path": relative(task.files),
        "worktrees": [f"{one.path} on branch {one.branch}" for one in work.worktrees.ready()],
        "attachments": [relative(path) for path in task.attachments],
        "steps": [step.shown() for step in work.steps()],
    }


class Resume(Arguments):
    task: str | None = Field(None, description="default: the task in focus")
    step: str | None = None
    view: Literal["capsule", "focus_only", "smart", "explore", "audit", "full"] = Field(
        "capsule", description="how much: where you are and what comes next, or the cards, notes and events too"
    )
    max_chars: int = Field(6000, ge=200, le=200_000)


class Signals(Arguments):
    task: str | None = None


@tool(reads=True)
def resume(session: Session, arguments: Resume) -> dict[str, Any]:
    """See where you are: task, step and its lease, what comes next; with a `view`, what is known too. Begin with this."""
    work = session.focus.work
    task = arguments.task
    if task is None and arguments.step is None and work is not None:
        task = work.task.id
    hive, view = session.hive, arguments.view
    if view == "capsule":
        found: dict[str, Any] = {"capsule": capsule(hive, session.agent, task, arguments.step)}
    else:
        found = {**view_of(hive, session.agent, task, arguments.step, view, arguments.max_chars)}
    return offered(found, session.tools)


@tool(reads=True)
def signals(session: Session, arguments: Signals) -> dict[str, Any]:
    """See what is worth knowing of a task: contradictions, weak evidence, what is stuck, each with a call that helps."""
    task = arguments.task or (session.focus.work.task.id if session.focus.work is not None else None)
    return offered({"signals": signals_of(session.hive, session.agent, task)}, session.tools)


def offered(view: dict[str, Any], tools: Container[str]) -> dict[str, Any]:
    """The view for a reader that has these tools: calls of others are None, and none says how Python would make it."""
    coming = view.get("capsule", {}).get("next", {})
    calls = [(coming, name) for name in coming if coming[name] is not None]
    calls += [(signal, "action") for signal in view.get("signals", ()) if "action" in signal]
    for place, name in calls:
        call = place[name]
        if call["tool"] == "list_files":  # the view's word for "begin": a member claims a task
            call = {"tool": "claim_task", "arguments": {}}
        call.pop("call", None)
        place[name] = call if call["tool"] in tools else None
    return view


QUEUE_TOOLS = (list_tasks, claim_task, add_task)
VIEW_TOOLS = (resume, signals)
