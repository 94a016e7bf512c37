"""Hives with an exchange process that runs alone, as the supervisor would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hivemind.exchange.process import run_exchange
from hivemind.fs import ring
from hivemind.hive import Hive
from hivemind.layout import EXCHANGE
from hivemind.presence.identity import lock_name
from hivemind.presence.status import StatusFile
from hivemind.tasks import Task
from tests.program import Program, run
from tests.waiting import until


class _Exchange(Program):
    module = __name__  # run as a program: below


class LinkedHive:
    """A hive of one agent, `coder`, with an exchange process that runs alone."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name = root, name
        root.mkdir()
        (root / "hive.yaml").write_text(f"workspace: {name}\ndurability: relaxed\nembedder: none\n")
        self.hive = Hive.open(root)
        self.hive.layout.agent_config("coder").write_text("role: engineer\n")
        for box in ("human", "coder"):
            self.hive.mail.ensure(box)
        self.process: subprocess.Popen[bytes] | None = None

    def command(self, *words: str, status: int = 0) -> str:
        done = run(["--hive", self.root, *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == status, done.stderr + done.stdout
        return done.stdout + done.stderr

    def start(self, stderr: int | None = None, **environ: str) -> None:
        self.process = _Exchange([self.root], env={**os.environ, **environ}, stderr=stderr)

    def stop(self, *, kill: bool = False) -> None:
        if self.process is not None:
            self.process.kill() if kill else self.process.terminate()
            self.process.wait(60)
            self.process = None

    def idle(self) -> None:
        """Be its agent `coder`, which is idle; the exchange may claim a task for it."""
        lock_name(self.hive.layout, "coder")
        self.says("idle")

    def says(self, state: str) -> None:
        folder = self.hive.layout.agent_state("coder")
        folder.mkdir(parents=True, exist_ok=True)
        StatusFile(folder, "coder").update(state=state)
        ring(self.hive.layout.doorbells, EXCHANGE)

    def claimed(self) -> Task:
        """Wait for the next task of `coder`."""
        task: Task = until(lambda: self.hive.tasks.claim("coder"))
        return task

    def finish(self, task: Task, result: str) -> None:
        """End a task as its agent does: the journal tells of it."""
        self.hive.tasks.finish(task, result)
        self.hive.steps.end_task(task.id, "done", agent_id="coder")

    def add(self, text: str, where: str) -> str:
        return self.hive.tasks.add(text, where=where)

    def restart(self) -> None:
        """Restart its process, which then looks at everything."""
        self.stop()
        self.start()

    def subjects(self, box: str = "human") -> list[str]:
        return sorted(row.subject for row in self.hive.mail.list(box))


if __name__ == "__main__":
    sys.exit(run_exchange(Hive.open(sys.argv[1])))


def claim_pay_once(pair: tuple[LinkedHive, LinkedHive]) -> Task:
    """Start both hives, and return berlin's task with a step that must run once, which munich has claimed."""
    berlin, munich = pair
    munich.idle()
    (berlin.hive.layout.inbox / "pay.md").write_text("---\nwhere: any\nsteps: [{run: pay, once: true}]\n---\nPay.\n")
    for hive in pair:
        hive.start()
    return munich.claimed()
