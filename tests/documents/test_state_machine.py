"""Any sequence of operations from two processes keeps to a model made of plain lists."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hivemind.documents import Docmem
from tests.durability import relaxed
from tests.program import Python

_WORKER = Path(__file__).with_name("worker.py")
_WHICH = st.integers(0, 1)
_NODE = st.integers(0, 1000)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


class _Peer:
    """A process that does what it is told to the database."""

    def __init__(self, database: Path) -> None:
        self.process = Python([_WORKER, database, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def do(self, name: str, *arguments: object) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([name, *arguments]) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def end(self) -> None:
        self.process.communicate(timeout=30)


_peers: dict[str, Any] = {}


def _started() -> tuple[Path, list[_Peer]]:
    """Two processes for the whole module: starting them for each example would be most of the time."""
    if not _peers:
        _peers["folder"] = tempfile.TemporaryDirectory()
        database = Path(_peers["folder"].name) / "documents.db"
        _peers["both"] = database, [_Peer(database), _Peer(database)]
    found: tuple[Path, list[_Peer]] = _peers["both"]
    return found


def teardown_module() -> None:
    if _peers:
        for peer in _peers["both"][1]:
            peer.end()
        _peers["folder"].cleanup()
        _peers.clear()


class TwoProcesses(RuleBasedStateMachine):
    """The model: the children of each node, in order, and its text."""

    def __init__(self) -> None:
        super().__init__()
        database, self.peers = _started()
        self.docmem = Docmem(relaxed(database))
        self.root = self.peers[0].do("create_root")["id"]
        self.children: dict[str, list[str]] = {self.root: []}
        self.text = {self.root: ""}

    def teardown(self) -> None:
        self.docmem.delete(self.root)
        self.docmem.close()

    def parent(self, node: str) -> str | None:
        return next((above for above, below in self.children.items() if node in below), None)

    def below(self, node: str) -> list[str]:
        found, todo = [], [node]
        while todo:
            found.append(todo.pop())
            todo += reversed(self.children[found[-1]])
        return found

    def pick(self, at: int) -> str:
        known = sorted(self.text)
        return known[at % len(known)]

    def put(self, node: str, target: str, how: str) -> None:
        beside = self.children[target if how == "append_child" else self.parent(target) or ""]
        at = len(beside) if how == "append_child" else beside.index(target) + (how == "after")
        beside.insert(at, node)

    @rule(which=_WHICH, at=_NODE, text=_TEXT, how=st.sampled_from(["append_child", "before", "after"]))
    def add(self, which: int, at: int, text: str, how: str) -> None:
        target = self.pick(at)
        name = how if how == "append_child" else f"insert_{how}"
        answer = self.peers[which].do(name, target, "m", "n", "v", text)
        if how != "append_child" and target == self.root:
            assert answer["error"] == "DocmemError"
            return
        self.put(answer["id"], target, how)
        self.children[answer["id"]] = []
        self.text[answer["id"]] = text

    @rule(which=_WHICH, at=_NODE, text=_TEXT, stale=st.booleans())
    def update(self, which: int, at: int, text: str, stale: bool) -> None:
        node = self.pick(at)
        answer = self.peers[which].do("update_content", node, text, "stale" if stale else None)
        if stale:
            assert answer["error"] == "OptimisticLockError"
        else:
            self.text[node] = text

    @rule(which=_WHICH, at=_NODE)
    def delete(self, which: int, at: int) -> None:
        node = self.pick(at)
        if node == self.root:
            return
        self.peers[which].do("delete", node)
        gone = self.below(node)
        self.children[self.parent(node) or ""].remove(node)
        for found in gone:
            del self.children[found], self.text[found]

    @rule(which=_WHICH, at=_NODE, to=_NODE, how=st.sampled_from(["append_child", "before", "after"]))
    def move(self, which: int, at: int, to: int, how: str) -> None:
        node, target = self.pick(at), self.pick(to)
        answer = self.peers[which].do(f"move_{how}", node, target)
        if target == self.root and how != "append_child":
            assert answer["error"] == "DocmemError"
        elif target in self.below(node):
            assert answer["error"] == "CycleError"
        else:
            self.children[self.parent(node) or ""].remove(node)
            self.put(node, target, how)

    @rule(which=_WHICH, at=_NODE, to=_NODE, how=st.sampled_from(["append_child", "before", "after"]))
    def copy(self, which: int, at: int, to: int, how: str) -> None:
        node, target = self.pick(at), self.pick(to)
        old = self.below(node)
        if len(old) > 12:
            return
        answer = self.peers[which].do(f"copy_{how}", node, target)
        if target == self.root and how != "append_child":
            assert answer["error"] == "DocmemError"
            return
        new = [found.id for found in self.docmem.serialize(answer["id"])]
        assert len(new) == len(old)
        names = dict(zip(old, new, strict=True))
        below = {names[above]: [names[child] for child in self.children[above]] for above in old}
        self.put(answer["id"], target, how)
        self.children |= below
        self.text |= {names[found]: self.text[found] for found in old}

    @rule(which=_WHICH, at=_NODE, first=_NODE, last=_NODE)
    def summarise(self, which: int, at: int, first: int, last: int) -> None:
        siblings = self.children[self.pick(at)]
        if not siblings:
            return
        start, end = sorted((first % len(siblings), last % len(siblings)))
        members = siblings[start : end + 1]
        answer = self.peers[which].do("add_summary", members[0], members[-1], "in short")
        if any(self.children[member] for member in members):
            assert answer["error"] == "DocmemError"
            return
        siblings[start : end + 1] = [answer["id"]]
        self.children[answer["id"]] = members
        self.text[answer["id"]] = "in short"

    @invariant()
    def reads_as_the_model_does(self) -> None:
        nodes = self.docmem.serialize(self.root)
        assert [node.id for node in nodes] == self.below(self.root)
        assert {node.id: node.text for node in nodes} == self.text

    @invariant()
    def is_sound(self) -> None:
        assert self.docmem.check() == []


TwoProcesses.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
test_two_processes_keep_to_the_model = TwoProcesses.TestCase
