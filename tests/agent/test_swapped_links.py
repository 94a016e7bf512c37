"""Links put in the place of folders and files, before a tool is used or under it: said in words, never followed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hivemind.errors import UserError
from hivemind.sandbox import check_sandbox
from tests.agent.conftest import Crew, hands, until_idle, using_tools

SECRET = "nobody's business"
USES: list[tuple[str, dict[str, Any]]] = [
    ("read_file", {"path": "knowledge/a/x.md"}),
    ("list_files", {"path": "knowledge"}),
    ("list_files", {"path": "knowledge/a"}),
    ("search_files", {"pattern": "business", "path": "knowledge"}),
    ("search_files", {"pattern": "b.siness", "path": "knowledge/a"}),
    ("write_file", {"path": "knowledge/a/x.md", "text": "mine\n"}),
    ("write_file", {"path": "knowledge/a/new/x.md", "text": "mine\n"}),
    ("edit_file", {"path": "knowledge/a/x.md", "old": "mine", "new": "ours"}),
]


def swap(place: Path, outside: Path, how: str) -> None:
    """Put something else in the place of a folder, in one rename."""
    fresh = place.with_name(f".fresh-{place.name}")
    if how == "file":
        fresh.write_text("a file\n")
    elif how == "folder":
        fresh.mkdir()
        (fresh / "x.md").write_text("mine\n")
    else:
        fresh.symlink_to({"out": outside, "itself": place, "nowhere": "/no/where"}[how])
    old = place.with_name(f".old-{place.name}")
    while os.path.lexists(fresh):
        with contextlib.suppress(OSError):  # a tool has made the folder again meanwhile
            if os.path.lexists(place):
                place.rename(old)
            fresh.rename(place)
        shutil.rmtree(old, ignore_errors=True) if old.is_dir() and not old.is_symlink() else old.unlink(missing_ok=True)


def test_a_folder_that_is_swapped_under_the_tools_is_said_in_words_and_leads_nowhere(crew: Crew, caplog: Any) -> None:
    outside = crew.root.parent / "outside"
    outside.mkdir()
    (outside / "x.md").write_text(SECRET)
    place, ended = crew.root / "knowledge/a", threading.Event()
    use = hands(crew)

    def swaps() -> None:
        while not ended.is_set():
            for how in ("folder", "out", "file", "itself", "nowhere", "folder"):
                swap(place, outside, how)

    swapper = threading.Thread(target=swaps)
    swapper.start()
    try:
        told = [use(tool, **arguments) for _ in range(30) for tool, arguments in USES]
    finally:
        ended.set()
        swapper.join()
    assert not [one for one in told if "the tool broke" in one.get("error", "")]
    assert not [one for one in told if SECRET in str(one)]
    assert not [record for record in caplog.records if record.exc_info]
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"x.md": SECRET}


@pytest.mark.parametrize("how", ["out", "itself", "nowhere", "file"])
@pytest.mark.parametrize("place", ["artifacts", "artifacts/step-1.out", "files"])
def test_what_stands_in_the_place_of_a_commands_folders_is_said_in_words(crew: Crew, place: str, how: str) -> None:
    outside = crew.root.parent / "outside"
    outside.mkdir()
    if how == "file" and "." in place:
        pytest.skip("a file belongs there")
    crew.drop("---\nsteps: [{run: 'echo printed > made; echo printed'}]\n---\nx\n")
    use = using(crew)
    folder = crew.root / "tasks/active/t"
    (folder / place).parent.mkdir(exist_ok=True)
    swap(folder / place, outside, how)
    error = use("run_command")["error"]
    assert "the tool broke" not in error
    assert place.split("/")[0] in error
    assert list(outside.iterdir()) == []


def using(crew: Crew) -> Callable[..., dict[str, Any]]:
    agent = crew.start()
    agent.scheduler.sense()
    return using_tools(agent)


@pytest.mark.parametrize("tool", ["read_file", "list_files", "search_files", "write_file"])
def test_a_path_that_is_too_long_where_it_leads_is_refused_in_words(crew: Crew, tool: str) -> None:
    path = "/".join(["knowledge", *["x" * 200] * 20])
    more = {"write_file": {"text": "x"}, "search_files": {"pattern": "x"}}.get(tool, {})
    error = hands(crew)(tool, path=path, **more)["error"]
    assert "too long" in error
    assert "the tool broke" not in error


def test_a_sandboxed_command_that_replaces_artifacts_by_a_link_spoils_no_later_command(crew: Crew) -> None:
    try:
        check_sandbox()
    except UserError as error:
        pytest.skip(str(error))
    crew.agent_file("role: analyst\nsandbox: bwrap\n")
    swap_all = "for one in artifacts ../artifacts ../files; do rm -rf $one; ln -s /tmp $one; done; echo swapped"
    crew.drop(f"---\nsteps: [{{run: '{swap_all}'}}, {{run: echo fine}}]\n---\nx\n")
    until_idle(crew.start())
    done = crew.root / "tasks/done/t"
    assert (done / "artifacts/step-1.out").read_text().endswith("swapped\n")
    assert (done / "artifacts/step-2.out").read_text() == "fine\n"


@pytest.mark.parametrize("sandbox", ["none", "bwrap"])
def test_a_work_folder_that_is_swapped_before_its_command_starts_leads_nowhere(crew: Crew, sandbox: str) -> None:
    """The file for its output is a FIFO: who opens it waits there, between the look at the folder and the start."""
    if sandbox == "bwrap":
        try:
            check_sandbox()
        except UserError as error:
            pytest.skip(str(error))
    crew.agent_file(f"role: analyst\nsandbox: {sandbox}\n")
    outside = crew.root.parent / "outside"
    outside.mkdir()
    crew.drop("---\nsteps: [{run: 'echo printed > made'}]\n---\nx\n")
    use = using(crew)
    folder = crew.root / "tasks/active/t"
    (folder / "artifacts").mkdir()
    os.mkfifo(folder / "artifacts/step-1.out")

    def swap_and_read() -> None:
        deadline = time.monotonic() + 20
        while not (folder / "files").is_dir() and time.monotonic() < deadline:
            time.sleep(0.001)
        swap(folder / "files", outside, "out")
        with open(folder / "artifacts/step-1.out", "rb", opener=lambda path, flags: os.open(path, os.O_RDWR)):
            while not told and time.monotonic() < deadline:
                time.sleep(0.01)

    told: list[dict[str, Any]] = []
    swapper = threading.Thread(target=swap_and_read)
    swapper.start()
    told.append(use("run_command"))
    swapper.join()
    assert list(outside.iterdir()) == []
    assert re.search("step-1.out|cannot be made a folder", told[0]["error"])  # by whichever comes first


@pytest.mark.parametrize("sandbox", ["none", "bwrap"])
def test_commands_run_in_their_folder_or_nowhere_whoever_swaps_it(crew: Crew, sandbox: str) -> None:
    if sandbox == "bwrap":
        try:
            check_sandbox()
        except UserError as error:
            pytest.skip(str(error))
    crew.agent_file(f"role: analyst\nsandbox: {sandbox}\n")
    outside = crew.root.parent / "outside"
    outside.mkdir()
    crew.drop("---\nsteps: [{run: 'echo printed > made'}]\n---\nx\n")
    use, ended = using(crew), threading.Event()
    folder = crew.root / "tasks/active/t"

    def swaps() -> None:
        while not ended.is_set():
            for how in ("out", "folder"):
                swap(folder / "files", outside, how)

    swapper = threading.Thread(target=swaps)
    swapper.start()
    try:
        told = [use("run_command") for _ in range(25)]
    finally:
        ended.set()
        swapper.join()
    assert list(outside.iterdir()) == []
    assert not [one for one in told if "the tool broke" in one.get("error", "")]
