"""A backup of a hive in use is the hive as it was at one moment; put back, its swarm goes on from there."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.errors import UserError
from hivemind.swarm.backup import back_up_hive, restore_hive
from tests.swarm.conftest import Swarm
from tests.waiting import until

STEPS = """---
steps:
- {{run: 'until [ {0} -lt 6 -o -e {1} ]; do sleep 0.1; done; echo {0} >> ran'}}
- {{mail: {{to: human, subject: 'Done {0}', body: x}}}}
---
Mend boat {0}
"""


def tree(root: Path) -> dict[str, bytes]:
    return {os.path.relpath(path, root): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def a_hive(root: Path) -> Hive:
    Hive.init(root)
    (root / "hive.yaml").write_text('{"durability": "relaxed", "settle_ms": 0}')
    return Hive.open(root)


def test_what_is_put_back_is_what_was_there(tmp_path: Path):
    hive = a_hive(tmp_path / "hive")
    hive.tasks.add("Waits", id="waits")
    task = hive.tasks.claim("researcher")
    assert task is not None
    hive.tasks.finish(task, "Over.\n")
    hive.tasks.add("Waits", id="again")
    hive.memory.put(("memories", "boats"), "keel", {"content": "Lead"})
    sent = hive.mail.send("human", "researcher", "Letter", "One")
    os.symlink("waits.md", hive.layout.knowledge / "link")
    (hive.layout.state / "prompt-cut-short").mkdir()
    copy = back_up_hive(hive, tmp_path / "copy")
    assert not (copy / ".hive" / "prompt-cut-short").exists()
    there = tree(copy)
    assert restore_hive(copy, tmp_path / "new") == tmp_path / "new"
    assert (copy / ".hive/backup.json").exists()
    with pytest.raises(UserError, match=r"is a backup; hivemind restore .*/copy NEW-FOLDER"):
        Hive.open(copy)
    assert [task.id for task in Hive.look(copy).tasks.list()] == ["again", "waits"]
    assert tree(copy) == there, "the backup stays as it is"
    back = Hive.open(tmp_path / "new")
    assert back.tasks.get("waits").state == "done"
    assert back.tasks.get("again").state == "inbox"
    assert back.mail.read("researcher", sent.message_id).body.strip() == "One"
    kept = back.memory.get(("memories", "boats"), "keel")
    assert kept is not None
    assert kept.content == "Lead"
    assert back.journal.fingerprint() == hive.journal.fingerprint()
    assert os.readlink(back.layout.knowledge / "link") == "waits.md"
    names = [back.layout.mailboxes / "human/.Sent/cur", back.layout.mailboxes / "researcher/cur"]
    first, second = (next(place.iterdir()) for place in names)
    assert first.stat().st_ino == second.stat().st_ino, "one letter is one file"
    old = hive.layout.done / "waits/result.md"
    assert (back.layout.done / "waits/result.md").stat().st_mtime_ns == old.stat().st_mtime_ns


def test_a_folder_that_is_not_empty_and_one_that_is_no_backup_are_refused(tmp_path: Path):
    hive = a_hive(tmp_path / "hive")
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").write_text("x")
    copy = back_up_hive(hive, tmp_path / "copy")
    for refused, why in (
        (lambda: back_up_hive(hive, tmp_path / "full"), "not empty"),
        (lambda: restore_hive(copy, tmp_path / "full"), "not empty"),
        (lambda: back_up_hive(hive, hive.layout.root / "copy"), "is inside the hive"),
        (lambda: restore_hive(hive.layout.root, tmp_path / "new"), "is not a backup"),
        (lambda: restore_hive(copy, copy / "new"), "is inside the backup"),
    ):
        with pytest.raises(UserError, match=why):
            refused()
    assert sorted(os.listdir(tmp_path)) == ["copy", "full", "hive"]
    (tmp_path / "empty").mkdir()
    assert restore_hive(copy, tmp_path / "empty").is_dir()


@pytest.mark.shows("promise: P56")
@pytest.mark.parametrize("point", ["backup.copied", "backup.synced"])
def test_one_that_was_killed_has_no_name_and_the_next_one_is_whole(tmp_path: Path, point: str):
    root = tmp_path / "hive"
    hive = a_hive(root)
    hive.tasks.add("Waits", id="waits")
    command = Swarm(root)
    command.run("backup", str(tmp_path / "copy"), status=None, HIVEMIND_CRASH_AT=point)
    assert not (tmp_path / "copy").exists()
    command.run(
        "restore",
        str(tmp_path / ".copy.partial"),
        str(tmp_path / "new"),
        status=2 if point != "backup.synced" else None,
    )
    assert json.loads(command.run("backup", str(tmp_path / "copy"), "--json"))["path"] == str(tmp_path / "copy")
    assert not (tmp_path / ".copy.partial").exists()
    command.run(
        "restore", str(tmp_path / "copy"), str(tmp_path / "newer"), status=None, HIVEMIND_CRASH_AT="restore.copied"
    )
    assert not (tmp_path / "newer").exists()
    told = json.loads(command.run("restore", str(tmp_path / "copy"), str(tmp_path / "newer"), "--json"))
    assert (told["healthy"], told["findings"]) == (True, [])
    assert (tmp_path / "newer/tasks/inbox/waits.md").exists()


@pytest.mark.shows("promise: P56")
def test_backed_up_while_a_swarm_works_every_task_has_one_end_and_each_letter_is_there_once(
    hive: Swarm, tmp_path: Path
):
    hive.configure(durability="relaxed", settle_ms=0)
    for number in range(10):
        hive.drop(f"boat-{number}.md", STEPS.format(number, tmp_path / "go"))
    up = hive.start("up", "--until-idle")
    copies = []
    for at in range(2):
        until(lambda at=at: len(os.listdir(hive.root / "tasks/done")) > 1 + 3 * at)
        copies.append(back_up_hive(Hive.open(hive.root), tmp_path / f"copy-{at}"))
        # one that is being claimed lies deeper
        accepted = {path.stem for path in (copies[-1] / "tasks").rglob("boat-*")}
        assert len(accepted) >= 10, "what was accepted is in it"
    os.killpg(up.pid, signal.SIGKILL)
    (tmp_path / "go").touch()  # the others may end now, in the copies
    for at, copy in enumerate(copies):
        assert len(os.listdir(copy / "tasks/done")) < 10, "it was taken in the middle"
        hive.run("restore", str(copy), str(tmp_path / f"new-{at}"), status=None)
        again = Swarm(tmp_path / f"new-{at}")
        again.run("up", "--until-idle")
        ended = [path.name for state in ("done", "failed") for path in (again.root / "tasks" / state).glob("boat-*")]
        assert sorted(ended) == sorted(f"boat-{number}" for number in range(10))
        assert not list((again.root / "tasks/failed").glob("boat-*"))
        letters = Counter(one["subject"] for one in json.loads(again.run("mail", "list", "human", "--json")))
        assert letters == Counter(f"Done {number}" for number in range(10))
        assert json.loads(again.run("doctor", "--json"))["healthy"]
