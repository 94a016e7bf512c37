"""One task: what was asked, what came of it, how; its conversation, its graph, what it has changed."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Any

from hivemind.coordination import Commits, JournalState, Step
from hivemind.errors import HivemindError, UserError
from hivemind.fs import walk
from hivemind.hive import Hive
from hivemind.layout import HUMAN
from hivemind.minds import Usage
from hivemind.reasoning import LOG_NAME, ReasoningGraph, TaskGraph
from hivemind.taskrun.transcript import Transcript, TranscriptEntry, TranscriptReader
from hivemind.taskrun.worktree import Worktrees
from hivemind.tasks import Task, TaskProblem, TaskState, TaskSummary, read_outcome
from hivemind.tools.registry import use_by_hand
from hivemind.web.drawing.graph import draw_graph
from hivemind.web.drawing.timeline import draw_timeline, spans_of
from hivemind.web.site import Page, PageQuery, Site

_TURNS = 15
_TEXT_CHARS = 2_500
_DIFF_CHARS = 60_000
_KEPT = 8  # conversations that are held, so that a look at a long one reads what is new
_AROUND = 12  # lines shown before and after those that were quoted
_NODES = 120  # of a graph are shown before somebody opens more


_conversations: OrderedDict[str, TranscriptReader] = OrderedDict()


def task(site: Site, task_id: str, query: PageQuery) -> Page:
    """The page of a task, wherever it lies. Raises UserError if there is none."""
    hive = site.hive
    found = _task(hive, task_id)
    snapshot = site.watch.snapshot()
    context: dict[str, Any] = {
        "task": found,
        "is_over": found.state in (TaskState.DONE, TaskState.FAILED),
        "needs": [need for need in snapshot.needs if need.about == found.id],
        "outcome": None,
        "steps": [],
        "subtasks": [],
        "files": [],
        "timeline": None,
        "graph": None,
        "nodes": 0,
        "open": query.get("open", ""),
        "diffs": [],
        "conversation": None,
        "turns": [],
        "waiting": None,
    }
    if isinstance(found, Task):
        context |= _parts(site, found, query)
    return Page("task.html", context, found.title, (f"task:{found.id}", "tasks"))


def _task(hive: Hive, task_id: str) -> Task | TaskSummary:
    """The task, or what can be said of one that cannot be read."""
    try:
        return hive.tasks.get(task_id)
    except TaskProblem:
        unread = hive.tasks.listing.unreadable_summary(task_id)
        if unread is None:
            raise
        return unread


def _parts(site: Site, found: Task, query: PageQuery) -> dict[str, Any]:
    hive = site.hive
    said = conversation_of(found)
    entries = [one for one in said.entries if one.kind != "epoch" or one.record.get("cause")]
    last = max(1, -(-len(entries) // _TURNS))
    part = min(query.number("part", last) or last, last)
    graph = graph_of(hive, found)
    opened = {
        int(one) for one in query.get("open", "").split(",") if one.isascii() and one.isdecimal() and len(one) < 9
    }
    drawn = None if graph is None else draw_graph(
        graph, opened=opened, most=_NODES, link=lambda more: site_link(found.id, [*sorted(opened), more]))  # fmt: skip
    spans = spans_of(said)
    return {
        "outcome": read_outcome(found.path) or "",
        "steps": hive.journal.view(lambda state: _steps(state, found.id)),
        "subtasks": [(one, hive.tasks.listing.outcome(one) or "open") for one in found.subtasks],
        "files": _files(hive, found),
        "timeline": draw_timeline(spans) if spans else None,
        "graph": drawn,
        "nodes": 0 if graph is None else len(graph.nodes),
        "diffs": _diffs(hive, found),
        "conversation": said,
        "totals": said.account.spent(),
        "entries": [_entry(one) for one in entries[(part - 1) * _TURNS : part * _TURNS]],
        "part": part,
        "parts": last,
        "waiting": _waiting(hive, found),
    }


def site_link(task_id: str, opened: list[int]) -> str:
    """Where the graph is drawn with these nodes open as well."""
    return f"./tasks/{task_id}?open={','.join(map(str, opened))}#graph"


def conversation_of(found: Task) -> Transcript:
    """What was said in it; of one that was looked at before only what is new is read."""
    reader = _conversations[found.id] = _conversations.pop(found.id, TranscriptReader())
    while len(_conversations) > _KEPT:
        _conversations.popitem(last=False)
    return reader.read(found.path)


def graph_of(hive: Hive, found: Task) -> ReasoningGraph | None:
    """Its graph; None if it has none, or none that can be read."""
    if not (found.path / LOG_NAME).is_file():
        return None
    with suppress(HivemindError, OSError):
        store = TaskGraph(found.path, durable=False, committed=Commits(hive.journal, found.id).has)
        return store.at(store.seq, None)
    return None


def _steps(state: JournalState, task_id: str) -> list[tuple[Step, str | None]]:
    """Its steps, each with who holds it."""
    held = ((step, state.lease(step.id)) for step in state.steps_of(task_id))
    return [(step, None if lease is None else lease.holder_agent_id) for step, lease in held]


def _entry(entry: TranscriptEntry) -> dict[str, Any]:
    """One thing that happened, its long texts cut; the whole of a turn has a page of its own."""
    usage = entry.usage
    calls = []
    for call in entry.calls:
        about = (
            "\n".join(f"{key}: {value}" for key, value in call["arguments"].items())
            if not call.get("raw")
            else call["raw"]
        )
        calls.append(
            {"tool": call["tool"], "about": _cut(about), "ok": call.get("ok"), "result": _cut(str(call.get("text", "")))}
        )  # fmt: skip
    return {
        "kind": entry.kind,
        "turn": entry.turn,
        "heading": entry.heading,
        "agent": entry.record.get("agent"),
        "step": entry.record.get("step"),
        "at": str(entry.record.get("at", "")),
        "text": _cut(str(entry.record.get("text") or entry.record.get("why") or "")),
        "calls": calls,
        "usage": usage if usage != Usage() else None,
        "cached": round(100 * usage.cached / usage.tokens_in) if usage.cached and usage.tokens_in else 0,
        "seconds": entry.seconds if entry.kind == "turn" else None,
    }


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_CHARS else text[:_TEXT_CHARS] + f"\n… {len(text) - _TEXT_CHARS:,} characters more"


def _files(hive: Hive, found: Task) -> list[str]:
    """What lies with it for people to read, as paths within the hive."""
    if not found.path.is_dir() or not found.files.is_dir():
        return []
    paths = (Path(folder, name) for folder, _, names in walk(found.files) for name in names)
    return [hive.layout.relative(path) for path in sorted(path for path in paths if not path.is_symlink())[:50]]


def _diffs(hive: Hive, found: Task) -> list[tuple[str, list[str]]]:
    """What it has changed in its worktrees: (branch, lines of the diff)."""
    if not found.kept.get("worktrees"):
        return []
    with suppress(HivemindError, OSError):
        trees = Worktrees(hive, found, found.owner or HUMAN, 0)
        return [(str(tree.branch), diff[:_DIFF_CHARS].splitlines()) for tree, diff in trees.diffs()]
    return []


def _waiting(hive: Hive, found: Task) -> str | None:
    if found.state is not TaskState.INBOX:
        return None
    with suppress(UserError):
        return hive.tasks.listing.waiting_for(found.id)
    return None


def turn(site: Site, task_id: str, number: str) -> Page:
    """One turn, whole. Raises UserError if there is none of that number."""
    found = site.hive.tasks.get(task_id)
    said = conversation_of(found)
    shown = [one for one in said.entries if str(one.turn) == number]
    if not shown:
        raise UserError(f"it has {len(said.turns)} turns", location=task_id)
    parts = [(one.heading, list(one.parts)) for one in shown]
    return Page(
        "turn.html", {"task": found, "number": int(number), "parts": parts, "turns": len(said.turns)}, f"Turn {number}"
    )


def file(site: Site, query: PageQuery) -> Page:
    """A file that agents may read, at the lines that were quoted. Raises UserError for any other."""
    path = query.get("path", "")
    first = query.number("first", 1)
    last = max(first, query.number("last", first))
    start = max(1, first - _AROUND)
    told = {"path": path, "start_line": start, "end_line": min(last, first + 400) + _AROUND}
    found = use_by_hand(site.hive, HUMAN, "read_file", told)
    lines = list(enumerate(str(found["text"]).splitlines(), int(found.get("start_line", 1))))
    context = {
        "path": path,
        "lines": lines,
        "first": first,
        "last": last,
        "of": found["lines"],
        "around": "first" in query,
    }
    return Page("file.html", context, path)
