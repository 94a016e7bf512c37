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
    return {row["key"]: row for row in subject.read("memory", "list", *words, "--limit", "1000")}


def memories_there(subject: Subject) -> Iterator[str]:
    own_rows, hive_rows = entries(subject, "ada"), entries(subject)
    for key, request in subject.ledger.acknowledged("kept").items():
        if key == "fact-0":
            if key in own_rows and "fact-0" in subject.ledger.acknowledged("forgotten"):
                yield "fact-0 was forgotten, and has come back"
        elif key not in own_rows or own_rows[key]["content"] != request.asked["text"]:
            yield f"{key} was reported as remembered, and is {own_rows.get(key)}"
    for key, requests in subject.ledger.of("memory").items():
        answers = [at for at, request in enumerate(requests) if request.acknowledged]
        if answers:  # one program writes each of these keys: the content is its last answered, or a later one
            good = {request.asked["text"] for request in requests[answers[-1] :]}
            if key not in hive_rows or hive_rows[key]["content"] not in good:
                yield f"{key} holds {hive_rows.get(key, {}).get('content')!r}, and not {requests[answers[-1]].asked['text']!r}"
    hits = subject.read("memory", "search", "harbour behind the cape", "--agent", "ada")
    lost = {"fact-1", "fact-2"} & set(subject.ledger.acknowledged("kept")) - {hit["key"] for hit in hits}
    if lost:
        yield f"a search by its words does not find {sorted(lost)}"


def memory_counter(subject: Subject) -> Iterator[str]:
    row = entries(subject).get("counter")
    value = 0 if row is None else int(row["content"].split()[-1])
    yield from check_counter(subject, value, "memory")


def check_counter(subject: Subject, value: int, store: str) -> Iterator[str]:
    calls = []
    for req in subject.ledger.requests:
        if req.kind == "counter":
            result = None
            if req.end is not None:
                result = "done" if req.status == 0 else "conflict" if is_conflict(req.answer) else None
            calls.append(Call(req.begin, req.end if result else None, req.key, "raise", result, req.asked["value"]))
    last = max((call.end or call.begin for call in calls), default=0)
    calls.append(Call(last + 1, last + 2, "looking", "get", value))
    if not linearizable(calls, 0, counter):
        done = sum(call.result == "done" for call in calls)
        yield f"the counter in {store} is {value} after {done} answered raises of {len(calls) - 1}: an update was lost"


def is_conflict(answer: str) -> bool:
    return answer.startswith(("VersionConflict", "OptimisticLockError"))


def prepare_documents(subject: Subject) -> None:
    make_hive(subject)
    roots = subject.client("roots")
    assert subject.wait(roots) == 0, roots.errors()
    (subject.scratch / "chart.md").write_text(
        "# Chart\n\n## Shoals\n\nTwo shoals lie east.\n\n## Lights\n\nOne light.\n"
    )


def play_documents(subject: Subject) -> None:
    clients = [subject.client("documents", me, str(subject.random.random()), "14") for me in ("one", "two")]
    import_chart(subject)
    subject.ask("said", "note", "tool", "call", "doc_append", "text=Ada was here", "--agent", "ada")
    subject.collect(clients)


def import_chart(subject: Subject) -> None:
    subject.ask("imported", "chart", "doc", "import", str(subject.scratch / "chart.md"))


def again_documents(subject: Subject) -> None:
    if subject.ledger.in_doubt("imported"):
        import_chart(subject)
    subject.collect([subject.client("documents", "late", "1", "2")])


def nodes(subject: Subject) -> list[dict[str, Any]]:
    running = subject.client("shown")
    assert subject.wait(running) == 0, running.errors()
    rows: list[dict[str, Any]] = json.loads(running.output())
    return rows


def nodes_there(subject: Subject) -> Iterator[str]:
    rows = nodes(subject)
    by_id = {row["id"]: row for row in rows}
    deletions = subject.ledger.of("gone")
    for text, requests in subject.ledger.of("node").items():
        copies = [row for row in rows if row["text"] == text]
        if not requests[0].acknowledged:
            if len(copies) > 1:
                yield f"the node {text!r} is there {len(copies)} times"
            continue
        name = json.loads(f'"{requests[0].answer}"')
        if name in deletions:
            if name in by_id and any(request.acknowledged for request in deletions[name]):
                yield f"the node {name} was deleted, and still exists"
        elif name not in by_id:
            yield f"the node {name} ({text!r}) was reported as made, and is missing"
        else:
            yield from right_text(subject, by_id[name], text)
    for parent in {row["parent"] for row in rows} - {None}:
        orders = [row["order"] for row in rows if row["parent"] == parent]
        if len(orders) != len(set(orders)):
            yield f"two children of {parent} have one place"


def right_text(subject: Subject, node: dict[str, Any], first: str) -> Iterator[str]:
    changes = subject.ledger.of("text").get(node["id"], [])
    acks = [at for at, edit in enumerate(changes) if edit.acknowledged]
    good = {edit.asked["text"] for edit in (changes[acks[-1] :] if acks else changes)} | (set() if acks else {first})
    if node["text"] not in good:
        yield f"the node {node['id']} says {node['text']!r}, and should say one of {sorted(good)}"


def document_counter(subject: Subject) -> Iterator[str]:
    [value] = [int(node["text"]) for node in nodes(subject) if node["id"] == "counter"]
    yield from check_counter(subject, value, "documents")


def imported_whole(subject: Subject) -> Iterator[str]:
    """Check that an import is whole or absent, and that a search finds its words."""
    hits = subject.read("doc", "find", "shoals lie east")
    has_shoals = any("Two shoals lie east" in json.dumps(hit) for hit in hits)
    if subject.ledger.acknowledged("imported") and not has_shoals:
        yield "the imported file is not found by its words"
    if subject.ledger.acknowledged("said"):
        hits_of_ada = subject.read("doc", "find", "Ada was here")
        if not any("Ada was here" in json.dumps(hit) for hit in hits_of_ada):
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
