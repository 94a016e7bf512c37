"""Checks of every scenario: the journal, the doctor's findings, leftovers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from .scenario import Checker
from .subject import Subject

__all__ = ["DOCTOR_CONTENT", "GENERAL", "NOTHING_LEFT", "SECRET"]

SECRET = "harbour-4711-ferry"  # stays outside of the hive, and must never come into it


def journal_whole(subject: Subject) -> Iterator[str]:
    """Numbers without a gap, and one history for all: in the command's output and in the files."""
    events = subject.read("log")
    numbers = [event["seq"] for event in events]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"the journal's numbers have a gap or a double: {around_the_gap(numbers)}"
    in_files = list(events_in_files(subject))
    if [event["seq"] for event in in_files] != numbers:
        yield f"the files have {len(in_files)} events, and `hivemind log` shows {len(numbers)}"
    elif in_files != events:
        different = next(event["seq"] for event, twin in zip(in_files, events, strict=True) if event != twin)
        yield f"the event {different} is another one in the files than in `hivemind log`"
    for numbers in subject.followed:
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"`log --follow` showed a gap or a double: {around_the_gap(numbers)}"
    for seq, event in subject.seen.items():
        if seq > len(events) or events[seq - 1] != event:
            yield f"the event {seq} was seen, as {event['kind']}, and is not in the journal any more"


def events_in_files(subject: Subject) -> Iterator[dict[str, Any]]:
    for path in sorted((subject.root / ".hive" / "journal").glob("*.jsonl")):
        for line in path.read_text("utf-8").splitlines()[1:]:
            line_events = json.loads(line)
            yield from line_events if isinstance(line_events, list) else [line_events]


def around_the_gap(numbers: list[int]) -> str:
    at = next(at for at, number in enumerate(numbers) if number != at + 1)
    return f"{numbers[max(0, at - 1) : at + 3]} at place {at + 1}"


def one_life_at_a_time(subject: Subject) -> Iterator[str]:
    """An agent's lives follow one another: numbers rise by one, and none begins before the last was ended."""
    last: dict[str, tuple[int, bool]] = {}
    for event in subject.read("log"):
        name = event.get("agent_id", "")
        if event["kind"] == "agent.started":
            number, has_ended = last.get(name, (0, True))
            if event["incarnation"] != number + 1:
                yield f"{name} was started as number {event['incarnation']} after number {number}"
            if not has_ended:
                yield f"{name} was started as number {event['incarnation']} before the one before was ended"
            last[name] = (event["incarnation"], False)
        elif event["kind"] == "agent.exited":
            last[name] = (last.get(name, (0, True))[0], True)


def nothing_left(subject: Subject) -> Iterator[str]:
    """No process, no lock held, no socket, no half-written file, once all is down and the doctor has mended."""
    for pid in subject.processes():
        yield f"a process is left: {pid} {command_of(pid)}"
    aside = os.path.join(subject.root, ".hive", "aside")  # what the doctor found in the way
    for folder, folders, files in subject.walk():
        for name in (*folders, *files):
            if name.startswith(".tmp-") and not folder.startswith(aside):
                yield f"a half-written file is left: {os.path.relpath(os.path.join(folder, name), subject.root)}"


def command_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode("utf-8", "replace")[:200]
    except OSError:
        return "(has ended)"


def doctor_content(subject: Subject) -> Iterator[str]:
    running = subject.run("doctor", "--json")
    try:
        report = json.loads(running.output())
    except ValueError:
        yield f"the doctor printed no JSON, and ended with {running.poll()}: {running.errors()[-600:]}"
        return
    if not report["healthy"] or running.poll() != 0:
        yield f"after --fix the doctor still finds: {json.dumps(report['findings'])[:1500]}"


def no_traceback(subject: Subject) -> Iterator[str]:
    """Check that no command ends with a traceback: an error that a person can mend is one line."""
    for running in subject.commands:
        text = running.errors() if running.module == "hivemind" else ""
        if "Traceback (most recent call last)" in text or "a fault of hivemind itself" in text:
            yield f"hivemind {' '.join(running.words)} said: {text[-1500:]}"


def stays_inside(subject: Subject) -> Iterator[str]:
    """Check that no text from outside came into the hive, and that no file was written outside."""
    outside = subject.scratch / "outside"
    if outside.is_dir():
        lies = {path.name: path.read_text() for path in outside.iterdir()}
        if lies != {"secret.txt": SECRET}:
            yield f"outside of the hive something was written: {sorted(lies)}"
        for folder, _, files in subject.walk():
            for name in files:
                path = os.path.join(folder, name)
                if os.path.isfile(path) and not os.path.islink(path):
                    with open(path, "rb") as file:
                        if SECRET.encode() in file.read():
                            yield f"the secret from outside of the hive has come into {os.path.relpath(path, subject.root)}"


NOTHING_LEFT = Checker("nothing left", ("P40",), nothing_left)
DOCTOR_CONTENT = Checker("doctor content", ("P41",), doctor_content)
GENERAL = (
    Checker("journal whole", ("P20", "P21"), journal_whole),
    Checker("one life at a time", ("P26",), one_life_at_a_time),
    NOTHING_LEFT,
    DOCTOR_CONTENT,
    Checker("no traceback", ("P43",), no_traceback),
    Checker("stays inside", ("P38",), stays_inside),
)
