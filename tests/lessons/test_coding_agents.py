"""A coding agent is asked in the session of its task, in a box in which it can change nothing."""

from __future__ import annotations

import json

import pytest

from hivemind import Hive
from hivemind.lessons.choice import book_of
from hivemind.sandbox import has_sandbox
from tests.agent.conftest import Crew, until_idle
from tests.agent.test_program import coder, prompts, task
from tests.agent.test_worktree import Repo
from tests.lessons.conftest import TRAP
from tests.messages import lines_of

__all__ = ["coder"]
LESSON = {"lesson": "Set `APP_ENV=test` for check.sh: without it nothing is checked.", "places": ["check.sh"],
          "failed": "sh check.sh", "passed": "APP_ENV=test sh check.sh"}  # fmt: skip


def call(tool: str, **arguments: object) -> str:
    return f"!call {tool} {json.dumps(arguments)}\n"


@pytest.mark.skipif(not has_sandbox(), reason="bubblewrap does not run here")
@pytest.mark.parametrize("sandbox", ["auto", "none"])
def test_it_is_asked_after_the_end_and_cannot_touch_the_worktree(coder: Crew, sandbox: str) -> None:
    repo = Repo(coder.root.parent / "app")
    repo.commit(**{"check.sh": TRAP})
    coder.configure("roots: [{path: ../app, worktree: true, land: off}]\n")
    coder.agent_file(f"mind: {{agent: fake}}\nshell: true\ntoolset: all\nsandbox: {sandbox}\n")
    trapped = call("run_command", command="sh check.sh") + call("run_command", command="APP_ENV=test sh check.sh")
    after = "!exit 0\n!sh echo spoiled > check.sh; echo spoiled > new; pwd\n"
    answer = json.dumps([LESSON]).replace("e", "\\u0065").replace("l\\u0065sson", "lesson")  # the task does not say it
    for name in LESSON:
        answer = answer.replace(name.replace("e", "\\u0065"), name)
    coder.drop(f"x\n{trapped}{call('finish_task', result='Done.')}{after}!say {answer}\n")
    until_idle(coder.start())
    sessions = [session for session, _ in prompts(coder)]
    lessons = [record.text for record in book_of(Hive.open(coder.root), repo.path).read()]
    worktree = coder.root / "worktrees/ada/app"
    assert worktree.joinpath("check.sh").read_text() == TRAP
    assert not worktree.joinpath("new").exists()
    if sandbox == "auto":
        assert sessions == ["s1", "s1"]
        assert lessons == [LESSON["lesson"]]
        causes = [line["cause"] for line in lines_of(task(coder)) if "reserved" in line]
        assert causes == ["turn", "lesson"]
    else:
        assert sessions == ["s1"], "outside of a box it could change something"
        assert lessons == ["Run `APP_ENV=test sh check.sh` instead of `sh check.sh`, which fails."]
