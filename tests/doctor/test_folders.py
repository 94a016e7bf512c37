"""Folders: missing, locked, open to everybody, led astray."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.doctor import DoctorContext, examine
from hivemind.layout import Layout
from tests.rights import as_anyone
from tests.tasks.conftest import in_process


def test_a_hive_in_order_has_no_findings(hive: Hive, visit) -> None:
    assert visit() == []


@pytest.mark.shows("file: lock", "file: line")
def test_looking_changes_nothing(hive: Hive, visit) -> None:
    hive.journal.append("agent.note", text="so that there is a journal")
    hive.journal.close()

    def state() -> dict[str, tuple[int, int]]:
        return {
            os.path.join(folder, name): (found.st_mtime_ns, found.st_size)
            for folder, _, names in os.walk(hive.layout.root)
            for name in names
            for found in [os.stat(os.path.join(folder, name))]
        }

    before = state()
    visit()
    after = state()
    assert {
        path for path in before.keys() ^ after.keys() if not path.endswith((".lock", "/lock", "/line", "/synced"))
    } == set()


@pytest.mark.parametrize("name", ["tasks/inbox", ".hive/locks", "knowledge"])
def test_a_missing_folder_is_made(hive: Hive, visit, treatment, name: str) -> None:
    shutil.rmtree(hive.layout.root / name)
    (found,) = visit()
    assert (found.location, found.message.split(";")[0]) == (name, "is missing")
    assert [one.unresolved_reason for one in treatment()] == [None]
    assert (hive.layout.root / name).is_dir()
    assert visit() == []


def test_a_file_where_a_folder_belongs_is_set_aside(hive: Hive, visit, treatment) -> None:
    hive.layout.rom.rmdir()
    hive.layout.rom.write_text("precious")
    treatment()
    assert visit() == []
    (kept,) = (hive.layout.state / "aside").glob("*/rom")
    assert kept.read_text() == "precious"


def test_a_folder_that_its_owner_cannot_use_is_opened(hive: Hive, visit, treatment) -> None:
    inbox = hive.layout.inbox
    inbox.chmod(0o500)
    (found,) = visit()
    assert "mode 500" in found.message
    treatment()
    assert stat.S_IMODE(inbox.stat().st_mode) & stat.S_IRWXU == stat.S_IRWXU
    assert visit() == []


def test_a_mailbox_that_anyone_may_write_is_closed(hive: Hive, visit, treatment) -> None:
    new = hive.layout.mailbox("researcher") / "new"
    new.chmod(0o777)
    (found,) = visit()
    assert "every user" in found.message
    treatment()
    assert visit() == []


def test_a_part_of_a_mailbox_that_is_gone_is_made_again(hive: Hive, visit, treatment) -> None:
    shutil.rmtree(hive.layout.mailbox("researcher") / ".Sent" / "tmp")
    (found,) = visit()
    assert ".Sent/tmp" in found.message
    treatment()
    assert visit() == []


def test_a_link_out_of_the_hive_is_told_and_left_alone(hive: Hive, visit, treatment, tmp_path_factory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    hive.layout.knowledge.rmdir()
    hive.layout.knowledge.symlink_to(elsewhere)
    (found,) = visit()
    assert "leads out of the hive" in found.message
    (left,) = treatment()
    assert left.done is None
    assert hive.layout.knowledge.is_symlink()


def test_a_link_that_hive_yaml_lists_is_no_finding(hive: Hive, visit, tmp_path_factory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    hive.layout.knowledge.rmdir()
    hive.layout.knowledge.symlink_to(elsewhere)
    hive.layout.config.write_text(f"version: 1\nroots: ['{elsewhere}']\n")
    assert visit() == []


def test_a_new_agent_without_a_mailbox_is_only_a_note(hive: Hive, visit) -> None:
    (hive.layout.agents / "writer.yaml").write_text("")
    assert visit() == []
    notes = [finding for finding in examine(DoctorContext(hive.layout)) if finding.note]
    assert [note.location for note in notes] == ["mailboxes/writer"]


def test_one_folder_that_cannot_be_read_does_not_hide_the_rest(hive: Hive, visit, tmp_path: Path) -> None:
    os.close(os.open(hive.layout.inbox / "x.md", os.O_CREAT | os.O_WRONLY))
    shutil.rmtree(hive.layout.active)
    hive.layout.active.write_text("a file")
    wheres = {finding.location for finding in visit()}
    assert "tasks/active" in wheres


def test_a_hive_that_was_never_used_is_healthy_and_one_that_lost_its_state_is_not(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "researcher.yaml").write_text("role: researcher\n")
    (tmp_path / "hive.yaml").write_text("version: 1\n")
    layout = Layout.at(tmp_path)
    found = examine(DoctorContext(layout))
    assert [one.location for one in found if not one.note] == []
    assert "was never used here" in next(one.message for one in found if one.location == ".hive")
    (tmp_path / "tasks" / "done" / "old").mkdir(parents=True)
    assert ".hive" in [one.location for one in examine(DoctorContext(layout)) if not one.note]


def test_a_folder_in_the_inbox_that_is_closed_to_the_hive_is_told_and_hides_nothing(hive: Hive) -> None:
    for name in ("closed", "open"):
        (hive.layout.inbox / name).mkdir()
        (hive.layout.inbox / name / "graph.jsonl").write_text("broken\n")
    (hive.layout.inbox / "closed").chmod(0)

    def look() -> None:
        as_anyone()
        found = {
            finding.location: finding.message for finding in examine(DoctorContext(hive.layout)) if not finding.note
        }
        assert sorted(found) == ["tasks/inbox/closed", "tasks/inbox/open/graph.jsonl:1"]
        assert "may not be read" in found["tasks/inbox/closed"]

    in_process(look)


GROUP, ANNA = 54_321, 54_322
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="files of two users are made by root")


@pytest.fixture
def shared(hive: Hive, treatment) -> Hive:
    """A private hive that was given to a group as the manual says: chgrp, access: group, doctor --fix."""
    hive.mail.send("human", "researcher", "first", "From Anna.")
    token = hive.layout.agent_state("researcher") / "mcp.token"
    beside = ("mcp.token.damaged-1", ".tmp-1-1", "program/key", "../../prompt-1/key")
    for secret in (token, *(token.parent / name for name in beside)):
        secret.parent.mkdir(parents=True, exist_ok=True)
        secret.write_text("secret")
    (hive.layout.root / ".gitignore").write_text("/.hive/\n")
    hive.layout.skills.mkdir(exist_ok=True)
    for folder, _, names in os.walk(hive.layout.root):
        for path in (Path(folder), *(Path(folder, name) for name in names)):
            path.chmod(0o700 if path.is_dir() else 0o600)
    os.chown(hive.layout.root, -1, GROUP)
    hive.layout.config.write_text("version: 1\ndurability: relaxed\naccess: group\n")
    (told,) = treatment()
    assert told.unresolved_reason is None
    assert told.finding.message.startswith("cannot be used by the group of the hive's folder, nor can ")
    return hive


@AS_ROOT
def test_what_a_private_hive_has_is_opened_for_a_group_but_for_its_secrets(shared: Hive, visit, treatment) -> None:
    modes = {path: path.stat() for path in (shared.layout.root, *shared.layout.root.rglob("*"))}
    secrets = ("mcp.token", "mcp.token.damaged-1", ".tmp-1-1", "program", "program/key")
    closed = {
        f".hive/{name}" for name in (*(f"agents/researcher/{one}" for one in secrets), "prompt-1", "prompt-1/key")
    }
    assert {shared.layout.relative(path) for path, found in modes.items() if not found.st_mode & 0o070} == closed
    assert {shared.layout.relative(path) for path, found in modes.items() if found.st_gid != GROUP} == closed
    assert visit() == []
    shared.layout.knowledge.chmod(0o700)
    (found,) = visit()
    assert (found.location, found.message) == (
        "knowledge", "cannot be used by the group of the hive's folder, though hive.yaml says access: group",
    )  # fmt: skip
    treatment()
    assert visit() == []


@AS_ROOT
def test_two_people_work_in_a_groups_hive(shared: Hive) -> None:
    """Found by a stranger: the second one's first letter set the key aside, and all mail before counted as unsealed."""
    for path in (shared.layout.root, *shared.layout.root.rglob("*")):
        os.chown(path, ANNA, -1)

    def ben() -> None:
        os.setgroups([GROUP])
        as_anyone()
        hive = Hive.open(shared.layout.root)
        assert hive.mail.send("human", "researcher", "second", "From Ben.").ok
        read = [hive.mail.read("researcher", one.id) for one in hive.mail.list("researcher")]
        assert [(one.subject, one.trusted) for one in read] == [("first", True), ("second", True)]

    in_process(ben)
    assert [path.name for path in shared.layout.state.glob("mail.key*")] == ["mail.key", "mail.key.lock"]


def test_a_hive_that_was_copied_from_elsewhere_is_not_called_healthy(hive: Hive, visit, treatment) -> None:
    hive.layout.config.write_text("version: 1\ndurability: relaxed\nguard: another\n")
    [finding] = visit()
    assert (finding.location, finding.fix) == (".hive/workspace.json", None)
    assert "no agent starts here" in finding.message
    assert treatment()[0].unresolved_reason  # that it was meant is for a person to say


def test_a_hive_without_its_id_is_told_which_id_to_write(hive: Hive, visit) -> None:
    hive.layout.config.write_text("version: 1\nworkspace: boats\n")
    hive.layout.workspace_record.unlink()
    Hive.open(hive.layout.root)
    hive.layout.config.write_text("")
    [finding] = visit()
    assert "hive.yaml has the id 'hive' (without `workspace:` it is 'hive')" in finding.message
    assert "write `workspace: boats` into hive.yaml" in finding.remedy


def test_a_root_that_is_no_folder_is_a_problem(hive: Hive, visit) -> None:
    hive.layout.config.write_text("version: 1\nroots: [../nothere]\n")
    [finding] = visit()
    assert finding.message == "roots: ../nothere is not a folder; a task that needs it cannot go on"
