"""`init --for git`: which check it proposes for a project, and what it writes to hive.yaml."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hivemind.config import RootConfig, load_hive
from hivemind.hive import Hive
from hivemind.landing.checks import protected_changes
from hivemind.layout import Layout
from hivemind.sandbox import has_sandbox
from hivemind.swarm.for_git import DetectedProgram, files_for_git
from hivemind.swarm.project_check import RootProposal, find_check
from tests.landing.test_checks import Person

PACKAGE = '{"scripts": {"test": "node --test"}}'
NO_TEST = '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'
PYTEST = '[project]\nname = "x"\n[project.optional-dependencies]\ntest = ["pytest>=8"]\n'
IN_VENV = 'PATH="$PWD/.venv/bin:$PATH" python3 -m pytest'
PROJECTS: dict[str, tuple[dict[str, str], str | None, str | None]] = {
    "nothing": ({"README": "x\n"}, None, None),
    "a program of the project": ({".ci/run": "#!/bin/sh\n", "Makefile": "test:\n", "go.mod": ""}, "sh .ci/run", None),
    "make": ({"Makefile": "CC = cc\nall: x\n\ntest: all\n\t./x\n", "go.mod": "module x\n"}, "make test", None),
    "make, without a test": ({"Makefile": "all:\ncheck lint:\n\ttrue\n"}, "make check", None),
    "make, with other targets": ({"Makefile": "latest:\ntest-all:\nTEST := x\ntest = x\ntest := y\n"}, None, None),
    "make, with several targets": ({"GNUmakefile": ".PHONY: x\nunit test: x\n", "Makefile": "all:\n"}, "make test", None),
    "npm": ({"package.json": PACKAGE, "package-lock.json": "{}"}, "npm run test", "npm ci"),
    "npm without a lock file": ({"package.json": PACKAGE}, "npm run test", "npm install"),
    "pnpm": ({"package.json": PACKAGE, "pnpm-lock.yaml": ""}, "pnpm run test", "pnpm install --frozen-lockfile"),
    "yarn": ({"package.json": PACKAGE, "yarn.lock": ""}, "yarn run test", "yarn install --frozen-lockfile"),
    "npm, without a test": ({"package.json": NO_TEST}, None, "npm install"),
    "a package.json that is none": ({"package.json": "[" * 10_000}, None, "npm install"),
    "a package.json of other types": ({"package.json": '{"scripts": ["test"]}'}, None, "npm install"),
    "pytest": ({"pyproject.toml": PYTEST}, IN_VENV, "python3 -m venv .venv && .venv/bin/python -m pip install -e ."),
    "pytest by its settings": ({"pyproject.toml": "[tool.pytest.ini_options]\n", "tox.ini": ""}, IN_VENV, None),
    "pytest in a group, with uv": (
        {"pyproject.toml": '[dependency-groups]\ndev = ["pytest"]\n', "uv.lock": ""},
        "uv run --no-sync pytest", "uv sync --frozen",
    ),
    "tox": ({"tox.ini": "[tox]\n"}, "tox", None),
    "a pyproject.toml that is none": ({"pyproject.toml": "[[[\xff"}, None, None),
    "cargo": ({"Cargo.toml": "[package]\n", "Cargo.lock": ""}, "cargo test", "cargo fetch --locked"),
    "go": ({"go.mod": "module x\n", "go.sum": ""}, "go test ./...", "go mod download"),
}  # fmt: skip


def make_project(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


@pytest.mark.parametrize("kind", PROJECTS)
def test_the_check_of_a_project_is_found(tmp_path: Path, kind: str) -> None:
    files, check, setup = PROJECTS[kind]
    make_project(tmp_path, files)
    project = find_check(tmp_path)
    assert project.check == check
    if setup is not None or "pyproject.toml" not in files:
        assert project.setup == setup
    assert all((tmp_path / name).exists() for name in project.setup_when)
    assert project.source is None or (tmp_path / project.source).is_file()
    assert {"AGENTS.md", "CLAUDE.md"} <= set(project.protect)
    if project.source not in (None, "Cargo.toml", "go.mod"):
        assert protected_changes([str(project.source)], project.protect)


def test_a_program_is_run_as_one(tmp_path: Path) -> None:
    make_project(tmp_path, {".ci/run": "#!/bin/sh\n"})
    (tmp_path / ".ci/run").chmod(0o755)
    assert find_check(tmp_path).check == ".ci/run"


def test_another_makefile_that_make_prefers_is_protected_too(tmp_path: Path) -> None:
    make_project(tmp_path, {"Makefile": "test:\n", ".github/workflows/ci.yml": "", ".gitlab-ci.yml": ""})
    paths = ["GNUmakefile", "makefile", ".github/workflows/new.yml", ".gitlab-ci.yml", "src/AGENTS.md"]
    assert list(protected_changes([*paths, "src/x.py"], find_check(tmp_path).protect)) == paths


def test_a_file_that_is_no_file_is_passed_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "package.json")
    (tmp_path / "Makefile").mkdir()
    assert find_check(tmp_path).check is None


def root_of(person: Person, project: RootProposal, *, is_confirmed: bool) -> tuple[RootConfig, str]:
    """The root in the hive.yaml that is written, and its text."""
    layout = Layout.at(person.path.with_name("app-hive"))
    programs = [DetectedProgram("codex", {"agent": "codex"})]
    text = files_for_git(layout, person.path, programs, project, is_confirmed=is_confirmed)["hive.yaml"]
    layout.root.mkdir(exist_ok=True)
    layout.config.write_text(text)
    config = load_hive(layout)
    assert config.worktree_roots(layout) == (person.path,)
    return config.roots[0], text


@pytest.mark.parametrize("kind", PROJECTS)
def test_what_is_written_can_be_read(person: Person, kind: str) -> None:
    make_project(person.path, PROJECTS[kind][0])
    project = find_check(person.path)
    for is_confirmed in (True, False):
        root, text = root_of(person, project, is_confirmed=is_confirmed)
        assert (root.land, root.branch, root.protect) == ("ask", "main", project.protect)
        assert root.check == ((project.check,) if is_confirmed and project.check else ())
        assert (root.setup, root.check_network) == ((), "off")
        proposals = [
            line.replace("# ", "", 1) for line in text.splitlines() if line.startswith(("    # check", "    # setup"))
        ]
        other = yaml.safe_load("\n".join(["path: x", *(line.strip() for line in proposals)]))
        assert other.get("setup") == project.setup
        if project.check is not None and not is_confirmed:
            assert other["check"] == project.check


def test_an_integration_branch_is_proposed_if_there_is_one(person: Person) -> None:
    assert "your checkout moves with each landing" in root_of(person, RootProposal(), is_confirmed=False)[1]
    person.git("branch", "develop")
    root, text = root_of(person, RootProposal(), is_confirmed=False)
    assert root.branch == "develop"
    assert "your checkout (main) stays as it is" in text
    person.git("checkout", "-q", "develop")
    assert "your checkout moves" in root_of(person, RootProposal(), is_confirmed=False)[1]
    person.git("branch", "-m", "develop", "off")  # a word that YAML would read as another value
    assert root_of(person, RootProposal(), is_confirmed=False)[0].branch == "off"
    person.git("checkout", "-q", "--detach")
    assert root_of(person, RootProposal(), is_confirmed=False)[0].branch is None


@pytest.mark.parametrize("kind", ["a program of the project", "make", "pytest by its settings"])
def test_the_check_that_is_proposed_runs(person: Person, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{sys.prefix}/bin:{os.environ['PATH']}")  # a box shows this Python
    make_project(person.path, PROJECTS[kind][0])
    make_project(person.path, {"x": "#!/bin/sh\necho x\n", "test_x.py": "def test_x(): pass\n"})
    (person.path / "x").chmod(0o755)
    root, _ = root_of(person, find_check(person.path), is_confirmed=True)
    verdict = person.check(person.space(list(root.check)), person.commit())
    assert verdict.outcome == "green", verdict.output_tail


@pytest.mark.parametrize(("answer", "is_written"), [("y\n", True), ("\n", False), ("no\n", False)])
def test_a_person_at_the_terminal_confirms_the_check(
    person: Person, tmp_path: Path, answer: str, is_written: bool
) -> None:
    person.commit(Makefile="test:\n\ttrue\n")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "codex").write_text("#!/bin/sh\n")
    (programs / "codex").chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "OPENAI_API_KEY": "k", "TERM": "dumb"}
    screen, terminal = pty.openpty()
    argv = [sys.executable, "-m", "hivemind", "init", "--for", "git", str(person.path)]
    process = subprocess.Popen(
        argv, env=environment, stdin=terminal, stderr=terminal, stdout=subprocess.PIPE, cwd=tmp_path
    )
    os.close(terminal)
    prompt = b""
    while b"[y/N]" not in prompt:
        prompt += os.read(screen, 1024)
    assert b"Makefile names a check: make test" in prompt
    os.write(screen, answer.encode())
    output = process.communicate()[0].decode()
    os.close(screen)
    assert process.returncode == 0, output
    assert load_hive(Layout.at(tmp_path / "app-hive")).roots[0].check == (("make test",) if is_written else ())
    assert (
        "\nCheck: make test\n" if is_written else "Not confirmed, and commented out in hive.yaml: check: make test"
    ) in output


def test_without_a_terminal_the_check_is_commented_out(person: Person, tmp_path: Path) -> None:
    root, text = root_of(person, RootProposal("make test", "Makefile"), is_confirmed=False)
    assert root.check == ()
    assert "# Found in Makefile, and not confirmed" in text


def test_a_mind_that_is_named_takes_the_place_of_the_coding_agents(person: Person) -> None:
    hive = person.path.with_name("app-hive")
    arguments = ["init", "--for", "git", os.fspath(person.path), os.fspath(hive), "--mind"]

    def init(mind: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "hivemind", *arguments, mind]
        return subprocess.run(command, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})

    unknown = init("oracle")
    assert (unknown.returncode, hive.exists()) == (2, False)
    assert "unknown mind 'oracle'" in unknown.stderr
    made = init("command: [nowhere, --fast]")
    assert made.returncode == 0, made.stderr
    assert "nowhere" in made.stdout.split("Check", 1)[0].split("\n", 1)[1]  # the problem that its agents have
    minds = {name: agent.mind for name, agent in Hive.look(hive).agents.items()}
    assert list(minds) == ["coder-1", "coder-2", "lead", "reviewer"]
    assert all(mind == {"command": ["nowhere", "--fast"]} for mind in minds.values())
    assert "agent try" not in made.stdout, "it is for coding agents"
    may_run_all = {agent.shell for agent in Hive.look(hive).agents.values()}
    assert may_run_all == {has_sandbox()}, "what they run is confined, or nothing is run"
