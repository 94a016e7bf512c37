"""A coding agent that joins through MCP: cards, notes, memories, documents and letters; and what it must not reach."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from .checkers import GENERAL, SECRET
from .hives import make_hive
from .letters import letters_in
from .scenario import Checker, Scenario
from .subject import Subject
from .tasks import TASK_CHECKERS, add_task, places_of

__all__ = ["MEMBER"]


def prepare(subject: Subject) -> None:
    make_hive(subject, {"claude": {"mind": "mcp"}, "ada": {}, "dora": {"mind": "mcp"}})
    outside = subject.scratch / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(SECRET)
    os.symlink(outside / "secret.txt", subject.root / "knowledge" / "innocent.md")
    os.symlink(outside, subject.root / "knowledge" / "folder")
    add_task(subject, "boat", "Build a boat.\n", end="done", result="It floats.")
    add_task(subject, "raft", "Build a raft.\n", end="cancelled")
    subject.ask("pier", "late", "task", "add", "-", "--id", "late", stdin="---\nassignee: dora\n---\nBuild a pier.\n")


def raft() -> list[dict[str, Any]]:
    """A task that a person cancels while the member is at it."""
    return [
        call("step", "claim-raft", "claim_task", task="raft"),
        {"kind": "cancelled", "key": "raft", "words": ["task", "cancel", "raft"]},
        call("late", "late-card", "add_card", kind="note", title="late-card", text="A log too many."),
        call("late", "late-end", "finish_task", result="It swims."),
    ]


def call(kind: str, key: str, tool: str, /, **arguments: Any) -> dict[str, Any]:
    return {"kind": kind, "key": key, "call": {"name": tool, "arguments": arguments}}


def calls(subject: Subject) -> list[dict[str, Any]]:
    outside = str(subject.scratch / "outside" / "written.txt")

    return [
        call("step", "claim", "claim_task", task="boat"),
        call("step", "reserve", "reserve", paths=["knowledge/harbour/**"]),
        call("step", "plan", "plan_steps", steps=[{"title": "The keel"}, {"title": "The mast"}]),
        *(call("card", f"card-{number}", "add_card", kind="note", title=f"card-{number}", text=f"Plank {number}.")
          for number in range(3)),
        call("post", "post", "send_mail", to=["human", "ada"], subject="The keel", body="It is on.", key="keel"),
        call("fact", "fact", "remember", content="The keel is of oak and four fathoms long", key="keel"),
        *(call("refused", f"out-{number}", tool, **arguments) for number, (tool, arguments) in enumerate((
            ("read_file", {"path": "knowledge/innocent.md"}),
            ("read_file", {"path": "knowledge/folder/secret.txt"}),
            ("read_file", {"path": str(subject.scratch / "outside" / "secret.txt")}),
            ("read_file", {"path": "../beside/outside/secret.txt"}),
            ("write_file", {"path": outside, "text": "x"}),
            ("write_file", {"path": "knowledge/folder/written.txt", "text": "x"}),
            ("write_file", {"path": "../beside/outside/written.txt", "text": "x"}),
        ))),
        call("own", "rom", "write_file", path="rom/rule.md", text="x"),  # below its task's folder, and nowhere else
        call("own", "inbox", "write_file", path="tasks/inbox/mine.md", text="x"),
        call("written", "chart", "write_file", path="knowledge/chart.md", text="# Chart\n\nA shoal lies west.\n"),
        call("step", "finish-1", "finish_step"),
        call("step", "finish-2", "finish_step"),
        call("step", "end", "finish_task", result="It floats."),
    ]  # fmt: skip


def play(subject: Subject) -> None:
    subject.collect([subject.client("latecomer", "dora")])
    session(subject, [*raft(), *calls(subject)])


def session(subject: Subject, all_calls: list[dict[str, Any]]) -> None:
    path = subject.scratch / f"calls-{len(subject.commands)}.json"
    path.write_text(json.dumps(all_calls))
    subject.collect([subject.client("member", "claude", str(path))])


def retry(subject: Subject) -> None:
    """Join again and repeat all calls; completed ones are refused, and no effect appears twice."""
    if "boat" not in subject.ledger.acknowledged("task"):
        add_task(subject, "boat", "Build a boat.\n", end="done", result="It floats.")
    subject.run("task", "cancel", "late")
    session(subject, calls(subject))  # with which a claim that the fault has cut off is whole
    if not (subject.root / "tasks" / "done" / "raft").is_dir():
        subject.ask("cancelled", "raft", "task", "cancel", "raft")


def member_work(subject: Subject) -> Iterator[str]:
    cards = subject.ledger.acknowledged("card")
    folder = subject.root / "tasks" / "done" / "boat"
    if not folder.is_dir():
        return
    graph = (folder / "graph.json").read_text("utf-8")
    for key in sorted(cards):
        if f'"{key}"' not in graph:
            yield f"{key} was reported as added to the graph, and is not in it"
    for key, requests in subject.ledger.of("refused").items():
        for request in requests:
            if request.acknowledged:
                yield f"{key} was obeyed, and should not be: {request.asked} -> {request.answer[:200]}"


def planned_whole(subject: Subject) -> Iterator[str]:
    path = subject.root / "tasks" / "done" / "boat" / "graph.json"
    graph = path.read_text("utf-8") if path.is_file() else ""
    if ("The keel" in graph) != ("The mast" in graph):
        yield "of the two steps that one call has planned there is one"


def taken_away(subject: Subject) -> Iterator[str]:
    """Check that a cancelled task is over: later writes under the claim are refused, and leave no trace."""
    cancel = subject.ledger.acknowledged("cancelled").get("raft")
    if cancel is None:
        return
    if [place.parent.name for place in places_of(subject, "raft")] != ["failed"]:
        yield f"the raft was cancelled, and is in {places_of(subject, 'raft')}"
    for key, requests in subject.ledger.of("late").items():
        late = [call for call in requests if call.acknowledged and cancel.end is not None and call.begin > cancel.end]
        if late:
            yield f"{key} was taken after the task was cancelled: {late[0].answer[:200]}"
    for path in (subject.root / "tasks").rglob("*"):
        if path.is_file() and b"It swims." in path.read_bytes():
            yield f"the result of a cancelled task is in {path.relative_to(subject.root)}"


def too_late(subject: Subject) -> Iterator[str]:
    """Of two claims of one task only the second may end it."""
    for key in subject.ledger.acknowledged("stale"):
        if subject.ledger.acknowledged("retried"):
            yield f"{key} was ended by a claim that was over"
    for path in (subject.root / "tasks" / "done").glob("late*/result.md"):
        if path.read_text() == "stale\n" and subject.ledger.acknowledged("retried"):
            yield "the result of late is that of a claim that was over"


def given_back(subject: Subject) -> Iterator[str]:
    """Check that the member's locks were released."""
    locks = [row for row in subject.read("reserve", "list") if row["agent_id"] == "claude"]
    locks += [row for row in subject.read("lease", "list") if "claude" in row.values()]
    if locks:
        yield f"the member has ended, and holds {locks}"


def member_stores(subject: Subject) -> Iterator[str]:
    for box in ("human", "ada"):
        copies = [message for message in letters_in(subject, box) if message["Subject"] == "The keel"]
        if len(copies) > 1 or (not copies and subject.ledger.acknowledged("post")):
            yield f"the member's letter is in the box of {box} {len(copies)} times"
    if subject.ledger.acknowledged("fact"):
        rows = subject.read("memory", "list", "--agent", "claude")
        if [row["content"] for row in rows if row["key"] == "keel"] != ["The keel is of oak and four fathoms long"]:
            yield f"what the member remembered is not kept: {rows}"
    chart = subject.root / "knowledge" / "chart.md"
    if subject.ledger.acknowledged("written") and "shoal lies west" not in (
        chart.read_text() if chart.exists() else ""
    ):
        yield "what the member wrote into knowledge/ is not there"
    for path in ("rom/rule.md", "tasks/inbox/mine.md"):
        if (subject.root / path).exists():
            yield f"the member wrote {path}"


MEMBER = Scenario(
    "member", __doc__ or "", prepare, play, retry,
    (Checker("member work", ("P28", "P38"), member_work), Checker("planned whole", ("P29",), planned_whole),
     Checker("taken away", ("P10", "P12"), taken_away), Checker("too late", ("P10",), too_late),
     Checker("given back", ("P24",), given_back), Checker("member stores", ("P13", "P33", "P45"), member_stores),
     *TASK_CHECKERS, *GENERAL), ("tasks.", "journal.", "fs.", "graph.", "mail.", "longterm."),
)  # fmt: skip
