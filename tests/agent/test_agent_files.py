"""A file in agents/ that cannot be read sets that agent aside, with its reason: every command and all other agents work."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.cli.main import main
from hivemind.doctor import DoctorContext, examine
from hivemind.errors import UserError
from hivemind.mcp_server.member import Member
from hivemind.presence.identity import lock_name
from hivemind.swarm.until_idle import with_wait_reasons
from tests.agent.conftest import Crew, doing, until_idle
from tests.program import run

FILES: dict[str, Callable[[Path], object]] = {
    "no YAML": lambda path: path.write_text("role: [analyst\n"),
    "an unknown key": lambda path: path.write_text("rôle: analyst\n"),
    "a wrong value": lambda path: path.write_text("replicas: 1e400\n"),
    "a huge number": lambda path: path.write_text("replicas: " + "9" * 100_000 + "\n"),
    "an impossible date": lambda path: path.write_text("lane: 2026-99-99\n"),
    "aliases": lambda path: path.write_text("rom: &a [x]\ntools: *a\n"),
    "deep": lambda path: path.write_text("mind: " + "{a: " * 2000 + "}" * 2000),
    "no UTF-8": lambda path: path.write_bytes(b"role: \xff\n"),
    "a lone surrogate": lambda path: path.write_text('role: "\\ud800"\n'),
    "a NUL": lambda path: path.write_bytes(b"\0" * 4096),
    "huge": lambda path: path.write_text("# " + "x" * 2_000_000),
    "a folder": lambda path: path.mkdir(),
    "a FIFO": lambda path: os.mkfifo(path),
    "a link to nowhere": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a device": lambda path: path.symlink_to("/dev/null"),
    "the name of the operator": lambda path: path.with_name("human.yaml").write_text(""),
    "a name that is none": lambda path: path.with_name("-bad name-.yaml").write_text(""),
    "a second file of a name": lambda path: path.with_name("ada.yml").write_text("role: analyst\n"),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", FILES)
def test_an_agent_whose_file_cannot_be_read_is_set_aside_and_nothing_else(crew: Crew, kind: str, capsys):
    before = set((crew.root / "agents").iterdir())
    FILES[kind](crew.root / "agents" / "bob.yaml")
    [bad] = set((crew.root / "agents").iterdir()) - before
    crew.drop("What is a boat?", "boats.md")
    assert until_idle(crew.start())
    for words in (["task", "list"], ["log"], ["mail", "list", "ada"], ["context", "ada"], ["view", "resume"]):
        assert main(["--hive", str(crew.root), *words]) == 0
    capsys.readouterr()
    for words in (["status", "--json"], ["agent", "list", "--json"]):
        assert main(["--hive", str(crew.root), *words]) == 0
        told = json.loads(capsys.readouterr().out)
        agents = {one["name"]: one for one in (told["agents"] if isinstance(told, dict) else told)}
        assert agents["ada"]["problem"] is None
        [aside] = [one for name, one in agents.items() if name != "ada"]
        assert aside["state"] == "set aside"
        assert bad.name in aside["problem"]
    for words in (["status"], ["agent", "list"]):
        assert main(["--hive", str(crew.root), *words]) == 0
        assert bad.name in "".join(capsys.readouterr())
    [found] = [one for one in examine(DoctorContext(Hive.open(crew.root).layout)) if one.check == "settings"]
    assert bad.name in f"{found.location} {found.message}"


def test_what_is_for_an_agent_that_is_set_aside_waits_for_it(crew: Crew, capsys):
    crew.agent_file("nonsense: 1\n", "bob")
    hive = Hive.open(crew.root)
    assert hive.mail.send("human", "bob", "Hello", "Hello?").delivered
    crew.drop("---\nassignee: bob\n---\nBoats\n")
    until_idle(crew.start())
    [task] = with_wait_reasons(hive, hive.tasks.list("inbox"))
    assert "bob.yaml:1" in str(task.waiting)
    with pytest.raises(UserError, match="nonsense"):
        Member(hive, "bob")
    assert main(["--hive", str(crew.root), "agent", "run", "bob"]) == 2
    assert "nonsense" in capsys.readouterr().err
    assert not [one for one in examine(DoctorContext(hive.layout)) if one.check == "mail" and "bob" in one.location]


def test_a_swarm_starts_without_an_agent_that_is_set_aside_and_says_so(crew: Crew):
    crew.agent_file("nonsense: 1\n", "bob")
    crew.drop("What is a boat?", "boats.md")
    words = ["--hive", str(crew.root), "up", "--until-idle"]
    done = run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "bob.yaml:1" in done.stderr
    assert (crew.root / "tasks/done/boats").is_dir()
    done = run([*words, "--agents", "bob"], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2
    assert "bob.yaml:1" in done.stderr


def test_roots_that_are_gone_and_rom_that_cannot_be_read_stop_nobody(crew: Crew, capsys):
    crew.configure("roots: [../gone, {path: ../gone-too, write: true}, /proc/self/mem/x]\n")
    rom = crew.root / "rom"
    (rom / "latin.md").write_bytes(b"caf\xe9\n")
    os.mkfifo(rom / "pipe.md")
    (rom / "folder.md").mkdir()
    (rom / "nowhere.md").symlink_to("nowhere")
    (rom / "loop.md").symlink_to("loop.md")
    crew.agent_file("role: analyst\nrom: [rom/gone.md, rom/pipe.md, ../outside.md, rom/loop.md]\n")
    crew.drop("What is a boat?", "boats.md")
    assert until_idle(crew.start())
    assert (crew.root / "tasks/done/boats").is_dir(), (crew.root / "tasks/failed/boats/error.md").read_text()
    for words in (["status"], ["task", "list"], ["context", "ada"], ["doctor"]):
        assert main(["--hive", str(crew.root), *words]) in (0, 1)
    assert "fault of hivemind" not in "".join(capsys.readouterr())


def test_a_coding_agent_has_the_defaults_of_hive_yaml_by_its_name_and_its_own_file_counts_more(tmp_path: Path) -> None:
    hive = Hive.init(tmp_path)
    (tmp_path / "hive.yaml").write_text("minds: {claude: {model: big, env: [MY_KEY]}, qwen: {model: small}}\n")
    minds = {
        "a": "{agent: claude}",
        "b": "{acp: claude, model: own}",
        "c": "{agent: codex}",
        "d": "extractive",
        "e": "agent:claude",
    }
    for name, mind in minds.items():
        (tmp_path / f"agents/{name}.yaml").write_text(f"mind: {mind}\n")
    agents = Hive.open(hive.layout.root).agents
    assert agents["a"].mind == {"agent": "claude", "model": "big", "env": ["MY_KEY"]}
    assert agents["b"].mind == {"acp": "claude", "model": "own", "env": ["MY_KEY"]}
    assert agents["e"].mind == agents["a"].mind
    assert (agents["c"].mind, agents["d"].mind) == ({"agent": "codex"}, "extractive")


@pytest.mark.shows(
    "key: hive.yaml: minds.program",
    "key: hive.yaml: minds.model",
    "key: hive.yaml: minds.mode",
    "key: hive.yaml: minds.args",
    "key: hive.yaml: minds.env",
    "key: hive.yaml: minds.mcp",
    "key: hive.yaml: minds.login",
    "key: hive.yaml: minds.permissions",
    "key: hive.yaml: minds.max_turns",
    "key: hive.yaml: minds.timeout_s",
    "key: hive.yaml: minds.quiet_s",
    "key: hive.yaml: minds.ask_s",
)
def test_every_setting_of_a_program_may_be_a_default(tmp_path: Path) -> None:
    settings = {
        "program": "./claude", "model": "big", "mode": "plan", "args": ["-v"], "env": ["MY_KEY"], "mcp": ["mine"], "login": True,
        "permissions": {"fetch": "deny"}, "max_turns": 9, "timeout_s": 60.0, "quiet_s": 6.0, "ask_s": 1.0,
    }  # fmt: skip
    Hive.init(tmp_path)
    (tmp_path / "hive.yaml").write_text(json.dumps({"minds": {"claude": settings}}))
    (tmp_path / "agents/a.yaml").write_text("mind: {agent: claude}\n")
    assert Hive.open(tmp_path).agents["a"].mind == {"agent": "claude", **settings}


def test_a_misspelled_key_or_program_under_minds_is_named_with_its_line(tmp_path: Path) -> None:
    hive = Hive.init(tmp_path)
    (tmp_path / "hive.yaml").write_text("minds:\n  claude:\n    modell: big\n")
    with pytest.raises(UserError, match=r"hive.yaml:3: unknown key 'minds.claude.modell'.*did you mean 'model'?"):
        Hive.open(tmp_path)
    (tmp_path / "hive.yaml").write_text("minds: {cluade: {model: big}}\n")
    [finding] = [finding for finding in examine(DoctorContext(hive.layout)) if "cluade" in finding.message]
    assert "known: claude, codex" in str(finding.remedy)


def test_an_agent_that_claims_what_names_it_leaves_other_tasks_and_the_list_says_so(crew: Crew) -> None:
    crew.agent_file("role: analyst\nclaims: named\n")
    for task_id, key in (("any", ""), ("role", "role: analyst\n"), ("mine", "assignee: ada\n")):
        crew.drop(f"---\n{key}steps: [{{run: echo x}}]\n---\nx\n", f"{task_id}.md")
    until_idle(crew.start())
    hive = Hive.open(crew.root)
    assert sorted(task.id for task in hive.tasks.list("done")) == ["mine", "role"]
    [waiting] = with_wait_reasons(hive, hive.tasks.list("inbox"))
    assert (waiting.id, "claims: named" in (waiting.waiting or "")) == ("any", True)


def test_an_agent_that_claims_what_names_it_fails_tasks_that_cannot_be_claimed(crew: Crew) -> None:
    crew.agent_file("claims: named\n")
    crew.drop("---\nassignee: ada\ndepends: [ghost]\n---\nx\n", "damaged.md")
    until_idle(crew.start())
    assert [task.id for task in Hive.open(crew.root).tasks.list("failed")] == ["damaged"]


def test_a_task_whose_only_agent_works_on_another_says_so(crew: Crew) -> None:
    crew.drop("---\nrole: analyst\n---\nx\n")
    agent = crew.start(doing())
    lock = lock_name(agent.hive.layout, "ada")
    try:
        agent.status.update(state="working", task="sawing")
        [waiting] = with_wait_reasons(agent.hive, agent.hive.tasks.list("inbox"))
        agent.status.update(state="idle", task=None)
        [free] = with_wait_reasons(agent.hive, agent.hive.tasks.list("inbox"))
    finally:
        lock.release()
    assert (waiting.waiting, free.waiting) == ("waits for ada, which works on sawing", None)
