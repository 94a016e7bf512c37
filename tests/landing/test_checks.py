"""The check of a merge: its worktree, its verdicts and what they remember. Real git, real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hivemind.config import RootConfig
from hivemind.fs import sockets
from hivemind.landing import checks
from hivemind.landing.checks import CheckSpace, RunningCheck, Verdict, protected_changes
from hivemind.taskrun.git import Repository


class Person:
    """A person's repository, and the hive's place for its checks."""

    def __init__(self, top: Path) -> None:
        self.path, self.folder, self.log = top / "app", top / "hive" / "landing" / "app", top / "landing.log"
        self.path.mkdir()
        self.folder.parent.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")
        with open(self.path / ".git/config", "a") as config:
            config.write("[user]\n\temail = person@example.org\n\tname = Person\n")
        self.commit(boat="a boat\n")

    def git(self, *words: str) -> str:
        return subprocess.run(
            ["git", "-C", self.path, *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    def commit(self, **files: str | None) -> str:
        """Commit these files, None removes one; `__` is a slash, `_dot_` a dot."""
        for name, text in files.items():
            path = self.path / name.replace("__", "/").replace("_dot_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            if text is None:
                path.unlink()
            else:
                path.write_text(text)
        self.git("add", "-A")
        self.git("-c", "maintenance.auto=false", "commit", "-q", "-m", "x")
        return self.git("rev-parse", "HEAD")

    def space(self, check: str | list[str] = "true", **settings: Any) -> CheckSpace:
        config = RootConfig.model_validate({"path": str(self.path), "worktree": True, "check": check, **settings})
        return CheckSpace(self.folder, Repository.at(self.path), config)

    def check(self, space: CheckSpace, commit: str | None = None, **options: Any) -> Verdict:
        return until_verdict(self.start(space, commit, **options))

    def start(self, space: CheckSpace, commit: str | None = None, **options: Any) -> RunningCheck | Verdict:
        commit = commit or self.git("rev-parse", "HEAD")
        return space.start(commit, self.git("rev-parse", f"{commit}^{{tree}}"), self.log, **options)


def until_verdict(running: RunningCheck | Verdict) -> Verdict:
    if isinstance(running, Verdict):
        return running
    while (verdict := running.poll()) is None:
        sockets.wait_for_input([running], 0.5)
    return verdict


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def files_of(space: CheckSpace, *skipped: str) -> dict[str, str]:
    """The files of the worktree, without its repository and the skipped folders at its top."""
    files = {}
    for folder, folders, names in os.walk(space.tree):
        if folder == str(space.tree):
            folders[:] = [name for name in folders if name not in (".git", *skipped)]
        for path in filter(Path.is_file, (Path(folder, name) for name in names)):
            files[str(path.relative_to(space.tree))] = path.read_text()
    return files


# The worktree


def test_a_worktree_has_the_files_of_its_commit_and_of_the_next(person: Person) -> None:
    space, first = person.space(), person.git("rev-parse", "HEAD")
    second = person.commit(boat=None, sails__fore="a sail\n", sails__main="another\n")
    space.prepare(first)
    assert files_of(space) == {"boat": "a boat\n"}
    space.prepare(second)
    assert files_of(space) == {"sails/fore": "a sail\n", "sails/main": "another\n"}
    space.prepare(first)
    assert files_of(space) == {"boat": "a boat\n"}
    assert person.git("worktree", "list").count("\n") == 0
    assert person.git("status", "--porcelain") == ""


def test_only_what_differs_is_written(person: Person) -> None:
    space, first = person.space(), person.commit(oar="an oar\n")
    space.prepare(first)
    inode = (space.tree / "oar").stat().st_ino
    space.prepare(person.commit(boat="a new boat\n"))
    assert (space.tree / "oar").stat().st_ino == inode
    assert (space.tree / "boat").read_text() == "a new boat\n"


def test_what_is_ignored_stays_and_the_rest_goes(person: Person) -> None:
    space = person.space("mkdir -p build node_modules src; touch build/x node_modules/x src/x y; echo z > boat")
    person.commit(_dot_gitignore="build\n")
    assert person.check(space).outcome == "green"
    space.prepare(person.git("rev-parse", "HEAD"))
    assert files_of(space) == {".gitignore": "build\n", "boat": "a boat\n", "build/x": "", "node_modules/x": ""}


def test_git_works_in_a_check(person: Person) -> None:
    person.git("tag", "v1.2")
    verdict = person.check(person.space(["git describe --tags", "git status --porcelain", "git log -1 --format=%s"]))
    assert (verdict.outcome, verdict.output_tail.splitlines()[1::2]) == ("green", ["v1.2", "$ git log -1 --format=%s"])


def test_it_is_emptied_once_a_day_and_on_request(person: Person) -> None:
    space, commit = person.space(), person.commit(_dot_gitignore="build\n")

    def leave() -> None:
        for folder in (space.tree / "build", space.home / ".cache"):
            folder.mkdir(exist_ok=True)
            (folder / "x").write_text("")

    def is_left() -> tuple[bool, bool]:
        return (space.tree / "build/x").exists(), (space.home / ".cache/x").exists()

    space.prepare(commit)
    leave()
    space.prepare(commit)
    assert is_left() == (True, True)
    space.prepare(commit, again=True)
    assert is_left() == (False, False)
    leave()
    [stamp] = [path for path in space.folder.iterdir() if path.name == "emptied"]
    for seconds in (-90_000, 90_000):  # a day ago, and a clock that was wrong
        os.utime(stamp, (stamp.stat().st_mtime + seconds,) * 2)
        space.prepare(commit)
        assert is_left() == (False, False)
        leave()
    assert person.check(space, again=True).outcome == "green"
    assert is_left() == (False, False)


@pytest.mark.parametrize("point", ["landing.emptied", "worktree.switched", "landing.checked"])
def test_a_lander_that_is_killed_leaves_nothing_wrong(person: Person, point: str) -> None:
    script = """if True:
        import sys; from pathlib import Path
        from hivemind.landing.checks import *; from hivemind.fs import sockets
        space = CheckSpace(Path(sys.argv[1]), Repository.at(Path(sys.argv[2])), RootConfig(path="x", check="echo >> ~/runs"))
        running = space.start(sys.argv[3], sys.argv[4], Path(sys.argv[5]))
        while running.poll() is None:
            sockets.wait_for_input([running], 0.5)
        """
    old = person.commit(_dot_gitignore="oar\n")
    person.git("add", "-f", "boat")
    commit = person.commit(boat="new\n")
    space = person.space("echo >> ~/runs")
    if point != "landing.emptied":
        space.prepare(old)
    tree = person.git("rev-parse", "HEAD^{tree}")
    argv = [sys.executable, "-c", script, str(person.folder), str(person.path), commit, tree, str(person.log)]
    process = subprocess.run(argv, env={**os.environ, "HIVEMIND_CRASH_AT": point}, check=False)
    assert process.returncode == -signal.SIGKILL
    assert person.check(space, commit).outcome == "green"
    assert files_of(space) == {".gitignore": "oar\n", "boat": "new\n"}
    # a verdict that was saved before the kill is not made again
    assert (space.home / "runs").read_text() == "\n"


def test_what_a_killed_switch_has_left_is_not_trusted(person: Person) -> None:
    """A file that one commit has although its ignore file names it would else stay for the next."""
    space, first = person.space(), person.commit(_dot_gitignore="oar\n")
    (person.path / "oar").write_text("an oar\n")
    person.git("add", "-f", "oar")
    second = person.commit()
    space.prepare(second)
    (space.folder / "index").unlink()  # as it is while git runs
    space.prepare(first)
    assert files_of(space) == {".gitignore": "oar\n", "boat": "a boat\n"}


# Verdicts


def test_green_is_remembered(person: Person) -> None:
    space = person.space("echo x >> ~/runs; cat boat")
    verdict = person.check(space)
    assert (verdict.outcome, verdict.reason, verdict.is_flaky) == ("green", "", False)
    assert verdict.output_tail == "$ echo x >> ~/runs; cat boat\na boat"
    assert person.log.read_text() == verdict.output_tail + "\n"
    again = person.start(person.space("echo x >> ~/runs; cat boat"))
    assert again == verdict
    assert (space.home / "runs").read_text() == "x\n"


@pytest.mark.parametrize(
    "settings", [{"check": "true && true"}, {"setup": "true"}, {"check_network": "open"}, {"check_box": "none"}]
)
def test_green_under_other_settings_does_not_count(person: Person, settings: dict[str, str]) -> None:
    assert person.check(person.space()).outcome == "green"
    running = person.start(person.space(**settings))
    assert isinstance(running, RunningCheck) or (settings == {"check_box": "none"} and not person.space().boxed)
    assert until_verdict(running).outcome == "green"


def test_green_is_forgotten_on_request(person: Person) -> None:
    space = person.space()
    tree = person.check(space).tree
    space.forget(tree)
    running = person.start(space)
    assert isinstance(running, RunningCheck)
    until_verdict(running)
    running = person.start(space, again=True)
    assert isinstance(running, RunningCheck)
    running.stop()
    assert space.remembered(tree) is None


def test_a_verdict_that_is_damaged_does_not_count(person: Person) -> None:
    space = person.space()
    tree = person.check(space).tree
    [path] = (space.folder / "verdicts").iterdir()
    for content in (b"", b"{}", b"\0" * 99, path.read_bytes().replace(tree.encode(), b"0" * 40)):
        path.write_bytes(content)
        assert space.remembered(tree) is None
    assert person.check(space).outcome == "green"
    assert space.remembered(tree) is not None


def test_old_verdicts_go(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_MAX_VERDICTS", 3)
    space = person.space()
    for number in range(5):
        space.remember(Verdict("green", f"{number:040}"))
    assert [space.remembered(f"{number:040}") is not None for number in range(5)] == [False, False, True, True, True]


def test_red_is_run_once_more(person: Person) -> None:
    space = person.space(["echo x >> ~/runs", "echo the boat leaks; exit 3"])
    verdict = person.check(space)
    assert (verdict.outcome, verdict.reason) == ("red", "echo the boat leaks; exit 3 failed")
    assert verdict.output_tail.endswith("the boat leaks\n[exit status 3] echo the boat leaks; exit 3")
    assert (space.home / "runs").read_text() == "x\nx\n"
    assert space.remembered(verdict.tree) == verdict
    running = person.start(space)
    assert isinstance(running, RunningCheck)  # only green is taken without a run
    running.stop()


def test_red_then_green_is_flaky(person: Person) -> None:
    space = person.space("[ -e ~/ran ] || { touch ~/ran stray; exit 1; }; ! [ -e stray ]")
    verdict = person.check(space)
    assert (verdict.outcome, verdict.is_flaky) == ("green", True)
    assert "[red: " in person.log.read_text()
    assert person.start(space) == verdict


def test_a_missing_program_is_not_red(person: Person) -> None:
    space = person.space("no-such-program --all")
    verdict = person.check(space)
    assert verdict.outcome == "failed_to_run"
    assert verdict.reason.startswith("no-such-program is not installed here")
    assert space.remembered(verdict.tree) is None


def test_a_check_that_hangs_is_red(person: Person) -> None:
    verdict = person.check(person.space("echo begun; sleep 60", check_timeout_s=0.3))
    assert (verdict.outcome, verdict.reason) == ("red", "it did not end in 0.3 s")
    assert "begun" in verdict.output_tail


def test_without_a_check_all_is_green(person: Person) -> None:
    assert person.start(person.space([])) == Verdict(
        "green", person.git("rev-parse", "HEAD^{tree}"), "there is no check"
    )
    assert not person.folder.exists()


def test_a_missing_commit_is_not_red(person: Person) -> None:
    verdict = person.space().start("1" * 40, "2" * 40, person.log)
    assert isinstance(verdict, Verdict)
    assert verdict.outcome == "failed_to_run"


def test_a_log_that_is_a_link_is_not_followed(person: Person, tmp_path: Path) -> None:
    (tmp_path / "diary").write_text("Dear diary\n")
    person.log.symlink_to(tmp_path / "diary")
    assert person.check(person.space()).outcome == "failed_to_run"
    assert (tmp_path / "diary").read_text() == "Dear diary\n"


def test_the_tail_is_plain_and_masked(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-abcdefghijklmnopqrstuvwxyz123456")
    line = r"printf '\033[31mred\033[0m \033]0;title\007\a 10%%\r20%%\n'; echo sk-abcdefghijklmnopqrstuvwxyz123456; seq 300"
    tail = person.check(person.space(line)).output_tail
    assert tail.splitlines()[-1] == "300"
    assert len(tail.splitlines()) == 100
    shown = person.check(person.space(line.replace("seq 300", "true"))).output_tail
    assert shown.splitlines()[1:] == ["red \ufffd 10%", "20%", "[masked]"]


def test_a_full_disk_is_not_red(person: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    space = person.space()
    space.prepare(person.git("rev-parse", "HEAD"))
    monkeypatch.setattr(checks, "_MIN_FREE_BYTES", 1 << 60)
    verdict = person.check(space)
    assert (verdict.outcome, verdict.reason) == ("failed_to_run", "the disk is almost full")


def test_a_stopped_check_leaves_nothing_running(person: Person) -> None:
    running = person.start(person.space("sleep 60 & echo begun; while :; do date +%N > alive; done"))
    assert isinstance(running, RunningCheck)
    space_file = person.folder / "tree/alive"
    while not space_file.exists():
        assert running.poll() is None
        sockets.wait_for_input([running], 0.5)
    running.stop()
    before = space_file.stat().st_mtime_ns
    assert space_file.stat().st_mtime_ns == before


# Setup


def test_setup_runs_when_the_worktree_is_new_and_when_its_files_change(person: Person) -> None:
    space = person.space("true", setup="echo x >> ~/setups", setup_when=["lock", "sub/lock"])

    def setups(commit: str, **options: Any) -> int:
        assert person.check(space, commit, **options).outcome == "green"
        return (space.home / "setups").read_text().count("x")

    assert setups(person.git("rev-parse", "HEAD")) == 1
    assert setups(person.commit(boat="2\n")) == 1
    assert setups(person.commit(lock="1\n")) == 2
    assert setups(person.commit(boat="3\n")) == 2
    assert setups(person.commit(sub__lock="1\n")) == 3
    assert setups(person.commit(lock=None)) == 4
    assert setups(person.git("rev-parse", "HEAD"), again=True) == 1  # HOME is new too


def test_a_setup_that_fails_is_red_and_runs_again(person: Person) -> None:
    space = person.space("true", setup="echo x >> ~/setups; test -e sail")
    verdict = person.check(space)
    assert (verdict.outcome, verdict.reason) == ("red", "setup: echo x >> ~/setups; test -e sail failed")
    assert person.check(space, person.commit(sail="")).outcome == "green"
    assert (space.home / "setups").read_text() == "x\n" * 3


@pytest.mark.parametrize("setup", ["echo getaddrinfo EAI_AGAIN registry.example; exit 1", "no-such-program ci"])
def test_a_setup_without_network_or_program_is_not_red(person: Person, setup: str) -> None:
    verdict = person.check(person.space("true", setup=setup))
    assert verdict.outcome == "failed_to_run"
    assert verdict.reason.startswith("setup: ")


# Protected paths


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        (
            "Makefile",
            ["Makefile", "sub/Makefile", "Makefile/x"],
            ["Makefile.am", "xMakefile", "makefile", "Makefile\n"],
        ),
        ("/Makefile", ["Makefile"], ["sub/Makefile"]),
        (".ci/**", [".ci/run", ".ci/a/b"], [".ci", "x/.ci/run", ".cix/run"]),
        (".github/", [".github/workflows/x.yml", ".github", "sub/.github/x"], [".githubx/y"]),
        ("docs/*.md", ["docs/a.md"], ["docs/a/b.md", "a.md", "x/docs/a.md"]),
        ("**/conftest.py", ["conftest.py", "a/b/conftest.py"], ["a/conftest.pyc"]),
        ("a/**/b", ["a/b", "a/x/y/b", "a/b/c"], ["ab", "a/xb"]),
        ("?.txt", ["a.txt", "x/b.txt"], ["ab.txt", "/.txt"]),
        ("a+(b)[c]", ["a+(b)[c]"], ["aab", "a+(b)c"]),
    ],
)
def test_a_pattern_names_paths_as_in_an_ignore_file(pattern: str, matches: list[str], others: list[str]) -> None:
    assert protected_changes([*others, *matches], [pattern]) == tuple(matches)


def test_no_pattern_protects_nothing() -> None:
    assert protected_changes(["Makefile"], []) == ()
    assert protected_changes([], ["*"]) == ()
