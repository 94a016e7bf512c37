"""The first files of a hive for a git repository: a lead, two coders and a reviewer, run by this machine's coding agents."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from hivemind.documents.manual import manual_folder
from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.layout import Layout, template_folder
from hivemind.minds import open_mind
from hivemind.minds.agents.profile import SHIPPED, AgentProgram, Profile
from hivemind.minds.open import check_start
from hivemind.sandbox import has_sandbox
from hivemind.swarm.agent_files import read_mind
from hivemind.swarm.project_check import RootProposal
from hivemind.taskrun.git import GitProblem, Repository

_INTEGRATION = ("develop", "integration")
_AGENTS = {
    "lead": ("lead", "Divides a task among the coders, has their work reviewed, and ends it."),
    "coder-1": ("coder", "Works on parts of a task, or on a whole one."),
    "coder-2": ("coder", "Works as coder-1 does, with another program if two are installed."),
    "reviewer": (
        "reviewer",
        "Judges what others have done, by the criteria of a task's review: or when asked by the lead.",
    ),
}
_COMMANDS = {
    True: "sandbox: bwrap\nshell: true  # its commands write only in its worktree, and have no network\n",
    False: "# commands: [git, make]  # what it may run; with all your rights, since bubblewrap does not run here\n",
}
"""The lines on commands for a mind that runs none itself, by whether there is a sandbox."""
_ROM = """# Working on {name}
* Your folder is a worktree of the repository, on a branch for this task. Edit only there.
* Run the repository's tests before you finish. Report in the result what you changed and how the tests ended.
* Change only what the task asks for, in the style of the existing code.
"""
_LEAD = """# How a lead works
* Do a small task yourself. Delegate the parts of a larger one to the role coder. Name the files of each part and how to test it,
  and let two parts change the same file only where they must. Then wait_for all of them.
* Each finished part lands in your branch by itself before wait_for returns. You never merge: a part that conflicts goes back to
  its coder.
* When all parts have landed, run the tests, delegate a review to the role reviewer, and have a coder fix what it finds.
* Finish with a summary of each part. Delegate a failed part again, or name it in the result.
"""


@frozen
class DetectedProgram:
    """A coding agent of this machine, or the mind of the option --mind. `mind` is the value for an agent's file.
    `access_problem` is set if it has neither a key nor a login, or cannot start."""

    name: str
    mind: str | dict[str, Any]
    access_problem: UserError | None = None


def find_programs() -> list[DetectedProgram]:
    """Find the coding agents on PATH that have a key or a login. If none has, return all. Raises UserError if none is
    installed."""
    programs, install_hints = [], []
    for name in SHIPPED:
        profile = Profile.of(AgentProgram(agent=name))
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
            remedy=f"install one ({'; '.join(install_hints)}), or name a language model or a program of yours by --mind "
            f"(see {manual_folder()}/05-agents.md, Minds)",
        )
    return [program for program in programs if program.access_problem is None] or programs


def chosen_mind(text: str, root: Path) -> DetectedProgram:
    """Return the mind that --mind names, for a hive in `root`. Raises UserError for an unknown kind of mind."""
    mind = read_mind(text)
    try:
        check_start(mind, root)
    except UserError as error:
        return DetectedProgram(text, mind, error)
    open_mind(mind, root=root)
    return DetectedProgram(text, mind)


def _detect_access(name: str, profile: Profile) -> DetectedProgram:
    problem = None
    for login in (False, True):
        mind: dict[str, Any] = {"agent": name, **({"login": True} if login else {})}
        try:
            profile.check_access(AgentProgram(agent=name, login=login))
        except UserError as error:
            problem = problem or error
        else:
            return DetectedProgram(name, mind)
    return DetectedProgram(name, {"agent": name}, problem)


def files_for_git(
    layout: Layout, repository: Path, programs: list[DetectedProgram], project: RootProposal, *, is_confirmed: bool
) -> dict[str, str]:
    """Return files that replace files of the template in a hive that works on `repository`, as texts by their path in the hive.

    The project's check is commented out unless a person has confirmed it (`is_confirmed`). Raises UserError unless `repository`
    is a git repository.
    """
    files = {"rom/repository.md": _ROM.format(name=repository.name), "rom/lead/lead.md": _LEAD}
    for index, (name, (role, description)) in enumerate(_AGENTS.items()):
        # The lead and coder-1 use the first program, coder-2 the second, the reviewer the third.
        mind = programs[max(0, index - 1) % len(programs)].mind
        commands = "" if isinstance(mind, Mapping) and {"agent", "acp"} & mind.keys() else _COMMANDS[has_sandbox()]
        files[f"agents/{name}.yaml"] = (
            f"# {description} All keys: README.md in this folder.\nrole: {role}\nmind: {_flow_yaml(mind)}\n{commands}"
        )
    is_sibling = layout.root.parent == repository.parent
    path = os.path.relpath(repository, layout.root) if is_sibling else os.fspath(repository)
    lines = "\n".join(_root_lines(path, Repository.at(repository), project, is_confirmed))
    text = (template_folder() / "hive.yaml").read_text("utf-8", "replace")
    return {**files, "hive.yaml": re.sub(r"^roots: .*$", lambda _: lines, text, flags=re.MULTILINE)}


def _root_lines(path: str, repository: Repository, project: RootProposal, is_confirmed: bool) -> Iterator[str]:
    """Yield the lines about the repository in hive.yaml. Lines that a person has not confirmed, or that need the network, are
    commented out."""
    yield "roots:"
    yield f"  - path: {_flow_yaml(path)}"
    yield "    worktree: true  # each agent has its own worktree, each task its own branch"
    yield from _branch_lines(repository)
    yield "    land: ask  # ask: when you say so (hivemind land ID); auto: as soon as the check passes; off: never"
    if project.check is None:
        yield "    # check: make test  # what must pass on the merged result; no check was found here"
    elif is_confirmed:
        yield f"    check: {_flow_yaml(project.check)}  # must pass on the merged result; found in {project.source}"
    else:
        yield f"    # Found in {project.source}, and not confirmed: without # this must pass on the merged result."
        yield f"    # check: {_flow_yaml(project.check)}"
    if project.setup is not None:
        yield "    # This prepares each new worktree, and again when one of its files changes. It needs the network, and then the"
        yield "    # check has it too, with all code that agents write:"
        yield f"    # setup: {_flow_yaml(project.setup)}"
        yield f"    # setup_when: {_flow_yaml(list(project.setup_when))}"
        yield "    # check_network: open"
    yield "    # A branch that changes one of these files waits for you, also with land: auto: they decide what the check does."
    yield f"    protect: {_flow_yaml(list(project.protect))}"


def _branch_lines(repository: Repository) -> Iterator[str]:
    """Yield the lines of hive.yaml about the branch into which work is merged: an integration branch, or the one that is checked
    out.
    """
    head = None
    with contextlib.suppress(GitProblem):  # on no branch
        head = repository.git("symbolic-ref", "--quiet", "--short", "HEAD")
    branch = next((name for name in _INTEGRATION if repository.commit_of(f"refs/heads/{name}") is not None), head)
    if branch is None:
        yield "    # branch: main  # where work lands; by default the branch that is checked out when the root is first used"
        return
    if branch == head:
        hint = "your checkout moves with each landing. On a branch beside it (git branch develop) only that one does."
        yield f"    # Work lands in {branch}, which is checked out: {hint}"
    else:
        yield f"    # Work lands in {branch}, and your checkout ({head or 'on no branch'}) stays as it is until you merge that."
    yield f"    branch: {_flow_yaml(branch)}"


def _flow_yaml(value: object) -> str:
    """Format a value as YAML on one line."""
    return (
        yaml.safe_dump(value, default_flow_style=True, width=math.inf, sort_keys=False).removesuffix("\n...\n").strip()
    )
