"""Settings: each file is checked by pydantic once, and then read from `.hive/settings.json`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hivemind import Hive, UserError
from hivemind.config import AgentConfig, HiveConfig, load_agents, load_hive
from hivemind.fs import is_durable
from hivemind.layout import Layout

HIVE = """\
workspace: boats
settle_ms: 20
roots: [/srv/boats, {path: /srv/harbour, worktree: true, check: make check, protect: [a, b], push: origin}]
retention: {tasks: 90d}
notify: {events: done, program: [notify, --now]}
embedder: {url: "http://localhost/v1", model: small, dimension: 3}
prices: {"anthropic:small": {in: 1, out: 2.5}}
budget: {day: {tokens: null}}
minds: {claude: {model: small, args: [--fast]}}
agents: {tools: [read_file], max_turns: 40}
"""
AGENT = "mind: {agent: claude, mode: plan}\nreplicas: 2\nnetwork: [example.org]\nbudget: {task: {money: 2}}\n"
WITHOUT_PYDANTIC = "import sys; sys.modules['pydantic'] = None; "


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = Hive.init(tmp_path / "hive", replacements={"hive.yaml": HIVE, "agents/pilot.yaml": AGENT}).layout
    load_agents(layout, load_hive(layout))
    return layout


def without_pydantic(layout: Layout, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_PYDANTIC + code], cwd=layout.root, capture_output=True, text=True, check=False
    )


def test_settings_are_the_same_whether_checked_now_or_before(layout: Layout) -> None:
    from_record = load_hive(layout), load_agents(layout, load_hive(layout)).configs
    layout.checked_settings.unlink()
    read_only = Layout(layout.root, read_only=True)
    checked = load_hive(read_only), load_agents(read_only, load_hive(read_only)).configs
    assert not layout.checked_settings.exists()
    assert from_record == checked
    assert repr(from_record) == repr(checked)  # tuples and lists, too
    assert list(checked[1]) == ["pilot-1", "pilot-2"]
    assert checked[1]["pilot-1"].mind == {"model": "small", "args": ["--fast"], "agent": "claude", "mode": "plan"}


@pytest.mark.parametrize("durability", ["full", "relaxed"])
def test_loading_the_settings_says_what_is_synced_in_the_hive_its_roots_and_its_memory(
    tmp_path: Path, durability: str
) -> None:
    layout, url = Layout.at(tmp_path / "hive"), f"postgresql://host/{tmp_path.name}"
    layout.root.mkdir()
    layout.config.write_text(f"durability: {durability}\nroots: [../app]\nmemory: {url}\n")
    load_hive(layout)
    places = layout.memory_db, layout.done / "one/result.md", tmp_path / "app/main.py", url
    assert {is_durable(place) for place in places} == {durability == "full"}
    assert is_durable(tmp_path / "hive-copy/file")


@pytest.mark.parametrize("command", [["status"], ["task", "list"], ["task", "add", "Sail"], ["mail", "list", "human"]])
def test_a_command_that_only_reads_settings_does_not_import_pydantic(tmp_path: Path, command: list[str]) -> None:
    layout = Layout.at(tmp_path)
    layout.config.touch()
    Hive.open(tmp_path)
    process = without_pydantic(layout, f"from hivemind.cli import main; sys.exit(main({command}))")
    assert (process.returncode, process.stderr) == (0, "")


@pytest.mark.parametrize("mind", ["agent: claude", "acp: claude", "claude, with a login", "a model", "a program"])
@pytest.mark.parametrize("command", [["status"], ["task", "list"], ["agent", "list"]])
def test_an_agent_without_its_key_login_or_program_is_named_while_the_swarm_is_down(
    tmp_path: Path, command: list[str], mind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin/claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (program.parent / "claude-agent-acp").symlink_to(program)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    value, reason = {
        "claude, with a login": ("{agent: claude, login: true}", "nobody is logged in to claude"),
        "a model": ("anthropic:small", "ANTHROPIC_API_KEY"),
        "a program": ("{command: [nosuch, --fast]}", "the program nosuch was not found on the PATH"),
    }.get(mind, (f"{{{mind}}}", " has no key; set ANTHROPIC_API_KEY"))
    layout = Hive.init(tmp_path / "hive", replacements={"agents/pilot.yaml": f"mind: {value}\nrole: pilot\n"}).layout
    Hive.open(layout.root).tasks.add("Sail.", role="pilot")
    code = f"from hivemind.cli import main; sys.exit(main({command}))"
    if mind == "a model":  # a lacking model may import it
        code = f"del sys.modules['pydantic']; {code}"
    ended = without_pydantic(layout, code)
    lines = [line for line in ended.stdout.splitlines() if "pilot" in line and "cannot start here: " in line]
    assert lines, ended.stdout + ended.stderr
    assert all(reason in line for line in lines)


def test_a_changed_file_is_checked_again(layout: Layout) -> None:
    layout.config.write_text(HIVE + "max_active: none\n")
    with pytest.raises(UserError, match="max_active"):
        load_hive(layout)
    layout.config.write_text(HIVE + "max_active: 3\n")
    assert load_hive(layout).max_active == 3
    load_agents(layout, load_hive(layout))
    assert without_pydantic(layout, "from hivemind import Hive; Hive.open('.')").returncode == 0


def test_a_change_of_the_defaults_for_agents_checks_their_files_again(layout: Layout) -> None:
    layout.config.write_text(HIVE.replace("read_file", "write_file"))
    assert load_agents(layout, load_hive(layout)).configs["pilot-1"].tools == ["write_file"]


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", "7", '{"kind": "settings", "version": 1, "files": {"hive.yaml": []}}']
)
def test_a_damaged_record_of_checked_settings_is_replaced(layout: Layout, damage: str) -> None:
    layout.checked_settings.write_text(damage)
    load_agents(layout, load_hive(layout))
    assert json.loads(layout.checked_settings.read_text())["files"]["hive.yaml"][1][1]["workspace"] == "boats"


def test_settings_changed_in_the_record_alone_do_not_count(layout: Layout) -> None:
    layout.checked_settings.write_text(layout.checked_settings.read_text().replace('"settle_ms":20', '"settle_ms":-1'))
    assert load_hive(layout).settle_ms == 20


def test_a_file_with_an_error_has_no_record(layout: Layout) -> None:
    (layout.agents / "cook.yaml").write_text("max_turns: 0\n")
    assert list(load_agents(layout, load_hive(layout)).problems) == ["cook"]
    assert sorted(json.loads(layout.checked_settings.read_text())["files"]) == ["agents/pilot.yaml", "hive.yaml"]


def test_values_for_commands_which_may_be_secrets_stand_in_their_own_file_only(layout: Layout) -> None:
    (layout.agents / "pilot.yaml").write_text("env: {HARBOUR_KEY: anchor-77}\n")
    assert load_agents(layout, load_hive(layout)).configs["pilot"].env == {"HARBOUR_KEY": "anchor-77"}
    assert list(json.loads(layout.checked_settings.read_text())["files"]) == ["hive.yaml"]
    layout.config.write_text(HIVE.replace("max_turns: 40", "env: {HARBOUR_KEY: anchor-77}"))
    load_agents(layout, load_hive(layout))
    assert "anchor-77" not in layout.checked_settings.read_text()


def test_settings_cannot_be_set() -> None:
    with pytest.raises(AttributeError, match="frozen"):
        HiveConfig().workspace = "boats"  # type: ignore[misc]


def test_the_record_is_as_private_as_its_folder(layout: Layout) -> None:
    assert layout.checked_settings.stat().st_mode & 0o777 == 0o600  # addresses of webhooks may be secrets


def test_declared_models_answer_as_pydantic_models_do() -> None:
    config = HiveConfig(roots=["a"], budget={"day": {"tokens": 3}})
    assert config.model_dump(exclude_unset=True) == {"roots": [{"path": "a"}], "budget": {"day": {"tokens": 3}}}
    assert HiveConfig.model_validate(config.model_dump()) == config != HiveConfig()
    assert HiveConfig.model_validate_json(config.model_dump_json()).model_dump() == config.model_dump()
    assert (config.settle_ms, AgentConfig.model_fields["max_turns"].default) == (250, 100)
    assert config.model_copy(update={"zone": "Europe/Berlin"}).zone == "Europe/Berlin"
    with pytest.raises(ValueError, match="settle_ms"):
        HiveConfig(settle_ms=-1)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "embedder: bert",
            "embedder: must be 'auto', 'none', 'minilm' or 'hashing' or a mapping {url, model, dimension, ",
        ),
        ("embedder: {model: m}", "embedder.url: is missing"),
        ("notify: {events: [fail]}", "notify.events.0: must be 'done', 'failed' or 'parked'"),
        ("notify: 5", "notify: must be a mapping {events, letter, program, webhook}"),
    ],
)
def test_a_wrong_setting_is_named_with_every_form_that_it_may_have(layout: Layout, text: str, sentence: str) -> None:
    layout.config.write_text(text)
    with pytest.raises(UserError, match=re.escape(f"hive.yaml:1: {sentence}")):
        load_hive(layout)
