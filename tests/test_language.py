"""Names are nouns of the field and sentences are plain English, measured over the package's own sources.

Run `python -m tests.test_language [FOLDER]` for each place that counts against a figure.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import hivemind

PACKAGE = Path(hivemind.__file__).parent
LIMITS = {"names": 1.0, "generic": 6.0, "relative": 2.0, "stock": 4.0}
"""Percent of names, of names, of docstrings; phrases in 1,000 words."""

# Pronouns, participles and question words: such a name does not say what the value is.
VAGUE = frozenset(
    re.findall(
        r"\w+",
        """one told found said mine own given shown known made left here there asked kept held each what why how when who
    where came goes taken ours theirs whole only other others begun gone written seen wanted meant
    used named ended changed waiting moved missing pending spent opened counted hidden staged allowed sent shared linked
    dropped printed listed started failed parsed joined attached quoted loaded archived closed scored stopped watched
    finished chosen needed ordered bounced answered folded fixed tried typed drawn lacking refused expected ranked checked
    packed cached standing following nothing anything something everything someone nobody somebody most rest such then
    these those this that them they it its both few much many enough yet since again further beside""",
    )
)
GENERIC = frozenset(
    re.findall(
        r"\w+",
        """value values item items data result results obj object thing things info entry entries element elem record records
    tmp temp ret res val stuff current""",
    )
)
RELATIVE = re.compile(r"(What|Where|Who|How|Whether|Which|When|Whom|Whose|As)\b")
STOCK = re.compile(
    r"\b(?:anew|whoever|whatever|whose|gives|told|of its own|of theirs|goes on|is no|stands|said|beside|by itself"
    r"|what is|that which|of which|at which|such|lies|is there|has it|it has|one that|those that|as it|no more"
    r"|so that|nothing)\b"
)
QUERY = re.compile(r"\b(SELECT|INSERT|CREATE|UPDATE|DELETE|PRAGMA)\b")
NO_PROSE = re.compile(r"#\s*(noqa|type:|fmt|pragma|ruff|!)")


def names_of(nodes: list[ast.AST]) -> Iterator[tuple[str, int]]:
    """Yield the names that a module's nodes define, with their lines. Skip good English: an operator's `other`, a set `seen`,
    `left` next to `right`."""
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    operands = {argument for node in functions if node.name.startswith("__") for argument in node.args.args}
    has_right = any("right" in (getattr(node, "id", ""), getattr(node, "arg", "")) for node in nodes)
    for node in nodes:
        if isinstance(node, ast.arg) and not (node in operands and node.arg == "other"):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield from [(node.id, node.lineno)] * (node.id != "seen" and not (node.id == "left" and has_right))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno


def docstrings_of(nodes: list[ast.AST]) -> list[ast.Constant]:
    """Return the docstrings of a module, its classes and functions, and the strings below attributes."""
    owners = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    statements = [statement for node in nodes if isinstance(node, owners) for statement in node.body]
    constants = [statement.value for statement in statements if isinstance(statement, ast.Expr)]
    return [node for node in constants if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def sentences_of(source: str, nodes: list[ast.AST]) -> Iterator[tuple[str, int, bool]]:
    """Yield docstrings, messages and comments with their lines, and True for docstrings."""
    docstrings = docstrings_of(nodes)
    yield from ((node.value, node.lineno, True) for node in docstrings)
    for node in set(nodes) - set(docstrings):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and len(text.split()) >= 4 and not QUERY.search(text):
            yield text, node.lineno, False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not NO_PROSE.match(token.string):
            yield token.string.lstrip("# "), token.start[0], False


def measured(folder: Path) -> tuple[dict[str, float], list[str]]:
    """Return the four figures of a folder's modules, and the places that count against them, except generic names."""
    count: Counter[str] = Counter()
    places = []
    for path in sorted(folder.rglob("*.py")):
        source = path.read_text("utf-8")
        nodes = list(ast.walk(ast.parse(source)))
        for name, line in names_of(nodes):
            bare = name.strip("_").lower()
            if name not in ("self", "cls", "_"):
                count["all names"] += 1
                count["generic"] += bare in GENERIC or len(bare) == 1
                count["names"] += bare in VAGUE
                places += [f"{path}:{line}: name {name}"] * (bare in VAGUE)
        for text, line, is_docstring in sentences_of(source, nodes):
            phrases = STOCK.findall(text.lower())
            is_relative = is_docstring and bool(RELATIVE.match(text.strip()))
            count["words"] += len(text.split())
            count["stock"] += len(phrases)
            count["docstrings"] += is_docstring
            count["relative"] += is_relative
            places += [f"{path}:{line}: {phrase}" for phrase in phrases]
            places += [f"{path}:{line}: docstring begins with a relative clause"] * is_relative
    shares = {"names": "all names", "generic": "all names", "relative": "docstrings"}
    figures = {name: 100 * count[name] / max(1, count[whole]) for name, whole in shares.items()}
    return {**figures, "stock": 1000 * count["stock"] / max(1, count["words"])}, places


def test_names_and_sentences_are_those_of_the_field() -> None:
    figures, places = measured(PACKAGE)
    above = {name: round(figure, 1) for name, figure in figures.items() if figure > LIMITS[name]}
    assert not above, "\n".join([f"above the limits {LIMITS}: {above}", *places[:40]])


@pytest.mark.parametrize("figure", LIMITS)
def test_each_figure_rises_with_what_it_counts(tmp_path: Path, figure: str) -> None:
    faults = {
        "names": "def read(what):\n    return what\n",
        "generic": "def read(value):\n    return value\n",
        "relative": '"""Whether a file is whole."""\n',
        "stock": '"""Return the record, so that whoever reads it has it."""\n',
    }
    (tmp_path / "module.py").write_text(faults[figure])
    assert measured(tmp_path)[0][figure] > LIMITS[figure]


if __name__ == "__main__":
    folder_figures, folder_places = measured(Path(sys.argv[1]) if sys.argv[1:] else PACKAGE)
    print(*folder_places, folder_figures, sep="\n")
