"""A coding agent's program in its box, from the agent's file to the task's trail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hivemind.config import load_agents, load_hive
from hivemind.doctor import examine
from hivemind.doctor.context import DoctorContext
from hivemind.errors import UserError
from hivemind.layout import Layout
from hivemind.minds import MindUnavailable, open_mind
from hivemind.minds.agents.mind import AgentMind
from hivemind.sandbox import BoxSettings, check_sandbox
from tests.agent.conftest import Crew, until_idle
from tests.agent.test_program import FINISH, PROFILE, coder, home, task
from tests.agent.test_worktree import Repo
from tests.messages import lines_of

__all__ = ["coder"]


@pytest.fixture(autouse=True)
def _box() -> None:
    try:
        check_sandbox()
    except UserError as error:
        pytest.skip(str(error))


def outputs(crew: Crew) -> str:
    """All that the results of a task's calls say."""
    return json.dumps([line for line in lines_of(task(crew)) if line.get("role") == "tool"])


def test_a_program_sees_its_task_and_of_the_hive_nothing_else(coder: Crew):
    (coder.root / "rom" / "secret.md").write_text("only for those who are shown it\n")
    coder.drop(
        f"x\n!sh ls -A {coder.root} {coder.root}/.hive/agents; cat {coder.root}/rom/secret.md\n"
        f"!sh echo y > made; echo spoiled > ~/../attached.json\n{FINISH}\n"
    )
    until_idle(coder.start())
    shown = outputs(coder)
    assert "only for those" not in shown
    assert "hive.yaml" not in shown
    assert (task(coder) / "files" / "made").read_text() == "y\n"
    assert "spoiled" not in (home(coder).parent / "attached.json").read_text()


def test_of_a_repository_it_sees_its_worktree_and_not_what_the_person_has_checked_out(coder: Crew, tmp_path: Path):
    repo = Repo(coder.root.parent / "app")
    repo.commit(boat="a boat\n")
    (repo.path / ".env").write_text("the persons key\n")
    coder.configure("roots: [{path: ../app, worktree: true, land: off}]\n")
    coder.drop(
        f"x\n!sh cat boat; git log --format=%s; cat {repo.path}/.env {repo.path}/.git/config; echo x > made\n{FINISH}\n"
    )
    until_idle(coder.start())
    assert "a boat" in outputs(coder)
    assert "the persons key" not in outputs(coder)
    assert "repositoryformatversion" not in outputs(coder)
    assert "made" in (task(coder) / "result.md").read_text()


def test_what_the_box_refuses_is_in_the_trail(coder: Crew):
    coder.drop(f"x\n!sh curl -s https://evil.example/; curl -s http://10.0.0.1/\n{FINISH}\n")
    until_idle(coder.start())
    calls = [call for line in lines_of(task(coder)) for call in line.get("calls", ()) if call["tool"] == "network"]
    assert [call["arguments"]["host"] for call in calls] == ["evil.example:443", "10.0.0.1:80"]
    assert "refused: evil.example:443 is not under network: in the agent's file" in outputs(coder)


def test_a_loopback_url_in_env_is_reached_and_said(coder: Crew, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_BASE_URL", "http://127.0.0.1:9/v1")
    coder.agent_file("mind: {agent: fake, env: [MY_BASE_URL]}\nnetwork: example.org\n")
    coder.drop(f"x\n!sh curl -s http://127.0.0.1:9/ || echo status $?\n{FINISH}\n")
    until_idle(coder.start())
    [note] = [line["text"] for line in lines_of(task(coder)) if line.get("event") == "network"]
    assert note == "Its box reaches 127.0.0.1:9: its env or args name it."
    mind = open_mind(
        {"agent": "fake", "env": ["MY_BASE_URL"]}, root=coder.root, box=BoxSettings(network=("example.org",))
    )
    assert isinstance(mind, AgentMind)
    assert mind.network != "open"
    assert {host for host, _ in mind.network.pairs} == {"127.0.0.1", "example.org"}


def test_its_commands_through_the_hive_run_in_a_box_too(coder: Crew):
    coder.agent_file("mind: {agent: fake}\nshell: true\ntoolset: coder\n")
    command = json.dumps({"command": f"cat {coder.root}/hive.yaml; echo seen"})
    coder.drop(f"x\n!call run_command {command}\n{FINISH}\n")
    until_idle(coder.start())
    assert "seen" in outputs(coder)
    assert "durability" not in outputs(coder)


def test_without_a_box_it_has_the_persons_rights(coder: Crew):
    coder.agent_file("mind: {agent: fake}\nsandbox: none\n")
    coder.drop(f"x\n!sh cat {coder.root}/hive.yaml\n{FINISH}\n")
    until_idle(coder.start())
    assert "durability" in outputs(coder)


def test_a_session_that_is_named_like_a_file_makes_no_file_visible(coder: Crew, tmp_path: Path):
    secret = tmp_path / "id_ed25519"
    secret.write_text("the key of the person\n")
    announce = json.dumps({"type": "begin", "session": str(secret)})
    script = f'echo "$$1" > $$HOME/session; cat "$$1" > $$HOME/read; echo \'{announce}\''
    words = json.dumps(["-c", script, "sh", "$session"])
    rules = "[{when: {type: begin}, session: session, text: type}]"
    profile = f"program: /bin/sh\nhome: MY_HOME\nwords: {words}\nsession: [$id]\nlines: {rules}\n"
    (coder.root / "agents/profiles/fake.yaml").write_text(profile)
    coder.drop("x\n")
    agent = coder.start()
    agent.cycle()
    agent.cycle()
    assert (home(coder) / "session").read_text() == f"{secret}\n", (
        "the program is called with the session that it has named"
    )
    assert (home(coder) / "read").read_text() == ""


def test_files_that_are_written_for_it_do_not_follow_its_links(coder: Crew, tmp_path: Path):
    (coder.root / "agents/profiles/fake.yaml").write_text(
        PROFILE + "files: {home/.fake/settings.json: '{}', home/x.json: '{}'}\n"
    )
    bait = tmp_path / "settings.json"
    bait.write_text("the person's own\n")
    coder.drop(f"x\n!sh rm -rf ~/.fake ~/x.json; ln -s {tmp_path} ~/.fake; ln -s {bait} ~/x.json\n{FINISH}\n")
    until_idle(coder.start())
    coder.close()
    coder.drop(f"x\n{FINISH}\n", name="u.md")
    coder.start().cycle()
    assert bait.read_text() == "the person's own\n"
    assert (home(coder) / ".fake").is_symlink()


def test_a_login_is_shown_in_its_own_home_and_the_rest_of_the_persons_is_not(coder: Crew, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    (tmp_path / "me/.fake").mkdir(parents=True)
    (tmp_path / "me/.fake/login.json").write_text("the-login-token\n")
    (tmp_path / "me/.bashrc").write_text("the bashrc\n")
    profile = PROFILE.replace(
        "home: FAKE_HOME", "login: ~/.fake/login.json\nhome: FAKE_CONFIG\nenvironment: {FAKE_HOME: $files/home}"
    )
    (coder.root / "agents/profiles/fake.yaml").write_text(profile)
    coder.agent_file("mind: {agent: fake, login: true}\n")
    coder.drop(
        f"x\n!sh cat ~/.fake/login.json; echo spoiled > ~/.fake/login.json; cat {tmp_path}/me/.bashrc\n{FINISH}\n"
    )
    until_idle(coder.start())
    assert "the-login-token" in outputs(coder)
    assert "the bashrc" not in outputs(coder)
    assert (tmp_path / "me/.fake/login.json").read_text() == "the-login-token\n"


def test_a_wrapper_whose_program_its_box_does_not_show_says_what_to_write(coder: Crew):
    wrapper = coder.root / "wrapper"
    wrapper.write_text("#!/bin/sh\nexec no-such-program\n")
    wrapper.chmod(0o755)
    mind = open_mind({"acp": ["./wrapper"]}, root=coder.root)
    with pytest.raises(MindUnavailable, match="name the real program by program: in mind:"):
        mind.complete("x")


def test_one_prompt_by_hand_runs_in_a_box(coder: Crew):
    mind = open_mind({"agent": "fake"}, root=coder.root)
    assert isinstance(mind, AgentMind)
    assert mind.complete("!say here") == "here"
    assert mind.box.is_boxed


def test_a_mode_under_sandbox_is_refused_with_the_line_to_write(coder: Crew):
    with pytest.raises(UserError, match=r"write mind: \{mode: plan\}"):
        open_mind({"agent": "fake", "sandbox": "plan"}, root=coder.root)
    with pytest.raises(UserError, match="write sandbox: none beside mind"):
        open_mind({"agent": "fake", "sandbox": "none"}, root=coder.root)
    coder.agent_file("mind: {agent: fake}\nsandbox: workspace-write\n")
    layout = Layout.at(coder.root)
    problem = load_agents(layout, load_hive(layout)).problems["ada"]
    assert "write auto, bwrap or none; a program's own way of approving is mind: {mode: workspace-write}" in str(
        problem
    )


def test_where_bubblewrap_does_not_run_it_is_said_once(coder: Crew, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    from hivemind.sandbox import has_sandbox
    from hivemind.swarm.overview import overview

    monkeypatch.setenv("PATH", str(tmp_path))
    hive = coder.start().hive
    for cached in (check_sandbox, has_sandbox):
        cached.cache_clear()
    try:
        found = [one for one in examine(DoctorContext(hive.layout)) if "all your rights" in one.message]
        assert [one.message for one in found] == [
            "sandbox: bwrap is not installed here: the program of ada has all your rights"
        ]
        assert overview(hive).unboxed == ("ada",)
        with pytest.raises(UserError, match="bwrap is not installed here"):
            open_mind({"agent": "fake"}, root=coder.root, box=BoxSettings("bwrap"))
    finally:
        for cached in (check_sandbox, has_sandbox):
            cached.cache_clear()
