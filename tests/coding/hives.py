"""A hive for coding agents, and a repository for them to work in."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.swarm.conftest import Swarm


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", root, *words], check=True, capture_output=True, text=True).stdout


def repository(path: Path, **files: str) -> Path:
    """A repository with one commit of these files; the name `a_py` means a.py."""
    path.mkdir()
    for name, text in files.items():
        (path / name.replace("_", ".")).write_text(text)
    git(path, "init", "-q", "-b", "main")
    git(path, "add", ".")
    git(path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "Begin")
    return path


def empty_hive(root: Path, **settings: object) -> Swarm:
    """A new hive with these settings, without agents."""
    swarm = Swarm(root)
    root.mkdir()
    swarm.run("init")
    swarm.configure(durability="relaxed", settle_ms=20, embedder="none", **settings)
    for path in (root / "agents").glob("*.yaml"):
        path.unlink()
    return swarm
