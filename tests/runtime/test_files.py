from __future__ import annotations

import os
import stat

import pytest

from hivemind import Hive, fs
from hivemind.coordination import Reservations
from hivemind.fs.paths import folder_inside
from tests.runtime.conftest import Crew, doing


def tried(crew: Crew, *actions: tuple[str, dict]) -> list[dict]:
    """What became of actions in one turn of a task."""
    crew.drop("---\nsteps: [{title: x}]\n---\nx\n")
    agent = crew.start(doing(*actions))
    agent.cycle()
    return list(agent.hive.tasks.read_log("t"))[-1]["actions"]


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
    return list(agent.hive.tasks.read_log("t"))[-1]["actions"]


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
    "name", ["agents/ada.yaml", "hive.yaml", "rom/hive.md", "mailboxes/bob/new/x", "tasks/inbox/x.md", ".hive/mail.key"]
)
def test_a_root_that_holds_the_hive_itself_opens_nothing_of_it_for_writing(crew: Crew, name: str) -> None:
    crew.configure("roots: [{path: .., write: true}]\n")
    [action] = tried(crew, ("write_file", {"path": f"../../../{name}", "text": "x"}))
    assert "is not where you may write" in action["error"]


def test_a_swapped_folder_never_leads_a_write_out(tmp_path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "a").mkdir(parents=True)
    outside.mkdir()
    folder = folder_inside("a", root)
    (root / "a").rename(root / "b")
    (root / "a").symlink_to(outside)
    fs.write_at(folder, "x.txt", "x")
    os.close(folder)
    assert (root / "b/x.txt").read_text() == "x"
    assert list(outside.iterdir()) == []
