"""The check of a project, proposed from the project's files. A person confirms the proposal.

The first of these checks that the project has is proposed. More explicit checks come before more general ones:

1. `.ci/run`: a program that the project calls its check.
2. A Makefile with a target `test`, or else `check`: it may do more than the tests of one language.
3. `scripts.test` in package.json, by the package manager of the project's lock file.
4. pytest or tox in pyproject.toml, or their own settings files. pytest is first: it needs no environments from the network.
5. Cargo.toml, and go.mod: each language has one command.

`setup:` is found by lock files, for every check.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from hivemind.boundary import Unreadable, boundary, read_input
from hivemind.frozen import frozen

_MAX_BYTES = 1 << 20
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")  # in the order of make
_CI_PATHS = {
    ".ci": ".ci/**", ".github": ".github/**", ".gitlab-ci.yml": ".gitlab-ci.yml", ".circleci": ".circleci/**",
    ".buildkite": ".buildkite/**", "Jenkinsfile": "Jenkinsfile", ".pre-commit-config.yaml": ".pre-commit-config.yaml",
}  # fmt: skip
_INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md")
_NO_TEST = "no test specified"  # in the script that `npm init` writes
_PYTEST = re.compile(r"pytest\b")
_VENV = "python3 -m venv .venv && .venv/bin/python -m pip install"
_IN_VENV = 'PATH="$PWD/.venv/bin:$PATH"'
_SETUPS = {
    "package-lock.json": "npm ci", "npm-shrinkwrap.json": "npm ci", "pnpm-lock.yaml": "pnpm install --frozen-lockfile",
    "yarn.lock": "yarn install --frozen-lockfile", "bun.lock": "bun install --frozen-lockfile",
    "bun.lockb": "bun install --frozen-lockfile", "package.json": "npm install", "uv.lock": "uv sync --frozen",
    "poetry.lock": "poetry install", "requirements.txt": f"{_VENV} -r requirements.txt", "pyproject.toml": f"{_VENV} -e .",
    "Cargo.lock": "cargo fetch --locked", "go.sum": "go mod download",
}  # fmt: skip
"""The command that fetches what a project needs, by the file that says what that is; all need the network."""


@frozen
class RootProposal:
    """A proposal for the settings of a root. `source` says which file names the check; None if no file does."""

    check: str | None = None
    source: str | None = None
    setup: str | None = None
    setup_when: tuple[str, ...] = ()
    protect: tuple[str, ...] = ()


def find_check(folder: Path) -> RootProposal:
    """Find the check of the project in a folder, and the files that decide what it does."""
    proposal = next(_checks(folder), RootProposal())
    for name, setup in _SETUPS.items():
        if (folder / name).is_file():
            proposal = replace(proposal, setup=setup, setup_when=(name,))
            break
    ci_patterns = (pattern for path, pattern in _CI_PATHS.items() if (folder / path).exists())
    return replace(proposal, protect=tuple(dict.fromkeys((*proposal.protect, *ci_patterns, *_INSTRUCTIONS))))


def _checks(folder: Path) -> Iterator[RootProposal]:
    if (folder / ".ci/run").is_file():
        yield RootProposal(".ci/run" if (folder / ".ci/run").stat().st_mode & 0o100 else "sh .ci/run", ".ci/run")
    makefile = next((name for name in _MAKEFILES if (folder / name).is_file()), None)
    for target in ("test", "check") if makefile is not None else ():
        if re.search(rf"^(?:[\w.-]+ +)*{target}(?: [^:=\n]*)?:(?!=)", _text(folder / str(makefile)), re.MULTILINE):
            yield RootProposal(f"make {target}", makefile, protect=_MAKEFILES)
    script = _table(_json(folder / "package.json"), "scripts").get("test")
    if isinstance(script, str) and _NO_TEST not in script:
        manager = next((setup.split()[0] for name, setup in _SETUPS.items() if (folder / name).is_file()), "npm")
        manager = manager if manager in ("npm", "pnpm", "yarn", "bun") else "npm"
        yield RootProposal(f"{manager} run test", "package.json", protect=("package.json",))
    yield from _python_checks(folder)
    if (folder / "Cargo.toml").is_file():
        yield RootProposal("cargo test", "Cargo.toml")
    if (folder / "go.mod").is_file():
        yield RootProposal("go test ./...", "go.mod")


def _python_checks(folder: Path) -> Iterator[RootProposal]:
    settings = ("pyproject.toml", "pytest.ini", "tox.ini", "setup.cfg")
    files = tuple(name for name in settings if (folder / name).is_file())
    project = _toml(folder / "pyproject.toml")
    tool, tables = _table(project, "tool"), (_table(project, "project"), _table(project, "dependency-groups"))
    if (
        "pytest" in tool
        or "pytest.ini" in files
        or _PYTEST.search(json.dumps((tables, tool.get("poetry")), default=str))
    ):
        source = "pytest.ini" if "pytest.ini" in files else "pyproject.toml"
        program = "uv run --no-sync pytest" if (folder / "uv.lock").is_file() else f"{_IN_VENV} python3 -m pytest"
        yield RootProposal(program, source, protect=files)
    if "tox" in tool or "tox.ini" in files:
        yield RootProposal("tox", "tox.ini" if "tox.ini" in files else "pyproject.toml", protect=files)


def _text(path: Path) -> str:
    try:
        return read_input(path, _MAX_BYTES).decode("utf-8", "replace")
    except (OSError, Unreadable):
        return ""


def _json(path: Path) -> Any:
    try:
        with boundary("package.json", path):
            return json.loads(_text(path) or "{}")
    except Unreadable:
        return {}


def _toml(path: Path) -> Any:
    try:
        with boundary("pyproject.toml", path):
            return tomllib.loads(_text(path))
    except Unreadable:
        return {}


def _table(value: Any, key: str) -> dict[str, Any]:
    table = value.get(key) if isinstance(value, dict) else None
    return table if isinstance(table, dict) else {}
