"""Memories and documents, written by several programs at once: what was acknowledged is found, and no update is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .checkers import GENERAL
from .hives import make_hive
from .linear import Call, counter, linearizable
from .scenario import Checker, Scenario
from .subject import Subject

__all__ = ["DOCUMENTS", "MEMORY"]

SPACE = "shared/hive"


def prepare_memory(subject: Subject) -> None:
    make_hive(subject)


def remember(subject: Subject, key: str, text: str) -> None:
    subject.ask("kept", key, "memory", "remember", text, "--agent", "ada", "--key", key, "--json", text=text)


def play_memory(subject: Subject) -> None:
    clients = [subject.client("memory", me, str(subject.random.random()), "12") for me in ("one", "two")]
    for number in range(3):
        remember(subject, f"fact-{number}", f"The {number}th harbour lies behind the cape")
    subject.ask("forgotten", "fact-0", "memory", "forget", "fact-0", "--agent", "ada")
    subject.collect(clients)


def again_memory(subject: Subject) -> None:
    for key, request in subject.ledger.in_doubt("kept").items():
        remember(subject, key, request.asked["text"])
    subject.ask("forgotten", "fact-0", "memory", "forget", "fact-0", "--agent", "ada")
    subject.collect([subject.client("memory", "late", "1", "2")])  # the store takes more


def entries(subject: Subject, agent: str | None = None) -> dict[str, dict[str, Any]]:
    words = ("--agent", agent) if agent else ("--namespace", SPACE)
    return {one["key"]: one for one in subject.read("memory", "list", *words, "--limit", "1000")}


def memories_there(subject: Subject) -> Iterator[str]:
    mine, shared = entries(subject, "ada"), entries(subject)
    for key, request in subject.ledger.acknowledged("kept").items():
        if key == "fact-0":
            if key in mine and "fact-0" in subject.ledger.acknowledged("forgotten"):
                yield "fact-0 was forgotten, and is there again"
        elif key not in mine or mine[key]["content"] != request.asked["text"]:
            yield f"{key} was said to be remembered, and is {mine.get(key)}"
    for key, requests in subject.ledger.of("memory").items():
        told = [at for at, one in enumerate(requests) if one.acknowledged]
        if told:  # one program writes each of these keys: what stands there is its last answered, or a later one
            good = {one.asked["text"] for one in requests[told[-1] :]}
            if key not in shared or shared[key]["content"] not in good:
                yield f"{key} holds {shared.get(key, {}).get('content')!r}, and not {requests[told[-1]].asked['text']!r}"
    found = subject.read("memory", "search", "harbour behind the cape", "--agent", "ada", "--mode", "text")
    lost = {"fact-1", "fact-2"} & set(subject.ledger.acknowledged("kept")) - {one["key"] for one in found}
    if lost:
        yield f"a search by its words does not find {sorted(lost)}"


def memory_counter(subject: Subject) -> Iterator[str]:
    found = entries(subject).get("counter")
    value = 0 if found is None else int(found["content"].split()[-1])
    yield from counted(subject, value, "memory")


def counted(subject: Subject, value: int, what: str) -> Iterator[str]:
    calls = []
    for one in subject.ledger.requests:
        if one.kind == "counter":
            result = None
            if one.end is not None:
                result = "done" if one.status == 0 else "conflict" if is_conflict(one.answer) else None
            calls.append(Call(one.begin, one.end if result else None, one.key, "raise", result, one.asked["value"]))
    last = max((call.end or call.begin for call in calls), default=0)
    calls.append(Call(last + 1, last + 2, "looking", "get", value))
    if not linearizable(calls, 0, counter):
        done = sum(call.result == "done" for call in calls)
        yield f"the counter in {what} is {value} after {done} answered raises of {len(calls) - 1}: an update was lost"


def is_conflict(answer: str) -> bool:
    return answer.startswith(("VersionConflict", "OptimisticLockError"))


def prepare_documents(subject: Subject) -> None:
    make_hive(subject)
    made = subject.client("roots")
    assert subject.wait(made) == 0, made.errors()
    (subject.beside / "chart.md").write_text(
        "# Chart\n\n## Shoals\n\nTwo shoals lie east.\n\n## Lights\n\nOne light.\n"
    )


def play_documents(subject: Subject) -> None:
    clients = [subject.client("documents", me, str(subject.random.random()), "14") for me in ("one", "two")]
    import_chart(subject)
    subject.ask("said", "note", "tool", "call", "doc_append", "text=Ada was here", "--agent", "ada")
    subject.collect(clients)


def import_chart(subject: Subject) -> None:
    subject.ask("imported", "chart", "doc", "import", str(subject.beside / "chart.md"))


def again_documents(subject: Subject) -> None:
    if subject.ledger.in_doubt("imported"):
        import_chart(subject)
    subject.collect([subject.client("documents", "late", "1", "2")])


def nodes(subject: Subject) -> list[dict[str, Any]]:
    running = subject.client("shown")
    assert subject.wait(running) == 0, running.errors()
    found: list[dict[str, Any]] = json.loads(running.output())
    return found


def nodes_there(subject: Subject) -> Iterator[str]:
    found = nodes(subject)
    by_id = {one["id"]: one for one in found}
    gone = subject.ledger.of("gone")
    for text, requests in subject.ledger.of("node").items():
        written = [one for one in found if one["text"] == text]
        if not requests[0].acknowledged:
            if len(written) > 1:
                yield f"the node {text!r} is there {len(written)} times"
            continue
        name = json.loads(f'"{requests[0].answer}"')
        if name in gone:
            if name in by_id and any(one.acknowledged for one in gone[name]):
                yield f"the node {name} was deleted, and is there"
        elif name not in by_id:
            yield f"the node {name} ({text!r}) was said to be made, and is not there"
        else:
            yield from right_text(subject, by_id[name], text)
    for parent in {one["parent"] for one in found} - {None}:
        orders = [one["order"] for one in found if one["parent"] == parent]
        if len(orders) != len(set(orders)):
            yield f"two children of {parent} have one place"


def right_text(subject: Subject, node: dict[str, Any], first: str) -> Iterator[str]:
    changes = subject.ledger.of("text").get(node["id"], [])
    told = [at for at, one in enumerate(changes) if one.acknowledged]
    good = {one.asked["text"] for one in (changes[told[-1] :] if told else changes)} | (set() if told else {first})
    if node["text"] not in good:
        yield f"the node {node['id']} says {node['text']!r}, and should say one of {sorted(good)}"


def document_counter(subject: Subject) -> Iterator[str]:
    [value] = [int(one["text"]) for one in nodes(subject) if one["id"] == "counter"]
    yield from counted(subject, value, "documents")


def imported_whole(subject: Subject) -> Iterator[str]:
    """An import is whole or not there; the words of what is there are found."""
    found = subject.read("doc", "find", "shoals lie east")
    there = any("Two shoals lie east" in json.dumps(one) for one in found)
    if subject.ledger.acknowledged("imported") and not there:
        yield "the imported file is not found by its words"
    if subject.ledger.acknowledged("said"):
        said = subject.read("doc", "find", "Ada was here")
        if not any("Ada was here" in json.dumps(one) for one in said):
            yield "what an agent wrote into a document is not found by its words"


MEMORY = Scenario(
    "memory", "Entries written, forgotten and raised by compare-and-set, by three programs at once.", prepare_memory,
    play_memory, again_memory,
    (Checker("memories there", ("P33", "P35"), memories_there), Checker("memory counter", ("P34",), memory_counter),
     *GENERAL), ("longterm.", "fs."),
)  # fmt: skip
DOCUMENTS = Scenario(
    "documents", "Nodes made, changed, deleted and raised by compare-and-set, a file imported, by four programs at once.",
    prepare_documents, play_documents, again_documents,
    (Checker("nodes there", ("P30", "P32"), nodes_there), Checker("document counter", ("P31",), document_counter),
     Checker("imported whole", ("P30",), imported_whole), *GENERAL), ("documents.", "fs."),
)  # fmt: skip
