"""The pages of a task (its text, outcome, steps, conversation, graph and diffs), of one turn, and of a file."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Any

from hivemind.coordination import Commits, JournalState, Step
from hivemind.errors import HivemindError, UserError
from hivemind.fs import walk
from hivemind.hive import Hive
from hivemind.landing.changes import branch_diffs
from hivemind.layout import HUMAN, LANDING
from hivemind.minds import Usage
from hivemind.reasoning import LOG_NAME, ReasoningGraph, TaskGraph
from hivemind.taskrun.published import stale_sources
from hivemind.taskrun.transcript import Transcript, TranscriptEntry, TranscriptReader
from hivemind.tasks import Task, TaskProblem, TaskState, TaskSummary, landing_state, read_outcome
from hivemind.tools.registry import use_by_hand
from hivemind.web.drawing.graph import draw_graph
from hivemind.web.drawing.timeline import draw_timeline, spans_of
from hivemind.web.site import Page, PageQuery, Site

_PAGE_TURNS = 15
_TEXT_CHARS = 2_500
_DIFF_CHARS = 60_000
_MAX_CONVERSATIONS = 8  # transcripts kept in memory, so only new records are read
_CONTEXT_LINES = 12  # lines before and after the quoted lines
_MAX_NODES = 120  # the number of nodes of a graph that are drawn before the person opens any


_conversations: OrderedDict[str, TranscriptReader] = OrderedDict()


def show_task(site: Site, task_id: str, query: PageQuery) -> Page:
    """Build the page of a task in any state. Raises UserError if the task does not exist."""
    hive = site.hive
    task = _read_task(hive, task_id)
    snapshot = site.watch.snapshot()
    context: dict[str, Any] = {
        "task": task,
        "is_over": task.state in (TaskState.DONE, TaskState.FAILED),
        "is_archived": hive.layout.archive in task.path.parents,
        "needs": [need for need in snapshot.needs if need.about == task.id],
        "agent": task.owner,
        "landing": None,
        "outcome": read_outcome(task.path),
        "stale_sources": [],
        "steps": [],
        "subtasks": [],
        "files": _files(hive, task.files if isinstance(task, Task) else task.path),
        "timeline": None,
        "graph": None,
        "nodes": 0,
        "open": query.get("open", ""),
        "diffs": [],
        "conversation": None,
        "turns": [],
        "waiting": None,
    }
    if isinstance(task, Task):
        context |= _task_context(site, task, query)
    return Page("task.html", context, task.title, (f"task:{task.id}", "tasks"))


def _read_task(hive: Hive, task_id: str) -> Task | TaskSummary:
    """Return the task. If its files cannot be read, return only a summary. Raises UserError if the task does not exist."""
    try:
        return hive.tasks.get(task_id)
    except TaskProblem:
        summary = hive.tasks.listing.unreadable_summary(task_id)
        if summary is None:
            raise
        return summary


def _task_context(site: Site, task: Task, query: PageQuery) -> dict[str, Any]:
    hive = site.hive
    transcript = read_transcript(task)
    entries = [entry for entry in transcript.entries if entry.kind != "epoch" or entry.record.get("cause")]
    last_part = max(1, -(-len(entries) // _PAGE_TURNS))
    part = min(query.number("part", last_part) or last_part, last_part)
    graph = read_graph(hive, task)
    open_ids = {
        int(number)
        for number in query.get("open", "").split(",")
        if number.isascii() and number.isdecimal() and len(number) < 9
    }
    drawing = None if graph is None else draw_graph(
        graph, open_ids=open_ids, max_nodes=_MAX_NODES,
        link=lambda node_id: graph_link(task.id, [*sorted(open_ids), node_id]))  # fmt: skip
    spans = spans_of(transcript)
    landing = landing_state(task)
    agent = task.owner if task.owner != LANDING else task.kept.get(LANDING, {}).get("agent")
    return {
        "agent": agent if agent != LANDING else None,
        "landing": landing,
        "stale_sources": [*stale_sources(hive, task)] if task.state is TaskState.DONE else [],
        "steps": hive.journal.view(lambda state: _steps(state, task.id)),
        "subtasks": [(subtask_id, hive.tasks.listing.outcome(subtask_id) or "open") for subtask_id in task.subtasks],
        "timeline": draw_timeline(spans) if spans else None,
        "graph": drawing,
        "nodes": 0 if graph is None else len(graph.nodes),
        "diffs": _diffs(hive, task),
        "conversation": transcript,
        "totals": transcript.account.usage(),
        "entries": [_entry_context(entry) for entry in entries[(part - 1) * _PAGE_TURNS : part * _PAGE_TURNS]],
        "part": part,
        "parts": last_part,
        "waiting": _waiting_reason(hive, task),
    }


def graph_link(task_id: str, open_ids: list[int]) -> str:
    """Return the address of a task's page on which the children of the graph's nodes `open_ids` are drawn, too."""
    return f"./tasks/{task_id}?open={','.join(map(str, open_ids))}#graph"


def read_transcript(task: Task) -> Transcript:
    """Return the task's transcript. If an earlier call has read it, only new records are read."""
    reader = _conversations[task.id] = _conversations.pop(task.id, TranscriptReader())
    while len(_conversations) > _MAX_CONVERSATIONS:
        _conversations.popitem(last=False)
    return reader.read(task.path)


def read_graph(hive: Hive, task: Task) -> ReasoningGraph | None:
    """Return the task's graph; None if the graph is missing or unreadable."""
    if not (task.path / LOG_NAME).is_file():
        return None
    with suppress(HivemindError, OSError):
        store = TaskGraph(task.path, is_committed=Commits(hive.journal, task.id).has)
        return store.at(store.seq, None)
    return None


def _steps(state: JournalState, task_id: str) -> list[tuple[Step, str | None]]:
    """Return the task's steps, each with the agent that holds its lease; None if nobody does."""
    step_leases = ((step, state.lease(step.id)) for step in state.steps_of(task_id))
    return [(step, None if lease is None else lease.holder_agent_id) for step, lease in step_leases]


def _entry_context(entry: TranscriptEntry) -> dict[str, Any]:
    """Return an entry's context with shortened texts. The page of the turn shows the whole texts."""
    usage = entry.usage
    calls = []
    for call in entry.calls:
        arguments_text = (
            "\n".join(f"{key}: {value}" for key, value in call["arguments"].items())
            if not call.get("raw")
            else call["raw"]
        )
        calls.append(
            {"tool": call["tool"], "about": _shorten(arguments_text), "ok": call.get("ok"),
             "result": _shorten(str(call.get("text", "")))}
        )  # fmt: skip
    return {
        "kind": entry.kind,
        "turn": entry.turn,
        "heading": entry.heading,
        "agent": entry.record.get("agent"),
        "step": entry.record.get("step"),
        "at": str(entry.record.get("at", "")),
        "text": _shorten(str(entry.record.get("text") or entry.record.get("why") or "")),
        "calls": calls,
        "usage": usage if usage != Usage() else None,
        "cached": round(100 * usage.cached / usage.tokens_in) if usage.cached and usage.tokens_in else 0,
        "seconds": entry.seconds if entry.kind == "turn" else None,
    }


def _shorten(text: str) -> str:
    return text if len(text) <= _TEXT_CHARS else text[:_TEXT_CHARS] + f"\n… {len(text) - _TEXT_CHARS:,} characters more"


def _files(hive: Hive, folder: Path) -> list[str]:
    """Return the files of a folder as paths relative to the hive, at most 50."""
    paths = (Path(parent, name) for parent, _, names in walk(folder) for name in names) if folder.is_dir() else ()
    return [hive.layout.relative(path) for path in sorted(path for path in paths if not path.is_symlink())[:50]]


def _diffs(hive: Hive, task: Task) -> list[tuple[str, list[str]]]:
    """Return (branch, lines of its diff) for each of the task's branches. Return [] if git fails."""
    with suppress(HivemindError, OSError):
        return [(branch, text[:_DIFF_CHARS].splitlines()) for branch, text in branch_diffs(hive, task) if text]
    return []


def _waiting_reason(hive: Hive, task: Task) -> str | None:
    if task.state is not TaskState.INBOX:
        return None
    with suppress(UserError):
        return hive.tasks.listing.waiting_for(task.id)
    return None


def show_turn(site: Site, task_id: str, number: str) -> Page:
    """Build the page of one turn, with whole texts. Raises UserError if the turn does not exist."""
    task = site.hive.tasks.get(task_id)
    transcript = read_transcript(task)
    entries = [entry for entry in transcript.entries if str(entry.turn) == number]
    if not entries:
        raise UserError(f"the task has {len(transcript.turns)} turns, none with this number", location=task_id)
    parts = [(entry.heading, list(entry.parts)) for entry in entries]
    return Page(
        "turn.html",
        {"task": task, "number": int(number), "parts": parts, "turns": len(transcript.turns)},
        f"Turn {number}",
    )


def show_file(site: Site, query: PageQuery) -> Page:
    """Build the page of a file around the lines that the query names. Raises UserError if agents may not read the file."""
    path = query.get("path", "")
    first = query.number("first", 1)
    last = max(first, query.number("last", first))
    start = max(1, first - _CONTEXT_LINES)
    arguments = {"path": path, "start_line": start, "end_line": min(last, first + 400) + _CONTEXT_LINES}
    output = use_by_hand(site.hive, HUMAN, "read_file", arguments)
    lines = list(enumerate(str(output["text"]).splitlines(), int(output.get("start_line", 1))))
    context = {
        "path": path,
        "lines": lines,
        "first": first,
        "last": last,
        "of": output["lines"],
        "around": "first" in query,
    }
    return Page("file.html", context, path)
