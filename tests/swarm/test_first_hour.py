"""The lines with which the manual's chapter on language models begins, as a newcomer would type them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.minds.server import Request, model_server

pytestmark = pytest.mark.usefixtures("language_models")

CHAPTER = Path(__file__).parents[2] / "knowledge/manual/15-language-models.md"


def think(request: Request) -> None:
    """A model that looks, mends and tries, and then is done."""
    ways = [
        ("run_command", {"command": ["python3", "check.py"]}),
        ("edit_file", {"path": "app.py", "old": "6 * 6", "new": "6 * 7"}),
        ("run_command", {"command": ["python3", "check.py"]}),
        ("finish_task", {"result": "check.py passes."}),
    ]
    request.answer(None, [ways[sum(one["role"] == "assistant" for one in request.messages)]])


@pytest.mark.slow
def test_the_manuals_first_lines_make_a_swarm_that_works_on_a_repository_in_a_folder_of_any_name(
    tmp_path: Path,
) -> None:
    block = re.search(r"\n\n((?:    .+\n){5,})", CHAPTER.read_text("utf-8"))
    assert block is not None
    lines = [line.strip() for line in block[1].splitlines()]
    assert len(lines) == 9
    app = tmp_path / "app"
    app.mkdir()
    (app / "app.py").write_text("answer = 6 * 6\n")
    (app / "check.py").write_text("import app\nraise SystemExit(app.answer != 42)\n")
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@b"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "begin"]):
        subprocess.run([*git, *words], cwd=app, check=True)
    with model_server(think) as server:
        mind = json.dumps({"openai-compatible": {"url": server.url, "model": "played"}})
        script = "\n".join(lines).replace("anthropic:MODEL", mind)
        script = script.replace("mkdir -p hive/", "mkdir -p den/").replace("cd hive", "cd den")
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-ec", script],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 3, done.stdout + done.stderr
        assert "a task 5,000,000 tokens" in done.stdout
        assert (app / "app.py").read_text() == "answer = 6 * 6\n", "nobody works in the person's checkout"
        diff, land = re.findall(r"`hivemind ((?:task diff|land) make-\S+)`", CHAPTER.read_text("utf-8"))
        assert "+answer = 6 * 7" in hivemind(diff, tmp_path / "den")
        hivemind(land, tmp_path / "den")
    assert (app / "app.py").read_text() == "answer = 6 * 7\n"
    assert list((tmp_path / "den/tasks/done").glob("*/result.md"))


def hivemind(words: str, folder: Path) -> str:
    program = Path(sys.executable).parent / "hivemind"
    return subprocess.run([program, *words.split()], cwd=folder, capture_output=True, text=True, check=True).stdout
