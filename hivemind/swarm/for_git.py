"""What a hive for a git repository begins with: a lead, two coders and a reviewer, run by the coding agents of this machine
(spec 13)."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import yaml

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.layout import Layout
from hivemind.minds.agents import SHIPPED, AgentProgram, Profile
from hivemind.swarm.template import template_folder
from hivemind.taskrun.worktree import check_repository

_AGENTS = {
    "lead": ("lead", "Divides a task among the coders, merges what they have done, and ends it."),
    "coder-1": ("coder", "Works on parts of a task, or on a whole one."),
    "coder-2": ("coder", "The same, with another program where there is one."),
    "reviewer": (
        "reviewer",
        "Judges what others have done, by the criteria of a task's review: or when asked by the lead.",
    ),
}
_ROM = """# Working on {name}
* Your folder is a worktree of the repository, on a branch of the task's own. Edit there and nowhere else.
* Run the repository's tests before you finish, and say in the result what you changed and what the tests said.
* Change what the task asks for, in the style of what is there, and nothing else.
"""
_LEAD = """# How a lead works
* A small task: do it yourself. A larger one: delegate its parts to the role coder, each with the files that it is about
  and how to test it, so that two parts touch the same file only where they must. Then wait_for all of them.
* Take in each part that is done with merge_worktree. Where it conflicts, merge it with mark: true, and delegate to a coder
  that the marks in those files are resolved so that both changes stand; wait, and merge that.
* When all parts are in, run the tests, delegate a review to the role reviewer, and have a coder mend what that finds.
* Finish with what was done, part by part. A part that failed is delegated again, or named in the result.
"""


@frozen
class DetectedRepository:
    """A coding agent of this machine: `mind` as an agent's file says it, `missing` if it has neither a key nor a login."""

    name: str
    mind: dict[str, object]
    missing: UserError | None = None


def find_programs() -> list[DetectedRepository]:
    """The coding agents on the PATH that have a key or a login; all, if none of them has. Raises UserError if there is none."""
    found, install = [], []
    for name in SHIPPED:
        profile = Profile.load(name)
        try:
            profile.find()
        except UserError as error:
            install.append(str(error.remedy))
            continue
        found.append(_with_access(name, profile))
    if not found:
        what = f"there is none of the coding agents {', '.join(SHIPPED)} on the PATH"
        raise UserError(
            what, remedy=f"install one ({'; '.join(install)}), or make a hive without --for and name other minds"
        )
    return [one for one in found if one.missing is None] or found


def _with_access(name: str, profile: Profile) -> DetectedRepository:
    problem = None
    for login in (False, True):
        mind: dict[str, object] = {"agent": name, **({"login": True} if login else {})}
        try:
            profile.check_access(AgentProgram(agent=name, login=login))
        except UserError as error:
            problem = problem or error
        else:
            return DetectedRepository(name, mind)
    return DetectedRepository(name, {"agent": name}, problem)


def files_for_git(layout: Layout, repository: Path, programs: list[DetectedRepository]) -> dict[str, str]:
    """What stands in place of the template's files in a hive that works on `repository`: the text by the name in the hive.

    Raises UserError for what is no git repository, or has no commit.
    """
    check_repository(repository)
    files = {"rom/repository.md": _ROM.format(name=repository.name), "rom/lead/lead.md": _LEAD}
    for at, (name, (role, told)) in enumerate(_AGENTS.items()):
        # coder-1 thinks with the first program, as the lead does; coder-2 with the second, the reviewer with the third
        mind = _flow(programs[max(0, at - 1) % len(programs)].mind)
        files[f"agents/{name}.yaml"] = f"# {told} All keys: README.md in this folder.\nrole: {role}\nmind: {mind}\n"
    near = layout.root.parent == repository.parent
    root = {"path": os.path.relpath(repository, layout.root) if near else os.fspath(repository), "worktree": True}
    line = f"roots: {_flow([root])}  # each task is worked on in a worktree and on a branch of its own"
    text = (template_folder() / "hive.yaml").read_text("utf-8", "replace")
    return {**files, "hive.yaml": re.sub(r"^roots: .*$", lambda _: line, text, flags=re.MULTILINE)}


def _flow(value: object) -> str:
    """A value in YAML, on one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=math.inf, sort_keys=False).strip()
