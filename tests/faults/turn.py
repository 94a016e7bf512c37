"""A model's turns at a task: a plan, commands with their receipts, cards, a letter, and the conversation that tells of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .budgets import program, thoughts
from .checkers import GENERAL
from .hives import make_hive
from .letters import letters_in
from .scenario import Checker, Scenario
from .subject import Subject
from .tasks import TASK_CHECKERS, add_task, conversation, marking, missing_tasks, ran, untold

__all__ = ["TURN"]

OUTPUT = "The mast is nine fathoms high."


def script(subject: Subject) -> list[list[dict[str, Any]]]:
    def call(tool: str, **arguments: Any) -> dict[str, Any]:
        return {"tool": tool, "arguments": arguments}

    return [
        [call("plan_steps", steps=[{"title": "The keel"}, {"title": "The mast"}])],
        [call("run_command", command=marking(subject, "keel", f"; echo {OUTPUT}")),
         call("add_card", kind="note", title="oak", text="The keel is of oak.")],
        [call("write_file", path="chart.md", text="# Chart\n\nA shoal lies west.\n"),
         call("send_mail", to=["human"], subject="The keel", body="It is on.", key="keel"), call("finish_step")],
        [call("finish_step")],
        [call("finish_task", result="It floats.")],
    ]  # fmt: skip


def prepare(subject: Subject) -> None:
    subject.marks.mkdir(parents=True)
    mind = program(subject, "ada", script(subject))
    make_hive(subject, {"ada": {"mind": mind, "shell": True, "role": "builder"}, "bob": {}})


def boat(subject: Subject) -> None:
    add_task(subject, "boat", "---\nrole: builder\n---\nBuild a boat.\n", end="done", result="It floats.")


def play(subject: Subject) -> None:
    boat(subject)
    subject.work()


def retry(subject: Subject) -> None:
    if missing_tasks(subject, ["boat"]):
        boat(subject)


def done_folder(subject: Subject) -> Path | None:
    """The task's folder, once it is done."""
    folder = subject.root / "tasks" / "done" / "boat"
    return folder if folder.is_dir() else None


def conversation_whole(subject: Subject) -> Iterator[str]:
    """Each message once, one result for each call, in order; an answer that the model was shown again is unchanged."""
    if (folder := done_folder(subject)) is None:
        return
    yield from untold(folder)
    messages = {message["id"]: message for message in conversation(folder)[0]}
    replies = [msg for thought in thoughts(subject) for msg in thought["told"] if msg["role"] == "assistant"]
    for answer in replies:
        if any(messages.get(answer["id"], {}).get(key) != value for key, value in answer.items()):
            yield f"the answer {answer} was shown to the model again, and is recorded as {messages.get(answer['id'])}"


def work_kept(subject: Subject) -> Iterator[str]:
    """Check the effects of a finished task: the command's output is where its receipt says, the letter and file exist."""
    if (folder := done_folder(subject)) is None:
        return
    receipts = [message["result"] for message in conversation(folder)[0] if "exit_status" in message.get("result", ())]
    for receipt in receipts:
        output = folder / "artifacts" / Path(receipt["output_path"]).name
        if not output.is_file() or OUTPUT not in output.read_text("utf-8"):
            yield f"{output.name} lacks what the command printed"
    if not 0 < len(receipts) <= ran(subject, "keel"):
        yield f"there are {len(receipts)} receipts of the command, and it ran {ran(subject, 'keel')} times"
    if '"oak"' not in (folder / "graph.json").read_text("utf-8"):
        yield "its card is not in the graph"
    if not (folder / "files" / "chart.md").is_file():
        yield "the file that it wrote is not there"
    letters = [message for message in letters_in(subject, "human") if message["Subject"] == "The keel"]
    if len(letters) != 1:
        yield f"its letter is in the box {len(letters)} times"


TURN = Scenario(
    "turn", "A model's turns at a task, which end with it.", prepare, play, retry,
    (Checker("conversation whole", ("P49",), conversation_whole),
     Checker("work kept", ("P13", "P28", "P50"), work_kept), *TASK_CHECKERS, *GENERAL),
    ("messages.", "command.", "tasks.", "journal.", "fs.", "graph.", "mail."),
)  # fmt: skip
