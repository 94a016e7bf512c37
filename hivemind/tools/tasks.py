"""Tools for members (MCP), which choose their tasks themselves: list, claim and add tasks, see the current state. For agents the
runtime chooses the tasks and builds the context."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Literal

from pydantic import Field

from hivemind.lessons.choice import choose, count_shown, lesson_line
from hivemind.masking import mask, mask_values
from hivemind.outcome import ENDED
from hivemind.presence.parts import Parts
from hivemind.taskrun.task_run import TaskRun
from hivemind.tasks import TaskSummary
from hivemind.tools.excerpt import as_lines
from hivemind.tools.tool import Arguments, ToolProblem, tool
from hivemind.tools.tool_context import ToolContext
from hivemind.views import capsule
from hivemind.views import resume as view_of
from hivemind.views import signals as signals_of

_TEXT_CHARS = 8000


class ListTasks(Arguments):
    state: Literal["inbox", "mine", "active", "done", "failed"] = Field("inbox", description="inbox: waiting tasks")
    limit: int = Field(20, ge=1, le=200)


class ClaimTask(Arguments):
    task: str | None = Field(None, description="the id of a task; default: the next task for you")


class AddTask(Arguments):
    title: str | None = Field(None, min_length=1, max_length=200, description="default: the first line of the text")
    text: str = ""
    id: str | None = Field(
        None, description="the task's id; an id in use is refused, so a repeated call adds no second task"
    )
    assignee: str | None = None
    role: str | None = None
    dependencies: list[str] = []


def _tasks_text(result: Mapping[str, Any]) -> str:
    lines = []
    for task in result["tasks"]:
        recipient = task.get("assignee") or (f"the role {task['role']}" if "role" in task else None)
        notes = [
            task.get("owner") and f"with {task['owner']}",
            recipient and f"for {recipient}",
            task.get("waiting"),
            task.get("parked"),
        ]
        note_text = ", ".join(str(note) for note in (*notes, task.get("problem")) if note)
        lines.append(f"{task['task']}: {task['title']}{f' ({note_text})' if note_text else ''}")
    return "\n".join([*lines, *(["… and more: use a higher limit"] if result["cut"] else [])]) or "no tasks"


def _claim_text(result: Mapping[str, Any]) -> str:
    head = as_lines({name: result[name] for name in ("task", "title", "maker", "path", "worktrees", "attachments")})
    steps = [f"{step['id']} ({step['status']}): {step['title']}" for step in result["steps"]]
    lessons = ["lessons:", *result["lessons"]] if "lessons" in result else []
    return "\n".join([head, *(["steps:", *steps] if steps else []), *lessons, "", result["text"]])


@tool(text=_tasks_text, is_read_only=True)
def list_tasks(context: ToolContext, arguments: ListTasks) -> dict[str, Any]:
    """List tasks: waiting tasks (with the reason if they cannot be claimed yet), your tasks, or all active, done or failed."""
    state = "active" if arguments.state == "mine" else arguments.state
    tasks = context.hive.tasks.list(state)
    if arguments.state == "mine":
        tasks = [task for task in tasks if task.owner == context.agent]
    if state in ENDED:
        tasks.reverse()  # newest first
    return {"tasks": [_row(context, task) for task in tasks[: arguments.limit]], "cut": len(tasks) > arguments.limit}


@tool(text=_claim_text)
def claim_task(context: ToolContext, arguments: ClaimTask) -> dict[str, Any]:
    """Claim a task and work on it from now on; no other agent gets it. A task that you have already comes into focus again."""
    work = next((task_run for task_run in context.own_tasks.task_runs() if task_run.task.id == arguments.task), None)
    if work is None:
        work = context.own_tasks.claim(arguments.task)
    if work is None:
        raise ToolProblem(
            "there is no task for you now",
            location=arguments.task,
            remedy="list_tasks shows waiting tasks and the reasons",
        )
    context.own_tasks.set_focus(work)
    return _task_fields(context, work)


@tool()
def add_task(context: ToolContext, arguments: AddTask) -> dict[str, Any]:
    """Add a task to the hive's inbox, for any agent, one agent or a role. You are recorded as its maker."""
    fields = mask_values(arguments.model_dump(exclude_none=True))
    if fields.get("id") != arguments.id:
        raise ToolProblem("looks like a secret: choose another id", location="id")
    text = fields.pop("text") or fields.get("title", "")
    return {"task": context.hive.tasks.add(text, by=context.agent, **fields)}


def _row(context: ToolContext, task: TaskSummary) -> dict[str, Any]:
    fields = {
        "task": task.id, "title": task.title, "owner": task.owner, "assignee": task.assignee, "role": task.role,
        "waiting": task.waiting, "parked": task.parked.reason if task.parked else None, "problem": task.problem,
        "path": context.hive.layout.relative(task.path),
    }  # fmt: skip
    return {key: value for key, value in fields.items() if value is not None}


def _task_fields(context: ToolContext, work: TaskRun) -> dict[str, Any]:
    task, relative = work.task, context.hive.layout.relative
    text = mask(task.full_text)
    # a member works there with tools of its own
    worktrees = context.enter(work=work) if context.config.outside else work.worktrees.planned
    text = text if len(text) <= _TEXT_CHARS else f"{text[:_TEXT_CHARS]}… (read_file shows the whole text)"
    lessons = choose(context.hive, work, context.config)
    count_shown(context.hive, work, lessons)
    return {
        "task": task.id,
        "title": task.title,
        "text": text,
        "maker": task.maker,
        "path": relative(task.files),
        "worktrees": [f"{worktree.path} on branch {worktree.branch}" for worktree in worktrees],
        "attachments": [relative(path) for path in task.attachments],
        "steps": [step.mind_fields() for step in work.steps()],
        **({"lessons": [lesson_line(record) for record in lessons]} if lessons else {}),
    }


class Resume(Arguments):
    task: str | None = Field(None, description="default: the task in focus")
    step: str | None = None
    view: Literal["capsule", "focus_only", "smart", "explore", "audit", "full"] = Field(
        "capsule", description="capsule: where you are and what comes next; the others add cards, notes and events"
    )
    max_chars: int = Field(6000, ge=200, le=200_000)


class Signals(Arguments):
    task: str | None = None


@tool(is_read_only=True)
def resume(context: ToolContext, arguments: Resume) -> dict[str, Any]:
    """See where you are: task, step and its lease, and the next call. Other views add cards and events. Call this first."""
    work = context.focus.work
    task = arguments.task
    if task is None and arguments.step is None and work is not None:
        task = work.task.id
    hive, view = context.hive, arguments.view
    if view == "capsule":
        answer: dict[str, Any] = {"capsule": capsule(hive, context.agent, task, arguments.step)}
    else:
        answer = {**view_of(hive, context.agent, task, arguments.step, view, arguments.max_chars)}
    return restrict_calls(hive, answer, context.tools)


@tool(is_read_only=True)
def signals(context: ToolContext, arguments: Signals) -> dict[str, Any]:
    """See remarks about a task: contradictions, weak evidence, stuck work, each with a call that helps."""
    task = arguments.task or (context.focus.work.task.id if context.focus.work is not None else None)
    return restrict_calls(context.hive, {"signals": signals_of(context.hive, context.agent, task)}, context.tools)


def restrict_calls(hive: Parts, view: dict[str, Any], tools: Container[str]) -> dict[str, Any]:
    """Return a view with its proposed calls adapted to a reader who has only these `tools`: a call of another tool becomes None,
    and the Python form of each call is removed."""
    next_calls = view.get("capsule", {}).get("next", {})
    calls = [(next_calls, name) for name in next_calls if next_calls[name] is not None]
    calls += [(signal, "action") for signal in view.get("signals", ()) if "action" in signal]
    for holder, name in calls:
        call = holder[name]
        if call["tool"] == "list_files":  # the view means "begin work": a member claims a task
            call = {"tool": "claim_task" if hive.tasks.listing.counts()["inbox"] else "check_mailbox", "arguments": {}}
        call.pop("call", None)
        holder[name] = call if call["tool"] in tools else None
    return view


QUEUE_TOOLS = (list_tasks, claim_task, add_task)
VIEW_TOOLS = (resume, signals)
