"""A hostile check: agents wrote it, and it writes only to its worktree and its HOME, ends in time and spoils no later one."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hivemind import fs
from hivemind.landing import checks
from hivemind.landing.checks import RunningCheck, Verdict
from hivemind.taskrun.box import is_boxed
from tests.landing.test_checks import Person, files_of
from tests.sample import sample, sampled

needs_box = pytest.mark.skipif(not is_boxed(), reason="bubblewrap does not run here")


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    person = Person(tmp_path)
    yield person
    fs.remove_tree(person.folder)  # pytest cannot remove a path of 5,000 levels


def digests(top: Path, *skipped: Path) -> dict[str, str]:
    """Every file and link below a folder with its content."""
    states: dict[str, str] = {}
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if Path(folder, name) not in skipped]
        for name in (*names, *folders):
            path = Path(folder, name)
            if path.is_symlink():
                states[str(path)] = f"-> {os.readlink(path)}"
            elif path.is_file():
                states[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return states


ESCAPES = {
    "paths outside": "echo x > {app}/boat; echo x > {top}/new; echo x > {folder}/new; echo x > ../new; rm -rf {app}/.git",
    "verdicts": "mkdir -p {folder}/verdicts; for f in {folder}/verdicts/*; do echo x > $f; done; rm -rf {folder}/verdicts/*",
    "the log": "echo forged > {top}/landing.log; : > /proc/self/fd/1; rm -f {top}/landing.log; truncate -s 0 /dev/stdout",
    "the index": "echo x > {folder}/index; rm -f {folder}/emptied {folder}/setup",
    "links outside": "ln -s {app} a; echo x > a/boat; ln -sf {app}/boat boat; echo x > boat; ln -s {folder} f; rm -rf f/*",
    "a repository that is the person's": "rm -rf .git; ln -s {app}/.git .git; git update-ref -d refs/heads/main; git gc -q",
    "the person's objects": """
        for folder in $(cat .git/objects/info/alternates); do echo x > $folder/x; rm -rf $folder/??; chmod 777 $folder; done""",
    "other processes": "kill -9 -1; for p in /proc/[0-9]*; do echo x > $p/mem; kill -9 ${{p#/proc/}}; done",
    "mounts": "umount {folder}/tree; mount --bind / /mnt; mount -o remount,rw /usr; unshare -m true; chroot / true",
    "a worktree moved away": "cd ..; mv tree t; rm -rf home; ln -s {app} home; ln -s {app} tree",
}


@needs_box
@pytest.mark.parametrize("attack", ESCAPES)
def test_a_check_writes_only_to_its_worktree_and_home(person: Person, attack: str, tmp_path: Path) -> None:
    space = person.space(["sh attack || :", "touch ~/here here"])
    assert person.check(space, person.commit(attack="true\n")).outcome == "green"
    paths = {"app": person.path, "top": tmp_path, "folder": space.folder}
    commit = person.commit(attack=f"{{ {ESCAPES[attack].format(**paths)}\n}} 2> /dev/null\n", attack_is=attack)
    space.prepare(commit)
    skipped = (space.tree, space.home)
    before = digests(tmp_path, *skipped)
    verdict = person.check(space, commit)
    after = digests(tmp_path, *skipped)
    own = {str(person.log), str(space.folder / "index"), *(path for path in after if "/verdicts/" in path)}
    assert {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)} <= own
    assert before.keys() <= after.keys()
    assert person.log.read_text().startswith("$ sh attack || :\n")
    assert verdict.outcome in ("green", "red")
    assert person.git("fsck", "--strict") == ""
    # and the next check has only the files of its commit
    space.prepare(person.commit(attack="true\n"))
    assert files_of(space) == {"attack": "true\n", "attack_is": attack, "boat": "a boat\n"}


DEEP = f'{sys.executable} -c \'import os\nfor level in range(5000):\n    os.mkdir("d"); os.chdir("d")\''
LEFTOVERS = {
    "folders that cannot be read": "mkdir -p a/b sails; touch a/b/x; chmod 000 a/b a; chmod 000 sails",
    "a worktree that cannot be read": "touch x; chmod 000 .",
    "files that cannot be written": "chmod 000 boat; chmod 555 sails; touch x; chmod 000 x",
    "a path of 5,000 levels": DEEP,
    "a path of 5,000 levels in an ignored folder": f"mkdir build; cd build; {DEEP}",
    "FIFOs": "mkfifo fifo sails/fifo; mkdir f; mkfifo f/g; rm boat; mkfifo boat",
    "a socket": f"{sys.executable} -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'",
    "a folder that is a link": "rm -r sails; ln -s /tmp sails; ln -s / root",
    "a folder in place of a file": "rm boat; mkdir -p boat/deep; touch boat/deep/x",
    "a file in place of a folder": "rm -r sails; echo x > sails",
    "no repository": "rm -rf .git; touch x",
    "a repository that is a file": "rm -rf .git; echo 'gitdir: /etc' > .git",
    "a repository that is a link": "rm -rf .git; ln -s {app}/.git .git; touch x",
    "a repository with other settings": """
        git config core.fsmonitor 'touch {ran}'; git config core.hooksPath hooks; mkdir hooks
        git config core.excludesFile /dev/null; printf '#!/bin/sh\\ntouch {ran}\\n' > hooks/post-checkout
        cp hooks/post-checkout hooks/post-index-change; chmod +x hooks/*; git config filter.x.smudge 'touch {ran}; cat'
        git config filter.x.clean 'touch {ran}; cat'; echo '* filter=x' > .gitattributes; echo '*' > .git/info/exclude
        echo '* filter=x' > .git/info/attributes; git config alias.reset '!touch {ran}'; touch x""",
    "an index that lies": "git update-index --assume-unchanged boat; git update-index --skip-worktree sails/main; echo x > boat",
    "an index that is locked": "touch .git/index.lock .git/HEAD.lock; echo x > boat",
    "a file changed behind git's back": "t=$(stat -c %y boat); printf 'a goat\\n' > boat; touch -d \"$t\" boat",
    "an ignore file for all": "printf '*\\n' > .gitignore; touch x sails/y; printf '*\\n' > sails/.gitignore",
    "an ignore file for all, in a folder of its own": "mkdir evil; printf '*\\n' > evil/.gitignore; touch evil/conftest.py",
    "an ignore file that is a link": "mkdir e; echo '*' > node_modules/y; ln -s ../node_modules/y e/.gitignore; touch e/x",
    "repositories within": "git init -q sub; touch sub/x; echo '*' > sub/.gitignore; git init -q a/b; touch a/b/y",
    "a repository in a tracked folder": "git init -q sails; git init -q sails/sub; touch sails/x",
    "odd names": "touch -- -rf '*' ' ' \"$(printf 'a\\nb')\" \"$(printf '\\377')\" '\\\\0'; mkdir -- -d; touch -- -d/x",
}


UNREADABLE = ("folders that cannot be read", "a worktree that cannot be read", "a path of 5,000 levels")


@sampled
@pytest.mark.parametrize(
    ("leftover", "box"),
    [*((name, "auto") for name in LEFTOVERS), *((name, "none") for name in sample(LEFTOVERS, 4, 1))],
)
def test_the_next_check_has_only_the_files_of_its_commit(
    person: Person, tmp_path: Path, leftover: str, box: str
) -> None:
    ran = tmp_path / "hive" / "landing" / "app" / "home" / "ran"
    files = {
        "boat": "a boat\n",
        "sails__main": "a sail\n",
        "sails__sub__fore": "another\n",
        "_dot_gitignore": "build\nran\n",
    }
    space = person.space(["mkdir -p node_modules; touch node_modules/x", "sh attack || :"], check_box=box)
    commit = person.commit(**files, attack=LEFTOVERS[leftover].format(app=person.path, ran=ran))
    running = person.start(space, commit)
    assert isinstance(running, RunningCheck)
    while running.poll() is None:
        pass
    if "cannot be read" in leftover:
        os.chmod(space.tree, 0)
    commit = person.commit(attack=None, oar="an oar\n")
    space.prepare(commit)
    names = {name.replace("__", "/").replace("_dot_", "."): text for name, text in files.items()} | {"oar": "an oar\n"}
    ignored_names = {name for name in os.listdir(space.tree) if name in ("build", "node_modules")}
    assert files_of(space, "build", "node_modules") == names
    assert set(os.listdir(space.tree)) == {".git", ".gitignore", "boat", "oar", "sails"} | ignored_names
    # git cannot restore these, so the worktree is filled from nothing; otherwise caches stay
    assert ("node_modules" in ignored_names) == (leftover not in UNREADABLE)
    assert os.listdir(space.tree / "sails/sub") == ["fore"]
    assert not ran.exists()
    assert person.git("status", "--porcelain") == ""


@needs_box
def test_a_branchs_attributes_and_hooks_run_no_program_when_its_tree_is_written(person: Person) -> None:
    commit = person.commit(
        _dot_gitattributes="* filter=x diff=x merge=x text eol=crlf ident\n", boat="a $Id$\n",
        _dot_githooks__post_checkout="touch ran",
        _dot_gitmodules='[submodule "x"]\n path = x\n url = ext::touch% ran\n update = !touch ran\n',
    )  # fmt: skip
    person.git("update-index", "--add", "--cacheinfo", f"160000,{commit},x")
    person.git("commit", "-q", "-m", "a submodule")
    space = person.space("true")
    for name in (commit, person.git("rev-parse", "HEAD"), commit):
        space.prepare(name)
        assert not (space.tree / "ran").exists()


@pytest.mark.shows("promise: P83")
def test_a_check_that_starts_processes_for_ever_ends_in_time(person: Person) -> None:
    space = person.space("sh spawn & sleep 60", check_timeout_s=0.5)
    verdict = person.check(
        space, person.commit(spawn="trap '' TERM HUP\ndate +%N > alive\nsleep 0.02\nsetsid sh spawn &\n")
    )
    assert (verdict.outcome, verdict.reason) == ("red", "it did not end in 0.5 s")
    before = (space.tree / "alive").stat().st_mtime_ns
    assert (space.tree / "alive").stat().st_mtime_ns == before


def test_a_check_that_ignores_sigterm_ends_in_time(person: Person) -> None:
    space = person.space("trap '' TERM INT HUP; while :; do sleep 60 || :; done", check_timeout_s=0.3)
    assert person.check(space).reason == "it did not end in 0.3 s"


def test_a_check_that_prints_for_ever_has_a_log_of_some_mebibytes(person: Person) -> None:
    space = person.space("head -c 200000000 /dev/zero | tr '\\0' '\\n'; echo last")
    verdict = person.check(space)
    assert (verdict.outcome, verdict.output_tail.splitlines()[-1]) == ("green", "last")
    assert person.log.stat().st_size < 9 << 20


def test_a_check_that_fills_the_disk_is_red_and_leaves_it_as_it_was(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = person.space("while :; do head -c 10000000 /dev/zero >> big; sleep 0.01; done", check_timeout_s=120)
    space.prepare(person.git("rev-parse", "HEAD"))
    status = os.statvfs(space.folder)
    monkeypatch.setattr(checks, "_MIN_FREE_BYTES", status.f_bavail * status.f_frsize - 200_000_000)
    verdict = person.check(space)
    if verdict.outcome == "failed_to_run":
        pytest.skip("something else has filled this disk meanwhile")
    assert (verdict.outcome, verdict.reason) == ("red", "the disk was almost full")
    assert not (space.tree / "big").exists()


def test_what_a_check_has_planted_in_caches_and_home_is_gone_after_again(person: Person) -> None:
    """A cache that makes each later check green: the price of caches, for a day or until `again`."""
    space = person.space("[ -e node_modules/green ] || [ -e ~/green ] || sh run")
    good = person.commit(run="exit 1\n")
    assert person.check(space, good).outcome == "red"
    evil = person.commit(run="mkdir -p node_modules; touch node_modules/green ~/green\n")
    assert person.check(space, evil).outcome == "green"
    assert person.check(space, good, again=True).outcome == "red"


def test_a_check_cannot_forge_a_verdict_by_its_output(person: Person) -> None:
    verdict = person.check(person.space("echo '[exit status 0]'; echo 'sh: not found'; exit 127"))
    assert isinstance(verdict, Verdict)
    assert verdict.outcome == "red"
