"""Modules of the package do not import each other in circles, and what one room decides no other hands on. (The rooms' layers
are import-linter's: `make check`.)"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import grimp
import pytest

import hivemind


def test_no_modules_import_each_other_in_a_circle_not_even_for_their_types() -> None:
    graph = grimp.build_graph("hivemind", exclude_type_checking_imports=False, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle


def lines_about_durability(source: str) -> Iterator[int]:
    """The lines that have a parameter, a method or an attribute `durable`, or pass on anything but a literal False."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.Attribute(attr=name, ctx=ast.Store()):
                is_passed_on = name.strip("_") == "durable"
            case ast.AnnAssign(target=ast.Name(id=name)):
                is_passed_on = name.strip("_") == "durable"
            case ast.keyword(arg="durable", value=value):
                is_passed_on = not (isinstance(value, ast.Constant) and value.value is False)
            case _:
                continue
        if is_passed_on:
            yield node.lineno


def test_only_loading_a_hives_settings_says_whether_its_files_are_synced() -> None:
    root = Path(hivemind.__path__[0])
    lines = {
        path.relative_to(root).as_posix(): [source.splitlines()[line - 1].strip() for line in numbers]
        for path in sorted(root.rglob("*.py"))
        if root / "fs" not in path.parents
        and (numbers := [*lines_about_durability(source := path.read_text(encoding="utf-8"))])
    }
    assert lines == {"config.py": ['set_durability(str(place), durable=config.durability == "full")']}


@pytest.mark.parametrize(
    "source",
    [
        "def save(path, *, durable=True): ...",
        "class Store:\n    durable: bool",
        "class Store:\n    def __init__(self): self._durable = True",
        "write(path, text, durable=hive.config.durable)",
        "write(path, text, durable=True)",
        "append = lambda records, durable: log.append(*records)",
    ],
)
def test_each_way_to_hand_durability_on_is_seen(source: str) -> None:
    assert [*lines_about_durability(source)]


def test_what_tests_benchmarks_and_examples_import_of_the_package_is_there() -> None:
    repository = Path(hivemind.__file__).parent.parent
    missing = []
    for path in (path for name in ("tests", "benchmarks", "examples") for path in (repository / name).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hivemind"):
                module = importlib.import_module(str(node.module))
                missing += [
                    f"{path.relative_to(repository)}:{node.lineno}: {node.module} has no {alias.name}"
                    for alias in node.names
                    if not hasattr(module, alias.name) and not _is_module(f"{node.module}.{alias.name}")
                ]
    assert missing == []


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is no package
        return False
