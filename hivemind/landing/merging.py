"""Merges without a checkout: merge commits, their conflicts, and reverts.

Git merges here in an empty git folder that borrows the person's objects. It reads no settings of the person, and of the
attributes only the target's `/.gitattributes`: no branch can name a program that a merge runs. `merge=union` and `merge=binary`
work; if a file's attributes name a program, it is merged as text.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Literal

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.masking import mask, strip_controls
from hivemind.taskrun.git import Repository, git_identity

_COMMITTER = git_identity("hivemind", "hivemind@localhost")
"""The committer of every commit that landing makes, and the author of those of the hive itself."""
_TEMPORARY, _LEFT_S = "hivemind-merge-", 86_400.0
_KINDS = {
    "contents": "changed in both", "binary": "binary, changed in both", "file/directory": "a file in one, a folder in the other",
    "modify/delete": "deleted in one, changed in the other", "rename/delete": "renamed in one, deleted in the other",
    "rename/rename": "renamed in both", "distinct modes": "of another type in each", "submodule": "submodule, changed in both",
    "directory rename suggested": "added to a folder that the other renamed",
    "file location": "added to a folder that the other renamed",
}  # fmt: skip
_CONFLICT = re.compile(r"CONFLICT \((.+)\)")
_EPOCH = {"GIT_AUTHOR_DATE": "@0 +0000", "GIT_COMMITTER_DATE": "@0 +0000"}
_CONFIG = """[core]
repositoryFormatVersion = {version}
bare = true
[merge]
renameLimit = 1000
conflictStyle = merge
[extensions]
{extension}"""
_MERGE_S = 60
_MAX_SUBJECT = 72

Method = Literal["merge", "squash", "rebase"]


@frozen
class Conflict:
    """A path that git could not merge. If `is_marked`, the merged tree's file has conflict marks."""

    path: str
    is_marked: bool
    kind: str


@frozen
class Merge:
    """A merge. `commit` is None if there are `conflicts`; `tree` then has the conflict marks."""

    commit: str | None
    tree: str
    conflicts: tuple[Conflict, ...] = ()


@frozen
class _Objects:
    """Git on a repository's objects, without anybody's settings. `author` has the variables that name the author of commits."""

    repository: Repository
    author: Mapping[str, str]

    def git(self, *words: str, stdin: bytes = b"") -> str:
        return os.fsdecode(self.run(*words, stdin=stdin)[1]).strip()

    def run(self, *words: str, stdin: bytes = b"", statuses: tuple[int, ...] = (0,)) -> tuple[int, bytes]:
        environment = {"GIT_CONFIG_GLOBAL": os.devnull, **self.author}
        return self.repository.output(*words, stdin=stdin, environment=environment, statuses=statuses, limit_s=_MERGE_S)

    def tree(self, commit: str) -> str:
        return self.git("rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}")

    def commit(self, tree: str, parents: Collection[str], message: str) -> str:
        words = [word for parent in parents for word in ("-p", parent)]
        return self.git("commit-tree", tree, *words, stdin=os.fsencode(message))

    def has_commits(self, *words: str) -> bool:
        return bool(self.git("rev-list", "--max-count=1", *words))

    def contents(self, revision: str, paths: Collection[str]) -> dict[str, bytes]:
        """Return the files of a commit or tree at these paths, without the absent ones."""
        names = [os.fsencode(f"{revision}:{path}") for path in paths]
        _, output = self.run("cat-file", "--batch", "-z", stdin=b"".join(name + b"\0" for name in names))
        files, start = {}, 0
        for path, name in zip(paths, names, strict=True):
            absent = name + b" missing\n"
            if output.startswith(absent, start):
                start += len(absent)
                continue
            end = output.index(b"\n", start)
            kind, size = output[start:end].split(b" ")[1:]
            if kind == b"blob":
                files[path] = output[end + 1 : end + 1 + int(size)]
            start = end + int(size) + 2
        return files


def remove_leftovers() -> None:
    """Remove the git folders of merges that were killed more than a day ago."""
    for folder in Path(gettempdir()).glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            if status.st_uid == os.getuid() and time.time() - status.st_mtime > _LEFT_S:
                shutil.rmtree(folder)


@contextlib.contextmanager
def _objects_of(
    repository: Repository, *, keeps_new: bool = True, author: Mapping[str, str] = _COMMITTER
) -> Iterator[_Objects]:
    """Yield the repository's objects in a temporary git folder without settings. New objects are stored in the repository;
    without `keeps_new` they are deleted at the end."""
    is_sha256 = repository.git("rev-parse", "--show-object-format") == "sha256"
    extension = "objectFormat = sha256" if is_sha256 else ""
    with TemporaryDirectory(prefix=_TEMPORARY) as name:
        folder, objects = Path(name), repository.common / "objects"
        for subfolder in ("refs", "info"):
            (folder / subfolder).mkdir()
        (folder / "HEAD").write_text("ref: refs/heads/none\n")
        (folder / "config").write_text(_CONFIG.format(version=int(is_sha256), extension=extension))
        (folder / "shallow").symlink_to(repository.common / "shallow")
        if keeps_new:
            (folder / "objects").symlink_to(objects)
        else:
            (folder / "objects/info").mkdir(parents=True)
            (folder / "objects/info/alternates").write_bytes(os.fsencode(f"{objects}\n"))
        authorship = {**_COMMITTER, **{name: text for name, text in author.items() if name.startswith("GIT_AUTHOR_")}}
        yield _Objects(replace(repository, common=folder, incoming=None), authorship)


def merge(
    repository: Repository, onto: str, tip: str, base: str, method: Method, message: str,
    author: Mapping[str, str] = _COMMITTER,
) -> Merge:  # fmt: skip
    """Merge the commit `tip` into the commit `onto`, without moving a branch; return the commit or the conflicts. The task's
    branch began at `base`.

    The method `squash` makes one commit, `rebase` one for each commit of the branch that changes something. If the branch has
    merge commits, or a rebase conflicts, it is merged instead. If `onto` has all changes already, the commit is `onto`. Raises
    UserError.
    """
    with _objects_of(repository, author=author) as objects:
        if not objects.has_commits(tip, f"^{onto}"):
            return Merge(onto, objects.tree(onto))
        merged = _merge_trees(objects, onto, tip)
        if merged.conflicts:
            return merged
        if method == "rebase" and not objects.has_commits("--min-parents=2", tip, f"^{onto}"):
            commits = objects.git("rev-list", "--reverse", "--topo-order", tip, f"^{onto}", f"^{base}").split()
            rebased = _rebase(objects, onto, commits, message)
            if rebased is not None:
                return rebased
        if method == "squash" and not objects.has_commits("--min-parents=2", tip, f"^{onto}"):
            return _commit_on(objects, onto, merged.tree, message)
        if merged.tree == objects.tree(onto):
            return Merge(onto, merged.tree)
        return replace(merged, commit=objects.commit(merged.tree, (onto, tip), message))


def transplant(
    repository: Repository, onto: str, tip: str, base: str, message: str, author: Mapping[str, str] = _COMMITTER
) -> Merge:
    """Commit the changes from `base` to `tip` on the commit `onto`, which need not contain `base`. If `onto` has all changes
    already, the commit is `onto`. Raises UserError.

    Used in two cases. If somebody has removed commits from `onto` on which a branch builds, the branch lands without them. To
    undo a landed commit, that commit is `base` and the one before it `tip`.
    """
    with _objects_of(repository, author=author) as objects:
        picked = _pick(objects, base, onto, tip)
        return picked if picked.conflicts else _commit_on(objects, onto, picked.tree, message)


def conflict_commit(repository: Repository, tip: str, target_tip: str, merged: Merge) -> str:
    """Return a commit that merges `target_tip` into the branch at `tip`, with the conflict marks in its tree. The agent resolves
    them on top of it; the commit itself never lands."""
    message = f"Conflicts with {target_tip[:12]}"
    with _objects_of(repository) as objects:
        return objects.commit(merged.tree, (tip, target_tip), message)


def unresolved(
    repository: Repository, tip: str, merge_commit: str, paths: Collection[str], resolved: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the paths that in `tip` still have conflicts of `merge_commit` (made by `conflict_commit`).

    A line with a label of this merge is a conflict mark, in any file. A `=======` line is a mark if the file has more of these
    than its two sides had. A path that never had marks is resolved once the agent has changed it. The paths in `resolved` count
    as resolved unless they have a line with a label.
    """
    with _objects_of(repository, keeps_new=False) as objects:
        branch, target = objects.git("rev-parse", f"{merge_commit}^1", f"{merge_commit}^2").split()
        _, output = objects.run("diff-tree", "-r", "-z", "--no-renames", "--name-only", merge_commit, tip)
        changed_paths = {os.fsdecode(path) for path in output.split(b"\0") if path}
        labels = _labels(target, branch)
        before, after = (objects.contents(merge_commit, sorted(paths)), objects.contents(tip, sorted(changed_paths)))
        labelled_paths = {path for path, content in after.items() if labels.search(content)}
        labelled_paths |= {path for path in paths if path not in changed_paths and labels.search(before.get(path, b""))}
        divided_paths = {path for path in paths if _has_divider(labels, before.get(path, b""), after.get(path, b""))}
        untouched_paths = {path for path in paths if path not in changed_paths}
    return tuple(sorted(labelled_paths | (divided_paths | untouched_paths) - set(resolved)))


def read_file(repository: Repository, commit: str, path: str) -> bytes:
    """Return the content of a top-level file in a commit; b"" if there is none. Raises UserError if it is not a regular file."""
    _, output = repository.output("ls-tree", "-z", commit, "--", path)
    mode = output.partition(b" ")[0]
    if mode not in (b"", b"100644", b"100755"):
        raise UserError("is not a regular file", location=f"{path} in {repository.root}", remedy="make it one")
    return repository.output("cat-file", "blob", f"{commit}:{path}")[1] if mode else b""


def write_file(repository: Repository, onto: str, path: str, content: bytes, message: str) -> str:
    """Return a commit on `onto` in which a top-level file has this content."""
    with _objects_of(repository) as objects:
        blob = objects.git("hash-object", "-w", "--stdin", stdin=content)
        rows = [row for row in objects.run("ls-tree", "-z", onto)[1].split(b"\0") if row]
        rows = [row for row in rows if row.partition(b"\t")[2] != path.encode()]
        rows.append(f"100644 blob {blob}\t{path}".encode())
        return objects.commit(objects.git("mktree", "-z", stdin=b"\0".join([*rows, b""])), (onto,), message)


def rehearse_merge(repository: Repository, onto: str, tip: str) -> tuple[str, tuple[str, ...]]:
    """Return the tree of two commits' merge and the paths in conflict. Leaves no objects in the repository."""
    with _objects_of(repository, keeps_new=False) as objects:
        merged = _merge_trees(objects, onto, tip)
        return merged.tree, tuple(conflict.path for conflict in merged.conflicts)


def landing_message(title: str, task: str, agent: str, tip: str, reviewer: str | None = None) -> str:
    """Return the message of a landed commit: the task's title as the subject, then its trailers (task, agent, tip, and reviewer
    if any)."""
    trailers = {"Hive-Task": task, "Hive-Agent": agent, "Hive-Tip": tip, "Reviewed-by": reviewer}
    return _message(_subject(title) or task, trailers)


def revert_message(title: str, landed: str) -> str:
    """Return the message of a commit that undoes a landed one."""
    return _message(f"Revert: {_subject(title)}"[:_MAX_SUBJECT].rstrip(), {"Hive-Reverts": landed})


def _message(subject: str, trailers: Mapping[str, str | None]) -> str:
    lines = [f"{name}: {_line(text)}" for name, text in trailers.items() if text]
    return "\n".join((subject, "", *lines, ""))


def _line(text: str) -> str:
    return " ".join(strip_controls(mask(text)).split())


def _subject(title: str) -> str:
    """Return a title as a commit's subject. Remove a leading `---`, which would end the message for git, and `#`, which begins a
    comment."""
    subject = _line(title).lstrip("-#> ")
    return subject if len(subject) <= _MAX_SUBJECT else f"{subject[: _MAX_SUBJECT - 1].rstrip()}…"


def _merge_trees(objects: _Objects, onto: str, tip: str) -> Merge:
    """Merge two commits; return the tree and the conflicts. Only git's exit status says whether there are any, because some
    conflicts have no path in its list."""
    attributes = objects.contents(onto, [".gitattributes"]).get(".gitattributes", b"")
    (objects.repository.common / "info/attributes").write_bytes(attributes)
    has_conflicts, output = objects.run("merge-tree", "--write-tree", "-z", onto, tip, statuses=(0, 1))
    tree, *fields = os.fsdecode(output).split("\0")
    if not has_conflicts:
        return Merge(None, tree)
    section_end = fields.index("")
    versions = [field.split("\t", 1) for field in fields[:section_end]]
    kinds: dict[str, str] = {}
    reader = iter(fields[section_end + 1 :])
    while (count := next(reader, "")).isdecimal():  # git's advice about submodules comes last
        paths, name, _ = [next(reader) for _ in range(int(count))], next(reader), next(reader)
        if match := _CONFLICT.match(name):
            kind = _KINDS.get(match[1], match[1])
            for path in paths:
                kinds.setdefault(path, _KINDS["submodule"] if "submodule" in kind else kind)
    # Both sides have moved or deleted a path that is only in stage 1: the conflict is at the other paths.
    conflict_paths = list(dict.fromkeys(path for version, path in versions if not version.endswith("1"))) or list(kinds)
    labels, contents = _labels(onto, tip), objects.contents(tree, conflict_paths)
    return Merge(None, tree, tuple(
        Conflict(path, labels.search(contents.get(path, b"")) is not None, kinds.get(path, _KINDS["contents"]))
        for path in conflict_paths
    ))  # fmt: skip


def _labels(target: str, tip: str) -> re.Pattern[bytes]:
    """Return a pattern for the first and last lines of conflicts, which contain the commits and, for a renamed file, the path."""
    ends = rb"(?:<+ %b|>+ %b)(?::[^\n]*)?\r?$"
    return re.compile(rb"^" + ends % (target.encode(), tip.encode()), re.MULTILINE)


def _has_divider(labels: re.Pattern[bytes], merged: bytes, content: bytes) -> bool:
    """Check whether a file still has a conflict's `=======` line: it has more of these lines than the two sides had."""
    marks = labels.findall(merged)
    if not marks:
        return False
    width = len(marks[0]) - len(marks[0].lstrip(marks[0][:1]))
    divider = re.compile(rb"^={%d}\r?$" % width, re.MULTILINE)
    return len(divider.findall(content)) > len(divider.findall(merged)) - len(marks) // 2


def _pick(objects: _Objects, base: str, onto: str, tip: str) -> Merge:
    """Apply the changes from `base` to `tip` to `onto`, by a merge in which `base` is the common ancestor of both. Return the
    merge."""
    helper = replace(objects, author={**_COMMITTER, **_EPOCH})
    root = helper.commit(helper.tree(base), (), "base")
    return _merge_trees(helper, *(helper.commit(helper.tree(commit), (root,), "side") for commit in (onto, tip)))


def _commit_on(objects: _Objects, onto: str, tree: str, message: str) -> Merge:
    """Commit a tree on `onto`. If `onto` has this tree already, return `onto`."""
    if tree == objects.tree(onto):
        return Merge(onto, tree)
    return Merge(objects.commit(tree, (onto,), message), tree)


def _rebase(objects: _Objects, onto: str, commits: Collection[str], message: str) -> Merge | None:
    """Pick commits onto `onto`, one after another, and return the last merge. Return None if one conflicts, or has no parent. The
    last commit has the trailers of `message`."""
    tree, picks = objects.tree(onto), []
    for commit in commits:
        if not objects.git("rev-list", "--min-parents=1", "--max-count=1", commit):
            return None
        picked = _pick(objects, f"{commit}^1", tree, commit)
        if picked.conflicts:
            return None
        if picked.tree != tree:
            tree = picked.tree
            picks.append((commit, tree))
    committer = os.fsencode(objects.git("var", "GIT_COMMITTER_IDENT"))
    trailers, parent = os.fsencode(message.rstrip("\n").rpartition("\n\n")[2]), onto
    for commit, pick_tree in picks:
        _, raw = objects.run("cat-file", "commit", commit)
        header, _, text = raw.partition(b"\n\n")
        lines = header.split(b"\n")
        author = next(line for line in lines if line.startswith(b"author "))
        encoding = [line for line in lines if line.startswith(b"encoding ")]
        if commit == picks[-1][0]:
            text = b"\n\n".join((text.strip(b"\n") or b"(no message)", trailers)) + b"\n"
        links = [b"tree " + pick_tree.encode(), b"parent " + parent.encode()]
        raw = b"\n".join((*links, author, b"committer " + committer, *encoding, b"", text))
        parent = objects.git("hash-object", "-t", "commit", "-w", "--stdin", stdin=raw)
    return Merge(parent, tree)
