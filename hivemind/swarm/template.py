"""The first files of a new hive: hive.yaml, three agents, a short ROM, a README in each folder.

They are files of the repository's root, which is itself a hive. A wheel contains a copy in `hivemind/template/` (see
pyproject.toml); a checkout reads the root itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from hivemind import fs
from hivemind.config import HiveConfig
from hivemind.errors import UserError
from hivemind.frontmatter import parse, validate
from hivemind.layout import Layout, template_folder

AGENTS = ("agents/analyst.yaml", "agents/researcher.yaml", "agents/reviewer.yaml")
FILES = (
    "agents/README.md",
    "knowledge/README.md",
    "mailboxes/README.md",
    "rom/README.md",
    "rom/hive.md",
    "tasks/README.md",
)
_INBOX_README = """# inbox
Drop a text file here, or a folder with a task.md in it: that is a task. This README is not a task.
How to write one: ../README.md.
"""
_GITIGNORE = """# what a running hive leaves behind
/.hive/
/mailboxes/*/
/tasks/*/
/worktrees/
"""


def make_hive(layout: Layout, replacements: Mapping[str, str] | None = None, workspace: str | None = None) -> None:
    """Create a hive at `layout`. Existing files stay unchanged. hive.yaml is written last.

    `replacements` maps paths to texts in place of the template's files; the template's agents are then not created. `workspace`
    is the name in hive.yaml instead of the template's. Raises UserError if hive.yaml exists or the name is invalid, and
    OSError.
    """
    from filelock import FileLock  # late: only for a new hive

    settings = {} if workspace is None else {"workspace": workspace.strip().lower()}
    line = yaml.safe_dump(settings, allow_unicode=True).strip()
    validate(HiveConfig, parse(line, layout.config))
    source = template_folder()
    for folder in layout.folders():
        fs.make_folder(folder)
    with FileLock(layout.locks / "init.lock"):  # of two at once, the second finds a hive
        if layout.config.exists():
            raise UserError("there is a hive already", location=layout.config, remedy="hivemind up starts it")
        names = [*FILES, *(AGENTS if replacements is None else ())]
        files = {name: (source / name).read_bytes() for name in names}
        files |= {".gitignore": _GITIGNORE.encode(), "tasks/inbox/README.md": _INBOX_README.encode()}
        files["hive.yaml"] = (source / "hive.yaml").read_bytes()
        files |= {name: text.encode() for name, text in (replacements or {}).items()}
        config = files.pop("hive.yaml").decode("utf-8", "replace")
        if settings:
            config = re.sub(r"^workspace: \S+", lambda _: line, config, count=1, flags=re.MULTILINE)
        for name, content in files.items():
            _create(layout.root / name, content)
        _create(layout.config, config.encode())


def _create(target: Path, content: bytes) -> None:
    fs.make_folder(target.parent)
    try:
        fs.create(target, content)
    except FileExistsError:
        return  # a person's file takes precedence
