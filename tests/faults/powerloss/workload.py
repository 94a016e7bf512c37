"""The workloads that are recorded: `python -m tests.faults.powerloss.workload PLAY HIVE SAID`.

Each begin and each acknowledgement is written to the file SAID at once, as a line of JSON: strace records its place among
the calls. A fact is [kind, key, value]; the last one acknowledged for a kind and key holds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

AGENTS = ("ann", "bob")
QUESTION = "What keeps a sailing boat upright?"
KNOWLEDGE = "# Boats\n\n## Sailing boats\nA sailing boat needs wind and has a keel that keeps it upright.\n"
LETTER = """---
id: letter
steps:
- mail: {to: [human, bob], subject: Of a step, body: Whole.}
- write: {path: artifacts/note.md, text: Noted.}
---
The task letter.
"""


class Workload:
    """A hive, and its answers so far."""

    def __init__(self, root: Path, replies: Path) -> None:
        self.root = root
        self._said = os.open(replies, os.O_WRONLY | os.O_APPEND)

    def begin(self, kind: str, key: str, value: Any) -> None:
        self._say("begin", [kind, key, value])

    def did(self, kind: str, key: str, value: Any) -> None:
        self._say("ack", [kind, key, value])

    def fact(self, kind: str, key: str, value: Any, act: Callable[[], Any]) -> Any:
        """Write that it begins, do it, write that it was acknowledged."""
        self.begin(kind, key, value)
        answer = act()
        self.did(kind, key, value)
        return answer

    def _say(self, event: str, fact: list[Any]) -> None:
        os.write(self._said, json.dumps({event: fact}).encode() + b"\n")

    def make(self, **settings: Any) -> None:
        """Create a folder with its settings, and sync it."""
        (self.root / "agents").mkdir()
        for name in AGENTS:
            (self.root / "agents" / f"{name}.yaml").write_text(f"role: {'reviewer' if name == 'bob' else 'worker'}\n")
        text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in settings.items())
        (self.root / "hive.yaml").write_text(text)
        os.sync()


def stores(work: Workload) -> None:
    """Every store, through `Hive`, by one process."""
    from hivemind import Hive
    from hivemind.mail import Intake

    hive = Hive.open(work.root)
    mail, tasks = hive.mail, hive.tasks

    def letter(subject: str, to: list[str], message_id: str | None = None) -> None:
        body = f"{subject}.\n" * (400 if subject == "Long" else 1)
        value = {"from": "ann", "to": to, "body": body, "id": message_id}
        report = work.fact("letter", subject, value, lambda: mail.send("ann", to, subject, body, message_id=message_id))
        assert not report.failed, report

    letter("First", ["bob"])
    letter("Long", ["bob", "human"])
    letter("Named", ["bob"], "named@hive")
    letter("Named", ["bob"], "named@hive")
    intake = Intake(mail, "bob", hive.layout.agent_state("bob"))
    for message in intake.new_messages()[:2]:
        work.fact("taken", message.subject, "bob", lambda message=message: intake.mark_taken(message))
    letter("Second", ["bob"])
    for message in intake.new_messages()[:1]:
        work.fact("taken", message.subject, "bob", lambda message=message: intake.mark_taken(message))

    for name in ("one", "two", "three"):
        work.fact("task", name, "inbox", lambda name=name: tasks.add(f"The task {name}.\n", id=name))
    claimed = {}
    for _ in range(3):
        for name in ("one", "two", "three"):
            if name not in claimed:
                work.begin("task", name, "active")
        task = tasks.claim("ann")
        assert task is not None
        claimed[task.id] = task
        work.did("task", task.id, "active")
        for name in ("one", "two", "three"):
            if name not in claimed:
                work.did("task", name, "inbox")
    work.fact("task text", "three", "There is wind.", lambda: tasks.say("three", "There is wind."))
    tasks.active.log(claimed["one"], {"kind": "note", "text": "x" * 3000}, sync_now=True)
    work.fact("task", "one", "done", lambda: tasks.finish(claimed["one"], "The result of one.\n"))
    work.fact("task", "two", "failed", lambda: tasks.fail(claimed["two"], "There was no wind."))
    work.fact("task", "three", "inbox", lambda: tasks.release(claimed["three"]))
    work.fact("task", "two", "inbox", lambda: tasks.retry("two"))
    work.fact("task", "two", "failed", lambda: tasks.cancel("two"))

    steps = [
        work.fact("step", f"one.s{at}", "open", lambda at=at: hive.steps.add("one", f"Step {at}", agent_id="ann"))
        for at in (1, 2, 3)
    ]
    for step in steps[:2]:
        value = {"agent": "ann", "generation": 1}
        lease = work.fact("lease", step.id, value, lambda step=step: hive.leases.claim(step.id, "ann"))
        assert lease.generation == 1
    work.fact("lease", steps[0].id, {"agent": None, "generation": 1}, lambda: hive.leases.release(steps[0].id, "ann"))
    work.fact("lease", steps[0].id, {"agent": "bob", "generation": 2}, lambda: hive.leases.claim(steps[0].id, "bob"))
    for _ in range(6):  # the log must be longer than a page
        hive.steps.note(steps[1].id, "x" * 1500, agent_id="ann", generation=1)
    hive.steps.verify(steps[1].id, ("criteria", "tests"), agent_id="ann", generation=1)
    work.begin("lease", steps[1].id, {"agent": None, "generation": 1})
    work.fact("step", steps[1].id, "done", lambda: hive.steps.done(steps[1].id, agent_id="ann", generation=1))
    work.did("lease", steps[1].id, {"agent": None, "generation": 1})
    from hivemind.coordination import Reservations

    reservations = Reservations(hive.journal)
    reservation = work.fact("reserved", "src/*.py", "ann", lambda: reservations.reserve("ann", "src/*.py"))
    work.fact("reserved", "docs/**", "bob", lambda: reservations.reserve("bob", "docs/**"))
    work.fact("reserved", "src/*.py", None, lambda: reservations.release(reservation, "ann"))

    for at in range(3):
        work.fact(
            "memory",
            f"m{at}",
            f"Memory {at}.",
            lambda at=at: hive.memory.put(("memories", "ann"), f"m{at}", f"Memory {at}."),
        )
    work.fact("memory", "m1", "Another.", lambda: hive.memory.put(("memories", "ann"), "m1", "Another."))
    work.fact("memory", "m2", None, lambda: hive.memory.delete(("memories", "ann"), "m2"))
    hive.memory.close()
    work.fact("memory", "m3", "After a pause.", lambda: hive.memory.put(("memories", "ann"), "m3", "After a pause."))
    work.fact("document", "root", "", lambda: hive.documents.create_root("root"))
    for at in range(3):
        text = f"Paragraph {at}. " * 50
        add = lambda at=at, text=text: hive.documents.append_child("root", "text", "part", str(at), text, id=f"p{at}")  # noqa: E731
        work.fact("document", f"p{at}", text, add)
    work.fact("document", "p1", "Changed.", lambda: hive.documents.update_content("p1", "Changed."))
    work.fact("document", "p2", None, lambda: hive.documents.delete("p2"))
    hive.documents.close()


def swarm(work: Workload) -> None:
    """The whole program, by its command line: tasks from the inbox to their end, by two agents."""
    (work.root / "knowledge").mkdir()
    (work.root / "knowledge" / "boats.md").write_text(KNOWLEDGE)
    os.sync()

    def hivemind(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "hivemind", "--hive", os.fspath(work.root), *arguments],
            capture_output=True, text=True, check=False, cwd=work.root.parent,
        )  # fmt: skip
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
        return done.stdout

    outside = os.readlink(f"/proc/self/fd/{work._said}")
    for name, once in (("once", "true"), ("often", "false")):
        run = json.dumps(["sh", "-c", f"""echo '{{"effect": "{name}"}}' >> {outside}"""])
        text = f"---\nid: {name}\nsteps:\n- run: {run}\n  once: {once}\n---\nThe task {name}.\n"
        (work.root / f"{name}.txt").write_text(text)
    (work.root / "letter.txt").write_text(LETTER)
    (work.root / "question.txt").write_text(f"---\nid: question\n---\n{QUESTION}\n")
    for name in ("once", "often", "letter", "question"):
        text = (work.root / f"{name}.txt").read_text()
        (work.root / f"{name}.txt").unlink()
        work.fact("task", name, "inbox", lambda text=text: hivemind("task", "add", text))
    hivemind("up", "--until-idle")
    for name in ("once", "often", "letter", "question"):
        work.did("task", name, "done")


PLAYS = {"stores": stores, "swarm": swarm}

if __name__ == "__main__":
    play, root, reply_file, durability = sys.argv[1:]
    work = Workload(Path(root), Path(reply_file))
    work.make(durability=durability, embedder="none", settle_ms=0, review_timeout_s=20)
    PLAYS[play](work)
