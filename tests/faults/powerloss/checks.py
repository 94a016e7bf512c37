"""Checks after a power loss, through the public doors: `Hive`, `Intake`, the command line, and the files."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Facts", "inspect", "set_going"]

NO_HOLDER: dict[str, Any] = {"agent": None, "generation": 0}


@dataclass
class Facts:
    """The requests acknowledged before the power went, and those under way: kind -> key -> value."""

    acked: dict[str, dict[str, Any]] = field(default_factory=dict)
    under_way: dict[str, dict[str, list[Any]]] = field(default_factory=dict)
    effects: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, lines: Collection[str]) -> Facts:
        facts = cls()
        for line in lines:
            for event, fact in json.loads(line).items():
                if event == "effect":
                    facts.effects.append(fact)
                    continue
                kind, key, value = fact
                open_ = facts.under_way.setdefault(kind, {}).setdefault(key, [])
                if event == "begin":
                    open_.append(value)
                else:
                    open_.clear()
                    facts.acked.setdefault(kind, {})[key] = value
        return facts

    def keys(self, kind: str) -> list[str]:
        return sorted({*self.acked.get(kind, {}), *(key for key, new in self.under_way.get(kind, {}).items() if new)})

    def may_be(self, kind: str, key: str, default: Any = None) -> list[Any]:
        """The values that are right: the last acknowledged one (else `default`), and those under way."""
        return [self.acked.get(kind, {}).get(key, default), *self.under_way.get(kind, {}).get(key, [])]

    def is_known(self, kind: str, key: str) -> bool:
        return key in self.acked.get(kind, {})


def inspect(root: Path, facts: Facts, durable: bool) -> Iterator[str]:
    """Yield the problems of a hive after a power loss, one sentence each. Opens it as its next processes would.

    Without durability the latest may be missing or in pieces; then the doctor may have to set a piece aside first, and may
    leave to a person what only a person can know.
    """
    if not durable and list(_inspect_rooms(root, facts, durable)):
        yield from (problem for problem in _doctor(root) if not problem.startswith("doctor: --fix leaves"))
    yield from _inspect_rooms(root, facts, durable)
    yield from (problem for problem in _doctor(root) if durable or not problem.startswith("doctor: --fix leaves"))


def _inspect_rooms(root: Path, facts: Facts, durable: bool) -> Iterator[str]:
    from hivemind import Hive

    try:
        hive = Hive.open(root)
    except Exception as error:  # a hive that cannot be opened is a find
        yield f"hive: {type(error).__name__}: {error}"
        return
    for part in (_journal, _letters, _tasks, _memory, _documents):
        try:
            yield from part(hive, facts, durable)
        except Exception as error:  # so is a room
            yield f"{part.__name__[1:]}: {type(error).__name__}: {error}"
    hive.memory.close()
    hive.documents.close()
    hive.journal.close()


def _right(facts: Facts, durable: bool, kind: str, key: str, state: Any, default: Any = None) -> str | None:
    """A sentence if what was found is not what may be there; without durability any begun value may be there."""
    right = facts.may_be(kind, key, default)
    if durable and state not in right:
        return f"{kind} {key}: {state!r:.120} was found, {right!r:.120} was acknowledged or under way"
    return None


def _letters(hive: Any, facts: Facts, durable: bool) -> Iterator[str]:
    from hivemind.mail import Intake

    boxes = {name: hive.mail.list(name) for name in ("bob", "human", "ann") if (hive.layout.mailboxes / name).is_dir()}
    outbox = hive.mail.list("ann", "sent") if "ann" in boxes else []
    for subject in facts.keys("letter"):
        value = facts.may_be("letter", subject)[-1]
        for name in value["to"]:
            copies = [letter for letter in boxes.get(name, ()) if letter.subject == subject]
            is_due = durable and facts.is_known("letter", subject)
            if len(copies) > 1 or (is_due and not copies):
                yield f"letter {subject}: {len(copies)} copies in the mailbox of {name}"
            for letter in copies:
                message = hive.mail.read(name, letter.id, mark=False)
                is_whole = message.body.rstrip("\n") == value["body"].rstrip("\n")
                if not (is_whole and message.trusted) if durable else message.trusted and not is_whole:
                    yield f"letter {subject}: not whole in the mailbox of {name}: {message.body[-40:]!r}, {message.trusted}"
        copies_sent = sum(letter.subject == subject for letter in outbox)
        if copies_sent > 1 or (durable and facts.is_known("letter", subject) and not copies_sent):
            yield f"letter {subject}: {copies_sent} copies in .Sent"
    if not facts.keys("letter"):
        return
    torn = [letter.subject for box in boxes.values() for letter in box if letter.subject not in facts.keys("letter")]
    if torn and durable:
        yield f"letters that nobody sent: {torn}"
    intake = Intake(hive.mail, "bob", hive.layout.agent_state("bob"))
    subjects = [message.subject for message in intake.new_messages()]
    for subject in facts.keys("letter"):
        if "bob" not in facts.may_be("letter", subject)[-1]["to"]:
            continue
        is_taken = facts.is_known("taken", subject)
        maybe = is_taken or bool(facts.under_way.get("taken", {}).get(subject))
        if durable and is_taken and subject in subjects:
            yield f"letter {subject}: taken in, and given out again"
        if durable and not maybe and facts.is_known("letter", subject) and subjects.count(subject) != 1:
            yield f"letter {subject}: given out {subjects.count(subject)} times"
    letter_id = "named@hive"
    if durable and any(value and value["id"] == letter_id for value in facts.may_be("letter", "Named")):
        report = hive.mail.send("ann", ["bob"], "Named", "Named.\n", message_id=letter_id)
        copies = [letter for letter in hive.mail.list("bob") if letter.subject == "Named"]
        if report.failed or len(copies) != 1 or not hive.mail.read("bob", copies[0].id, mark=False).trusted:
            yield f"letter Named: sent once more under its id there are {len(copies)} copies; {report}"


def _tasks(hive: Any, facts: Facts, durable: bool) -> Iterator[str]:
    hive.tasks.mine("ann")
    places = {}
    for state in ("inbox", "active", "done", "failed"):
        for task in hive.tasks.list(state):
            places.setdefault(task.id, []).append(state)
    for name in facts.keys("task"):
        states = places.get(name, [])
        if len(states) > 1:
            yield f"task {name}: is in {states}"
        wrong = _right(facts, durable, "task", name, states[0] if states else None)
        if wrong:
            yield wrong
    for name in facts.keys("task text") if durable else ():
        texts = [addition.text for addition in hive.tasks.get(name).said] if name in places else []
        wrong = _right(facts, durable, "task text", name, texts[-1] if texts else None)
        if wrong:
            yield wrong
    if durable and (lost := [name for name in places if name not in facts.keys("task")]):
        yield f"tasks that nobody gave: {lost}"
    for state, name in (("done", "result.md"), ("failed", "error.md")):
        for folder in (hive.layout.tasks / state).glob("[!.]*/"):
            if durable and not (folder / name).read_text().strip():
                yield f"task {folder.name}: its {name} is empty"
    if durable and facts.may_be("task", "one") == ["done"]:
        text = (hive.layout.done / "one" / "result.md").read_text()
        if text.strip() != "The result of one.":
            yield f"task one: its result is {text!r:.80}"
        if [record.get("text") for record in hive.tasks.listing.read_log("one")][:1] != ["x" * 3000]:
            yield "task one: its log is not whole"


def _journal(hive: Any, facts: Facts, durable: bool) -> Iterator[str]:
    from hivemind.coordination import Reservations

    events = hive.journal.read()
    if [event.seq for event in events] != list(range(1, len(events) + 1)):
        yield f"journal: seq is {[event.seq for event in events]}"
    added = hive.journal.append("note.test", text="after the power came back")
    if added.seq != len(events) + 1:
        yield f"journal: the event after {len(events)} has seq {added.seq}"
    steps = {step.id: step.status for step in hive.steps.list()}
    for key in facts.keys("step"):
        if wrong := _right(facts, durable, "step", key, steps.get(key)):
            yield wrong
    for key in facts.keys("lease"):
        lease = hive.leases.get(key)
        leases = facts.may_be("lease", key, NO_HOLDER)
        holder = {"agent": lease.holder_agent_id, "generation": lease.generation} if lease else NO_HOLDER
        if durable and holder not in leases and not (lease is None and any(old["agent"] is None for old in leases)):
            yield f"lease {key}: {holder} was found, {leases} was acknowledged or under way"
        if lease is None:
            generation = hive.leases.claim(key, "ann").generation
            if durable and generation <= max(old["generation"] for old in leases[:1]):
                yield f"lease {key}: the generation {generation} is given a second time"
    kinds = [event.kind for event in hive.journal.read()]
    from hivemind import Hive

    reader = Hive.open(hive.layout.root)
    if (holder := [event.kind for event in reader.journal.read()]) != kinds:
        yield f"journal: a process that opens it now reads {len(holder)} events, and {len(kinds)} were acknowledged"
    reader.journal.close()
    holders = {pattern: lock.agent_id for lock in Reservations(hive.journal).list() for pattern in lock.patterns}
    for key in facts.keys("reserved"):
        if wrong := _right(facts, durable, "reserved", key, holders.get(key)):
            yield wrong


def _memory(hive: Any, facts: Facts, durable: bool) -> Iterator[str]:
    if not facts.keys("memory") or (not hive.layout.memory_db.exists() and not facts.acked.get("memory")):
        return
    for key in facts.keys("memory"):
        entry = hive.memory.get(("memories", "ann"), key)
        content = None if entry is None else entry.content
        if wrong := _right(facts, durable, "memory", key, content):
            yield wrong
    if problems := hive.memory.check():
        yield f"memory: {problems}"
    hive.memory.put(("memories", "ann"), "later", "It goes on.")


def _documents(hive: Any, facts: Facts, durable: bool) -> Iterator[str]:
    if not facts.keys("document") or (not hive.layout.documents_db.exists() and not facts.acked.get("document")):
        return
    for key in facts.keys("document"):
        node = hive.documents.find(key)
        if wrong := _right(facts, durable, "document", key, None if node is None else node.text):
            yield wrong
    if problems := hive.documents.check():
        yield f"documents: {problems}"


def _command(root: Path, *arguments: str) -> tuple[int, str, str]:
    """A command of the command line, in this process."""
    from hivemind.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(["--hive", os.fspath(root), *arguments])
        except SystemExit as ended:
            status = int(ended.code or 0)
    return status, out.getvalue(), err.getvalue()


def _doctor(root: Path) -> Iterator[str]:
    """Check that the doctor mends all problems: after `--fix` it finds none."""
    status, out, err = _command(root, "doctor", "--json", "--fix")
    if status not in (0, 1) or not out:
        yield f"doctor: ends with {status}: {err.strip()[-300:]}"
        return
    leftovers = [f"{row['where']}: {row['what']}: {row['left']}" for row in json.loads(out)["findings"] if row["left"]]
    if leftovers:
        yield f"doctor: --fix leaves {leftovers}"


def set_going(
    root: Path, facts: Facts, durable: bool, hivemind: Callable[..., tuple[int | None, str]]
) -> Iterator[str]:
    """Let a swarm go on with what the power loss left, to the end, and look at what has become of all tasks."""
    status, text = hivemind("up", "--until-idle")
    if not durable and (status not in (0, 1) or "parked  " in text):  # the latest may be in pieces: the doctor says so
        hivemind("doctor", "--fix")
        status, text = hivemind("up", "--until-idle")
    if status not in (0, 1):
        yield f"up --until-idle: ended with {status}: {text[-600:]}"
        return
    tasks = root / "tasks"
    for name in facts.keys("task"):
        states = [state for state in ("active", "done", "failed") if (tasks / state / name).is_dir()]
        if (tasks / "inbox").is_dir():
            states += ["inbox" for entry in os.listdir(tasks / "inbox") if entry.partition(".")[0] == name]
        is_known = facts.is_known("task", name)
        if len(states) > 1 or (durable and is_known and not states):
            yield f"task {name}: is in {states} after the swarm has ended"
        elif states and states[0] == "failed":
            error = (tasks / "failed" / name / "error.md").read_text()
            if durable and not (name == "once" and "it is unknown whether it took effect" in error):
                yield f"task {name}: failed: {error[:200]}"
        elif states and states[0] != "done":
            yield f"task {name}: is in {states} after the swarm has ended with {status}: {text[-600:]}"
    for name in ("human", "bob"):
        _, out, _ = _command(root, "mail", "list", name, "--json")
        copies = [letter for letter in json.loads(out or "[]") if letter["subject"] == "Of a step"]
        if len(copies) > 1 or (durable and (tasks / "done" / "letter").is_dir() and not copies):
            yield f"letter of a step: {len(copies)} copies in the mailbox of {name}"
