"""The page in real Chromium: widths, colours, keys alone, no JavaScript, live change, what axe-core finds, what another server
is told (`browser.mjs`); and in w3m.

Chromium is driven by node, with a folder `$HIVEMIND_BROWSER` whose node_modules has playwright-core and axe-core; `.ci/run`
makes it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import make_hive
from tests.program import run
from tests.web.conftest import filled, serving

FOLDER = os.environ.get("HIVEMIND_BROWSER")


@pytest.mark.skipif(FOLDER is None, reason="HIVEMIND_BROWSER names no folder with playwright-core and axe-core")
@pytest.mark.slow
def test_every_page_stands_a_browser(tmp_path: Path) -> None:
    assert shutil.which("chromium"), "chromium is not here"
    assert shutil.which("node"), "node is not here"
    filled(tmp_path / "hive")
    with serving(tmp_path / "hive") as site:
        link = f"http://127.0.0.1:{site.port}{site.root}/"
        script = Path(__file__).with_name("browser.mjs")
        done = subprocess.run(
            ["node", script, link, str(FOLDER)], capture_output=True, text=True, timeout=240, check=False
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


@pytest.mark.skipif(FOLDER is None, reason="HIVEMIND_BROWSER names no folder with playwright-core and axe-core")
@pytest.mark.slow
def test_pages_move_while_a_swarm_of_ten_works(tmp_path: Path) -> None:
    root = make_hive(tmp_path / "hive")
    for path in (root / "agents").glob("*.yaml"):
        path.unlink()
    (root / "agents" / "worker.yaml").write_text("replicas: 10\n")
    with serving(root) as site:
        link = f"http://127.0.0.1:{site.port}{site.root}/"
        node = subprocess.Popen(
            ["node", Path(__file__).with_name("live.mjs"), link, str(FOLDER), "10"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert node.stderr is not None
            assert node.stderr.readline() == "watching\n"
            for number in range(10):
                site.hive.tasks.add(f"---\nsteps: [{{run: sleep 0.5}}]\n---\nBoat {number}", id=f"boat-{number}")
            up = ["--hive", str(root), "up", "--until-idle"]
            ended = run(up, capture_output=True, text=True, timeout=240, check=False)
            assert ended.returncode == 0, ended.stdout + ended.stderr
            told, errors = node.communicate(timeout=240)
        finally:
            node.kill()
            node.wait()
    assert node.returncode == 0, errors
    assert json.loads(told) == []


@pytest.mark.skipif(shutil.which("w3m") is None, reason="w3m is not here")
def test_the_page_reads_and_works_in_w3m(tmp_path: Path) -> None:
    filled(tmp_path / "hive")
    form = tmp_path / "form"
    form.write_text("number=1&text=Paint+the+mast&title=Mast")
    with serving(tmp_path / "hive") as site:
        link = f"http://localhost:{site.port}{site.root}"
        w3m = ["w3m", "-dump", "-cols", "200"]
        read = subprocess.run([*w3m, f"{link}/tasks/lease"], capture_output=True, text=True, check=True)
        sent = subprocess.run([*w3m, "-post", form, f"{link}/do/add"], capture_output=True, text=True, check=True)
    assert "A lease is a right." in read.stdout
    assert "mast waits in the inbox." in sent.stdout
