"""List every command, option, tool, key, file, event and public name of hivemind's code, with a test that uses it through
a public door.

`python -m tests.inventory` writes tests/inventory.txt: a line for each, its kind, its name and a test that uses it, separated
by tabs. The line of a removed name says `gone` instead, and `tests/test_inventory.py` wants a line in
CHANGELOG.md or changes/ for it; something new needs a test.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import yaml

import hivemind
from hivemind.cli.main import declared_commands
from hivemind.config import AgentConfig, HiveConfig
from hivemind.layout import Layout
from hivemind.schema import BaseModel
from hivemind.tasks.form import TaskForm
from hivemind.tasks.step import StepForm
from hivemind.tools import MEMBER_TOOLS, PROFILES, TOOLS

__all__ = ["DOCUMENT", "Item", "inventory", "listed_tests", "removed_names", "shown_by", "write"]

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "tests" / "inventory.txt"
REMOVED = "gone"  # in place of a test
NAMES = {  # of each room, the names that other programs import: they stay
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
PLAYED = "promise: each of a scenario's"  # what the test that plays scenarios says of itself
INTERNAL_DOORS = {"HIVEMIND_CRASH_AT", "HIVEMIND_CRASH_ONCE", "HIVEMIND_FAULTS"}  # the tests' own


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that users can rest on, of a `kind` and with a `name` (`option`, `task add --id`).

    A test shows it if all of `words` stand in it. Words that begin with a sign stand at a door only: `$ task add --id` in one
    command line, `( read_file path` in one call of a tool, `import hivemind.mail.Mail` as an imported name,
    `{ mail unknown_sender` as keys, one below the other, of one text or dict, `= task.done` as a whole text (or a variable in
    one), `/ tasks/done/` (a pattern) in a path, as a text or put together.
    """

    kind: str
    name: str
    words: tuple[str, ...]


def inventory() -> list[Item]:
    """Return every item of the code."""
    every = (*_promises(), *_commands(), *_tools(), *_keys(), *_files(), *_events(), *_variables(), *_names())
    return list({(item.kind, item.name): item for item in every}.values())


def _promises() -> Iterator[Item]:
    """Promises that the harness plays in `make test`, and promises with a marked test."""
    text = (ROOT / "docs" / "promises.md").read_text("utf-8").partition("## Not promised")[0]
    for number, proof in re.findall(r"^\| (P\d+) \| .+? \| .+? \| (.+?) \|$", text, re.MULTILINE):
        yield Item("promise", number, (PLAYED if "tests/faults (" in proof else f"promise: {number}",))


def _commands() -> Iterator[Item]:
    yield Item("option", "--version", ("$ --version",))
    for command in declared_commands():
        command_line = " ".join(command.words)
        yield Item("command", command_line, (f"$ {command_line}",))
        options = [parameter.option for parameter in command.parameters() if parameter.is_option]
        yield from (Item("option", f"{command_line} {option}", (f"$ {command_line} {option}",)) for option in options)


def _tools() -> Iterator[Item]:
    for name, tool in {**TOOLS, **MEMBER_TOOLS}.items():
        yield Item("tool", name, (f"( {name}",))
        for argument in tool.schema()["parameters"].get("properties", {}):
            yield Item("argument", f"{name} {argument}", (f"( {name} {argument}",))
    yield from (Item("profile", f"mcp --profile {name}", (name,)) for name in PROFILES)


def _keys() -> Iterator[Item]:
    forms = (
        ("hive.yaml", HiveConfig),
        ("agents/<agent>.yaml", AgentConfig),
        ("a task", TaskForm),
        ("a step", StepForm),
    )
    for document, model in forms:
        yield from (
            Item("key", f"{document}: {name}", (" ".join(("{", *name.split("."))),))
            for name in _fields(model)
            if not name.startswith("steps.")
        )


def _fields(model: type[BaseModel], before: str = "") -> Iterator[str]:
    for name, model_field in model.model_fields.items():
        key = f"{before}{model_field.alias or name}"
        yield key
        for part in _models(model_field.annotation):
            if part is not model:
                yield from _fields(part, f"{key}.")


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _files() -> Iterator[Item]:
    """Files and folders of a hive: what `Layout` names, and what the rooms' tables of files name."""
    for path in _places().values():
        yield Item("file", path, (f"/ {re.escape(path)}",))
    rooms = sorted((ROOT / "hivemind").rglob("README.md"))
    for room in (readme for readme in rooms if readme.parent.name != "vocabulary"):
        text = room.read_text("utf-8")
        inside = _INSIDE.get(room.parent.name, "")
        for cell in (*_first_cells(text, "file"), *_first_cells(text, "name")):
            for name in re.findall(r"`([^`]+)`", cell):
                parts = (re.escape(part) for part in re.split(r"<[^>]*>", name.rstrip("/")))
                yield Item("file", name, (f"/ {inside}{'[^/]+'.join(parts)}",))


_INSIDE = {  # where the files lie that a room's README tells of
    "coordination": r"\.hive/journal/",
    "tasks": r"tasks/\w+/[^/]+/(attempts/[^/]+/)?",
    "reasoning": r"tasks/\w+/[^/]+/(attempts/[^/]+/)?",
}


@cache
def _places() -> dict[str, str]:
    """The folders and files that `Layout` names: its name for each, and the path from the hive's folder."""
    layout = Layout(Path("/hive"))
    paths = {name: getattr(layout, name) for name in vars(Layout) if name != "root" and not name.startswith("__")}
    return {name: str(path.relative_to("/hive")) for name, path in paths.items() if isinstance(path, Path)}


def _events() -> Iterator[Item]:
    text = (ROOT / "hivemind" / "coordination" / "README.md").read_text("utf-8")
    for cell in _first_cells(text, "kind"):
        for event_names in re.findall(r"`([^`]+)`", cell):
            family, _, endings = event_names.partition(".")
            for name in endings.split(" / "):
                if name != "*":
                    yield Item("event", f"{family}.{name}", (f"= {family}.{name}",))


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
    variables: set[str] = set()
    for path in (ROOT / "hivemind").rglob("*.py"):
        variables.update(re.findall(r'"(HIVEMIND_[A-Z_]+)"', path.read_text("utf-8")))
    yield from (Item("variable", name, (f"= {name}",)) for name in sorted(variables - INTERNAL_DOORS))


def _names() -> Iterator[Item]:
    public_names = (name for name in hivemind.__all__ if name != "__version__")
    yield from (Item("name", f"hivemind.{name}", (f"import hivemind.{name}",)) for name in public_names)
    chapter = (ROOT / "knowledge" / "manual" / "16-in-a-program.md").read_text("utf-8")
    hive = [name for name in vars(hivemind.Hive) if re.search(rf"[Hh]ive\.{name}\b", chapter)]
    yield from (Item("name", f"hivemind.Hive.{name}", (name,)) for name in hive)
    for room, names in NAMES.items():
        exported_names = importlib.import_module(f"hivemind.{room}").__all__
        full = (f"hivemind.{room}.{name}" for name in names.split() if name in exported_names)
        yield from (Item("name", name, (f"import {name}",)) for name in full)


# which test uses it


@dataclass(slots=True, eq=False)
class _Scene:
    """A test function, with the words of its texts and names, and of the functions that it calls in its module."""

    test_id: str
    words: frozenset[str] = field(default_factory=frozenset)


_ROOMS = {  # where the doors are; a test in another room may match by chance
    kind: tuple(f"tests/{room}/" for room in rooms.split())
    for kind, rooms in {
        "command": "acp_server cli exchange faults mcp_server swarm web",
        "option": "cli exchange faults mcp_server swarm web",
        "tool": "agent cli mcp_server swarm",
        "argument": "agent cli mcp_server swarm",
        "key": "agent cli mcp_server swarm tasks",
        "event": "agent cli mcp_server swarm tasks coordination web",
        "variable": "cli mcp_server swarm",
    }.items()
}
_LISTS = {  # they name everything of a kind, and use none of it
    "test_every_tool_of_the_spec_is_there_with_a_schema_and_words",
    "test_help_names_every_command_and_shows_examples",
    "test_whatever_is_appended_stays_in_the_log_and_makes_nothing_unreadable",
    "test_an_event_with_any_value_in_any_field_stops_nobody",
}
_WORD = re.compile(r"[\w.*-]+")
_VARIABLE = re.compile(r"(?<=\$)[A-Z_]{4,}\b|\b[A-Z_]{4,}(?==)")
_CALLERS = {
    "call",
    "use",
    "tool",
    "ToolCall",
    "call_tool",
    "called",
    "ask",
    "do",
}  # what takes a tool's name and its arguments


@cache
def _scenes() -> tuple[_Scene, ...]:
    scenes = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if path.parent == ROOT / "tests" and path.name in ("test_inventory.py", "test_docs.py", "test_entrances.py"):
            continue
        module = _Module(ast.parse(path.read_text("utf-8")))
        scenes += [
            _Scene(f"{path.relative_to(ROOT)}::{name}", module.words(name))
            for name in module.defined
            if name.startswith("test_") and name not in _LISTS
        ]
    return tuple(scenes)


@cache
def _by_word() -> dict[str, list[_Scene]]:
    scenes_by_word: dict[str, list[_Scene]] = {}
    for scene in _scenes():
        for word in scene.words:
            scenes_by_word.setdefault(word, []).append(scene)
    return scenes_by_word


@cache
def _commands_there() -> frozenset[str]:
    return frozenset(item.name.split()[0] for item in _commands() if item.kind == "command")


class _Module:
    """A file of tests: the words of its functions and of the functions that they name."""

    def __init__(self, tree: ast.Module) -> None:
        self.defined: dict[str, ast.AST] = {}
        self._imported: dict[str, str] = {}
        self._cached_words: dict[
            str, tuple[frozenset[str], frozenset[str]]
        ] = {}  # its own words, and what of here is named in it
        self._lists: dict[str, ast.Tuple | ast.List] = {}  # words that are put into command lines with a star
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.defined[node.name] = node
            elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                self.defined |= {target.id: node.value for target in targets if isinstance(target, ast.Name)}
        for part in ast.walk(tree):
            if isinstance(part, ast.ImportFrom):
                self._imported |= {node.asname or node.name: f"{part.module}.{node.name}" for node in part.names}
            elif isinstance(part, ast.Assign) and isinstance(part.value, ast.Tuple | ast.List):
                self._lists |= {node.id: part.value for node in part.targets if isinstance(node, ast.Name)}

    def words(self, name: str) -> frozenset[str]:
        """Return the words of a definition, and of the definitions that it names."""
        names = [name]
        for pending_name in names:
            names += sorted(self._words_and_mentions(pending_name)[1] - set(names))
        return frozenset[str]().union(*(self._words_and_mentions(pending_name)[0] for pending_name in names))

    def _words_and_mentions(self, name: str) -> tuple[frozenset[str], frozenset[str]]:
        if name not in self._cached_words:
            parts = list(ast.walk(self.defined[name]))
            mentions = frozenset(part.id for part in parts if isinstance(part, ast.Name) and part.id in self.defined)
            self._cached_words[name] = frozenset(word for part in parts for word in self._words(part)), mentions
        return self._cached_words[name]

    def _words(self, part: ast.AST) -> Iterator[str]:
        yield from self._plain(part)
        if isinstance(part, ast.Name | ast.expr_context):
            return
        yield from (" ".join(("{", *path)) for path in _paths(part))
        yield from (f"$ {line}" for line in _command_lines(self._texts(part)))
        yield from (f"( {line}" for line in self._tools(part))
        if path := _path(part):
            yield f"/ {path}"

    def _plain(self, part: ast.AST) -> Iterator[str]:
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
            yield from (f"= {name}" for name in (part.value, *_VARIABLE.findall(part.value)))
            for word in _WORD.findall(part.value):
                yield word
                yield word.rpartition("/")[2]
        elif isinstance(part, ast.Attribute):
            yield part.attr
            if isinstance(part.value, ast.Name):
                yield f"import {self._imported.get(part.value.id, part.value.id)}.{part.attr}"
        elif isinstance(part, ast.keyword) and part.arg:
            yield part.arg
        elif isinstance(part, ast.Name):
            yield part.id
            yield f"import {self._imported.get(part.id, '')}"

    def _texts(self, part: ast.AST) -> list[str]:
        """Return a possible command line: the texts of a call, a list or a tuple; the words of a text."""
        if isinstance(part, ast.Constant | ast.JoinedStr):
            return _text(part).split()
        if not isinstance(part, ast.Call | ast.List | ast.Tuple):
            return []
        words = []
        for argument in part.args if isinstance(part, ast.Call) else part.elts:
            word_list = (
                self._lists.get(getattr(argument.value, "id", "")) if isinstance(argument, ast.Starred) else None
            )
            if isinstance(argument, ast.Starred) and isinstance(argument.value, ast.Call):  # *"task add".split()
                words += [word for leaf in ast.walk(argument.value) for word in _text(leaf).split()]
            elif word_list is not None:
                words += self._texts(word_list)
            else:
                words.append(_text(argument) or "*")
        return words

    def _tools(self, part: ast.AST) -> Iterator[str]:
        """Calls of tools: the tool's name and each argument that is given with it."""
        if isinstance(part, ast.Call):
            names = [_text(argument) for argument in part.args]
            arguments = [*(argument for argument in part.args if isinstance(argument, ast.Dict)), *part.keywords]
            if _called(part.func) in _CALLERS:
                for name in filter(None, names[:3]):
                    yield from _with_arguments(name, arguments)
            of = part.func.value if isinstance(part.func, ast.Attribute) else None
            if isinstance(of, ast.Subscript):  # TOOLS["read_file"].call(session, {…})
                yield from _with_arguments(_text(of.slice), arguments)
        elif isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name) and part.value.id.endswith("TOOLS"):
            yield _text(part.slice)
        elif isinstance(part, ast.Tuple | ast.List):
            for argument, following_argument in pairwise(part.elts):
                if _text(argument) and isinstance(following_argument, ast.Dict):
                    yield from _with_arguments(_text(argument), [following_argument])
        elif isinstance(part, ast.Dict):
            fields = dict(zip(map(_text, filter(None, part.keys)), part.values, strict=False))
            name = _text(fields.get("tool")) or _text(fields.get("name"))
            if name:
                yield from _with_arguments(name, [fields.get("arguments", part)])
        texts = self._texts(part)
        for at, name in enumerate(texts[2:], 2):
            if texts[at - 2 : at] == ["tool", "call"]:
                yield name
                yield from (f"{name} {argument.partition('=')[0]}" for argument in texts[at:] if "=" in argument)


def _path(part: ast.AST | None) -> str:
    """A path with folders in it: a text, or put together with `/`; what only the run knows is a star."""
    if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Div):
        return f"{_path(part.left) or '*'}/{_path(part.right) or _text(part.right) or '*'}"
    if isinstance(part, ast.Attribute):
        return _places().get(part.attr, "") if ast.unparse(part.value).endswith("layout") else ""
    text = _text(part)
    return text if "/" in text and "\n" not in text else ""


def _called(function: ast.expr) -> str:
    return getattr(function, "id", getattr(function, "attr", ""))


def _text(node: ast.AST | None) -> str:
    """Return a text; of an f-string, the parts between its values."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "*" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _with_arguments(name: str, arguments: Iterable[ast.AST]) -> Iterator[str]:
    yield name
    for argument in arguments:
        if isinstance(argument, ast.keyword) and argument.arg:
            yield f"{name} {argument.arg}"
        elif isinstance(argument, ast.Dict):
            yield from (f"{name} {_text(key)}" for key in argument.keys if key is not None)


def _command_lines(texts: list[str]) -> Iterator[str]:
    """Yield `task add`, alone and with each option of the same line."""
    for at, word in enumerate(texts):
        if word in _commands_there():
            options = [word_after.partition("=")[0] for word_after in texts[at:] if word_after.startswith("--")]
            for end in range(at + 1, min(at + 4, len(texts) + 1)):
                command_line = " ".join(texts[at:end])
                yield command_line
                yield from (f"{command_line} {option}" for option in options)
    yield from (word_after for word_after in texts if word_after.startswith("--"))


def _paths(part: ast.AST) -> Iterator[tuple[str, ...]]:
    """The keys that a text of YAML or JSON has, a dict or the keywords of a call; with those below them."""
    if isinstance(part, ast.Constant | ast.JoinedStr):
        yield from _keys_of_text(_yaml(part))
    elif isinstance(part, ast.Dict):
        for key, value in zip(part.keys, part.values, strict=True):
            yield from _below(_text(key), value)
    elif isinstance(part, ast.Call) and ast.unparse(part.func) == "harbour.configure":  # the settings of its root
        yield from (("roots", *path) for keyword in part.keywords for path in _paths(keyword))
    elif isinstance(part, ast.keyword) and part.arg:
        yield from _below(part.arg, part.value)


def _yaml(part: ast.AST) -> str:
    """A text; of a value in it that is made of a dict or a list its keys, of any other a zero."""
    if isinstance(part, ast.JoinedStr):
        return "".join(map(_yaml, part.values))
    if isinstance(part, ast.FormattedValue):
        collection = next((node for node in ast.walk(part) if isinstance(node, ast.Dict | ast.List)), None)
        return json.dumps(_skeleton(collection))
    return part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else ""


def _skeleton(node: ast.AST | None) -> Any:
    if isinstance(node, ast.Dict):
        return {_text(key): _skeleton(value) for key, value in zip(node.keys, node.values, strict=True)}
    return [_skeleton(child) for child in node.elts] if isinstance(node, ast.List) else 0


@cache
def _keys_of_text(text: str) -> tuple[tuple[str, ...], ...]:
    """The keys of the documents that a text has: the whole of it, or its front matter."""
    if ":" not in text or "&" in text:  # an anchor can lead into itself
        return ()
    key_paths: set[tuple[str, ...]] = set()
    for document in re.split(r"^---$", text, flags=re.MULTILINE):
        with suppress(yaml.YAMLError, AttributeError, ValueError, RecursionError):
            key_paths.update(_nested(yaml.load(document, yaml.CSafeLoader)))
    return tuple(sorted(key_paths))


def _nested(value: Any) -> Iterator[tuple[str, ...]]:
    """The chains of keys, each below the one before, wherever they begin."""
    if isinstance(value, list):
        for child in value:
            yield from _nested(child)
    elif isinstance(value, dict):
        for key, below in value.items():
            yield (str(key),)
            yield from _nested(below)
            yield from ((str(key), *path) for path in _top(below))


def _top(value: Any) -> Iterator[tuple[str, ...]]:
    """The chains of keys that begin at the top."""
    if isinstance(value, list):
        for child in value:
            yield from _top(child)
    elif isinstance(value, dict):
        for key, below in value.items():
            yield from ((str(key), *path) for path in [(), *_top(below)])


def _below(key: str, value: ast.AST) -> Iterator[tuple[str, ...]]:
    yield (key,)
    for part in (value, *(value.elts if isinstance(value, ast.List | ast.Tuple) else ())):
        if isinstance(part, ast.Dict):
            yield from ((key, *path) for path in _paths(part))


def shown_by(item: Item) -> str | None:
    """Return the test that uses the item. Of several, take the one with the fewest words: it is most about the item."""
    mark = f"{item.kind}: {item.name}"  # a person's mark, pytest.mark.shows, precedes matches by words
    fitting: Iterable[_Scene] = _by_word().get(mark) or set.intersection(set(_scenes()), *map(_saying, item.words))
    if item.kind in ("command", "option"):
        fitting = [scene for scene in fitting if scene.test_id.startswith(_ROOMS["command"])]
    rooms = (f"tests/{item.name.split('.')[1]}/",) if item.kind == "name" else _ROOMS.get(item.kind, ("",))
    best = min(
        fitting, key=lambda scene: (not scene.test_id.startswith(rooms), len(scene.words), scene.test_id), default=None
    )
    return None if best is None else best.test_id


def _saying(word: str) -> set[_Scene]:
    """Return the scenes that have a word of an item."""
    scenes_by_word = _by_word()
    keys: Iterable[str] = (word, word.replace("-", "_"))
    if word[:2] in ("$ ", "( ", "{ ", "= ") or word.startswith("import "):
        keys = (word,)
    elif word.startswith("/ "):
        pattern = re.compile(rf"(^/ |/){word[2:]}(/|$)")
        keys = (
            known_word for known_word in scenes_by_word if known_word.startswith("/ ") and pattern.search(known_word)
        )
    elif word.endswith("-") or word.startswith("."):  # part of a name that has more
        keys = (known_word for known_word in scenes_by_word if word in known_word)
    return {scene for key in keys for scene in scenes_by_word.get(key, ())}


# the document


def listed_tests() -> dict[str, str]:
    """Return the tests that tests/inventory.txt lists, by kind and name."""
    return {name: test for name, test in _rows().items() if test != REMOVED}


def removed_names() -> list[str]:
    """Return the kind and name of everything that was there once."""
    return [name for name, test in _rows().items() if test == REMOVED]


def _rows() -> dict[str, str]:
    rows = (line.split("\t") for line in DOCUMENT.read_text("utf-8").splitlines())
    return {f"{kind}: {name}": test for kind, name, test in rows}


def write() -> None:
    """Update the document from the code. Only a person removes lines that say `gone`."""
    items = inventory()
    present = {f"{item.kind}: {item.name}" for item in items}
    rows = [f"{item.kind}\t{item.name}\t{shown_by(item) or ''}" for item in items]
    if DOCUMENT.exists():
        rows += ["\t".join((*name.split(": ", 1), REMOVED)) for name in sorted(set(_rows()) - present)]
    DOCUMENT.write_text("\n".join(rows) + "\n", "utf-8")


if __name__ == "__main__":
    write()
