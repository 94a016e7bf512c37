"""The tasks scenario: steps of several kinds, `once`, dependencies, failing, what cannot be a task, a folder, a retry."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from .checkers import GENERAL
from .hives import make_hive
from .scenario import Checker, Scenario
from .subject import Subject

__all__ = ["TASKS", "TASK_CHECKERS", "add_task", "conversation", "drop_task", "missing_tasks", "places_of", "untold"]

KEY = "ghp_k1e2y3o4f5t6h7e8h9a0r1b2o3u4r5"  # commands may print it, and no file of the hive may keep it
ENDS = ("finish_task", "fail_task")  # the calls that end a task
PERSON_FILE = "mine.txt"  # in a person's folder, not a task's
QUESTION = "What moves a rowing boat?"
QUOTE = "A rowing boat is moved with oars by the people who sit in it."
BROKEN = "---\nprioritty: high\n---\nThis line is kept: \u00e4\u00f6\u00fc.\n"


def marking(subject: Subject, name: str, more: str = "") -> str:
    """A command that leaves one mark each time that it runs."""
    return f"echo ran >> {subject.marks / name}{more}"


def killing(subject: Subject) -> str:
    """Return a command that kills its own agent, which the lock names."""
    lock = subject.root / ".hive" / "locks" / "agent-$HIVEMIND_AGENT.lock"
    return f"""kill -9 $(sed -n 's/.*"pid": *\\([0-9]*\\).*/\\1/p' {lock}) || true"""


def in_the_way(folder: Path) -> str:
    """A command that makes a folder, on the disk, where the task will end."""
    return f"mkdir -p {folder} && touch {folder}/{PERSON_FILE} && sync {folder}/{PERSON_FILE} {folder} {folder.parent}"


def with_steps(*steps: dict[str, Any], **keys: Any) -> str:
    return f"---\n{json.dumps({**keys, 'steps': list(steps)})}\n---\nA task with steps.\n"


def workload(subject: Subject) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """By id: how it is given (`add`, `drop` or `folder`), its text, and the expectations at the end."""
    done = subject.root / "tasks" / "done"
    run, twin = done / "run", done / "twin"
    return {
        "plain": ("add", f"{QUESTION}\n", {"end": "done", "result": QUOTE}),
        "never": ("add", with_steps({"run": marking(subject, "never")}), {"end": "cancelled", "kept": "never.md"}),
        "run": ("drop", with_steps({"run": marking(subject, "run", f"; cat {subject.scratch}/key.txt")},
                                   {"run": marking(subject, "run-2", "; echo told")}),
                {"end": "done", "at_least_once": ["run", "run-2"], "result": "told"}),
        "once": ("drop", with_steps({"run": marking(subject, "once"), "once": True}),
                 {"end": "unless unknown", "at_most_once": ["once"]}),
        "deadly": ("drop", with_steps({"run": marking(subject, "deadly", f"; {killing(subject)}"), "once": True}),
                   {"end": "unless unknown", "at_most_once": ["deadly"]}),
        "twin": ("drop", with_steps({"run": f"{in_the_way(twin)}; {marking(subject, 'twin')}"}),
                 {"end": "done", "at_least_once": ["twin"]}),
        "after": ("add", with_steps({"run": f"test -d {run} && {marking(subject, 'after')}"}, dependencies=["run"]),
                  {"end": "done", "at_least_once": ["after"]}),
        "fails": ("drop", with_steps({"run": marking(subject, "fails", "; exit 3")}),
                  {"end": "failed", "at_least_once": ["fails"], "error": "3"}),
        "broken": ("drop", BROKEN, {"end": "failed", "error": "prioritty", "kept": "broken.md"}),
        "folder": ("folder", with_steps({"run": f"cat ballad.txt; {marking(subject, 'folder')}"}),
                   {"end": "done", "at_least_once": ["folder"], "result": "the boat came home"}),
        "mended": ("add", with_steps({"run": f"test -e {subject.marks}/mended.ok && {marking(subject, 'mended')}"}),
                   {"end": "retried", "at_least_once": ["mended"]}),
    }  # fmt: skip


def add_task(subject: Subject, key: str, text: str, **asked: Any) -> None:
    subject.ask("task", key, "task", "add", "-", "--id", key, stdin=text, text=text, whole=False, **asked)


def drop_task(subject: Subject, key: str, text: str, **asked: Any) -> None:
    subject.drop("task", key, f"tasks/inbox/{key}.md", text.encode(), text=text, whole=True, **asked)


def drop_folder(subject: Subject, key: str, text: str, **asked: Any) -> None:
    """A folder dropped whole, as a person does: built elsewhere, then moved in."""
    built = subject.root / "tasks" / f".{key}.new"
    try:
        shutil.rmtree(built, ignore_errors=True)
        built.mkdir()
        (built / "ballad.txt").write_text("and the boat came home\n")
        (built / "task.md").write_text(text)
        for path in (*built.iterdir(), built):
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
    except OSError:
        shutil.rmtree(built, ignore_errors=True)
        return
    subject.move_in("task", key, built, f"tasks/inbox/{key}", text=text, whole=True, **asked)


METHODS = {"add": add_task, "drop": drop_task, "folder": drop_folder}


def prepare(subject: Subject) -> None:
    make_hive(subject)
    (subject.scratch / "key.txt").write_text(f"the key is {KEY}\n")


def play(subject: Subject) -> None:
    tasks = workload(subject)
    names = list(tasks)
    subject.random.shuffle(names)
    names.sort(key=lambda name: (name != "never") + (name == "after"))  # what it depends on goes before it
    every = [(name, tasks[name]) for name in names]
    begin = subject.random.randrange(1, len(every))
    for key, (method, text, fields) in every[:begin]:
        METHODS[method](subject, key, text, **fields)
    cancel(subject)
    swarm = subject.begin_work()
    for key, (method, text, fields) in every[begin:]:
        METHODS[method](subject, key, text, **fields)
    subject.finish_work(swarm)


def cancel(subject: Subject) -> None:
    subject.ask("cancelled", "never", "task", "cancel", "never")


def missing_tasks(subject: Subject, keys: Iterable[str]) -> list[str]:
    """Return unacknowledged tasks that are absent, for a person to give once more. (A task that is just being claimed
    is in no place where a person would look, but in the listing.)"""
    ids = {row["id"] for row in subject.read("task", "list")} | set(subject.ledger.acknowledged("task"))
    return [key for key in keys if key not in ids]


def retry(subject: Subject) -> None:
    lost = missing_tasks(subject, workload(subject))
    for key, (method, text, fields) in workload(subject).items():
        if key in lost:
            METHODS[method](subject, key, text, **fields)
            if key == "never":
                cancel(subject)
    if not subject.seems_idle():
        subject.work()
    (subject.marks / "mended.ok").touch()
    subject.run("task", "retry", "mended")
    if "which does not exist" in read(
        subject.root / "tasks" / "failed" / "after" / "error.md"
    ):  # `run` did not come through
        subject.run("task", "retry", "after")


# checks


def places_of(subject: Subject, key: str) -> list[Path]:
    """Return all places of a task of that id, or of its possible double."""
    places = []
    for state in ("inbox", "active", "done", "failed"):
        folder = subject.root / "tasks" / state
        for name in sorted(os.listdir(folder)):
            stem = name.partition(".")[0] if state == "inbox" else name
            if (stem == key or (stem.startswith(f"{key}-") and stem[len(key) + 1 :].isdigit())) and not (
                folder / name / PERSON_FILE
            ).exists():
                places.append(folder / name)
    return places


def one_end(subject: Subject) -> Iterator[str]:
    for key in subject.ledger.of("task"):
        places = places_of(subject, key)
        if len(places) != 1:
            paths = ", ".join(str(place.relative_to(subject.root)) for place in places) or "nowhere"
            yield f"the task {key} is {paths}, not in one place"
        elif places[0].parent.name not in ("done", "failed"):
            yield f"the task {key} came to no end: {places[0].relative_to(subject.root)}"


def the_right_end(subject: Subject) -> Iterator[str]:
    for key, fields in asked_of(subject).items():
        for place in places_of(subject, key):
            state = place.parent.name
            if state not in ("done", "failed"):
                continue
            error = read(place / "error.md")
            if fields["end"] == "cancelled":
                continue
            end = {"unless unknown": "done", "retried": "done"}.get(fields["end"], fields["end"])
            unknown = fields["end"] == "unless unknown" and "is unknown whether" in error
            excused = state == "failed" and any(word in error for word in subject.excuses)
            if state != end and not unknown and not excused:
                yield f"the task {key} is {state} and not {end}: {error[:600]}"
            elif state == "done" and fields.get("result", "") not in read(place / "result.md"):
                yield f"the result of {key} lacks {fields['result']!r}"
            elif state == "failed" and state == end and fields.get("error", "") not in error:
                yield f"the error.md of {key} does not say {fields['error']!r}: {error[:300]}"


def asked_of(subject: Subject) -> dict[str, dict[str, Any]]:
    return {key: requests[-1].asked for key, requests in subject.ledger.of("task").items()}


def read(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.is_file() else ""


def whole_folders(subject: Subject) -> Iterator[str]:
    for key, fields in asked_of(subject).items():
        for place in places_of(subject, key):
            state = place.parent.name
            if state == "done":
                names = ["task.md", "result.md", "graph.json", "messages.jsonl"]
            elif state == "failed":
                names = ["error.md"]
            else:
                continue
            yield from (f"{place.name} is {state} and has no {name}" for name in names if not (place / name).is_file())
            if state == "done" and (place / "error.md").exists():
                yield f"{key} is done and has an error.md"
            yield from unreadable(place)
            text_file = place / (fields.get("kept", "task.md") if state == "failed" else "task.md")
            if (
                fields["end"] == "cancelled" and not text_file.is_file()
            ):  # nobody had it yet: the dropped file is unchanged
                text_file = place / f"{key}.md"
            if not text_file.is_file():
                yield f"{key}: the text that was given is not there as {text_file.name}"
            elif (text_file.read_text("utf-8") if fields["whole"] else body(text_file.read_text("utf-8"))) != (
                fields["text"] if fields["whole"] else body(fields["text"])
            ):
                yield f"{key}: {text_file.name} is not what was given"


def body(text: str) -> str:
    """Return a text without front matter, which `task add` rewrites."""
    return text.rpartition("---\n")[2]


def unreadable(place: Path) -> Iterator[str]:
    try:
        if (place / "graph.json").is_file():
            json.loads((place / "graph.json").read_text("utf-8"))
        if (place / "messages.jsonl").is_file():
            yield from (f"{place.name}: {problem}" for problem in untold(place))
    except ValueError as error:
        yield f"{place.name}: its graph or its conversation cannot be read ({error})"


def conversation(folder: Path) -> tuple[list[dict[str, Any]], bytes]:
    """The messages of a task, and the bytes behind the last whole line. Raises ValueError if a line is not JSON."""
    head, hole, tail = (folder / "messages.jsonl").read_bytes().partition(b"\0")
    *lines, torn = head.split(b"\n")
    records = [json.loads(line) for line in lines]
    if not records or records[0].get("kind") != "messages":
        raise ValueError("messages.jsonl does not say what it is")
    return [record for record in records if "role" in record], torn + hole + tail


def untold(folder: Path) -> Iterator[str]:
    """Yield the gaps of a finished task's conversation. All of it was on the disk before the end, except for the records of
    the end: the result of the call that ended it and of those behind it, and of a mind by rule the answer with that call."""
    messages, torn = conversation(folder)
    if len({message["id"] for message in messages}) != len(messages):
        yield f"a message occurs twice: {[message['id'] for message in messages]}"
    called = [call for message in messages for call in message.get("calls", ())]
    results = [message for message in messages if message["role"] == "tool"]
    names = [call["id"] for call in called]
    if [message["call_id"] for message in results] != names[: len(results)]:
        yield f"the calls {names} have the results {[message['call_id'] for message in results]}"
    if folder.parent.name != "done":  # what failed may have failed in the middle of a turn
        return
    tail = called[len(results) :]
    if tail and tail[0]["tool"] not in ENDS:
        yield f"the call {tail[0]['id']} of {tail[0]['tool']} has no result, and did not end the task"
    has_ended = any(call["tool"] in ENDS and reply["ok"] for call, reply in zip(called, results, strict=False))
    if torn and has_ended:
        yield f"something torn follows its end: {torn[:80]!r}"
    for line in torn.split(b"\n"):
        with suppress(ValueError):
            row = json.loads(line)
            tools = [call["tool"] for call in row.get("calls", ())]
            if row.get("call_id") not in [None, *(call["id"] for call in tail)] or (tools and tools[0] not in ENDS):
                yield f"a hole precedes the message {row['id']}, which does not tell of its end"


def commands_ran(subject: Subject) -> Iterator[str]:
    for key, fields in asked_of(subject).items():
        states = {place.parent.name for place in places_of(subject, key)}
        for name in fields.get("at_least_once", ()):
            if ran(subject, name) == 0 and ("done" in states or (fields["end"] == "failed" and "failed" in states)):
                yield f"{key} has ended, and its command {name} never ran"
        for name in fields.get("at_most_once", ()):
            if ran(subject, name) > 1:
                yield f"the command {name} of {key} may run once and ran {ran(subject, name)} times"
            elif "done" in states and ran(subject, name) != 1:
                yield f"{key} is done, and its command {name} never ran"


def stays_cancelled(subject: Subject) -> Iterator[str]:
    """Check that a task withdrawn before its claim is not worked on."""
    if "never" not in subject.ledger.acknowledged("cancelled"):
        return
    if ran(subject, "never"):
        yield "the task never was cancelled before the swarm was up, and its command ran"
    states = [place.parent.name for place in places_of(subject, "never")]
    if states != ["failed"]:
        yield f"the task never was cancelled, and is in {states}"


def replaces_nothing(subject: Subject) -> Iterator[str]:
    """Check that a foreign folder at a task's end place is kept; the task ends next to it."""
    if ran(subject, "twin") and not (subject.root / "tasks" / "done" / "twin" / PERSON_FILE).exists():
        yield "a folder in done/ was replaced by a task that came to its end"


def masked(subject: Subject) -> Iterator[str]:
    """Check that no file of the hive contains a secret that a command printed."""
    for folder, _, files in subject.walk():
        for name in files:
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink() and KEY.encode() in path.read_bytes():
                yield f"a key that a command printed is in {path.relative_to(subject.root)}"


def ran(subject: Subject, name: str) -> int:
    return read(subject.marks / name).count("ran\n")


def told_ends(subject: Subject) -> Iterator[str]:
    """Check that the journal and the folder agree on a task's end; and that it ended once an attempt."""
    ends: dict[str, list[str]] = {}
    for event in subject.read("log"):
        if event["kind"] in ("task.done", "task.failed"):
            ends.setdefault(event["task_id"], []).append(event["kind"].removeprefix("task."))
    for key, fields in asked_of(subject).items():
        events = ends.get(key, [])
        limit = 2 if fields["end"] == "retried" or key == "after" else 1
        if len(events) > limit:
            yield f"the end of {key} is told {len(events)} times: {events}"
        for place in places_of(subject, key):
            if events and place.parent.name in ("done", "failed") and events[-1] != place.parent.name:
                yield f"{key} is logged as {events[-1]} and is in {place.parent.name}"


TASK_CHECKERS = (
    Checker("one end", ("P1", "P2", "P3"), one_end),
    Checker("the right end", ("P2", "P6", "P7", "P8", "P42"), the_right_end),
    Checker("whole folders", ("P7", "P11"), whole_folders),
    Checker("commands ran", ("P4", "P5", "P6"), commands_ran),
    Checker("told ends", ("P2",), told_ends),
)

POINTS = ("tasks.", "journal.", "fs.", "graph.", "command.", "messages.", "mail.", "documents.")
TASKS = Scenario(
    "tasks", __doc__ or "", prepare, play, retry,
    (*TASK_CHECKERS, Checker("stays cancelled", ("P12",), stays_cancelled),
     Checker("replaces nothing", ("P2",), replaces_nothing), Checker("masked", ("P39",), masked), *GENERAL),
    POINTS,
)  # fmt: skip
