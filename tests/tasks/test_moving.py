"""A task that is claimed and given back while others look at it."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

from hivemind import Hive
from hivemind.errors import UserError


def test_a_task_that_moves_while_it_is_looked_for_is_read_or_said_to_be_on_its_way(tmp_path: Path) -> None:
    hive = Hive.init(tmp_path / "hive")
    hive.tasks.add("Do it.", id="t", assignee="ada")
    is_over = threading.Event()

    def move() -> None:
        tasks = Hive.open(hive.layout.root).tasks
        while not is_over.is_set():
            if (task := tasks.claim("ada")) is not None:
                tasks.release(task)

    mover = threading.Thread(target=move)
    mover.start()
    try:
        for _ in range(1500):
            with suppress(UserError):
                assert hive.tasks.get("t").id == "t"
    finally:
        is_over.set()
        mover.join()
