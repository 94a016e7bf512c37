"""Every entrance has its boundary: what others wrote is parsed inside `with boundary(...)` and nowhere else.

The list of entrances is made here, from the code: each use of a parsing primitive in `hivemind/` must lie in a boundary,
lexically or because every way to the function that holds it leads through one. Ways are followed by name over the whole
package: whatever mentions a function may call it.
"""

from __future__ import annotations

import ast
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

HIVEMIND = Path(__file__).parents[1] / "hivemind"

OWN_INPUT = {
    **dict.fromkeys(
        ("reaper.py _read_order", "tools/matcher.py _main", "tools/file_search.py _find_in_process"),
        "marshal between a process and its child, through a pipe that nobody else has",
    ),
    **dict.fromkeys(
        (
            "swarm/fork_server.py reports",
            "tools/file_search.py _printed_lines",
            "swarm/fork_server.py _receive",
            "swarm/fork_server.py _execute",
            "swarm/detach.py detach",
        ),
        "JSON between a process and its child, through a pipe that nobody else has",
    ),
    **dict.fromkeys(
        ("minds/agents/relay.py serve", "minds/agents/relay.py _call", "minds/agents/relay.py main"),
        "a program by itself, with the standard library alone: it ends, and its client with it",
    ),
    "minds/agents/acp.py _events": "the connection's `feed`, which parses inside a boundary",
    "minds/agents/profile.py load": "a profile in the package",
    "exchange/schema.py _VERSION_2": "a file of the package",
    **dict.fromkeys(("tokens.py _encoding", "embedding/local.py _tokenizer"), "a vocabulary in the package"),
    **dict.fromkeys(
        ("tasks/listing.py _waiting", "tasks/listing.py _ended_or_active"),
        "the kernel's time of a change: nobody can set it",
    ),
    **dict.fromkeys(
        ("layout.py month_of", "tasks/listing.py list_archived"), "a file's time, within the years that a calendar has"
    ),
    **dict.fromkeys(
        ("memory/selection.py select", "agent/upkeep.py _next_due", "swarm/due.py _due_at"),
        "a time with a zone, whose seconds no year makes too many",
    ),
    **dict.fromkeys(
        ("fs/locks.py _has_marker_lock", "fs/watch.py read", "fs/filesystem.py mounts"), "what the kernel writes"
    ),
    **dict.fromkeys(("web/site.py number", "web/pages/task.py _task_context"), "a few digits, after a look"),
    **dict.fromkeys(
        ("web/pages/now.py agent_rows", "web/pages/now.py open_rows", "cli/top.py _task_rows"),
        "the clock, and the kernel's time of a change",
    ),
    "web/access.py __call__": "in Latin-1 every byte is a character",
    "web/drawing/svg.py _style_sheet": "a file of the package",
    **dict.fromkeys(
        ("web/drawing/timeline.py _time_labels", "cli/transcript.py timeline"),
        "made of a time that was read inside a boundary",
    ),
    "web/pages/task.py show_file": "the number of a line, as the tool has counted it",
    "coordination/state.py get": "the digest of the snapshot was compared when it was read",
    "cli/command.py read": "an argument of the command line, after a look whether it is a few digits",
    "documents/formats/pdf_text.py main": "a process of its own that imports nothing of hivemind; whatever is raised it prints",
    "documents/tree.py split_reference": "at most nine digits, by its pattern",
    "embedding/vectors.py apply": "`_columns_of` calls it, inside its boundary",
    "embedding/vectors.py nearest": "a question's vector, which the table packed itself",
    **dict.fromkeys(("tasks/dependencies.py _had_grace", "mail/compose.py _format_date"), "the program's own clock"),
    "tools/delegation.py _dependency_ids": "at most three digits, after a look",
    "tools/files.py read": "the masker's feed, which parses nothing",
    "masking.py _forms_in": "letters and digits of ASCII, by its pattern",
    "acp_server/serve.py run": "the connection's `feed`, which parses inside a boundary",
    "mcp_server/server.py _answer": "a text that was written the line before",
    **dict.fromkeys(
        (
            "taskrun/bounded_output.py feed",
            "taskrun/bounded_output.py close",
            "taskrun/box.py _copy_output",
            "tools/command.py _until_end",
        ),
        "output of commands: `surrogateescape` decodes any bytes, and the masker parses nothing",
    ),
    "tools/tool.py normalize": "pydantic calls it, inside the boundary of `call`",
    "tasks/task_builder.py _record": "bytes that were decoded when the task was read",
}
"""`file function` whose input is the program's own → the reason."""

# What parses: these functions of modules, and these names on whatever they are called.
OF_MODULES = {
    **{name: {"load", "loads", "Unpickler"} for name in ("json", "marshal", "tomllib", "pickle")},
    "yaml": {"load", "load_all", "safe_load", "safe_load_all", "parse", "compose", "scan"},
    "csv": {"reader", "DictReader"},
    "gzip": {"open", "GzipFile"},
    "ast": {"parse", "literal_eval"},
    "shlex": {"split"},
}
ANYWHERE = {
    *(
        "JSONDecoder",
        "raw_decode",
        "from_json",
        "model_validate",
        "model_validate_json",
        "validate_python",
        "validate_json",
    ),
    *("message_from_bytes", "message_from_string", "BytesParser", "parsedate_to_datetime", "parsedate_tz"),
    *("decompress", "unpack_from", "iter_unpack", "fromhex", "b64decode", "urlsafe_b64decode", "a2b_qp", "unhexlify"),
    *(
        "BeautifulSoup",
        "PdfReader",
        "feed",
        "urlsplit",
        "urlparse",
        "fromisoformat",
        "strptime",
        "frombytes",
        "frombuffer",
    ),
}
# Arithmetic with dates that others wrote overflows; with the program's own clock it does not.
MOMENTS = {"fromtimestamp", "astimezone", "timestamp"}
OWN = {"now", "datetime", "UTC", "clock", "_clock", "self"}
ENCODES = {"encode", "b64encode"}
# int, float and decode raise ValueError on a text and nothing else: a `try` that catches it is boundary enough.
CATCHES = {"ValueError", "UnicodeError", "UnicodeDecodeError", "Exception"}
TEXTS = {"text", "line", "word", "due", "part", "raw", "answer", "number_text", "digits", "field", "argument", "output"}
CUTS = {"read", "group", "split", "partition", "rpartition", "read_text", "strip"}


@dataclass(frozen=True)
class Function:
    """A function of the package; with no name the code of a file that stands in none."""

    file: str
    name: str = ""
    owner: str = ""  # the class that it is a method of
    lazy: bool = False  # a generator: its body runs where it is iterated over
    of_class: bool = False  # nobody calls a class method on an object


@dataclass(frozen=True)
class Place:
    function: Function
    inside: bool = False  # a boundary
    caught: bool = False  # ValueError is


class Package:
    """The functions of a package, what mentions them, and where something is parsed."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        trees = {file: ast.parse(textwrap.dedent(text)) for file, text in sources.items()}
        self._children: dict[ast.AST, list[ast.AST]] = {}
        nodes = {file: self._all(tree) for file, tree in trees.items()}
        self._parents = {child: node for node, children in self._children.items() for child in children}
        self._yields: dict[ast.AST, list[ast.AST]] = defaultdict(list)
        for node in self._parents:
            if isinstance(node, ast.Yield | ast.YieldFrom):
                self._yields[next(self._around(node))].append(node)
        self._functions = {n: f for file, there in nodes.items() for n, f in self._defined(file, there)}
        self._boundaries = {"boundary"}
        while more := {f.name for n, f in self._functions.items() if self._is_boundary(n)} - self._boundaries:
            self._boundaries |= more
        self._named: dict[str, list[Function]] = {}
        for function in self._functions.values():
            self._named.setdefault(function.owner if function.name in MAKING else function.name, []).append(function)
        self._imports = {file: dict(_imported(there)) for file, there in nodes.items()}
        self._sites: list[tuple[Place, int, str]] = []
        self._mentions: dict[Function, list[tuple[Function, bool, int]]] = defaultdict(list)
        for file, tree in trees.items():
            self._walk(tree, Place(Function(file)))
        self._files = list(trees)

    def exposed(self) -> dict[str, str]:
        """`file:line` of what is parsed outside of all boundaries → what it is, and the way that leads there."""
        mentioned = {target for caller, found in self._mentions.items() for target, _, _ in found if target != caller}
        every = (*map(Function, self._files), *self._functions.values())
        ways = {function: "" for function in every if function not in mentioned}
        todo = list(ways)
        for caller in todo:
            for target, inside, line in self._mentions[caller]:
                if not inside and target not in ways:
                    ways[target] = f" <- {caller.file}:{line} {caller.name}{ways[caller]}"
                    todo.append(target)
        return {
            f"{place.function.file}:{line}": f"{what} in {place.function.name}{ways[place.function]}"
            for place, line, what in self._sites
            if place.function in ways and f"{place.function.file} {place.function.name}" not in OWN_INPUT
        }

    def _all(self, tree: ast.Module) -> list[ast.AST]:
        nodes: list[ast.AST] = [tree]
        for node in nodes:
            self._children[node] = list(ast.iter_child_nodes(node))
            nodes += self._children[node]
        return nodes

    def _defined(self, file: str, nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.AST, Function]]:
        for node in nodes:
            above = self._parents.get(node)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                owner = above.name if isinstance(above, ast.ClassDef) else ""
                of_class = any(_name(decorator) == "classmethod" for decorator in node.decorator_list)
                yield node, Function(file, node.name, owner, node in self._yields, of_class)
            elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(above, ast.Module):
                # a table of functions, or one's other name
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                yield node, Function(file, _name(target))

    def _around(self, node: ast.AST) -> Iterator[ast.AST]:
        """The functions and lambdas around a node, from the innermost out."""
        while node := self._parents.get(node):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                yield node

    def _is_boundary(self, function: ast.AST) -> bool:
        """Whether it is a context manager whose body lies in a boundary."""
        return any("contextmanager" in _names(d) for d in getattr(function, "decorator_list", ())) and all(
            self._in_boundary(node, function) for node in self._yields[function]
        )

    def _in_boundary(self, node: ast.AST, function: ast.AST) -> bool:
        while node is not function:
            node = self._parents[node]
            if isinstance(node, ast.With) and any(self._opens(item.context_expr) for item in node.items):
                return True
        return False

    def _opens(self, expression: ast.expr) -> bool:
        return isinstance(expression, ast.Call) and _name(expression.func) in self._boundaries

    def _escapes(self, node: ast.AST) -> bool:
        """Whether what is lazy may run elsewhere: nothing consumes it on the spot."""
        above = self._parents[node]
        if isinstance(above, ast.Call) and above.func is node:
            above = self._parents[above]
        if isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Tuple):
            return False
        return isinstance(above, ast.Return | ast.Assign | ast.Yield | ast.NamedExpr | ast.Lambda)

    def _walk(self, node: ast.AST, place: Place) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._each((*node.decorator_list, node.args), place)
                function = self._functions[node]
                self._each(node.body, Place(function, not function.lazy and any(map(self._opens, node.decorator_list))))
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self._walk(item, place)
                    place = replace(place, inside=place.inside or self._opens(item.context_expr))
                self._each(node.body, place)
            case ast.Try():
                catches = any(_names(handler.type) & CATCHES for handler in node.handlers)
                self._each(node.body, replace(place, caught=place.caught or catches))
                self._each((*node.handlers, *node.orelse, *node.finalbody), place)
            case ast.arg():
                pass  # an annotation runs nothing
            case ast.Assign() | ast.AnnAssign() if node in self._functions:
                self._each([node.value] if node.value else [], Place(self._functions[node]))
            case ast.AnnAssign():
                self._each([node.value] if node.value else [], place)
            case _:
                if isinstance(node, ast.Lambda | ast.GeneratorExp) and self._escapes(node):
                    place = replace(place, inside=False, caught=False)
                if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                    self._look(node, place)
                self._each(self._children[node], place)

    def _each(self, nodes: object, place: Place) -> None:
        for node in nodes:
            self._walk(node, place)

    def _look(self, node: ast.Name | ast.Attribute, place: Place) -> None:
        call = self._parents[node]
        if not place.inside and (
            what := _parses(node, call if getattr(call, "func", None) is node else None, place.caught)
        ):
            self._sites.append((place, node.lineno, what))
        for target in self._meant(node, place.function):
            inside = place.inside and not (target.lazy and self._escapes(node))
            self._mentions[place.function].append((target, inside, node.lineno))

    def _meant(self, node: ast.Name | ast.Attribute, within: Function) -> list[Function]:
        """The functions that a name may mean; where it is a class, those that make its objects."""
        on = node.value if isinstance(node, ast.Attribute) else None
        origin = self._imports[within.file].get(_name(on or node)) if on is None or isinstance(on, ast.Name) else None
        if origin is not None and not origin.startswith("hivemind."):
            return []
        name = _name(node) if on is not None or origin is None else origin.rpartition(".")[2]
        named = self._named.get(name, [])
        free = [f for f in named if not f.owner or f.owner == name]
        if on is None:
            module = origin and _file(origin.rpartition(".")[0])
            there = [f for f in free if f.file == (module or within.file)]
            return there if origin is None else there or free
        owner = within.owner if _name(on) in {"self", "cls"} else _name(on)
        methods = [f for f in named if f.owner and f.name == name and not (f.of_class and owner.islower())]
        return (
            [f for f in methods if f.owner == owner]
            or [f for f in free if origin and f.file == _file(origin)]
            or [f for f in methods if name.startswith("_") and f.file == within.file]
            or (methods if origin is None else named)
        )


MAKING = {"__init__", "__new__", "__post_init__"}


def _parses(node: ast.Name | ast.Attribute, call: ast.Call | None, caught: bool) -> str:
    """What a name parses, in words; nothing if nothing, or what is known to be the program's own."""
    name, on = _name(node), node.value if isinstance(node, ast.Attribute) else None
    arguments = [] if call is None else call.args
    first = arguments[0] if arguments else None
    if name in MOMENTS:
        of = arguments if name == "fromtimestamp" else [on]
        return ast.unparse(node) if call is not None and not all(_names(part) <= OWN for part in of) else ""
    if name in OF_MODULES.get(_name(on), ()) or name in ANYWHERE or (name == "unpack" and on is not None):
        return ast.unparse(node)
    if name in {"int", "float"} and on is None and first is not None:
        field = isinstance(first, ast.Subscript) and isinstance(getattr(first.slice, "value", None), str)
        called = _name(first.func) if isinstance(first, ast.Call) else ""
        text = called in CUTS or (isinstance(first, ast.Name) and first.id in TEXTS)
        return ast.unparse(call) if field or called == "get" or (text and not caught) else ""
    if name in {"decode", "read_text"} and on is not None and call is not None and not caught and len(arguments) < 2:
        strict = not any(keyword.arg == "errors" for keyword in call.keywords)
        return f".{name}()" if strict and not _names(on) & ENCODES else ""
    return ""


def _imported(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            above = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            yield from ((name.asname or name.name.partition(".")[0], above + name.name) for name in node.names)


def _file(module: str) -> str:
    return f"{module.removeprefix('hivemind.').replace('.', '/')}.py"


def _name(node: ast.AST | None) -> str:
    return getattr(node, "id", getattr(node, "attr", ""))


def _names(node: ast.AST | None) -> set[str]:
    return set() if node is None else {_name(n) for n in ast.walk(node)} - {""}


_INSIDE = ("boundary.py", "schema.py")  # the boundary, and the models whose users stand inside of it


def test_what_others_wrote_is_parsed_inside_a_boundary() -> None:
    files = (path for path in HIVEMIND.rglob("*.py") if "testing" not in path.parts and path.name not in _INSIDE)
    found = Package({str(path.relative_to(HIVEMIND)): path.read_text("utf-8") for path in files}).exposed()
    told = sorted(f"hivemind/{where}: {what}" for where, what in found.items())
    assert not told, "parsed outside of every boundary:\n" + "\n".join(told)


def test_the_exceptions_that_are_listed_exist() -> None:
    assert all((HIVEMIND / place.split()[0]).is_file() for place in OWN_INPUT)


SOUND = {
    "lexically inside": """
        def read(raw):
            with open(raw) as file, boundary("record", raw):
                return json.load(file)
    """,
    "every caller is inside": """
        def _parsed(raw): return json.loads(raw)
        def _both(raw): return _parsed(raw)
        def read(raw):
            with boundary("record"):
                return _both(raw), _parsed(raw)
    """,
    "a method called on self, inside": """
        class Reader:
            def _field(self, raw): return datetime.fromisoformat(raw).astimezone(UTC)
            def read(self, raw):
                with boundary("date"): return self._field(raw)
    """,
    "a context manager of its own": """
        @contextmanager
        def entrance(name):
            with boundary("letter", name), count.reading(name):
                yield
        def read(raw):
            with entrance("x"): return message_from_bytes(raw)
    """,
    "a generator that is used up inside": """
        def _lines(raw):
            for line in raw: yield json.loads(line)
        def read(raw):
            with boundary("log"): return list(_lines(raw))
    """,
    "a table of readers, inside": """
        def _parsed(raw): return yaml.safe_load(raw)
        READERS = {"yaml": _parsed}
        def read(raw):
            with boundary("file"): return READERS["yaml"](raw)
    """,
    "a number whose one error is caught": """
        def number(text):
            try: return int(text)
            except ValueError: return None
    """,
    "the program's own clock": "def now(self): return self._clock().astimezone(UTC), datetime.now(UTC).timestamp()",
    "a decoder that replaces": "def text(raw): return raw.decode('utf-8', 'replace') + b64encode(raw).decode()",
}
BROKEN = {
    "no boundary": "def read(raw): return json.loads(raw)",
    "a try in its place": """
        def read(raw):
            try: return json.loads(raw)
            except ValueError: return None
    """,
    "one caller of two is outside": """
        def _parsed(raw): return json.loads(raw)
        def read(raw):
            with boundary("record"): return _parsed(raw)
        def show(raw): return _parsed(raw)
    """,
    "an attribute of that name, whosever": """
        class A:
            def loaded(self, raw): return json.loads(raw)
        def good(a):
            with boundary("record"): return a.loaded()
        def bad(b): return b.loaded
    """,
    "the date is parsed inside, and converted outside": """
        def due(text):
            with boundary("date"): found = datetime.fromisoformat(text)
            return found.astimezone(UTC)
    """,
    "a generator that is used up outside": """
        def _lines(raw):
            for line in raw: yield json.loads(line)
        def read(raw):
            with boundary("log"): return _lines(raw)
    """,
    "lazy lines": """
        def read(raw):
            with boundary("log"): return (json.loads(line) for line in raw)
    """,
    "an exit from the boundary by a callback": """
        def read(raw):
            with boundary("log"): return lambda: json.loads(raw)
    """,
    "a table of readers": """
        def _parsed(raw): return yaml.safe_load(raw)
        READERS = {"yaml": _parsed}
        def read(raw):
            with boundary("file"): return READERS["yaml"](raw), _parsed(raw)
        def show(raw): return READERS["yaml"](raw)
    """,
    "another name for a primitive": """
        _parsed = json.JSONDecoder().decode
        def read(raw): return _parsed(raw)
    """,
    "a decorator": """
        @runs_later
        def parsed(raw): return tomllib.loads(raw)
    """,
    "opened before the boundary": """
        def read(raw):
            with gzip.open(raw) as file, boundary("file"): return file.read()
    """,
    "a context manager that yields outside": """
        @contextmanager
        def entrance(name):
            with boundary("letter", name): pass
            yield
        def read(raw):
            with entrance("x"): return json.loads(raw)
    """,
    "a field that may be anything": """
        def number(record):
            try: return int(record["seq"])
            except ValueError: return None
    """,
    "passed on as a function": "def read(lines): return list(map(json.loads, lines))",
    "bytes that may be no text": "def text(raw): return raw.decode()",
}


@pytest.mark.parametrize("source", [pytest.param(source, id=name) for name, source in SOUND.items()])
def test_a_parse_inside_a_boundary_is_sound(source: str) -> None:
    assert not Package({"a.py": source}).exposed()


@pytest.mark.parametrize("source", [pytest.param(source, id=name) for name, source in BROKEN.items()])
def test_a_parse_outside_of_a_boundary_is_found(source: str) -> None:
    assert Package({"a.py": source}).exposed()


def test_a_way_through_another_file_is_found_and_told() -> None:
    files = {
        "rooms/rows.py": "def row(text): return json.loads(text)",
        "cli/show.py": "from hivemind.rooms.rows import row\ndef show(text): print(row(text))",
    }
    assert Package(files).exposed() == {"rooms/rows.py:1": "json.loads in row <- cli/show.py:2 show"}
    files["cli/show.py"] = files["cli/show.py"].replace("print(row(text))", "\n with boundary('row'): print(row(text))")
    assert not Package(files).exposed()
