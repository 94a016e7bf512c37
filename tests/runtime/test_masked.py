"""A secret gets into none of the program's own files, whoever brought it in."""

from __future__ import annotations

from tests.runtime.conftest import Crew, until_idle


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
    assert holding(crew, secret) == {"tasks/done/t/task.md"}


def test_what_an_agents_file_gives_its_commands_under_a_secrets_name_is_masked(crew):
    secret = "Given-to-commands.77"
    crew.agent_file(f"role: analyst\nenv: {{DEPLOY_TOKEN: {secret}, COLOUR: Green-and-blue.1}}\n")
    crew.drop("---\nsteps: [{run: 'echo $DEPLOY_TOKEN, $COLOUR'}]\n---\nDeploy.\n")
    until_idle(crew.start())
    assert "[masked], Green-and-blue.1" in (crew.root / "tasks/done/t/result.md").read_text()
    assert holding(crew, secret) == {"agents/ada.yaml"}
