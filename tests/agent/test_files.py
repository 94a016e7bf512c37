from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path

import pytest

from hivemind import Hive, fs
from hivemind.coordination import Reservations
from hivemind.fs.paths import folder_inside
from hivemind.tools import TOOLS, file_search
from hivemind.tools.path_access import ToolPath
from tests.agent.conftest import Crew, doing, hands
from tests.messages import calls_of


def tried(crew: Crew, *actions: tuple[str, dict]) -> list[dict]:
    """What became of actions in one turn of a task."""
    crew.drop("---\nsteps: [{title: x}]\n---\nx\n")
    agent = crew.start(doing(*actions))
    agent.cycle()
    return calls_of(crew.root / "tasks/active/t")[-len(actions) :]


def test_a_file_that_another_has_reserved_is_not_edited(crew: Crew) -> None:
    (crew.root / "knowledge/boats.md").write_text("oak\n")
    held = Reservations(Hive.open(crew.root).journal)
    held.reserve("bob", "knowledge/**")
    edit = ("edit_file", {"path": "knowledge/boats.md", "old": "oak", "new": "ash"})
    [action] = tried(crew, edit)
    assert "bob has reserved" in action["error"]
    assert (crew.root / "knowledge/boats.md").read_text() == "oak\n"
    held.release_all("bob")
    [action] = list(tried_again(crew, edit))
    assert "error" not in action
    assert (crew.root / "knowledge/boats.md").read_text() == "ash\n"
    assert held.list() == []


def tried_again(crew: Crew, *actions: tuple[str, dict]) -> list[dict]:
    crew.close()
    agent = crew.start(doing(*actions))
    agent.cycle()
    return calls_of(crew.root / "tasks/active/t")[-len(actions) :]


def test_an_edited_file_keeps_its_mode_and_its_other_names_keep_the_old_text(crew: Crew) -> None:
    path, outside = crew.root / "knowledge/run.sh", crew.root.parent / "outside.sh"
    path.write_text("echo 1\n")
    path.chmod(0o755)
    [action] = tried(crew, ("write_file", {"path": "knowledge/run.sh", "text": "echo 2\n"}))
    assert "error" not in action
    assert stat.S_IMODE(path.stat().st_mode) == 0o755
    os.link(path, outside)
    [action] = tried_again(crew, ("write_file", {"path": "knowledge/run.sh", "text": "echo 3\n"}))
    assert (path.read_text(), outside.read_text()) == ("echo 3\n", "echo 2\n")


@pytest.mark.parametrize(
    "name",
    [
        "agents/ada.yaml", "hive.yaml", "rom/hive.md", "mailboxes/bob/new/x", "tasks/inbox/x.md", ".hive/mail.key", ".mcp.json",
        "bin/python", ".venv/bin/python", "README.md", "Hive.yaml", "RULES.md", "Knowledge/x.md", "knowledge./x.md",
        ".git/hooks/pre-commit", "new/x",
    ],
)  # fmt: skip
def test_a_root_that_holds_the_hive_itself_opens_nothing_of_it_for_writing(crew: Crew, name: str) -> None:
    crew.configure("roots: [{path: .., write: true}]\n")
    [action] = tried(crew, ("write_file", {"path": f"{crew.root}/{name}", "text": "x"}))
    assert ("git" if ".git" in name else "is outside the folders that you may write") in action["error"]


@pytest.mark.parametrize("name", ["agents/evil.yaml", "hive.yaml", "rom/x", "mailboxes/human/new/x", ".hive/x"])
def test_a_name_of_the_hives_own_is_none_of_the_tasks_unless_the_task_has_it(crew: Crew, name: str) -> None:
    use = hands(crew)
    refused = use("write_file", path=name, text="x")
    assert refused["error"].startswith(f"{name}: belongs to the hive")
    assert not list((crew.root / "tasks").rglob(os.path.basename(name)))
    mine = refused["error"].partition("; write to ")[2]
    assert "error" not in use("write_file", path=mine, text="x")
    assert "error" not in use("write_file", path=name, text="y")
    assert (crew.root / mine).read_text() == "y"


GIT = [".git/config", ".GIT/hooks/x", "deep/er/.git/HEAD", ".git", ".Git./x", "boats/HEAD", "head", "a/.git /config"]


@pytest.mark.parametrize("name", GIT)
def test_nothing_is_written_that_git_would_take_for_its_own(crew: Crew, name: str) -> None:
    outside = crew.root.parent / "open"
    (outside / ".git").mkdir(parents=True)
    (crew.root / "knowledge/.git").mkdir()
    for config in (crew.root / "knowledge/.git/config", outside / ".git/config"):
        config.write_text("[core]\n")
    crew.configure("roots: [{path: ../open, write: true}]\n")
    use = hands(crew)
    before = snapshot(crew.root.parent)
    for path in (f"knowledge/{name}", f"{outside}/{name}", name):
        assert "git" in use("write_file", path=path, text="x")["error"]
        assert "git" in use("edit_file", path=path, old="[core]", new="[core]\nfsmonitor = evil")["error"]
    assert {
        path for path in snapshot(crew.root.parent) ^ before if "/.hive/" not in path[0] and "/tasks/" not in path[0]
    } == set()
    assert not [path for path in crew.root.rglob("*") if path.name.lower() in (".git", "head") and "tasks" in str(path)]


def snapshot(root: Path) -> set[tuple[str, bytes]]:
    return {(str(path), path.read_bytes() if path.is_file() else b"") for path in root.rglob("*")}


def test_the_innermost_listed_root_decides_whether_it_may_be_written(crew: Crew) -> None:
    real = crew.root.parent / "real"
    for folder in ("sub/ro/again", "same"):
        (real / folder).mkdir(parents=True)
    (real / "sub/ro/kept.md").write_text("kept\n")
    (crew.root / "knowledge/laws").mkdir()
    (crew.root / "src/ro").mkdir(parents=True)
    crew.configure(
        "roots: [{path: ../real, write: true}, ../real/sub/ro, {path: ../real/sub/ro/again, write: true},\n"
        "  ../real/same, {path: ../real/same, write: true}, knowledge/laws, {path: src, write: true}, src/ro]\n"
    )
    use = hands(crew)
    for path in (
        f"{real}/sub/ro/kept.md",
        f"{real}/sub/ro/new.md",
        f"{real}/same/x",
        "knowledge/laws/x.md",
        "src/ro/x.py",
    ):
        assert "is outside the folders that you may write" in use("write_file", path=path, text="x")["error"], path
    for path in (f"{real}/x", f"{real}/sub/x", f"{real}/sub/ro/again/x", "knowledge/x.md", "src/x.py"):
        assert "error" not in use("write_file", path=path, text="x"), path
    assert (real / "sub/ro/kept.md").read_text() == "kept\n"
    assert use("read_file", path=f"{real}/sub/ro/kept.md")["result"]["text"] == "kept\n"


def test_a_path_says_where_it_goes_or_is_refused_with_what_to_say_instead(crew: Crew) -> None:
    outside = crew.root.parent / "outside"
    outside.mkdir()
    (outside / "open.txt").write_text("seen\n")
    crew.configure("roots: [{path: ../outside, write: true}]\n")
    boats = crew.root / "knowledge/boats"
    boats.mkdir()
    (boats / "oak.md").write_text("oak\n")
    (crew.root / "knowledge/link.md").symlink_to("boats/oak.md")
    (crew.root / "knowledge/folder").symlink_to("boats")
    (crew.root / "knowledge/lost").symlink_to("/nowhere")
    os.mkfifo(crew.root / "knowledge/fifo")
    use = hands(crew)
    for path, told in {
        "knowledge/../knowledge/boats/oak.md": "contains `..`; name it from the hive's folder",
        str(boats / "oak.md"): "is an absolute path; use knowledge/boats/oak.md",
        "/etc/hostname": "is an absolute path; a person can add the file's folder under roots:",
        "knowledge/link.md": "symbolic link (knowledge/link.md); name its target: knowledge/boats/oak.md",
        "knowledge/folder/oak.md": "symbolic link (knowledge/folder); name its target: knowledge/boats",
        "knowledge/lost": "contains a symbolic link (knowledge/lost)",
        "knowledge/fifo": "is not a regular file",
        "/dev/null": "is an absolute path",
    }.items():
        for tool, more in (
            ("read_file", {}),
            ("write_file", {"text": "x"}),
            ("edit_file", {"old": "oak", "new": "ash"}),
        ):
            assert told in use(tool, path=path, **more)["error"], (tool, path)
    assert "symbolic link" in use("list_files", path="knowledge/folder")["error"]
    assert use("read_file", path=".//knowledge/./boats/oak.md")["result"]["text"] == "oak\n"
    assert use("read_file", path=str(outside / "open.txt"))["result"]["text"] == "seen\n"
    assert "error" not in use("write_file", path=str(outside / "new.txt"), text="new\n")
    assert (outside / "new.txt").read_text() == "new\n"
    assert use("list_files", path="knowledge")["result"]["files"] == ["knowledge/boats/oak.md"]


def test_a_file_of_the_task_may_be_named_from_the_task_and_from_the_hive(crew: Crew) -> None:
    use = hands(crew)
    shown = use("write_file", path="notes/a.md", text="one\n")["result"]["path"]
    assert shown == "tasks/active/t/files/notes/a.md"
    assert "error" not in use("edit_file", path=shown, old="one", new="two")
    assert use("read_file", path="notes/a.md")["result"]["text"] == "two\n"


def test_a_link_that_is_put_there_meanwhile_is_not_followed(crew: Crew) -> None:
    secret = crew.root / ".hive/mail.key"
    secret.write_text("the key\n")
    (crew.root / "knowledge/a").mkdir()
    (crew.root / "knowledge/a/mail.key").write_text("harmless\n")
    place = ToolPath(crew.root, ("knowledge", "a", "mail.key"))
    (crew.root / "knowledge/a").rename(crew.root / "knowledge/b")
    (crew.root / "knowledge/a").symlink_to("../.hive")
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        place.open()
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        fs.folder_below(place.base, place.names[:-1], create=True)
    assert [path.name for path in secret.parent.iterdir() if path.name.startswith(".tmp")] == []


@pytest.fixture(params=["ripgrep", "no ripgrep"])
def finder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Searches with ripgrep where it is installed, and as on a machine without it."""
    if request.param == "no ripgrep":
        monkeypatch.setenv("PATH", str(tmp_path))
    elif shutil.which("rg") is None:
        pytest.skip("there is no ripgrep here")
    return str(request.param)


def test_lines_are_found_by_a_text_and_by_an_expression(crew: Crew, finder: str) -> None:
    (crew.root / "knowledge/boats.md").write_text("An oak boat.\nAn (ash) boat.\n")
    (crew.root / "knowledge/picture.png").write_bytes(b"\x89PNG\xff\x00boat")
    (crew.root / "knowledge/long.txt").write_text("x" * 1_000_000 + " boat\n")
    use = hands(crew)
    (crew.root / "knowledge/deep/.old").mkdir(parents=True)
    (crew.root / "knowledge/deep/er.py").write_text("ship = 1\r\n")
    (crew.root / "knowledge/deep/.old/x.py").write_text("ship = 0\n")
    (crew.root / ".hive/ship.txt").write_text("ship\n")
    long, first, second = (("knowledge/long.txt", 1), ("knowledge/boats.md", 1), ("knowledge/boats.md", 2))
    py, old = ("knowledge/deep/er.py", 1), ("knowledge/deep/.old/x.py", 1)
    for more, expected in (
        ({}, [py]), ({"glob": "*.md"}, []), ({"glob": "*.py"}, [py]), ({"glob": "deep/*.py"}, [py]), ({"glob": "er.*"}, [py]),
        ({"hidden": True, "glob": "*.py"}, [old, py]), ({"path": "knowledge/deep/er.py"}, [py]),
        ({"path": ".", "hidden": True, "glob": "**/*.txt"}, []), ({"glob": "deep/**"}, [py]),
    ):  # fmt: skip
        found = use("search_files", pattern="^sh.p = ?", **more)["result"]
        assert sorted((hit["path"], hit["line"]) for hit in found["hits"]) == expected, more
    assert (
        use("search_files", pattern="ship(?= = 1)")["result"]["hits"][0]["path"] == py[0]
    )  # Python's, ripgrep has none
    for pattern, expected in {
        "boat": [first, second, long], r"(?i)\bOAK\b": [first], r"\((ash|elm)\)": [second], "x boat$": [long], r"no such \w+": [],
    }.items():  # fmt: skip
        found = use("search_files", pattern=pattern)["result"]
        assert sorted((hit["path"], hit["line"]) for hit in found["hits"]) == sorted(expected), pattern
        assert not found["cut"]
        assert all(len(hit["text"]) <= 300 for hit in found["hits"])
    assert "is not a regular expression: unterminated" in use("search_files", pattern="a[b")["error"]


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)*c"])
def test_an_expression_that_takes_for_ever_is_given_up(crew: Crew, monkeypatch, tmp_path: Path, pattern: str) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # ripgrep would not mind
    monkeypatch.setattr(file_search, "LIMIT_S", 0.7)
    (crew.root / "knowledge/a.txt").write_text("a" * 60 + "b\n")
    assert "took more than" in hands(crew)("search_files", pattern=pattern)["error"]


def test_a_swapped_folder_never_leads_a_write_out(tmp_path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "a").mkdir(parents=True)
    outside.mkdir()
    folder = folder_inside("a", root)
    (root / "a").rename(root / "b")
    (root / "a").symlink_to(outside)
    fs.write("x.txt", "x", folder_fd=folder)
    os.close(folder)
    assert (root / "b/x.txt").read_text() == "x"
    assert list(outside.iterdir()) == []


def test_a_file_of_any_size_is_read_in_parts_by_its_lines(crew: Crew) -> None:
    path = crew.root / "knowledge/long.txt"
    path.write_text("".join(f"line {number} {'ü' * 20}\n" for number in range(1, 40_001)))
    use = hands(crew)
    first = use("read_file", path="knowledge/long.txt")["result"]
    assert (first["start_line"], first["lines"]) == (1, 40_000)
    assert first["text"].startswith("line 1 ")
    assert len(first["text"]) <= 262_144
    seen = first["end_line"]
    assert first["text"].count("\n") == seen
    last = use("read_file", path="knowledge/long.txt", start_line=39_999, end_line=50_000)["result"]
    assert (last["start_line"], last["end_line"], last["text"].count("\n")) == (39_999, 40_000, 2)
    text = TOOLS["read_file"].render(first, 5_000)
    assert text.startswith(f"lines 1 to {seen:,} of 40,000\nline 1 ")
    left_out = re.search(r'read_file\(path="knowledge/long.txt", start_line=(\d+), end_line=(\d+)\)', text)
    assert left_out is not None
    begin, end = map(int, left_out.groups())
    shown = text.partition("characters left out")
    assert (f"line {begin - 1} " in shown[0], f"line {begin} " in shown[0]) == (True, False)
    assert (f"line {end + 1} " in shown[2], f"line {end} " in shown[2]) == (True, False)


def test_a_passage_that_stands_more_than_once_is_replaced_everywhere_only_if_that_is_said(crew: Crew) -> None:
    path = crew.root / "knowledge/boats.md"
    path.write_text("oak, oak\n")
    use = hands(crew)
    assert (
        "occurs 2 times, not once; include more"
        in use("edit_file", path="knowledge/boats.md", old="oak", new="ash")["error"]
    )
    result = use("edit_file", path="knowledge/boats.md", old="oak", new="ash", all=True)["result"]
    assert (result["replaced"], path.read_text()) == (2, "ash, ash\n")


def test_files_are_listed_by_a_glob(crew: Crew) -> None:
    for name in ("a.py", "deep/b.py", "deep/er/c.py", "deep/d.md"):
        (crew.root / "knowledge" / name).parent.mkdir(parents=True, exist_ok=True)
        (crew.root / "knowledge" / name).write_text("x\n")
    use = hands(crew)
    for glob, expected in {
        "*.py": ["a.py", "deep/b.py", "deep/er/c.py"],
        "deep/*": ["deep/b.py", "deep/d.md"],
        "*.c": [],
    }.items():
        result = use("list_files", path="knowledge", glob=glob)["result"]
        assert [path.removeprefix("knowledge/") for path in result["files"]] == expected
    assert "braces" in use("list_files", path="knowledge", glob="*.{py,md}")["error"]


def test_a_file_is_not_written_without_a_text(crew: Crew) -> None:
    path = crew.root / "knowledge/boats.md"
    path.write_text("oak\n")
    [action] = tried(crew, ("write_file", {"path": "knowledge/boats.md"}))
    assert "text is missing" in action["error"]
    assert path.read_text() == "oak\n"
    assert TOOLS["write_file"].schema()["parameters"]["required"] == ["path", "text"]
    assert TOOLS["write_file"].schema()["parameters"]["properties"]["text"]["type"] == "string"


def test_lines_of_a_file_with_crlf_are_edited_and_keep_their_ends(crew: Crew) -> None:
    path = crew.root / "knowledge/boats.md"
    path.write_bytes(b"oak\r\nash\r\nelm\r\n")
    use = hands(crew)
    assert (
        use("edit_file", path="knowledge/boats.md", old="oak\nash\n", new="fir\nyew\nash\n")["result"]["replaced"] == 1
    )
    assert path.read_bytes() == b"fir\r\nyew\r\nash\r\nelm\r\n"
    patch = "--- a/knowledge/boats.md\n+++ b/knowledge/boats.md\n@@ -3,2 +3,3 @@\n ash\n+box\n elm\n"
    assert "error" not in use("apply_patch", patch=patch)
    assert path.read_bytes() == b"fir\r\nyew\r\nash\r\nbox\r\nelm\r\n"
