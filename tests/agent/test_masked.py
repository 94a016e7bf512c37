"""A secret gets into none of the program's own files, whoever brought it in."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.config import LimitsConfig
from hivemind.errors import UserError
from hivemind.masking import keep_secrets
from hivemind.mcp_server.member import Member
from hivemind.tools.command import clean_environment, run_program
from tests.agent.conftest import Crew, hands, until_idle

BODY = [f"MIIEpAIBAAKCAQEA{number:02}c3R1cGlkYnV0bG9uZ2Vub3VnaHRvbG9va2xpa2U" for number in range(20)]
KEY = "\n".join(["-----BEGIN RSA PRIVATE KEY-----", *BODY, "-----END RSA PRIVATE KEY-----"])


def holding(crew: Crew, secret: str) -> set[str]:
    """The files of the hive that have it."""
    crew.close()
    files = [path for path in crew.root.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    return {str(path.relative_to(crew.root)) for path in files}


def test_what_a_persons_task_says_is_masked_in_the_working_memory_too(crew):
    secret = "ghp_a1b2c3d4e5f6g7h8i9j0k1l2m3n4"
    crew.drop(f"---\ntitle: Push with {secret}\nsteps: [{{run: echo pushed}}]\n---\nPush it with {secret}.\n")
    until_idle(crew.start())
    assert (crew.root / "tasks/done/t/result.md").exists()
    assert holding(crew, secret) == {"tasks/done/t/task.md", "tasks/done/t/task.json"}


def test_what_a_task_waits_for_is_told_without_the_secret_in_it(crew: Crew) -> None:
    secret = "ghp_a1b2c3d4e5f6g7h8i9j0k1l2m3n4"
    crew.drop(f"---\nsteps: [{{wait: {{human: 'Use {secret} ?'}}}}]\n---\nAsk.\n")
    until_idle(crew.start())
    parked = Hive.open(crew.root).tasks.get("t").parked
    assert parked is not None
    assert "Use [masked] ?" in parked.reason


@pytest.mark.shows("key: agents/<agent>.yaml: env")
def test_what_an_agents_file_gives_its_commands_under_a_secrets_name_is_masked(crew):
    secret = "Given-to-commands.77"
    crew.agent_file(f"role: analyst\nenv: {{DEPLOY_TOKEN: {secret}, COLOUR: Green-and-blue.1}}\n")
    crew.drop("---\nsteps: [{run: 'echo $DEPLOY_TOKEN, $COLOUR'}]\n---\nDeploy.\n")
    until_idle(crew.start())
    assert "[masked], Green-and-blue.1" in (crew.root / "tasks/done/t/result.md").read_text()
    assert holding(crew, secret) == {"agents/ada.yaml"}


def test_a_private_key_is_masked_before_lines_are_cut_from_its_file_and_the_lines_are_kept(crew: Crew) -> None:
    (crew.root / "knowledge/deploy.md").write_text(f"before\n{KEY}\nafter MIIE\n")
    use = hands(crew)
    for first in range(1, 25):
        text = use("read_file", path="knowledge/deploy.md", start_line=first, end_line=first + 1)["result"]["text"]
        assert not any(line in text for line in BODY)
    last = use("read_file", path="knowledge/deploy.md", start_line=24)["result"]
    assert (last["text"], last["end_line"]) == ("after MIIE\n", 24)
    for pattern in ("MIIE", "^MII[E]"):
        found = use("search_files", pattern=pattern)["result"]["hits"]
        assert [(hit["line"], hit["text"]) for hit in found] == ([(24, "after MIIE")] if pattern == "MIIE" else [])


PRINTED = {
    "across the place where long output is divided": "w('x' * {at} + ' ghp_a1b2c3d4e5f6g7h8i9j0k1l2m3n4 ' + 'y' * 70_000)",
    "line by line, a key without end": "[w(line + chr(10)) for line in ({key!r} * 60).split(chr(10))]",
    "line by line, a value of several lines": "[w(line + chr(10)) for line in {value!r}.split(chr(10))]",
}


@pytest.mark.parametrize("how", PRINTED)
@pytest.mark.parametrize("at", [131_045, 131_050, 131_060])
def test_a_secret_that_a_command_prints_in_parts_is_stored_nowhere(tmp_path: Path, how: str, at: int) -> None:
    value = "First-line.4711\nSecond-line.4712\nThird-line.4713"
    keep_secrets({"DEPLOY_KEY": value})
    begun = KEY.replace("-----END RSA PRIVATE KEY-----", "")
    told = PRINTED[how].format(at=at, key=begun, value=value)
    script = f"import os\ndef w(text): os.write(1, text.encode())\n{told}\n"
    result = run_program(
        [sys.executable, "-c", script], folder=tmp_path, output=tmp_path / "out", limits=LimitsConfig(),
        environment=clean_environment(os.environ, {}),
    )  # fmt: skip
    assert result.exit_status == 0
    text = (tmp_path / "out").read_text()
    assert "[masked]" in text
    for part in ("a1b2c3d4", "i9j0k1l2", *BODY, *value.split("\n")):
        assert part not in text


def test_a_task_that_an_agent_adds_says_no_secret_and_can_be_claimed_by_the_id_that_is_answered(crew: Crew) -> None:
    secret = "ghp_a1b2c3d4e5f6g7h8i9j0k1l2m3n4"
    crew.agent_file("mind: mcp\n", "claude")
    agent = crew.start()
    member = Member(agent.hive, "claude", "full")
    try:
        made = member.call("add_task", {"title": f"Push with {secret}", "text": f"Push it with {secret}.\n{KEY}\n"})
        assert member.call("claim_task", {"task": made["task"]})["task"] == made["task"]
        with pytest.raises(UserError, match="secret"):
            member.call("add_task", {"title": "x", "id": secret})
    finally:
        member.close()
    assert not holding(crew, secret)
    assert not holding(crew, BODY[3])


def test_a_subtask_takes_no_secret_with_it(crew: Crew) -> None:
    secret = "ghp_a1b2c3d4e5f6g7h8i9j0k1l2m3n4"
    crew.agent_file("{}\n", "bob")
    told = hands(crew)("delegate", tasks=[{"to": "bob", "text": f"The key is {secret}.", "title": f"Use {secret}"}])
    [made] = told["result"]["ids"]
    assert "[masked]" in (crew.root / "tasks/inbox" / made / "task.md").read_text()
    assert not holding(crew, secret)
