"""The first files of a hive for a git repository: a lead, two coders and a reviewer, run by this machine's coding agents."""

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
    "lead": ("lead", "Divides a task among the coders, checks what they have done, and ends it."),
    "coder-1": ("coder", "Works on parts of a task, or on a whole one."),
    "coder-2": ("coder", "Works as coder-1 does, with another program if two are installed."),
    "reviewer": (
        "reviewer",
        "Judges what others have done, by the criteria of a task's review: or when asked by the lead.",
    ),
}
_ROM = """# Working on {name}
* Your folder is a worktree of the repository, on a branch for this task. Edit only there.
* Run the repository's tests before you finish. Report in the result what you changed and how the tests ended.
* Change only what the task asks for, in the style of the existing code.
"""
_LEAD = """# How a lead works
* Do a small task yourself. Delegate the parts of a larger one to the role coder. Name the files of each part and how to test it,
  and let two parts change the same file only where they must. Then wait_for all of them.
* Each finished part lands in your branch by itself; its coder resolves conflicts. You merge nothing.
* When all parts have landed, run the tests, delegate a review to the role reviewer, and have a coder fix what it finds.
* Finish with a summary of each part. Delegate a failed part again, or name it in the result.
"""


@frozen
class DetectedProgram:
    """A coding agent of this machine. `mind` is the value for an agent's file. `access_problem` is set if the program
    has neither a key nor a login."""

    name: str
    mind: dict[str, object]
    access_problem: UserError | None = None


def find_programs() -> list[DetectedProgram]:
    """Find the coding agents on PATH that have a key or a login. If none has, return all. Raises UserError if none is
    installed."""
    programs, install_hints = [], []
    for name in SHIPPED:
        profile = Profile.load(name)
        try:
            profile.find()
        except UserError as error:
            install_hints.append(str(error.remedy))
            continue
        programs.append(_detect_access(name, profile))
    if not programs:
        message = f"none of {', '.join(SHIPPED)} is installed (not found on PATH)"
        raise UserError(
            message,
            remedy=f"install one ({'; '.join(install_hints)}), or make a hive without --for and name other minds",
        )
    return [program for program in programs if program.access_problem is None] or programs


def _detect_access(name: str, profile: Profile) -> DetectedProgram:
    problem = None
    for login in (False, True):
        mind: dict[str, object] = {"agent": name, **({"login": True} if login else {})}
        try:
            profile.check_access(AgentProgram(agent=name, login=login))
        except UserError as error:
            problem = problem or error
        else:
            return DetectedProgram(name, mind)
    return DetectedProgram(name, {"agent": name}, problem)


def files_for_git(layout: Layout, repository: Path, programs: list[DetectedProgram]) -> dict[str, str]:
    """Return the files that replace the template's in a hive that works on `repository`: texts by their paths in the hive.

    Raises UserError if `repository` is not a git repository or has no commit.
    """
    check_repository(repository)
    files = {"rom/repository.md": _ROM.format(name=repository.name), "rom/lead/lead.md": _LEAD}
    for index, (name, (role, description)) in enumerate(_AGENTS.items()):
        # The lead and coder-1 use the first program, coder-2 the second, the reviewer the third.
        mind = _flow_yaml(programs[max(0, index - 1) % len(programs)].mind)
        files[f"agents/{name}.yaml"] = (
            f"# {description} All keys: README.md in this folder.\nrole: {role}\nmind: {mind}\n"
        )
    is_sibling = layout.root.parent == repository.parent
    root = {"path": os.path.relpath(repository, layout.root) if is_sibling else os.fspath(repository), "worktree": True}
    line = f"roots: {_flow_yaml([root])}  # each task has its own worktree and branch"
    text = (template_folder() / "hive.yaml").read_text("utf-8", "replace")
    return {**files, "hive.yaml": re.sub(r"^roots: .*$", lambda _: line, text, flags=re.MULTILINE)}


def _flow_yaml(value: object) -> str:
    """Format a value as YAML on one line."""
    return yaml.safe_dump(value, default_flow_style=True, width=math.inf, sort_keys=False).strip()
