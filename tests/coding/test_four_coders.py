"""Four coding agents on one repository at once: twelve tasks (four in the sample), of which half change the same lines."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.coding.hives import empty_hive, git, repository
from tests.coding.played import Answer, Asked, Call, Played, played
from tests.coding.test_real_programs import NEEDED, environment, mind, shell, until
from tests.sample import IS_WHOLE, sampled
from tests.swarm.conftest import Swarm

EACH = 6 if IS_WHOLE else 2
SAME, OWN = range(1, EACH + 1), range(EACH + 1, 2 * EACH + 1)
CHECK = f"""import shared
assert sorted(shared.PARTS) == {[*SAME]}, shared.PARTS
for number in {[*OWN]}:
    assert __import__("part_%d" % number).SAYS == number
print("CHECKED")
"""
Moves = Generator[Answer, str, str]


def divide() -> Moves:
    """What the lead's model does: divides, waits, and ends. It merges nothing."""
    texts = [f"Add {one} to PARTS in shared.py." for one in SAME] + [f"Make part_{one}.py say {one}." for one in OWN]
    ids = ids_in((yield Call("delegate", {"tasks": [{"text": text, "role": "coder"} for text in texts]})))
    assert len(ids) == 2 * EACH
    yield from wait(ids)
    yield Call("finish_task", {"result": "All of them."})
    return "Done."


def wait(ids: list[str]) -> Generator[Answer, str, None]:
    told = yield Call("wait_for", {"tasks": ids})
    if "The task rests" in told:
        told = yield "I end my turn."
    assert "Result of wait_for" in told or "result.md" in told, told


def ids_in(told: str) -> list[str]:
    return re.findall(r"\bjob\.[\w.-]+\b", told)


class Lead:
    """The moves of the lead, each told what came of the one before: the result of its call, or the next prompt."""

    def __init__(self) -> None:
        self.moves, self.turn, self.problem = divide(), 0, ""

    def __call__(self, asked: Asked) -> Answer:
        try:
            if asked.turn == 0:
                return next(self.moves)
            told = asked.results[-1] if asked.turn > self.turn else asked.said[-1]
            return self.moves.send(told)
        except StopIteration as end:
            return str(end.value)
        except AssertionError as error:
            self.problem = str(error)
            return Call("fail_task", {"reason": f"the test: {error}"})
        finally:
            self.turn = asked.turn


def code(asked: Asked) -> Answer:
    """What a coder's model does: one command, by what its task says, and another if its work comes back with marks."""
    told = "\n".join(asked.said)
    commands = [_by_task(told)]
    commands += [r"sed -i '/^\(<<<<<<<\|=======\|>>>>>>>\)/d' shared.py"] * told.count("remove the conflict marks")
    calls = [one for command in commands for one in (shell(asked, command), Call("finish_task", {"result": "There."}))]
    return calls[asked.turn] if asked.turn < len(calls) else "Done."


def _by_task(told: str) -> str:
    if same := re.search(r"Add (\d+) to PARTS", told):
        return f"sed -i 's/^]/    {same[1]},\\n]/' shared.py"
    own = re.search(r"Make part_(\d+)\.py", told)
    assert own is not None, told
    return f"echo SAYS = {own[1]} > part_{own[1]}.py"


@pytest.fixture
def coders():
    """A hive with a lead and four coders, run by Codex, whose repository wants as many things."""
    if shutil.which("codex") is None:
        if "codex" in NEEDED:
            pytest.fail("codex should be installed here")
        pytest.skip("codex is not installed: npm install -g installs it")
    lead = Lead()
    with (
        TemporaryDirectory(dir="/var/tmp", prefix="hivemind-") as folder,
        played(lambda asked: (lead if any("You are lead" in one for one in asked.said) else code)(asked)) as server,
    ):
        root = repository(Path(folder, "app"), shared_py="PARTS = [\n]\n", check_py=CHECK)
        roots = [{"path": "../app", "worktree": True, "land_tries": 6}]
        swarm = empty_hive(Path(folder) / "hive", roots=roots)
        for name, replicas in (("lead", 1), ("coder", 4)):
            text = {"role": name, "mind": mind("codex", server.root), "replicas": replicas}
            (swarm.root / "agents" / f"{name}.yaml").write_text(json.dumps(text))
        yield swarm, server, root, lead
        swarm.end()


@pytest.mark.slow
@sampled
def test_four_coders_do_all_tasks_and_conflicts_go_back_to_them(coders: tuple[Swarm, Played, Path, Lead]):
    swarm, server, root, lead = coders
    begun = git(root, "rev-parse", "HEAD")
    swarm.drop("job.md", "---\nrole: lead\n---\nDo what check.py wants.\n")
    swarm.start("up", **environment(server.root))
    record = swarm.root / "tasks/active/job/task.json"
    until(lambda: swarm.task("job") == "failed" or (record.exists() and '"landing"' in record.read_text()), limit_s=240)
    until(lambda: swarm.task("job") == "failed" or "waits for you" in swarm.run("land"))
    assert lead.problem == ""
    done = sorted((swarm.root / "tasks" / "done").glob("job.*/task.json"))
    assert len(done) == 2 * EACH
    workers = [json.loads(one.read_text())["kept"]["landing"]["agent"] for one in done]
    assert set(workers) <= {f"coder-{at}" for at in range(1, 5)}
    assert len(set(workers)) > (3 if IS_WHOLE else 1)

    # nobody has touched the person's checkout, and all is in the lead's branch
    assert (git(root, "rev-parse", "HEAD"), git(root, "status", "--porcelain")) == (begun, "")
    assert git(root, "for-each-ref", "--format=%(refname:short)", "refs/heads/hive") == "hive/job\n"
    changed = git(root, "diff", "--name-only", f"{begun.strip()}...hive/job").split()
    assert changed == sorted(["shared.py", *(f"part_{number}.py" for number in OWN)])

    swarm.run("land", "job")
    swarm.run("down")
    assert "All of them." in swarm.result("job")
    checked = subprocess.run([sys.executable, "check.py"], cwd=root, capture_output=True, text=True, check=True)
    assert checked.stdout == "CHECKED\n"
