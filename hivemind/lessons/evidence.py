"""Evidence in the trail of a task: a failed command and another that passed in its place, and returns of the work by landing."""

from __future__ import annotations

import os
import posixpath
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hivemind.boundary import Unreadable, boundary
from hivemind.frozen import frozen

_RETURNED = re.compile(r"Not landed: `([^`\n]+)` fails on your work(?: in `([^`\n]+)`)?")
_IN_FOLDER = re.compile(r"cd ('[^']*'|\"[^\"]*\"|[^\s;&|]+) && ")
_FOLDERS = ("cwd", "workdir", "directory", "dir_path")
"""The arguments by which the programs name the folder of a command."""
_PASSING = re.compile(
    r"timed? ?out|time limit|time was up|temporar|network|connection|unreachable|could not resolve|name resolution|try again"
    r"|too many requests|(?:already|still|is) running|in progress|\bbusy\b"
    r"|\b(?:429|502|503|504)\b|non-fast-forward|fetch first|index\.lock|is locked|no space left|broken pipe",
    re.IGNORECASE,
)
"""Words in the output of a command that failed for a reason that passes."""
_CHANGING = re.compile(
    r"\bgit\s+(?:-\S+\s+)*(?:am|apply|checkout|cherry-pick|clean|merge|pull|rebase|reset|restore|revert|stash|switch)\b"
    r"|\b(?:add|ci|install|sync|update|upgrade)\b|\bsed\s+(?:\S+\s+)*-i|\b(?:cp|mv|rm|tee|touch|mkdir|chmod|ln|patch)\b|>"
)
"""Commands after which another one may pass for their sake."""
_PROSE = re.compile(
    r"\.(?:md|markdown|txt|rst|adoc|html?|eml|pdf)\b|README|https?://|\bgit\b|\b(?:curl|wget)\b", re.IGNORECASE
)
_BUILD_FILE = re.compile(r"(?:^|/)(?:Make|Docker|Just|Proc|Rake)file$")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_FRAME = frozenset({"env", "export", "&&", ";", "sh", "bash", "-c", "-lc", "-ec"})
_IDLE_FLAG = re.compile(
    r"-[vqxsk]+|--(?:verbose|quiet|lf|ff|sw|last-failed|stepwise|exitfirst|maxfail|tb|retr\w+|timeout|durations|jobs)(?:=.*)?|-[jnp]\d*"
)
"""Flags that select, repeat or show: with them a command may pass by chance, or because it does less."""
_GOALS = {"test": "check", "check": "check", "verify": "check", "lint": "lint", "build": "build", "compile": "build"}
_MATERIAL = re.compile(r"<material.*?</material>", re.DOTALL)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_EDITS = frozenset({"write_file", "edit_file", "apply_patch", "Write", "Edit", "MultiEdit", "NotebookEdit"})
_PRINTERS, _FILTERS = ("cat", "head", "tail", "less"), ("sed", "grep", "rg")
_LOOKING = frozenset(
    {*_PRINTERS, *_FILTERS, "awk", "diff", "echo", "file", "find", "git", "ls", "stat", "test", "wc", "which"}
)
"""Programs that show something. They stand in only for each other."""
_PATCHED = re.compile(r"^\+\+\+ (?:b/)?(\S+)", re.MULTILINE)
_EDIT_KINDS = frozenset({"edit", "delete", "move"})


@frozen
class TaskFolders:
    """The folders in which a task works: the hive's, and a worktree for each root. The first root is the default one."""

    hive: Path
    worktrees: Mapping[Path, Path]

    def locate(self, path: str) -> tuple[Path | None, str]:
        """Return the root (repository) to which a path belongs, and the path in that repository. Return None and the same path if
        it belongs to none.

        A relative path whose first name is another root is in that root. Any other relative path is below the hive's folder, if
        that leads to a worktree, or else in the default worktree.
        """
        if (named_root := self._named_root(path)) is not None:
            return named_root, path.partition("/")[2] or "."
        for base in (self.hive, *[*self.worktrees.values()][:1]):
            full_path = Path(os.path.normpath(base / path))
            if full_path.is_relative_to(self.hive / "tasks"):
                break
            for root, worktree in self.worktrees.items():
                for folder in (worktree, root):
                    if full_path.is_relative_to(folder):
                        return root, os.path.relpath(full_path, folder)
        return None, path

    def _named_root(self, path: str) -> Path | None:
        """Return the root that the first name of a relative path names. Return None if there is none, if it is the default root,
        or if the default worktree has a file of that name."""
        name, other_roots = path.split("/", 1)[0], [*self.worktrees][1:]
        if not other_roots or (next(iter(self.worktrees.values())) / name).exists():
            return None
        return next((root for root in other_roots if root.name == name), None)

    def without_worktree(self, text: str, root: Path | None) -> str:
        """Return a text without the path of a root's worktree, because the next agent has another one."""
        if root is None or root not in self.worktrees:
            return text
        folder = self.worktrees[root]
        names = "|".join(map(re.escape, (str(folder), os.path.relpath(folder, self.hive))))
        text = re.sub(rf"cd (['\"]?)(?:{names}|\.\./{re.escape(folder.name)})/?\1 && ", "", text)
        return re.sub(rf"(?<![\w./-])(?:{names})(?:/|$)", "", text)


@frozen
class Action:
    """A command, an edit, or a return of the work by landing. `id` is its message in the conversation, `root` its repository
    (None: none)."""

    id: str
    command: str = ""
    is_ok: bool = True
    output: str = ""
    edited_paths: tuple[str, ...] = ()
    is_return: bool = False
    root: Path | None = None


@frozen
class Pair:
    """A command that failed, and a later one that passed in its place: evidence for a lesson."""

    failed: Action
    passed: Action


@frozen
class Trail:
    """The actions of a task in order. `materials` are the texts of others that its agent has read, without code and the output of
    failing commands."""

    actions: tuple[Action, ...]
    materials: tuple[str, ...]

    def at(self, root: Path | None) -> Trail:
        """Return the trail with the actions in one repository. A change in any other is kept as an edit of the path `?`, because
        a command in this one may pass because of it."""
        actions = list[Action]()
        for action in self.actions:
            if action.root == root:
                actions.append(action)
            elif action.edited_paths or (action.is_ok and _CHANGING.search(action.command)):
                actions.append(Action(action.id, edited_paths=("?",), root=action.root))
        return Trail(tuple(actions), self.materials)

    def pairs(self) -> Iterator[Pair]:
        """Yield each failed command with the first later command that passed and has the same purpose. If files change in
        between, there is no pair.

        A failed command that passes later unchanged is not evidence. One exception: if landing returned the work for a check that
        the agent had not run before, the agent's own run that passes counts.
        """
        for at, failed in self._failures():
            is_new_check = failed.is_return and not self._has_run(failed.command, self.actions[:at])
            for later in (action for action in self.actions[at + 1 :] if action.is_ok):
                is_same = tokens(later.command) == tokens(failed.command)
                if is_new_check if is_same else not failed.is_return and stands_in(later.command, failed.command):
                    yield Pair(failed, later)
                    break
                is_edit = bool(later.edited_paths) and not failed.is_return
                if is_same or is_edit or _CHANGING.search(later.command):
                    break

    def _failures(self) -> Iterator[tuple[int, Action]]:
        for at, action in enumerate(self.actions):
            if action.command and not action.is_ok and not _PASSING.search(action.output):
                yield at, action

    def _has_run(self, command: str, actions: Sequence[Action]) -> bool:
        return any(tokens(run.command) == tokens(command) for run in actions)

    def proof(self, failed: str, passed: str, changed: str, text: str) -> Pair | None:
        """Return the two commands that a mind cites for a lesson. Return None if the trail does not have them, or if the lesson's
        text does not name their difference.

        The difference is a word that only the passed command has, or the file that was `changed` between the two. If it is a
        word, the passed command must have the same purpose as the failed one, or the failed one must pass right after it.
        """
        prelude, _, last_command = passed.rpartition(" && ")
        if tokens(last_command) == tokens(failed) and "sleep" not in tokens(prelude):  # one command after the other
            passed = prelude
        failed_words, passed_words = tokens(failed), tokens(passed or failed)
        for at, failure in self._failures():
            if tokens(failure.command) != failed_words:
                continue
            edits, changes = set[str](), set[str]()
            for number, later in enumerate(self.actions[at + 1 :], at + 1):
                later_words = tokens(later.command)
                edits |= {*later.edited_paths}
                if later.is_ok and _CHANGING.search(later.command):
                    changes |= {*later_words}
                files = {changed} if changed else {path for path in edits | changes if re.search(r"\w[./]\w", path)}
                names_file = any(
                    name in text and f"/{path}".endswith(f"/{name.removeprefix('./')}")
                    for name in files
                    for path in edits | changes
                )
                if failure.is_return and names_file:
                    return Pair(failure, Action(later.id))
                if not later.is_ok or later_words != passed_words or not _has_own_status(later.command):
                    continue
                new_words = {*later_words} - {*failed_words, "&&"}
                names_words = not edits and any(len(word) > 1 and word in text for word in new_words)
                runs = [action for action in self.actions[number + 1 : number + 2] if action.is_ok]
                is_related = stands_in(later.command, failure.command) or self._has_run(failure.command, runs)
                if names_file or (names_words and is_related):
                    return Pair(failure, later)
        return None


def tokens(command: str) -> list[str]:
    """Return the words of a command, also of one inside `sh -c`."""
    with suppress(Unreadable), boundary("command", command[:80]):
        words = shlex.split(command)
        parts = [part for word in words for part in (shlex.split(word) if " " in word else [word])]
        return [part.removeprefix("./") for part in parts]
    return command.split()


def program_of(command: str) -> str:
    """Return the program that a command runs, without variables and shells; "" if there is none."""
    core = _core(command)
    return next(iter(core[2:] if core[:1] == ["cd"] else core), "")


def _core(command: str) -> list[str]:
    return [word for word in tokens(command) if word not in _FRAME and not _ASSIGNMENT.fullmatch(word)]


def stands_in(passed: str, failed: str) -> bool:
    """Check that the passed command has the same purpose as the failed one: it differs by a variable, a flag or the program, and
    does not do less."""
    core, failed_core = _core(passed), _core(failed)
    if not core or not failed_core or not _has_own_status(passed) or "sleep" in core:
        return False
    if core[0] in _LOOKING and failed_core[0] not in _LOOKING:
        return False
    if core[0] == "cd" and [posixpath.join(core[1], word) for word in core[2:]] == failed_core:
        return True
    added = [word for word in core if word not in failed_core]
    if core == failed_core:
        names = [{word.partition("=")[0] for word in tokens(command) if "=" in word} for command in (passed, failed)]
        return set(tokens(passed)) != set(tokens(failed)) and names[0] >= names[1]
    if any(mark in word for word in added if word != core[0] for mark in ("/", "::", ".")):
        return False  # it may do less
    flags = [word for word in added if word.startswith("-")]
    if core[0] == failed_core[0]:
        if set(failed_core) <= set(core):
            return bool(flags) and added[0] in flags and not all(_IDLE_FLAG.fullmatch(flag) for flag in flags)
        return len(core) == len(failed_core) and not flags and _goal(core) == _goal(failed_core) is not None
    operands = [word for word in failed_core[1:] if not word.startswith("-")]
    is_same_rest = bool(operands) and set(operands) <= set(core)
    return is_same_rest or (
        _goal(core) == _goal(failed_core) is not None and not (operands and set(core) < set(failed_core))
    )


def _has_own_status(command: str) -> bool:
    """Return False if a command's exit status may be that of another command, as in `pytest | tail` or `make; true`."""
    return bool(command) and not any(mark in unquoted(command).replace("&&", "") for mark in "|;>&")


def unquoted(command: str) -> str:
    """Return a command without its quoted parts."""
    return _QUOTED.sub("", command)


def _goal(words: Iterable[str]) -> str | None:
    return next((goal for word in words for name, goal in _GOALS.items() if name in word.lower()), None)


def read_trail(
    records: Iterable[Mapping[str, Any]],
    returns: Sequence[str],
    folders: TaskFolders,
    *,
    is_from_operator: bool = False,
) -> Trail:
    """Read the trail from the lines of messages.jsonl. `returns` are the texts with which landing has returned the task.

    In the opening of an operator's task, only the marked material counts as texts of others."""
    actions, materials, calls = list[Action](), list[str](), dict[str, Mapping[str, Any]]()
    for record, is_opening in (
        (message, "opening" in line) for line in records for message in line.get("opening", [line])
    ):
        role, text = record.get("role"), str(record.get("text", ""))
        calls |= {str(call["id"]): call for call in record.get("calls", ())}
        if role == "user":
            materials += _MATERIAL.findall(text) if is_opening and is_from_operator else [text]
            matches = (_RETURNED.match(reason) for reason in returns if reason in text)
            if returned := next(filter(None, matches), None):
                root = Path(returned[2]) if returned[2] else folders.locate(".")[0]
                actions.append(Action(str(record.get("id")), returned[1], is_ok=False, is_return=True, root=root))
        elif role == "tool" and (call := calls.get(str(record.get("call_id")))) is not None:
            action = _action(record, call)
            if action is not None:
                actions.append(_locate_action(action, call["arguments"], folders))
            path = str(call["arguments"].get("path") or call["arguments"].get("file_path") or "")
            source = path if action is None else action.command
            if is_prose(source) and (action is None or (action.is_ok and " " in source)):
                materials.append(text)
    return Trail(tuple(actions), tuple(materials))


def _locate_action(action: Action, arguments: Mapping[str, Any], folders: TaskFolders) -> Action:
    """Return an action with its repository. Make its paths relative to that repository, and remove the worktree's path from its
    command."""
    if action.edited_paths:
        places = [folders.locate(path) for path in action.edited_paths]
        return replace(action, edited_paths=tuple(path for _, path in places), root=places[0][0])
    folder = next((str(arguments[name]) for name in _FOLDERS if arguments.get(name)), ".")
    if match := _IN_FOLDER.match(action.command):
        folder = os.path.join(folder, match[1].strip("'\""))
    root, _ = folders.locate(folder)
    return replace(action, command=folders.without_worktree(action.command, root), root=root)


def is_prose(source: str) -> bool:
    """Check whether output may be prose that somebody wrote. `source` is the path or command that it comes from; "" if it has
    neither."""
    program, *names = [word for word in source.split() if not word.startswith("-")] or [""]
    file_names = names if program in _PRINTERS else names[1:] if program in _FILTERS else []
    paths = file_names if names else [program]
    return bool(_PROSE.search(source)) or any("." not in path and not _BUILD_FILE.search(path) for path in paths)


def _action(record: Mapping[str, Any], call: Mapping[str, Any]) -> Action | None:
    """Return the command or the edit that a result belongs to; None for any other call."""
    arguments, result, identity = call["arguments"], record.get("result") or {}, str(record.get("id"))
    is_ok, output = bool(record.get("ok")), str(record.get("text", ""))
    if call["tool"] == "run_command":  # a result leaves out a long command
        command, is_ok = str(result.get("command", "")), result.get("exit_status") == 0
        return Action(identity, command, is_ok, output) if "exit_status" in result else None
    if call["tool"] in _EDITS or result.get("kind") in _EDIT_KINDS:
        patched = _PATCHED.findall(str(arguments.get("patch", "")))
        all_paths = [arguments.get("path"), arguments.get("file_path"), *result.get("paths", ()), *patched]
        paths = tuple(dict.fromkeys(str(path) for path in all_paths if path))
        return Action(identity, "", is_ok, "", paths or ("?",)) if is_ok else None
    command = arguments.get("command")
    if isinstance(command, list):
        command = shlex.join(map(str, command))
    return Action(identity, command, is_ok, output) if isinstance(command, str) and command.strip() else None
