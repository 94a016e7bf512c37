"""The project that a task works on, as people have committed it: its instructions, its skills, an outline of its files.

Git reads all of it from one commit, never from files or a branch that an agent can change.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from hivemind import fs
from hivemind.boundary import boundary
from hivemind.documents.formats import decode_text
from hivemind.errors import UserError
from hivemind.frontmatter import parse, split
from hivemind.frozen import frozen
from hivemind.fs.paths import names_in
from hivemind.layout import Layout
from hivemind.masking import mask
from hivemind.names import is_name
from hivemind.presence.parts import Parts
from hivemind.taskrun.git import GitProblem, Repository
from hivemind.taskrun.target_branch import root_folder, target_tip
from hivemind.taskrun.worktree import recorded_worktrees
from hivemind.tasks import Task
from hivemind.tasks.folder import ended_folder

INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md", "GEMINI.md", ".github/copilot-instructions.md")
_SKILL_FOLDERS = (".agents/skills", ".claude/skills")
_SKILL_FILE = "SKILL.md"
_MAX_BYTES = 1 << 18  # of a file that is read
_MAX_SKILLS, _MAX_DESCRIPTION_CHARS = 50, 300
_MAX_TOKEN_CHARS = 20  # a longer text has more tokens: they are not counted
_MAX_EARLIER, _LIMIT_S = 5, 10
_LINK = "120000"
_COUNT_LINES = ("diff-tree", "-r", "-z", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv")
_EMPTY_TREES = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
_PATH = re.compile(r"[\w.+@/-]+")
_ENTRY_POINT = re.compile(
    r"__main__\.py|manage\.py|(?:main|cli|app|index|server)\.(?:py|go|rs|[jt]sx?|c|cc|cpp|java|rb|php)"
)
_NO_ENTRY = re.compile(r"(?:^|/)(?:docs?|tests?|testing|examples?|bench\w*)/")
_LANGUAGES = {
    "py": "Python", "pyi": "Python", "js": "JavaScript", "mjs": "JavaScript", "jsx": "JavaScript", "ts": "TypeScript",
    "tsx": "TypeScript", "go": "Go", "rs": "Rust", "java": "Java", "kt": "Kotlin", "c": "C", "h": "C", "cc": "C++",
    "cpp": "C++", "hpp": "C++", "cs": "C#", "rb": "Ruby", "php": "PHP", "swift": "Swift", "sh": "shell", "sql": "SQL",
    "html": "HTML", "css": "CSS", "md": "Markdown", "rst": "reStructuredText",
}  # fmt: skip
_KIND, _VERSION = "outline", 1


@frozen
class Skill:
    """A way of working that a project or the hive describes. `problem` is the reason why its file cannot be used."""

    name: str
    description: str
    path: str
    text: str
    problem: str | None = None

    @property
    def line(self) -> str:
        return f"{self.name}: {self.description}"


class Project:
    """A repository at one commit."""

    def __init__(self, layout: Layout, repository: Repository, commit: str) -> None:
        self._layout, self._repository, self.commit = layout, repository, commit

    @property
    def root(self) -> Path:
        return self._repository.root

    @cached_property
    def _files(self) -> dict[str, tuple[str, str, int]]:
        """The mode, digest and size of each file by path, without submodules and names with unprintable characters."""
        _, output = self._repository.output("ls-tree", "-r", "-l", "-z", "--full-tree", self.commit, limit_s=_LIMIT_S)
        rows = (row.partition("\t") for row in os.fsdecode(output).split("\0"))
        entries = {path: head.split() for head, _, path in rows if path and path.isprintable()}
        return {path: (mode, digest, int(size)) for path, (mode, _, digest, size) in entries.items() if size != "-"}

    @cached_property
    def _folders(self) -> set[str]:
        return {folder for path in self._files for folder in _parents(path)}

    def named_paths(self, text: str) -> list[str]:
        """Return the files and folders that a text names: by path, or a file by a name that no other file has."""
        words = [word.removeprefix("./").rstrip("./") for word in _PATH.findall(text)]
        names = Counter(map(posixpath.basename, self._files))
        by_name = {name: path for path in self._files if names[name := posixpath.basename(path)] == 1}
        paths = (word if word in self._files or word in self._folders else by_name.get(word) for word in words)
        return list(dict.fromkeys(path for path in paths if path))

    def instructions(self, task_text: str, own_files: Collection[str] = ()) -> dict[str, str | None]:
        """Return the text of the project's instructions by path: of those in its root, and of the nearest ones to each folder
        that the task names. The text is None for a binary or too long file.

        `own_files` are the names of files that the mind reads itself; these are left out.
        """
        texts, own_texts = dict[str, str | None](), set[str | None]()
        for named_path in ("", *self.named_paths(task_text)):
            folders = [named_path, *_parents(named_path)]
            folder = next((folder for folder in folders if self._instruction_files(folder)), "")
            names = self._instruction_files(folder)
            own_texts |= {
                self._text(path) for name in own_files if (path := posixpath.join(folder, name)) in self._files
            }
            texts |= {path: self._text(path) for path in names[:1] if named_path == "" or folder}
            # a file may stand for another: "See @CLAUDE.md"
            others = [path for path in names[1:] if f"@{posixpath.basename(path)}" in (texts.get(names[0]) or "")]
            texts |= {path: self._text(path) for path in others}
        return {path: text for path, text in texts.items() if text is None or text not in own_texts}

    def _instruction_files(self, folder: str) -> list[str]:
        return [path for name in INSTRUCTION_FILES if (path := posixpath.join(folder, name)) in self._files]

    def skills(self, own_files: Collection[str] = ()) -> list[Skill]:
        """Return the project's skills, without those in the folders `own_files`, which the mind reads itself."""
        folders = [folder for folder in _SKILL_FOLDERS if folder not in own_files]
        skill_paths = [path for path in sorted(self._files) if posixpath.basename(path) == _SKILL_FILE]
        paths = [path for folder in folders for path in skill_paths if _parents(path)[1:2] == [folder]]
        return [_skill(path, self._text(path)) for path in paths[:_MAX_SKILLS]]

    def _text(self, path: str) -> str | None:
        """Return the text of a file; None if it is binary or larger than 256 KiB. Follow a symbolic link within the commit."""
        mode, digest, size = self._files[path]
        if size > _MAX_BYTES:
            return None
        _, content = self._repository.output("cat-file", "blob", digest, limit_s=_LIMIT_S)
        if mode != _LINK:
            return _decoded(content, path)
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), os.fsdecode(content)))
        return self._text(target) if self._files.get(target, (_LINK,))[0] != _LINK else None

    def contains(self, content: bytes) -> bool:
        """Return True if a file of the project has exactly this content."""
        digest = hashlib.new("sha1" if len(self.commit) == 40 else "sha256", b"blob %d\0" % len(content))
        digest.update(content)
        return digest.hexdigest() in self._digests

    @cached_property
    def sizes(self) -> set[int]:
        return {size for _, _, size in self._files.values()}

    @cached_property
    def _digests(self) -> set[str]:
        return {digest for _, digest, _ in self._files.values()}

    def earlier_tasks(self, task_text: str) -> list[str]:
        """Return the tasks that have last landed in the files that a text names, newest first."""
        paths = [path for path in self.named_paths(task_text) if path in self._files]
        if not paths:
            return []
        trailer = "--format=%(trailers:key=Hive-Task,valueonly)"
        words = ("log", "--first-parent", f"--max-count={_MAX_EARLIER}", "--grep=^Hive-Task: ", trailer)
        with suppress(GitProblem):
            _, output = self._repository.output(*words, self.commit, "--", *paths, limit_s=_LIMIT_S)
            return [task for task in dict.fromkeys(os.fsdecode(output).split()) if is_name(task)]
        return []

    def outline(self, tokens: int, count: Callable[[str], int]) -> str:
        """Return an outline of the files in at most `tokens` tokens. It is built once per commit and kept in the hive's folder
        for the root."""
        path = root_folder(self._layout, self._repository.root) / "outline.json"
        with suppress(UserError, OSError):
            record = fs.load_record(path, _KIND, _VERSION)
            if record is not None and record["commit"] == self.commit:
                return str(record["text"])
        text = build_outline([*self._files], self._line_counts(), tokens, count) if self._files else ""
        if not self._layout.read_only:
            fs.make_folder(path.parent)
            fs.save_record(path, _KIND, _VERSION, {"commit": self.commit, "text": text}, durable=False)
        return text

    def _line_counts(self) -> Counter[str]:
        """Return the number of lines of each text file; none if git needs too long to count them."""
        counts, empty_tree = Counter[str](), _EMPTY_TREES[len(self.commit)]
        with suppress(GitProblem):
            _, output = self._repository.output(*_COUNT_LINES, empty_tree, self.commit, limit_s=_LIMIT_S)
            rows = (row.split("\t", 2) for row in os.fsdecode(output).split("\0") if row)
            counts.update({path: int(added) for added, _, path in rows if added.isdecimal()})
        return counts


def projects_of(hive: Parts, task: Task, ancestors: Sequence[Task]) -> list[Project]:
    """Return the project of each root with `worktree: true`, at the commit from which the task began. A subtask has the project
    of its outermost ancestor, because its own base is an agent's branch.

    A root without a commit is left out; an error says so when its worktree is made.
    """
    projects = []
    for root in hive.config.worktree_roots(hive.layout):
        with suppress(UserError):
            repository = Repository.at(root)
            worktrees = [tree for related in (task, *ancestors) for tree in recorded_worktrees(hive, related.kept)]
            bases = [tree.base for tree in worktrees if tree.root == root and tree.base]
            project = Project(hive.layout, repository, bases[-1] if bases else target_tip(hive, repository)[1])
            if project.named_paths("") == []:  # the commit can be read
                projects.append(project)
    return projects


def hive_skills(layout: Layout) -> list[Skill]:
    """Return the skills in skills/ of the hive."""
    skills = []
    for name in sorted(filter(str.isprintable, names_in(layout.skills)))[:_MAX_SKILLS]:
        path, text = f"{layout.relative(layout.skills)}/{name}/{_SKILL_FILE}", None
        with suppress(UserError, OSError), open(fs.file_below(layout.root, path.split("/")), "rb") as file:
            raw = file.read(_MAX_BYTES + 1)
            text = _decoded(raw, path) if len(raw) <= _MAX_BYTES else None
        if os.path.lexists(layout.root / path):
            skills.append(_skill(path, text))
    return skills


def skills_of(layout: Layout, projects: Iterable[Project], own_files: Collection[str] = ()) -> dict[str, Skill]:
    """Return the skills of the hive and of the projects by name. Of several with one name, prefer a usable one, then the
    hive's."""
    skills = [*hive_skills(layout), *(skill for project in projects for skill in project.skills(own_files))]
    by_name = dict[str, Skill]()
    for skill in sorted(skills, key=lambda skill: skill.problem is not None):
        by_name.setdefault(skill.name, skill)
    return by_name


def earlier_results(hive: Parts, projects: Iterable[Project], task_text: str) -> list[str]:
    """Return the paths of the results of earlier tasks that have landed in the files that a text names."""
    tasks = (task for project in projects for task in project.earlier_tasks(task_text))
    folders = (folder for task in dict.fromkeys(tasks) if (folder := ended_folder(hive.layout, task)) is not None)
    return [os.fspath(path) for folder in folders if (path := folder / "result.md").is_file()]


def _skill(path: str, text: str | None) -> Skill:
    """Return the skill in a file: its front matter has name and description. If `text` is None or invalid, the skill has a
    `problem`."""
    fields, body, problem = dict[str, object](), "", f"is no text of at most {_MAX_BYTES >> 10} KiB"
    if text is not None:
        front_matter, body, _ = split(text)
        problem = "has no front matter with a name and a description"
        try:
            with boundary("skill", path):
                fields = parse(front_matter or "", path, 2).values
        except UserError as error:
            problem = error.message
    name, description = str(fields.get("name")), fields.get("description")
    if not is_name(name) or not isinstance(description, str) or not description.strip():
        return Skill(path.split("/")[-2], "", path, "", problem)
    return Skill(name, " ".join(description.split())[:_MAX_DESCRIPTION_CHARS], path, body.strip())


def _decoded(content: bytes, path: str) -> str | None:
    with suppress(UserError), boundary("file", path):
        return mask(decode_text(content, path)).strip()
    return None


def _parents(path: str) -> list[str]:
    """Return the folders that contain a path, the innermost first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:length]) for length in range(len(parts), 0, -1)]


def build_outline(paths: Sequence[str], line_counts: Counter[str], tokens: int, count: Callable[[str], int]) -> str:
    """Return two levels of a tree of files as text. Above `tokens` tokens, replace the longest listing of a
    folder by its number of files."""
    listings = defaultdict[str, Counter[str]](Counter)
    for path in paths:
        *folders, name = path.split("/")
        top = f"{folders.pop(0)}/" if folders else "top"
        listings[top][f"{folders[0]}/" if folders else name] += 1
    lines = {
        top: ", ".join(f"{name} ({number})" if name.endswith("/") else name for name, number in sorted(names.items()))
        for top, names in sorted(listings.items(), key=lambda item: (item[0] == "top", item[0]))
    }
    largest = sorted(lines, key=lambda top: (top == "top", -len(listings[top])))
    summary = _summary(paths, line_counts)

    def outline(left_out: int) -> str:
        without = {top: f"{listings[top].total():,} files" for top in largest[:left_out]}
        return "\n".join([summary, *(f"* {top}: {names}" for top, names in {**lines, **without}.items())])

    def fits(text: str) -> bool:
        return len(text) <= _MAX_TOKEN_CHARS * tokens and count(text) <= tokens

    left_out = bisect_left(range(len(lines)), True, key=lambda number: fits(outline(number)))
    shown = outline(left_out).split("\n")

    def beginning(length: int) -> str:
        more = len(shown) - length
        return "\n".join([*shown[:length], *([f"* and {more:,} more"] if more else [])])

    return beginning(bisect_left(range(len(shown)), True, key=lambda length: not fits(beginning(length + 1))))


def _summary(paths: Sequence[str], line_counts: Counter[str]) -> str:
    languages = Counter[str]()
    for path in paths:
        if language := _LANGUAGES.get(path.rpartition(".")[2].lower()):
            languages[language] += line_counts[path] if line_counts else 1
    shares = [f"{name} {100 * size // languages.total()} %" for name, size in languages.most_common(4) if size]
    lines_text = f", {line_counts.total():,} lines" if line_counts else ""
    share_text = f" ({', '.join(shares)})" if shares else ""
    entry_points = [
        path for path in paths if _ENTRY_POINT.fullmatch(posixpath.basename(path)) and not _NO_ENTRY.search(path)
    ]
    entry_points.sort(key=lambda path: (path.count("/"), path))
    starts = f" It starts at {', '.join(entry_points[:4])}." if entry_points else ""
    return f"{len(paths):,} files{lines_text}{share_text}.{starts}"
