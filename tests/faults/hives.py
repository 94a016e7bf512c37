"""The hive that scenarios begin with: two or three agents, a little knowledge, short times."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from typing import Any

from .subject import Subject

__all__ = ["KNOWLEDGE", "make_hive"]

KNOWLEDGE = """# Boats

## Rowing boats
A rowing boat is moved with oars by the people who sit in it.

## Sailing boats
A sailing boat needs wind and has a keel that keeps it upright.
"""

_SETTINGS: Mapping[str, Any] = {
    "guard": "faults",  # a copy in another folder is the same hive
    "settle_ms": 50,
    "heartbeat_s": 0.5,
    "hang_after": 10,
    "review_timeout_s": 5,
}


def make_hive(subject: Subject, agents: Mapping[str, Mapping[str, Any]] | None = None, **settings: Any) -> None:
    """`hivemind init`, then agents and settings as they are named; its marks' folder next to it."""
    subject.marks.mkdir(parents=True, exist_ok=True)
    init = subject.run("init", str(subject.root))
    assert init.poll() == 0, init.errors()
    for path in (subject.root / "agents").glob("*.yaml"):
        path.unlink()
    for box in (subject.root / "mailboxes").iterdir():
        if box.is_dir() and box.name != "human":
            shutil.rmtree(box)
    (subject.root / "knowledge" / "boats.md").write_text(KNOWLEDGE)
    for name, keys in (agents or {"ada": {}, "bob": {}}).items():
        (subject.root / "agents" / f"{name}.yaml").write_text(json.dumps(dict(keys)) + "\n")
    text = "".join(
        f"{key}: {json.dumps(value)}\n" for key, value in {**_SETTINGS, **subject.settings, **settings}.items()
    )
    (subject.root / "hive.yaml").write_text(text)
    (subject.root / ".hive" / "workspace.json").unlink()  # as its error says: it names the folder, and now a guard does
