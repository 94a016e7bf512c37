"""The project that a task works on, as people have committed it: its instructions, its skills, an outline of its files.

Git reads all of it from one commit, never from files or a branch that an agent can change.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import cached_property

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
from hivemind.taskrun.target import root_folder, target_tip
from hivemind.taskrun.worktree import recorded_worktrees
from hivemind.tasks import Task
from hivemind.tasks.folder import ended_folder

INSTRUCTION_FILES = ("AGENTS.md", "CLAUDE.md", "GEMINI.md", ".github/copilot-instructions.md")
_SKILL_FOLDERS = (".agents/skills", ".claude/skills")
_SKILL_FILE = "SKILL.md"
_MAX_BYTES = 1 << 18  # of a file that is read
_MAX_SKILLS, _MAX_DESCRIPTION_CHARS = 200, 300
_MAX_EARLIER, _LIMIT_S = 5, 10
_LINK, _SUBMODULE = "120000", "160000"
_EMPTY_TREES = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
_PATH = re.compile(r"[\w.+@/-]+")
_ENTRY_POINT = re.compile(
    r"__main__\.py|manage\.py|(?:main|cli|app|index|server)\.(?:py|go|rs|[jt]sx?|c|cc|cpp|java|rb|php)"
)
_NO_ENTRY = re.compile(r"(?:^|/)(?:docs?|tests?|testing|examples?|bench\w*)/")
_MAX_ENTRY_POINTS, _MAX_LANGUAGES = 4, 4
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

    @cached_property
    def _files(self) -> dict[str, tuple[str, str]]:
        """The mode and the digest of each file by path, without submodules and names that no line can show."""
        _, output = self._repository.output("ls-tree", "-r", "-z", "--full-tree", self.commit, limit_s=_LIMIT_S)
        rows = (row.partition("\t") for row in os.fsdecode(output).split("\0"))
        entries = {path: head.split(" ") for head, _, path in rows if path and path.isprintable()}
        return {path: (mode, digest) for path, (mode, _, digest) in entries.items() if mode != _SUBMODULE}

    @cached_property
    def _folders(self) -> set[str]:
        folders = set[str]()
        for path in self._files:
            while (path := posixpath.dirname(path)) and path not in folders:
                folders.add(path)
        return folders

    def named_paths(self, text: str) -> list[str]:
        """Return the files and folders that a text names: by path, or a file by a name that no other file has."""
        words = [word.removeprefix("./").rstrip("./") for word in _PATH.findall(text)]
        names = Counter(posixpath.basename(path) for path in self._files)
        unique = {word for word in words if names[word] == 1}
        by_name = {name: path for path in self._files if (name := posixpath.basename(path)) in unique}
        paths = (word if word in self._files or word in self._folders else by_name.get(word) for word in words)
        return list(dict.fromkeys(path for path in paths if path))

    def instructions(self, task_text: str, own_files: Collection[str] = ()) -> list[tuple[str, str | None]]:
        """Return path and text of the project's instructions: of its root, and the nearest ones of each folder that the
        task names. The text is None for a file that is no text, or too long.

        `own_files` are the names of files that the mind reads itself; these are left out.
        """
        folders = [""]
        for path in self.named_paths(task_text):
            folder = path if path in self._folders else posixpath.dirname(path)
            while folder and self._instruction_files(folder) == []:
                folder = posixpath.dirname(folder)
            folders.append(folder)
        paths = [path for folder in dict.fromkeys(folders) for path in self._instruction_files(folder)[:1]]
        texts = self._texts(paths)
        for path in paths.copy():  # a file may stand for another: "See @CLAUDE.md"
            others = self._instruction_files(posixpath.dirname(path))
            paths += [other for other in others if f"@{posixpath.basename(other)}" in (texts[path] or "")]
        texts = self._texts(dict.fromkeys(paths))
        own_texts = self._texts(
            own for path in paths for name in own_files if (own := _join(posixpath.dirname(path), name)) in self._files
        )
        return [
            (path, text) for path, text in texts.items() if path not in own_texts and text not in own_texts.values()
        ]

    def _instruction_files(self, folder: str) -> list[str]:
        paths = (_join(folder, name) for name in INSTRUCTION_FILES)
        return [path for path in paths if path in self._files]

    def skills(self, own_files: Collection[str] = ()) -> list[Skill]:
        """Return the project's skills, without those in the folders `own_files`, which the mind reads itself."""
        folders = [folder for folder in _SKILL_FOLDERS if folder not in own_files]
        paths = [path for folder in folders for path in sorted(self._files) if _is_skill(path, folder)]
        return [_skill(path, text) for path, text in self._texts(paths[:_MAX_SKILLS]).items()]

    def contains(self, content: bytes) -> bool:
        """Return True if a file of the project has exactly this content."""
        digest = hashlib.new("sha1" if len(self.commit) == 40 else "sha256", b"blob %d\0" % len(content))
        digest.update(content)
        return digest.hexdigest() in self._digests

    @cached_property
    def _digests(self) -> set[str]:
        return {digest for _, digest in self._files.values()}

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

    def _texts(self, paths: Iterable[str]) -> dict[str, str | None]:
        """Return the text of each file; None for one that is no text or larger than 256 KiB. A link counts as the file of
        the commit that it names."""
        entries = {path: self._files[path] for path in paths}
        links = self._blobs(digest for mode, digest in entries.values() if mode == _LINK)
        texts = dict[str, str | None]()
        digests = dict[str, str]()
        for path, (mode, digest) in entries.items():
            if mode == _LINK:
                target = _join(posixpath.dirname(path), os.fsdecode(links.get(digest, b"")))
                mode, digest = self._files.get(posixpath.normpath(target), (_LINK, ""))
            digests[path] = "" if mode == _LINK else digest
        blobs = self._blobs(digests.values())
        for path, digest in digests.items():
            texts[path] = None
            with suppress(UserError):
                if digest in blobs:
                    texts[path] = mask(decode_text(blobs[digest], path)).strip()
        return texts

    def _blobs(self, digests: Iterable[str]) -> dict[str, bytes]:
        """Return the contents by digest, without those that are larger than 256 KiB or missing."""
        request = "".join(f"{digest}\n" for digest in dict.fromkeys(digests) if digest)
        if not request:
            return {}
        _, output = self._repository.output("cat-file", "--batch-check", stdin=request.encode(), limit_s=_LIMIT_S)
        sizes = {row[0]: int(row[2]) for line in output.decode().splitlines() if len(row := line.split()) == 3}
        sizes = {digest: size for digest, size in sizes.items() if size <= _MAX_BYTES}
        request = "".join(f"{digest}\n" for digest in sizes)
        _, output = self._repository.output("cat-file", "--batch", stdin=request.encode(), limit_s=_LIMIT_S)
        contents, at = dict[str, bytes](), 0
        for digest, size in sizes.items():
            start = output.index(b"\n", at) + 1
            contents[digest], at = output[start : start + size], start + size + 1
        return contents

    def outline(self, tokens: int, count: Callable[[str], int]) -> str:
        """Return an outline of the files in at most `tokens` tokens. It is built once a commit and kept in the folder of the
        root."""
        path = root_folder(self._layout, self._repository.root) / "outline.json"
        with suppress(UserError, OSError):
            record = fs.load_record(path, _KIND, _VERSION)
            if record is not None and record["commit"] == self.commit:
                return str(record["text"])
        text = _outline(list(self._files), self._line_counts(), tokens, count) if self._files else ""
        if not self._layout.read_only:
            fs.make_folder(path.parent)
            fs.save_record(path, _KIND, _VERSION, {"commit": self.commit, "text": text}, durable=False)
        return text

    def _line_counts(self) -> dict[str, int]:
        """Return the number of lines of each text file; {} if git needs too long to count them."""
        words = ("diff-tree", "-r", "-z", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv")
        with suppress(GitProblem):
            empty_tree = _EMPTY_TREES[len(self.commit)]
            _, output = self._repository.output(*words, empty_tree, self.commit, limit_s=_LIMIT_S)
            rows = (row.split("\t", 2) for row in os.fsdecode(output).split("\0") if row)
            return {path: int(added) for added, _, path in rows if added.isdecimal()}
        return {}


def projects_of(hive: Parts, task: Task, ancestors: Sequence[Task]) -> list[Project]:
    """Return the project of each root with `worktree: true`, at the commit from which the task began; for a subtask its
    outermost ancestor, because its own base is an agent's branch.

    A root without a commit has none; making its worktree says so.
    """
    projects = []
    for root in hive.config.worktree_roots(hive.layout):
        with suppress(UserError):
            repository = Repository.at(root)
            worktrees = [
                tree for related in (task, *ancestors) for tree in recorded_worktrees(hive.layout, related.kept)
            ]
            bases = [tree.base for tree in worktrees if tree.root == root and tree.base]
            project = Project(hive.layout, repository, bases[-1] if bases else target_tip(hive, repository)[1])
            if project.named_paths("") == []:  # the commit can be read
                projects.append(project)
    return projects


def hive_skills(layout: Layout) -> list[Skill]:
    """Return the skills in skills/ of the hive."""
    skills = []
    for name in sorted(names_in(layout.skills))[:_MAX_SKILLS]:
        path = f"{layout.relative(layout.skills)}/{name}/{_SKILL_FILE}"
        if not path.isprintable() or not os.path.lexists(layout.root / path):
            continue
        text = None
        with suppress(UserError, OSError), open(fs.file_below(layout.root, path.split("/")), "rb") as file:
            raw = file.read(_MAX_BYTES + 1)
            text = mask(decode_text(raw, path)).strip() if len(raw) <= _MAX_BYTES else None
        skills.append(_skill(path, text))
    return skills


def skills_of(layout: Layout, projects: Iterable[Project], own_files: Collection[str] = ()) -> dict[str, Skill]:
    """Return the skills of the hive and of the projects by name. Of several with one name the first counts, one that can be
    used before one that cannot."""
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


def _is_skill(path: str, folder: str) -> bool:
    return (
        path.startswith(f"{folder}/") and path.count("/") == folder.count("/") + 2 and path.endswith(f"/{_SKILL_FILE}")
    )


def _skill(path: str, text: str | None) -> Skill:
    """Read a skill's file: front matter with name and description, then the text."""
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


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _outline(paths: Sequence[str], line_counts: dict[str, int], tokens: int, count: Callable[[str], int]) -> str:
    """List two levels of a tree. While the list is too long, the longest listing of a folder is left out."""
    listings = defaultdict[str, Counter[str]](Counter)
    for path in paths:
        top, _, rest = path.partition("/")
        folder, entry = (f"{top}/", rest) if rest else ("", top)
        head, _, more = entry.partition("/")
        listings[folder][f"{head}/" if more else head] += 1
    hidden = set[str]()
    while True:
        lines = [_summary(paths, line_counts)]
        for folder, entries in sorted(listings.items(), key=lambda item: (item[0] == "", item[0])):
            names = [f"{name} ({number})" if name.endswith("/") else name for name, number in sorted(entries.items())]
            listing = f"{entries.total():,} files" if folder in hidden else ", ".join(names)
            lines.append(f"* {folder or 'top'}: {listing}")
        if count("\n".join(lines)) <= tokens:
            return "\n".join(lines)
        if len(hidden) == len(listings):
            break
        hidden.add(max(listings.keys() - hidden, key=lambda folder: (folder != "", len(listings[folder]), folder)))
    while len(lines) > 1 and count("\n".join([*lines, "* …"])) > tokens:
        lines.pop()
    return "\n".join([*lines, "* …"])


def _summary(paths: Sequence[str], line_counts: dict[str, int]) -> str:
    languages = Counter[str]()
    for path in paths:
        if language := _LANGUAGES.get(posixpath.basename(path).rpartition(".")[2].lower()):
            languages[language] += line_counts.get(path, 0) if line_counts else 1
    total = languages.total() or 1
    shares = [f"{language} {100 * size // total} %" for language, size in languages.most_common(_MAX_LANGUAGES)]
    lines_text = f", {sum(line_counts.values()):,} lines" if line_counts else ""
    entry_points = [
        path for path in paths if _ENTRY_POINT.fullmatch(posixpath.basename(path)) and not _NO_ENTRY.search(path)
    ]
    entry_points.sort(key=lambda path: (path.count("/"), path))
    starts = f" It starts at {', '.join(entry_points[:_MAX_ENTRY_POINTS])}." if entry_points else ""
    share_text = f" ({', '.join(shares)})" if shares else ""
    return f"{len(paths):,} files{lines_text}{share_text}.{starts}"
