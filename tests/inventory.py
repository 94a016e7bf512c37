"""What hivemind has, made from its code: every command, option, tool, key, file, event and public name; and which test uses
each through a public door.

`python -m tests.inventory` writes docs/inventory.md. What was there and is gone is moved to its list of what is gone, and
`tests/test_inventory.py` wants a line in CHANGELOG.md for it; what is new wants a test.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import get_args

from pydantic import BaseModel

import hivemind
from hivemind.cli.main import build_parser
from hivemind.config import AgentConfig, HiveConfig
from hivemind.layout import Layout
from hivemind.tasks.form import TaskForm
from hivemind.tasks.step import StepForm
from hivemind.tools import MEMBER_TOOLS, PROFILES, TOOLS

__all__ = ["DOCUMENT", "Item", "gone", "inventory", "listed", "shown_by", "write"]

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "inventory.md"
GONE = "## Gone"
NAMES = {  # of each room, those that the specs fix: other programs import them
    "coordination": "Journal Event Steps Step StepLeases StepLease CoordinationError StepLeaseHeld StepLeaseNotHeld "
    "StaleGeneration RevisionMismatch CheckpointsNotConfirmed ProofRequired ProjectGuardMismatch WorkspaceLocked",
    "documents": "Docmem Node OptimisticLockError ReadonlyError NodeNotFoundError CycleError DocmemError",
    "longterm": "MemoryStore MemoryEntry MemorySearchResult UpsertMemoryInput UpsertMemoryResult open_store",
    "memory": "Priority MemoryType MemoryBlock FileMemoryBlock StatusMemoryBlock TaskMemoryBlock MessageMemoryBlock "
    "KnowledgeMemoryBlock HistoryMemoryBlock ContextMemoryBlock WorkingMemoryManager MemorySelector Selection ContentLoader "
    "ContextBuilder MemoryCompressor RelevanceScorer MemoryJanitor create_memory_from_action count_tokens",
    "minds": "Mind Thought open_mind",
    "reasoning": "ReasoningNode NodeKind Edge Link Notes MemoryPatch AddNodeOp AddEdgeOp FlushAndFoldOp FlushOp FoldOp "
    "ReasoningGraph ReasoningMemory GraphError",
    "views": "resume signals snapshot watch",
}
INTERNAL_DOORS = {"HIVEMIND_CRASH_AT", "HIVEMIND_CRASH_ONCE", "HIVEMIND_FAULTS"}  # the tests' own


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that users can rest on. A test shows it if all of `words` stand in it, in the order of none; a command of
    one word (`^status`) as the first thing that is said to the command line."""

    kind: str
    name: str
    words: tuple[str, ...]


def inventory() -> list[Item]:
    """Everything, from the code."""
    every = (*_commands(build_parser(), ()), *_tools(), *_keys(), *_files(), *_events(), *_variables(), *_names())
    return list({(item.kind, item.name): item for item in every}.values())


def _commands(parser: argparse.ArgumentParser, path: tuple[str, ...]) -> Iterator[Item]:
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    said = (" ".join(path[-2:]),) if len(path) > 1 else tuple(f"^{word}" for word in path)
    if path and not groups:
        yield Item("command", " ".join(path), said)
    for action in parser._actions:
        named = [
            text
            for text in action.option_strings
            if text.startswith("--") and text not in ("--help", "--debug", "--hive")
        ]
        if named and named[0] == "--json":
            named = []  # each listing has it, and tests of listings read nothing else
        yield from (Item("option", " ".join((*path, text)), (*said, text)) for text in named)
    for group in groups:
        for name, command in group.choices.items():
            yield from _commands(command, (*path, name))


def _tools() -> Iterator[Item]:
    for name, tool in {**TOOLS, **MEMBER_TOOLS}.items():
        yield Item("tool", name, (name,))
        for argument in tool.schema()["parameters"].get("properties", {}):
            yield Item("argument", f"{name} {argument}", (name, argument))
    yield from (Item("profile", f"mcp --profile {name}", (name,)) for name in PROFILES)


def _keys() -> Iterator[Item]:
    forms = (
        ("hive.yaml", HiveConfig),
        ("agents/<agent>.yaml", AgentConfig),
        ("a task", TaskForm),
        ("a step", StepForm),
    )
    for where, model in forms:
        yield from (Item("key", f"{where}: {name}", tuple(f"{name}:".split("."))) for name in _fields(model))


def _fields(model: type[BaseModel], before: str = "") -> Iterator[str]:
    for name, one in model.model_fields.items():
        key = f"{before}{one.alias or name}"
        yield key
        for part in _models(one.annotation):
            if part is not model:
                yield from _fields(part, f"{key}.")


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _files() -> Iterator[Item]:
    """Files and folders of a hive: what `Layout` names, and what the rooms' tables of files name."""
    layout = Layout(Path("/hive"))
    for name, one in vars(Layout).items():
        if isinstance(one, property):
            path = Path(getattr(layout, name)).relative_to("/hive")
            yield Item("file", str(path), (path.name,))
    rooms = sorted((ROOT / "hivemind").rglob("README.md"))
    for room in (one for one in rooms if one.parent.name != "vocabulary"):
        text = room.read_text("utf-8")
        for cell in (*_first_cells(text, "file"), *_first_cells(text, "name")):
            for name in re.findall(r"`([^`]+)`", cell):
                word = max(re.split(r"<[^>]*>", name.rstrip("/")), key=len).rpartition("/")[2]
                yield Item("file", name, (word,))


def _events() -> Iterator[Item]:
    text = (ROOT / "hivemind" / "coordination" / "README.md").read_text("utf-8")
    for cell in _first_cells(text, "kind"):
        for one in re.findall(r"`([^`]+)`", cell):
            family, _, rest = one.partition(".")
            for name in rest.split(" / "):
                if name != "*":
                    yield Item("event", f"{family}.{name}", (f"{family}.{name}",))


def _first_cells(text: str, header: str) -> Iterator[str]:
    inside = False
    for line in text.splitlines():
        if not line.startswith("|"):
            inside = False
        elif line.startswith(f"| {header} |"):
            inside = True
        elif inside and not line.startswith("|--"):
            yield line.split("|")[1]


def _variables() -> Iterator[Item]:
    found: set[str] = set()
    for path in (ROOT / "hivemind").rglob("*.py"):
        found.update(re.findall(r'"(HIVEMIND_[A-Z_]+)"', path.read_text("utf-8")))
    yield from (Item("variable", name, (name,)) for name in sorted(found - INTERNAL_DOORS))


def _names() -> Iterator[Item]:
    yield from (Item("name", f"hivemind.{name}", (name,)) for name in hivemind.__all__ if name != "__version__")
    chapter = (ROOT / "knowledge" / "manual" / "16-in-a-program.md").read_text("utf-8")
    hive = [name for name in vars(hivemind.Hive) if re.search(rf"[Hh]ive\.{name}\b", chapter)]
    yield from (Item("name", f"hivemind.Hive.{name}", (name,)) for name in hive)
    for room, names in NAMES.items():
        there = importlib.import_module(f"hivemind.{room}").__all__
        yield from (Item("name", f"hivemind.{room}.{name}", (name,)) for name in names.split() if name in there)


# which test uses it


@dataclass(slots=True)
class _Scene:
    """A test function: its words are those of its own texts and names, and of what it calls in its module."""

    where: str
    words: frozenset[str] = field(default_factory=frozenset)


_ROOMS = {  # where the doors are; a test that only looks like it has fewer words elsewhere
    kind: tuple(f"tests/{room}/" for room in rooms.split())
    for kind, rooms in {
        "command": "cli faults mcp_server swarm",
        "option": "cli faults mcp_server swarm",
        "tool": "agent cli mcp_server swarm",
        "argument": "agent cli mcp_server swarm",
        "key": "agent cli mcp_server swarm tasks",
        "event": "agent cli mcp_server swarm tasks coordination",
        "variable": "cli mcp_server swarm",
    }.items()
}
_LISTS = {  # they name everything of a kind, and use none of it
    "test_every_tool_of_the_spec_is_there_with_a_schema_and_words",
    "test_help_names_every_command_and_shows_examples",
    "test_whatever_is_appended_stays_in_the_log_and_makes_nothing_unreadable",
}
_KEY = re.compile(r"\w+:")  # as YAML has it, a keyword of a call, a key of a dict
_WORD = re.compile(r"[\w.*-]+")


@cache
def _scenes() -> tuple[_Scene, ...]:
    found = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if path.name in ("test_inventory.py", "test_docs.py", "test_entrances.py"):
            continue
        tree = ast.parse(path.read_text("utf-8"))
        scope = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        top = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        helpers: dict[str, ast.AST] = {**scope, **top}
        for name, node in scope.items():
            if name.startswith("test_") and name not in _LISTS:
                words = frozenset(_words(node, helpers, set()))
                found.append(_Scene(f"{path.relative_to(ROOT)}::{name}", words))
    return tuple(found)


def _words(node: ast.AST, helpers: Mapping[str, ast.AST], seen: set[str]) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
            yield from _KEY.findall(part.value)
            for word in _WORD.findall(part.value):
                yield word
                yield word.rpartition("/")[2]
            yield from _pairs(_WORD.findall(part.value))
        elif isinstance(part, ast.Call | ast.List | ast.Tuple):
            said = [_text(one) for one in (part.args if isinstance(part, ast.Call) else part.elts)]
            yield from _pairs(said)
            yield from (f"^{word}" for word in said[:1])
        elif isinstance(part, ast.Attribute):
            yield part.attr
        elif isinstance(part, ast.keyword) and part.arg:
            yield part.arg
            yield f"{part.arg}:"
        elif isinstance(part, ast.Dict):
            yield from (f"{key.value}:" for key in part.keys if isinstance(key, ast.Constant))
        elif isinstance(part, ast.Name):
            yield part.id
            if part.id in helpers and part.id not in seen:
                seen.add(part.id)
                yield from _words(helpers[part.id], helpers, seen)


def _text(node: ast.AST) -> str:
    """A text as it stands; `*` for what a name stands for, which the words have already."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "*"


def _pairs(words: Iterable[str]) -> Iterator[str]:
    """Two words that follow each other: `task add` is a command, `task` and `add` are not."""
    yield from (f"{one} {other}" for one, other in pairwise(words))


def shown_by(item: Item) -> str | None:
    """The test that shows it: the one with the fewest words beside, as the one that is most about it."""
    fitting = [scene for scene in _scenes() if all(_stands(word, scene.words) for word in item.words)]
    if item.kind in ("command", "option"):
        fitting = [one for one in fitting if one.where.startswith(_ROOMS["command"])]
    rooms = (f"tests/{item.name.split('.')[1]}/",) if item.kind == "name" else _ROOMS.get(item.kind, ("",))
    best = min(
        fitting, key=lambda scene: (not scene.where.startswith(rooms), len(scene.words), scene.where), default=None
    )
    return None if best is None else best.where


def _stands(word: str, words: frozenset[str]) -> bool:
    if word.endswith("-") or word.startswith("."):  # part of a name that has more
        return any(word in one for one in words)
    if re.search(r"-\d+\.json$", word):  # a cache's version is in its name
        return any(one.startswith(word.rpartition("-")[0]) for one in words)
    if word.startswith("^"):
        return word in words or f"hivemind {word[1:]}" in words
    if " " in word:
        first, _, last = word.partition(" ")
        return word in words or (f"* {last}" in words and first in words)
    return word in words or word.replace("-", "_") in words


# the document


def listed() -> dict[str, str]:
    """What docs/inventory.md has, by kind and name, and the test beside it."""
    return _rows(DOCUMENT.read_text("utf-8").partition(GONE)[0])


def gone() -> list[str]:
    """What was there once, by its name."""
    return [name.partition(": ")[2] for name in _rows(DOCUMENT.read_text("utf-8").partition(GONE)[2])]


def _rows(text: str) -> dict[str, str]:
    rows = re.findall(r"^\| (\w+) \| `(.+?)` \| (.*?) \|$", text, re.MULTILINE)
    return {f"{kind}: {name}": test for kind, name, test in rows}


def write() -> None:
    """Bring the document in line with the code; what vanished is moved to its end, where only a person takes it away."""
    now = {f"{item.kind}: {item.name}": item for item in inventory()}
    before, past = (listed(), _rows(DOCUMENT.read_text("utf-8").partition(GONE)[2])) if DOCUMENT.exists() else ({}, {})
    past = {name: "" for name in {**past, **before} if name not in now}
    lines = [
        "# Inventory", "",
        "What users can rest on, made from the code by `python -m tests.inventory`, and the test that uses each through a",
        "public door. None leaves without a line in CHANGELOG.md; none comes without a test (`tests/test_inventory.py`).", "",
        *_table(("kind", "name", "shown by"), (
            (item.kind, f"`{item.name}`", f"`{shown_by(item)}`" if shown_by(item) else "") for item in now.values()
        )),
        "", GONE, "", *_table(("kind", "name", ""), ((*_split(name), "") for name in sorted(past))), "",
    ]  # fmt: skip
    DOCUMENT.write_text("\n".join(lines))


def _split(name: str) -> tuple[str, str]:
    kind, _, rest = name.partition(": ")
    return kind, f"`{rest}`"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    titles = list(header)
    yield f"| {' | '.join(titles)} |"
    yield f"|{'---|' * len(titles)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    write()
