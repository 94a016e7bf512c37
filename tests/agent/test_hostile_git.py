"""A hostile agent in its sandbox: whatever it writes, nothing of the person's changes but the branch of its task."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.doctor import apply_fixes, examine
from hivemind.doctor.context import DoctorContext
from hivemind.errors import UserError
from hivemind.layout import Layout
from hivemind.minds import Thought
from hivemind.sandbox import check_sandbox, sandbox_command
from hivemind.taskrun.agent_git import Worktree
from hivemind.taskrun.git import Repository, git_identity
from hivemind.taskrun.worktree import WorktreeNote, put_away, put_down_ended
from tests.agent.conftest import Crew, Mind, until_idle
from tests.agent.test_worktree import FINISH, Repo, at_work, does, said, write

try:
    check_sandbox()
except UserError as error:
    pytest.skip(str(error), allow_module_level=True)

PREAMBLE = """
g=$(git rev-parse --absolute-git-dir); c=$(git rev-parse --path-format=absolute --git-common-dir)
ran="{ran}"; victim="{victim}"; person="{person}"; home="{home}"
"""


def digests(top: Path) -> dict[str, str]:
    """Every file and link below a folder, with what it holds."""
    found: dict[str, str] = {}
    for folder, folders, names in os.walk(top):
        for name in (*names, *folders):
            path = Path(folder, name)
            if path.is_symlink():
                found[str(path)] = f"-> {os.readlink(path)}"
            elif path.is_file():
                found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


class Person:
    """What is the person's: a repository with another task's branch, and a home. `harm` says what has become of it."""

    def __init__(self, repo: Repo, home: Path) -> None:
        self.repo, self.home = repo, home
        self.ran = home / "ran"
        home.mkdir()
        (home / "diary").write_text("Dear diary\n")
        repo.git("branch", "hive/other")
        self._before = self._all()

    def _all(self) -> dict[str, str]:
        return digests(self.repo.path) | digests(self.home)

    def harm(self) -> list[str]:
        git = self.repo.path / ".git"
        own = (
            git / "refs/heads/hive/t",
            git / "logs/refs/heads/hive/t",
            git / "refs/hivemind",
            git / "logs/refs/hivemind",
        )
        after = self._all()
        changed = [path for path in self._before if after.get(path) != self._before[path]]
        made = [
            path for path in after.keys() - self._before.keys()
            if not any(Path(path).is_relative_to(one) for one in own)
            and not (Path(path).is_relative_to(git / "objects") and not Path(path).is_symlink())
        ]  # fmt: skip
        checked = subprocess.run(["git", "-C", self.repo.path, "fsck", "--strict"], capture_output=True, text=True)
        return sorted(changed + made) + checked.stderr.splitlines()


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo(tmp_path / "app")
    made.commit(boat="a boat\n", src__sail="a sail\n")
    return made


@pytest.fixture
def person(repo: Repo, tmp_path: Path) -> Person:
    return Person(repo, tmp_path / "home")


@pytest.fixture
def crew(crew: Crew, repo: Repo) -> Crew:
    crew.configure("roots: [{path: ../app, worktree: true, land: off}]\n")
    crew.agent_file("shell: true\nsandbox: bwrap\n")
    return crew


DEEP = f'{sys.executable} -c \'import os\nfor one in range(2100):\n    os.mkdir("d"); os.chdir("d")\''
ATTACKS = {
    "an embedded repository with a filter of its own": """
        git init -q sub && cd sub && echo x > f && echo 'f filter=x' > .gitattributes && git add -A && git commit -qm x
        git config filter.x.clean "touch $ran; cat"; echo y > f; cd .. && git add sub; echo z > sub/f""",
    "a symbolic ref to main": """
        mkdir -p $c/refs/heads/hive; rm -f $c/refs/heads/hive/t; echo 'ref: refs/heads/main' > $c/refs/heads/hive/t""",
    "a link at the branch's log": "rm -f $c/logs/refs/heads/hive/t; ln -s $home/diary $c/logs/refs/heads/hive/t",
    "a link at the index": "rm $g/index; ln -s $home/new $g/index",
    "links among the objects": """
        for a in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do for b in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do
        ln -s $home $c/objects/$a$b; done; done""",
    "no objects any more": "rm -rf $c/objects/??",
    "another task's branch": "git rev-parse HEAD^{tree} > $c/refs/heads/hive/other",
    "2,100 folders": DEEP,
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_nothing_of_the_persons_changes_and_the_next_task_is_done(crew, repo, person, attack):
    told = PREAMBLE.format(ran=person.ran, victim=person.home / "diary", person=repo.path, home=person.home)
    ada = at_work(crew)
    does(ada, write("boat", "a red boat\n"))
    does(ada, ("run_command", {"command": told + attack}))
    print(said(crew)["text"][:600])
    does(ada, write("mast", "a mast\n"), *FINISH)
    if not (crew.root / "tasks/done/t").exists():
        print(said(crew))
        Hive.open(crew.root).tasks.cancel("t")
        ada.mind.think = lambda turn: Thought()
        until_idle(ada)
    assert person.harm() == []
    crew.drop("Next.\n", "u.md")
    does(ada, write("boat", "a blue boat\n"), *FINISH)
    assert repo.show("hive/u", "boat") == "a blue boat"


# what else git reads that an agent can write, each tried on one worktree, in the sandbox that its commands have

WHO = git_identity("ada", "ada@hive")
CANARY = "touch $home/ran; echo ran >> $home/diary; cat"


class Hostile:
    """An agent in the sandbox of a worktree. `attack` runs its shell script there; `commit` is the end of its turn."""

    def __init__(self, repo: Repo, person: Person, layout: Layout) -> None:
        self.repo, self.person, self.layout = repo, person, layout
        base = repo.git("rev-parse", "HEAD")
        self.repository = Repository.at(repo.path)
        path = layout.worktrees / "ada/app"
        path.parent.mkdir(parents=True)
        self.worktree = Worktree(repo.path, path, "hive/t", base, "main", self.repository.common, "ada")
        self.repository.begin("hive/t", base, "t")
        self.worktree.make_git(self.repository, base, WHO)
        WorktreeNote(repo.path, self.repository.common, "hive/t", base, "t").save(path)

    def attack(self, script: str) -> None:
        told = PREAMBLE.format(
            ran=self.person.ran, victim=self.person.home / "diary", person=self.repo.path, home=self.person.home
        )
        binds = dict.fromkeys(self.repository.object_folders, False)
        argv = sandbox_command(["sh", "-euc", told + script], self.worktree.path, None, binds)
        names = {f"GIT_{who}_{what}": "eve" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        done = subprocess.run(
            argv, cwd=self.worktree.path, env={"PATH": os.environ["PATH"], **names}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    def commit(self) -> None:
        self.worktree.commit(self.repository, "left over", WHO)

    @property
    def tip(self) -> str:
        return self.repo.git("rev-parse", "hive/t")


@pytest.fixture
def hostile(repo: Repo, person: Person, tmp_path: Path) -> Hostile:
    return Hostile(repo, person, Layout(tmp_path / "hive"))


OBJECTS = """
cat > /tmp/o.py <<'END'
import hashlib, os, sys, zlib
def put(kind, raw):
    raw = f"{kind} {len(raw)}".encode() + bytes(1) + raw
    name = hashlib.sha1(raw).hexdigest()
    path = f".git/objects/{name[:2]}/{name[2:]}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "wb").write(zlib.compress(raw))
    return name
def tree(*entries):
    return put("tree", b"".join(f"{mode} {name}".encode() + bytes(1) + bytes.fromhex(of) for mode, name, of in entries))
def commit(of, *parents):
    lines = [f"tree {of}", *(f"parent {one}" for one in parents), "author eve <eve> 1 +0000", "committer eve <eve> 1 +0000"]
    made = put("commit", "\\n".join([*lines, "", "evil"]).encode())
    os.system(f"git update-ref HEAD {made}")
    return made
head, own = (os.popen(f"git rev-parse {one}").read().strip() for one in ("HEAD", "HEAD:"))
blob = put("blob", b"x")
exec(sys.argv[1])
END
"""


def objects(code: str) -> str:
    """A script that makes objects as no git would: `land` a tree in a commit that the next one undoes."""
    land = "land = lambda of: commit(own, commit(of, head))"
    return f"{OBJECTS}\n{sys.executable} /tmp/o.py '{land}\n{code}'"


HELD = {
    "filters in its config": f"""
        git config filter.x.clean '{CANARY}'; git config filter.x.smudge '{CANARY}'; echo '* filter=x' > .gitattributes""",
    "filters in info/attributes": f"git config filter.x.process '{CANARY}'; echo '* filter=x' > $g/info/attributes",
    "a file system monitor": f"git config core.fsmonitor '{CANARY}'",
    "hooks": f"""
        mkdir -p $g/hooks; git config core.hooksPath $g/hooks
        for hook in pre-commit post-commit reference-transaction post-index-change; do
        printf '#!/bin/sh\\n{CANARY}\\n' > $g/hooks/$hook; chmod +x $g/hooks/$hook; done""",
    "drivers for diffs and merges": f"""
        git config diff.x.textconv '{CANARY}'; git config diff.external '{CANARY}'
        git config merge.x.driver '{CANARY}'; echo '* diff=x merge=x' > .gitattributes""",
    "programs that git may start": f"""
        for key in core.sshCommand core.pager core.editor core.gitProxy gpg.program credential.helper alias.add \\
        uploadpack.packObjectsHook; do git config $key '{CANARY}'; done; git config commit.gpgSign true""",
    "other repositories to borrow from": """
        for other in $person/.git/../../other $home $person/.git; do echo $other/objects; done >> $g/objects/info/alternates""",
    "a config for worktrees": """
        git config extensions.worktreeConfig true; git config -f $g/config.worktree core.worktree $person""",
    "another work tree": "git config core.worktree $person",
    "a common dir of the person's": "echo $person/.git > $g/commondir",
    "worktrees that lead back": """
        mkdir -p $g/worktrees/x; cd $g/worktrees/x
        echo $person/.git > gitdir; echo $person/.git > commondir; echo 'ref: refs/heads/main' > HEAD""",
    "a link in place of .git": "mv .git elsewhere; ln -s $person/.git .git",
    "a file in place of .git": "mv .git elsewhere; echo gitdir: $person/.git > .git",
    "settings that are included": "git config include.path $home/diary; git config --add include.path $person/.git/config",
    "a symbolic HEAD": "git symbolic-ref HEAD refs/heads/main",
    "a link at HEAD": "rm $g/HEAD; ln -s $person/.git/HEAD $g/HEAD",
    "a symbolic branch": "git symbolic-ref refs/heads/hive/t refs/heads/main",
    "a link at its branch": "mkdir -p $g/refs/heads/hive; ln -s $person/.git/refs/heads/main $g/refs/heads/hive/t",
    "packed refs": """
        h=$(git rev-parse HEAD); printf '%s refs/heads/main\\n%s refs/heads/hive/other\\n' $h $h > $g/packed-refs
        git update-ref HEAD $h""",
    "a commit in place of another": """
        git commit -qm evil --allow-empty; git replace $(git rev-parse HEAD) $(git rev-parse HEAD~1)""",
    "grafts": "git rev-parse HEAD > $g/info/grafts; git rev-parse HEAD > $g/shallow",
    "its objects collected": """
        git commit -qm work --allow-empty; git gc -q --prune=now; git repack -qad; git pack-refs --all""",
    "a lock": "touch $g/index.lock",
    "a link at its index": "rm $g/index; ln -s $home/new $g/index",
    "links among its objects": """
        for a in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do for b in 0 1 2 3 4 5 6 7 8 9 a b c d e f; do
        rm -rf $g/objects/$a$b; ln -s $home $g/objects/$a$b; done; done""",
    "names like options": "touch -- --upload-pack=x -c '--exec=x' '$(touch ran)' '; touch ran' '-'",
    "names with newlines and escapes": """
        touch "$(printf 'a\\nb')" "$(printf '\\033[2Jc')" "$(printf '\\377')" """,
    "links that lead out": "ln -s $home/diary link; ln -s $person/.git gitlink; ln -s / root; ln -s link loop",
    "names that differ in case": "mkdir A; echo x > A/f; ln -s $home a; echo y > BOAT",
    "a bare repository among its files": f"git init -q --bare bare; git -C bare config core.fsmonitor '{CANARY}'",
    "an embedded repository": """
        git init -q sub; cd sub; git commit -qm x --allow-empty; cd ..; git add sub 2>/dev/null; git rm -qf --cached sub""",
    "pipes": "mkfifo pipe src/pipe",
    "folders that may not be opened": "mkdir -p shut/in; touch shut/in/f; git add -A; chmod 0 shut/in",
}

GITMODULES = '[submodule "x"]\\n\\tpath = x\\n\\turl = --upload-pack=x\\n\\tupdate = !touch ran\\n'
GITLINK = "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),vendor; git commit -qm evil"
BOMB = 'for _ in range(40): one = tree((40000, "a", one), (40000, "b", one))\nland(one)'
REFUSED = {
    "a gitlink in a commit": (GITLINK, "separate repository"),
    "a gitlink that was undone": (
        f"{GITLINK}; git rm -qf --cached vendor; git commit -qm undone",
        "separate repository",
    ),
    "a folder .git": (objects('land(tree((40000, ".git", own)))'), "hasDotgit"),
    "a folder .GIT": (objects('land(tree((40000, ".GIT", own)))'), "hasDotgit"),
    "a folder git~1": (objects('land(tree((40000, "git~1", own)))'), "hasDotgit"),
    "a folder ..": (objects('land(tree((40000, "..", own)))'), "hasDotdot"),
    "a path in a name": (objects('land(tree((100644, "a/b", blob)))'), "fullPathname"),
    "two files of one name": (objects('land(tree((100644, "a", blob), (100755, "a", blob)))'), "duplicateEntries"),
    "a tree for a file": (objects('land(tree((100644, "a", own)))'), "sent no pack"),
    "settings of submodules that run a program": (
        objects(f'land(tree((100644, ".gitmodules", put("blob", b"""{GITMODULES}"""))))'),
        "gitmodules",
    ),
    "settings of submodules as a link": (objects('land(tree((120000, ".gitmodules", blob)))'), "gitmodulesSymlink"),
    "a deep path": (
        objects('one = own\nfor _ in range(5): one = tree((40000, "a" * 250, one))\nland(one)'),
        "a path is too long",
    ),
    "a long name": (objects('land(tree((100644, "a" * 256, blob)))'), "a path is too long"),
    "1,200 folders": (
        objects('one = own\nfor _ in range(1200): one = tree((40000, "a", one))\nland(one)'),
        "a path is too long",
    ),
    "trees within trees": (objects(f"one = own\n{BOMB}"), "more files than can be checked"),
    "empty trees within trees": (objects(f"one = tree()\n{BOMB}"), "more files than can be checked"),
    "a parent that is nowhere": (objects('commit(own, "1" * 40)'), "sent no pack"),
    "no HEAD": ("rm $g/HEAD", "not a repository"),
    "nothing in .git": ("rm -rf .git; mkdir .git", "not a repository"),
    "a git that never ends": (
        "git config filter.x.clean 'sleep 100'; echo '* filter=x' > .gitattributes; echo x > new",
        "did not end",
    ),
}


@pytest.mark.parametrize("script", HELD.values(), ids=HELD.keys())
def test_what_an_agent_writes_where_git_reads_changes_nothing_of_the_persons(hostile, script):
    hostile.attack(f"echo red > boat; {script}")
    try:
        hostile.commit()
    except UserError as error:
        print("refused:", error)
    assert hostile.person.harm() == []
    put_away(hostile.layout, "ada")
    assert hostile.person.harm() == []
    assert hostile.repo.show("hive/t", "boat") == "red"
    assert not (hostile.layout.worktrees / "ada").exists()


@pytest.mark.parametrize(("script", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_what_breaks_a_rule_is_refused_with_its_reason(hostile, script, reason, monkeypatch):
    monkeypatch.setattr("hivemind.taskrun.git._MAX_CPU_S", 1)
    monkeypatch.setattr("hivemind.taskrun.agent_git._COMMIT_S", 5)
    hostile.attack(script)
    with pytest.raises(UserError, match=reason):
        hostile.commit()
    assert hostile.tip == hostile.worktree.base
    put_away(hostile.layout, "ada")
    assert hostile.person.harm() == []


def test_a_git_that_lies_is_not_believed(hostile):
    """A filter writes to what the runtime reads: the person's main, before the agent's git has said anything."""
    hostile.repo.commit(mast="a mast\n")
    said = hostile.repo.git("rev-parse", "main")
    hostile.attack(
        f"git config filter.x.clean 'echo {said} > /proc/$PPID/fd/1; cat'; echo '* filter=x' > .gitattributes"
    )
    with pytest.raises(UserError, match="sent no pack"):
        hostile.commit()
    assert hostile.tip == hostile.worktree.base


def pack(repo: Repo, *words: str) -> bytes:
    return subprocess.run(
        ["git", "-C", repo.path, "pack-objects", "-q", "--stdout", *words], input=b"", capture_output=True
    ).stdout


@pytest.mark.parametrize(
    ("commit", "reason"),
    [
        ("HEAD", "names no commit"), ("--all", "names no commit"), ("main", "names no commit"), ("0" * 41, "names no commit"),
        ("A" * 40, "names no commit"), ("1" * 40, "is no commit"), ("HEAD:boat", "is no commit"), ("HEAD:", "is no commit"),
        ("tag", "is no commit"),
    ],
)  # fmt: skip
def test_only_a_hash_of_a_commit_is_taken_over(hostile, tmp_path, commit, reason):
    hostile.repo.git("tag", "-a", "-m", "x", "tag")
    if reason == "is no commit" and commit != "1" * 40:
        commit = hostile.repo.git("rev-parse", commit)
    ends = os.pipe()
    os.write(ends[1], pack(hostile.repo))
    os.close(ends[1])
    base = hostile.worktree.base
    with open(ends[0], "rb") as file, pytest.raises(UserError, match=reason):
        hostile.repository.take_over("hive/t", commit, base, base, file.fileno(), tmp_path / "incoming")
    assert hostile.tip == hostile.worktree.base
    assert not (tmp_path / "incoming").exists()


@pytest.mark.parametrize(
    "raw", [b"", b"PACK", b"PACK\0\0\0\2\xff\xff\xff\xff", b"PACK\0\0\0\2\0\0\0\1rubbish", b"x" * 100]
)
def test_what_is_no_pack_is_refused(hostile, tmp_path, raw):
    ends = os.pipe()
    os.write(ends[1], raw)
    os.close(ends[1])
    base = hostile.worktree.base
    with open(ends[0], "rb") as file, pytest.raises(UserError):
        hostile.repository.take_over("hive/t", "1" * 40, base, base, file.fileno(), tmp_path / "incoming")
    assert hostile.person.harm() == []


def test_more_than_is_taken_over_at_once_is_refused(hostile, monkeypatch):
    hostile.attack("head -c 3000000 /dev/zero > zeros")
    monkeypatch.setattr("hivemind.taskrun.git._MAX_BYTES", 1 << 20)
    with pytest.raises(UserError, match="new objects have more than"):
        hostile.commit()
    monkeypatch.setattr("hivemind.taskrun.git._MAX_PACK_BYTES", 100)
    with pytest.raises(UserError, match="exceeds maximum allowed size"):
        hostile.commit()
    assert hostile.tip == hostile.worktree.base


def test_a_symbolic_ref_in_place_of_a_tasks_branch_is_replaced_and_not_followed(hostile):
    main = hostile.repo.git("rev-parse", "main")
    hostile.repo.git("symbolic-ref", "refs/heads/hive/t", "refs/heads/main")
    hostile.attack("echo red > boat")
    hostile.commit()
    assert hostile.repo.git("rev-parse", "main") == main
    assert hostile.repo.show("hive/t", "boat") == "red"
    hostile.repo.git("symbolic-ref", "refs/heads/hive/t", "refs/heads/main")
    put_away(hostile.layout, "ada")
    assert hostile.repo.git("rev-parse", "main") == main


def test_what_a_task_needs_outlives_the_persons_gc(hostile):
    """The person drops the commit that the task began at, and the task's branch, and has git take away all that nothing names."""
    hostile.attack("echo red > boat")
    hostile.commit()
    tip = hostile.tip
    hostile.repo.git("commit", "-q", "--amend", "-m", "another")
    hostile.repo.git("branch", "-D", "hive/t", "hive/other")
    hostile.repo.git("reflog", "expire", "--expire=now", "--all")
    hostile.repo.git("gc", "-q", "--prune=now")
    hostile.attack("echo blue > boat; git status --porcelain; git log -2 > /dev/null")
    hostile.commit()
    assert hostile.repo.git("rev-list", "hive/t").splitlines()[1:] == [tip, hostile.worktree.base]
    put_away(hostile.layout, "ada")
    assert hostile.repo.git("for-each-ref", "refs/hivemind") == ""


def test_what_cannot_be_put_away_holds_up_nobody_and_the_doctor_says_why(crew, repo):
    ada = at_work(crew)
    does(ada, write("boat", "a red boat\n"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hivemind.taskrun.git._MAX_BYTES", 0)  # nothing can be taken over
        does(ada, ("run_command", {"command": "echo x > new"}))
        Hive.open(crew.root).tasks.cancel("t")
        ada.mind = Mind(lambda turn: Thought())
        until_idle(ada)
        crew.drop("Next.\n", "u.md")
        does(ada, ("read_file", {"path": "worktrees/ada/app-2/boat"}))
        assert said(crew, "u")["text"] == "a boat\n"
    assert (crew.root / "worktrees/ada/app/new").exists()
    patient = DoctorContext(Hive.open(crew.root).layout)
    found = [finding for finding in examine(patient) if finding.check == "worktrees"]
    assert any("the new objects have more than" in finding.message for finding in found)
    apply_fixes(patient, found)
    assert repo.show("hive/t", "new") == "x"
    assert [finding for finding in examine(patient) if finding.check == "worktrees"] == []


def test_what_kills_whoever_commits_what_is_left_over_is_tried_three_times(hostile):
    path = hostile.worktree.path
    note = WorktreeNote(hostile.repo.path, hostile.repository.common, "hive/t", hostile.worktree.base, "t")
    hostile.attack("echo red > boat")
    replace(note, tries=3, reason="whoever did it was killed").save(path)
    put_down_ended(hostile.layout, "ada", lambda _: False)
    assert hostile.tip == hostile.worktree.base
    replace(note, tries=2, reason="whoever did it was killed").save(path)
    put_down_ended(hostile.layout, "ada", lambda _: False)
    assert hostile.repo.show("hive/t", "boat") == "red"


def test_an_agent_that_a_task_is_handed_to_has_a_git_of_its_own(crew, person):
    """Ada's commands have a sandbox, bob's have none: what she has written into her git runs nowhere in his hands."""
    crew.agent_file("shell: true\n", "bob")
    ada = at_work(crew, "---\nassignee: ada\n---\nx\n")
    command = (
        f"git config core.fsmonitor 'touch {person.ran}'; git config alias.status '!touch {person.ran}'; touch new"
    )
    does(ada, ("run_command", {"command": command}), ("hand_over", {"to": "bob", "reason": "he knows boats"}))
    bob = crew.start(lambda turn: Thought(), "bob")
    does(
        bob,
        ("run_command", {"command": "git config --get-all core.fsmonitor --file .git/config; git status; git log -1"}),
    )
    assert "On branch hive/t" in said(crew)["text"]
    assert not person.ran.exists()


def test_where_there_is_no_sandbox_the_same_way_leads_in_and_the_same_is_refused(hostile, monkeypatch):
    monkeypatch.setattr("hivemind.taskrun.agent_git.has_sandbox", lambda: False)
    hostile.attack("echo red > boat; git config core.fsmonitor 'touch $home/ran'")
    hostile.commit()
    assert hostile.repo.show("hive/t", "boat") == "red"
    assert hostile.person.harm() == []
    hostile.attack(GITLINK)
    with pytest.raises(UserError, match="separate repository"):
        hostile.commit()
    put_away(hostile.layout, "ada")
    assert hostile.person.harm() == []
