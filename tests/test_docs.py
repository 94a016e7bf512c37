"""The documentation is part of the program: what it names exists, what it shows can be typed, what it states is so."""

from __future__ import annotations

import argparse
import io
import re
import shlex
import subprocess
import tokenize
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.cli.main import build_parser
from hivemind.config import AgentConfig, HiveConfig, LimitsConfig, MailConfig
from hivemind.frontmatter import parse, split
from hivemind.layout import Layout
from hivemind.schema import BaseModel
from hivemind.tasks.form import TaskForm
from hivemind.tasks.step import KINDS, StepForm
from hivemind.tools import TOOLS, files
from hivemind.tools.registry import use_by_hand
from tests.cli.conftest import make_hive

ROOT = Path(__file__).parent.parent
MANUAL = sorted((ROOT / "knowledge" / "manual").glob("*.md"))
PROSE = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *MANUAL,
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / folder / "README.md" for folder in ("agents", "rom", "mailboxes", "knowledge", "tasks")),
    *sorted((ROOT / "hivemind").rglob("README.md")),
]
SHOWING_COMMANDS = [path for path in PROSE if path.parent.name != "adr"]
FORBIDDEN = {"helper", "helpers", "utils", "util", "handler", "handlers", "data", "info"}
LINES_OF_A_QUOTE = 12  # as hivemind.minds.extractive.quote has it
WIDTH = 125  # prose is wrapped before that; tables and what a program printed may be wider
DATA = {".json", ".jsonl", ".tsv", ".txt"}  # questions, reports and figures refer to documents of others
PLANTS = "benchmarks/opening/"  # its data do so too
DOCUMENT = re.compile(r"(?<![\w/.-])docs/[\w./-]+\.md(?:#[\w-]+)?")
LINK = re.compile(r"\]\(([^)\s]+)\)")
OUTSIDE = re.compile(r"\b[Ss]pecs?\s+\d+\b|\b[Ss]eed\s+00\d\b|\bDESIG[N]\b")

by_name = pytest.mark.parametrize("path", PROSE, ids=lambda path: str(path.relative_to(ROOT)))


def fenced_out(text: str) -> str:
    """The text without code blocks, fenced or indented."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^ {4}.*$", "", text, flags=re.MULTILINE)


def code_lines(text: str) -> Iterator[str]:
    """Lines of code blocks, fenced or indented."""
    inside = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            inside = not inside
        elif inside or line.startswith("    "):
            yield line.strip()


def shown_commands(path: Path) -> Iterator[str]:
    """Every `hivemind …` that a document shows, in code blocks and between backquotes."""
    text = re.sub(r"(\bhivemind [^`\n]*?) > [\w.]+", r"\1", path.read_text("utf-8"))  # written into a file
    for line in code_lines(text):
        for part in re.split(r"\s*(?:&&|;|\|)\s*", re.sub(r"\s+# .*", "", line.removeprefix("$ "))):
            if re.match(r"hivemind [a-z-]", part):
                yield part
    for span in re.findall(r"(?<!`)`(hivemind [^`]+)`(?!`)", fenced_out(text)):
        yield from (" ".join(part.split()) for part in re.split(r"\s*(?:&&|;)\s*", span))


@cache
def tracked_texts() -> dict[str, str]:
    """Map each tracked text file, as a path from the root of the repository, to its text."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    texts = {}
    for name in filter(None, listing.stdout.split("\0")):
        path = ROOT / name
        if path.suffix not in DATA and not name.startswith(PLANTS) and path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            if b"\0" not in content:
                texts[name] = content.decode("utf-8", "replace")
    return texts


@cache
def heading_anchors(path: Path) -> frozenset[str]:
    """Return the anchors of a document's headings, as GitHub derives them."""
    anchors: set[str] = set()
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", text, re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", LINK.sub("]", heading).lower())
        anchor, number = plain.replace(" ", "-"), 0
        while (f"{anchor}-{number}" if number else anchor) in anchors:
            number += 1
        anchors.add(f"{anchor}-{number}" if number else anchor)
    return frozenset(anchors)


def is_resolved(document: Path, anchor: str) -> bool:
    """Check that a document exists and has a heading with the anchor, if there is one."""
    return document.exists() and (not anchor or (document.suffix == ".md" and anchor in heading_anchors(document)))


def prose_of(name: str, text: str) -> Iterator[tuple[int, str]]:
    """Yield a file's lines with their numbers: of Python only comments and strings of several words."""
    if not name.endswith(".py"):
        yield from enumerate(text.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and " " in token.string):
            yield from enumerate(token.string.splitlines(), token.start[0])


def test_every_reference_to_a_document_resolves_to_a_file_and_a_heading() -> None:
    unresolved = [
        f"{name}:{number}: {reference}"
        for name, text in tracked_texts().items()
        if "docs/" in text
        for number, line in prose_of(name, text)
        for reference in DOCUMENT.findall(line)
        if not is_resolved(ROOT / reference.partition("#")[0], reference.partition("#")[2])
    ]
    assert not unresolved, "\n".join(unresolved)


def test_every_link_of_a_markdown_file_resolves_to_a_file_and_a_heading() -> None:
    unresolved = []
    for name, text in tracked_texts().items():
        links = LINK.findall(fenced_out(text)) if name.endswith(".md") else []
        for link in links:
            if re.match(r"[a-z]+:", link):  # https:, mailto:
                continue
            target, _, anchor = link.partition("#")
            if not is_resolved((ROOT / name).parent / target if target else ROOT / name, anchor):
                unresolved.append(f"{name}: {link}")
    assert not unresolved, "\n".join(unresolved)


def test_no_file_refers_to_documents_that_the_repository_does_not_have() -> None:
    references = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {' '.join(match[0].split())}"
        for name, text in tracked_texts().items()
        for match in OUTSIDE.finditer(text)
    ]
    assert not references, "\n".join(references)


@by_name
def test_every_file_of_the_repository_that_is_named_exists(path: Path) -> None:
    named = re.compile(r"`((?:hivemind|docs|knowledge/manual|examples|tests|benchmarks)/[\w./-]*)`")
    for name in named.findall(fenced_out(path.read_text("utf-8"))):
        beside = path.parent / name
        assert (ROOT / name).exists() or beside.exists(), f"{path.name} names {name}"


@by_name
def test_prose_is_wrapped(path: Path) -> None:
    if path in SHOWING_COMMANDS and path.is_relative_to(ROOT / "hivemind"):
        return  # a room's README belongs to the room
    for number, line in enumerate(fenced_out(path.read_text("utf-8")).splitlines(), 1):
        assert len(line) <= WIDTH or line.startswith("|"), (
            f"{path.name}, line {number} of its prose is {len(line)} long"
        )


@pytest.mark.parametrize("path", SHOWING_COMMANDS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_shown_is_one_that_the_parser_takes(path: Path) -> None:
    parser = build_parser()
    refused = [command for command in shown_commands(path) if not is_typable(parser, shlex.split(command)[1:])]
    assert refused == []


def is_typable(parser: argparse.ArgumentParser, words: list[str]) -> bool:
    """Whether the parser takes these words, or they name a command without its arguments."""
    if names_a_command(parser, words):
        return True
    try:
        parser.parse_args([word.strip("[]") for word in words])
    except SystemExit as ended:
        return ended.code == 0
    return True


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands below a parser, by name."""
    groups = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return {name: command for group in groups for name, command in group.choices.items()}


def names_a_command(parser: argparse.ArgumentParser, words: list[str]) -> bool:
    """True for `hivemind task`, `hivemind task show`, `hivemind COMMAND`: spoken of, without arguments."""
    if words == ["COMMAND"]:
        return True
    for word in words:
        commands = commands_of(parser)
        if word not in commands:
            return False
        parser = commands[word]
    return True


def test_commands_are_found_in_the_documents() -> None:
    found = [command for path in SHOWING_COMMANDS for command in shown_commands(path)]
    assert len(found) > 100
    assert {command.split()[1] for command in found} >= {
        "init", "up", "down", "status", "task", "mail", "agent", "context", "log", "doctor",
    }  # fmt: skip


def test_every_command_and_option_has_its_place_in_the_chapter_on_commands() -> None:
    chapter = (ROOT / "knowledge/manual/12-commands.md").read_text("utf-8")
    for name, command in commands_of(build_parser()).items():
        assert f"hivemind {name}" in chapter, f"hivemind {name} is not in the chapter on commands"
        for one in (command, *commands_of(command).values()):
            for option in options_of(one) - {"--help", "--hive", "--debug", "--json"}:
                assert option in chapter, f"{one.prog} {option} is not in the chapter on commands"


def options_of(command: argparse.ArgumentParser) -> set[str]:
    return {text for action in command._actions for text in action.option_strings if text.startswith("--")}


def stated_default(text: str, key: str) -> str | None:
    """What a document says is the default of a key: `* `key` (default: …): …`, or a row of a table."""
    item = re.search(rf"^\* `{key}` \(default: (.+?)\)", text, re.MULTILINE)
    row = re.search(rf"^\| `{key}`[^|]*\| ([^|]+) \|", text, re.MULTILINE)
    found = item or row
    return None if found is None else found[1].strip().strip("`")


def fields_of(model: type[BaseModel]) -> list[tuple[str, object]]:
    return [(name, field.get_default(call_default_factory=True)) for name, field in model.model_fields.items()]


@pytest.mark.parametrize(("key", "default"), fields_of(HiveConfig))
def test_every_key_of_hive_yaml_is_in_the_manual_with_its_default(key: str, default: object) -> None:
    stated = stated_default((ROOT / "knowledge/manual/11-settings.md").read_text("utf-8"), key)
    assert stated is not None, f"{key} of hive.yaml is not in the manual"
    assert stated == written(default)


@pytest.mark.parametrize("document", ["knowledge/manual/05-agents.md", "agents/README.md"])
@pytest.mark.parametrize(("key", "default"), fields_of(AgentConfig))
def test_every_key_of_an_agents_file_is_documented_with_its_default(key: str, default: object, document: str) -> None:
    text = (ROOT / document).read_text("utf-8")
    if key == "limits":
        limits = ", ".join(f"{name}: {written(value)}" for name, value in fields_of(LimitsConfig))
        if document == "agents/README.md":
            assert f"{{{limits}}}" in text
        else:
            assert all(f"`{name}: {written(value)}`" in text for name, value in fields_of(LimitsConfig))
        return
    stated = stated_default(text, key)
    assert stated is not None, f"{key} is not in {document}"
    said_in_words = {"lane": "agent/<agent>", "tools": "all", "toolset": "all", "budget": "{task: {tokens: 5000000}}"}
    assert stated == said_in_words.get(key, written(default))


def written(default: object) -> str:
    """A default as YAML would have it; none at all is called none."""
    if default is None:
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, BaseModel):
        return "{" + ", ".join(f"{name}: {written(value)}" for name, value in default) + "}"
    if isinstance(default, float) and default == int(default):
        return str(int(default))
    if isinstance(default, tuple):
        return f"[{', '.join(default)}]"
    if isinstance(default, MailConfig):
        return f"{{unknown_sender: {default.unknown_sender}}}"
    return str(default)


@pytest.mark.parametrize("document", ["knowledge/manual/02-tasks.md", "tasks/README.md"])
def test_every_key_of_a_task_is_documented(document: str) -> None:
    text = (ROOT / document).read_text("utf-8")
    for key in TaskForm.model_fields:
        assert f"`{key}`" in text, f"{key} is not in {document}"


def test_every_key_of_a_step_is_documented() -> None:
    for document in ("knowledge/manual/03-steps.md", "tasks/README.md"):
        text = (ROOT / document).read_text("utf-8")
        for key in StepForm.model_fields:
            assert re.search(rf"`{key}[:`]", text), f"{key} is not in {document}"
    assert all(f"## {kind}:" in (ROOT / "knowledge/manual/03-steps.md").read_text("utf-8") for kind in KINDS)


def test_the_hive_yaml_of_the_repository_shows_the_defaults() -> None:
    shown = parse((ROOT / "hive.yaml").read_text("utf-8"), "hive.yaml").values
    assert HiveConfig.model_validate(shown) == HiveConfig()
    assert set(HiveConfig.model_fields) - set(shown) <= {"guard", "memory"}


def test_every_tool_is_in_the_chapter_on_agents() -> None:
    text = (ROOT / "knowledge/manual/05-agents.md").read_text("utf-8")
    assert [name for name in TOOLS if f"`{name}`" not in text] == []


def test_chapters_are_numbered_one_after_the_other_and_the_first_names_them_all() -> None:
    assert [int(path.name.split("-")[0]) for path in MANUAL] == list(range(1, len(MANUAL) + 1))
    first = MANUAL[0].read_text("utf-8")
    assert [path.name for path in MANUAL[1:] if f"({path.name})" not in first] == []


def test_every_extra_for_users_is_in_the_readme() -> None:
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"])
    rows = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE))
    assert rows == extras - {"test", "dev", "bench"}


def test_every_folder_of_a_hive_is_in_the_first_chapter(tmp_path: Path) -> None:
    text = (ROOT / "knowledge/manual/01-first-steps.md").read_text("utf-8")
    layout = Layout.at(tmp_path)
    own = [folder for folder in layout.folders() if layout.state not in folder.parents]
    for folder in own:
        assert f"`{layout.relative(folder)}/" in text or folder == layout.tasks


@pytest.mark.parametrize("path", MANUAL, ids=lambda path: path.name)
def test_every_chapter_has_a_title_a_topic_and_tags(path: Path) -> None:
    head, body, _ = split(path.read_text("utf-8"))
    assert head is not None
    values = parse(head, path.name, 2).values
    assert set(values) == {"title", "topic", "tags"}
    assert body.startswith(f"# {values['title']}\n")


@pytest.mark.parametrize("path", MANUAL, ids=lambda path: path.name)
def test_every_paragraph_of_the_manual_is_short_enough_to_be_quoted_whole(path: Path) -> None:
    for paragraph in re.split(r"\n\s*\n|\n(?=\* )", fenced_out(path.read_text("utf-8"))):
        lines = paragraph.strip().splitlines()
        assert len(lines) <= LINES_OF_A_QUOTE or lines[0].startswith("|"), f"{path.name}: {lines[0]}"


def test_modules_are_named_by_the_vocabulary() -> None:
    for path in (ROOT / "hivemind").rglob("*.py"):
        words = set(path.stem.strip("_").split("_"))
        assert not words & FORBIDDEN, f"{path.relative_to(ROOT)}: a file name must not use {words & FORBIDDEN}"


def test_the_questions_of_the_first_command_are_tasks() -> None:
    from hivemind.tasks.form import read_text

    questions = sorted((ROOT / "examples/questions").iterdir())
    assert len(questions) >= 3
    for path in questions:
        assert read_text(path.read_bytes(), path.name).title


def test_the_first_change_of_a_contributor_is_a_tool_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [code] = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    names = dict(vars(files))
    exec(code, names)
    monkeypatch.setitem(TOOLS, "count_words", names["count_words"])
    hive = Hive.open(make_hive(tmp_path))
    (hive.layout.knowledge / "boats.md").write_text("Two boats sail.")
    found = use_by_hand(hive, "researcher", "count_words", {"path": "knowledge/boats.md"})
    assert found == {"path": "knowledge/boats.md", "words": 3}
