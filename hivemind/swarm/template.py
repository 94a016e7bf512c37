"""What a new hive begins with: hive.yaml, three agents, a short ROM, a README in each folder, the manual.

There is one source of it: the repository's own root, which is itself a hive. A wheel carries a copy in
`hivemind/template/` (see pyproject.toml); in a checkout the root itself is read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import yaml
from filelock import FileLock

from hivemind import fs
from hivemind.errors import UserError
from hivemind.layout import Layout
from hivemind.names import check_name

AGENTS = ("agents/analyst.yaml", "agents/researcher.yaml", "agents/reviewer.yaml")
FILES = (
    "agents/README.md",
    "knowledge/README.md",
    "mailboxes/README.md",
    "rom/README.md",
    "rom/hive.md",
    "tasks/README.md",
)
FOLDERS = ("knowledge/manual",)
_INBOX = """# inbox
Drop a text file here, or a folder with a task.md in it: that is a task. This README is none.
How to write one: ../README.md.
"""
_IGNORED = """# what a running hive leaves behind
/.hive/
/mailboxes/*/
/tasks/*/
/worktrees/
"""


def template_folder() -> Path:
    """Where the template lies. Raises UserError if this installation has none."""
    package = Path(__file__).parents[1]
    for folder in (package / "template", package.parent):
        if (folder / "hive.yaml").is_file():
            return folder
    raise UserError("this installation lacks the template of a hive", location=package, remedy="install hivemind anew")


def make_hive(layout: Layout, own: Mapping[str, str] | None = None, workspace: str | None = None) -> None:
    """Make a hive at `layout`; files that are there already stay as they are. hive.yaml is written last. With `own` the texts of
    these files, by their names, stand in place of the template's; the agents among them are all that there are. `workspace`
    stands in place of what hive.yaml says there.

    Raises UserError if there is a hive.yaml or the workspace is no name, and OSError.
    """
    line = None if workspace is None else yaml.safe_dump({"workspace": check_name(workspace, "workspace")}).strip()
    source = template_folder()
    for folder in layout.folders():
        fs.make_folder(folder)
    with FileLock(layout.locks / "init.lock"):  # two at once: the second finds a hive
        if layout.config.exists():
            raise UserError("there is a hive already", location=layout.config, remedy="hivemind up starts it")
        names = [*FILES, *(AGENTS if own is None else ())]
        for name in FOLDERS:
            for ending in ("*.md", "*.png"):  # the manual with its pictures
                names += sorted(path.relative_to(source).as_posix() for path in (source / name).rglob(ending))
        files = {name: (source / name).read_bytes() for name in names}
        files |= {".gitignore": _IGNORED.encode(), "tasks/inbox/README.md": _INBOX.encode()}
        files["hive.yaml"] = (source / "hive.yaml").read_bytes()
        files |= {name: text.encode() for name, text in (own or {}).items()}
        config = files.pop("hive.yaml").decode("utf-8", "replace")
        if line is not None:
            config = re.sub(r"^workspace: \S+", line, config, count=1, flags=re.MULTILINE)
        for name, content in files.items():
            _put(layout.root / name, content)
        _put(layout.config, config.encode())


def _put(target: Path, content: bytes) -> None:
    fs.make_folder(target.parent)
    try:
        fs.create(target, content)
    except FileExistsError:
        return  # a person's own file goes before ours
