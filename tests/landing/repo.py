"""A person's repository for the tests of landing."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from hivemind.taskrun.git import Repository


class Repo:
    """A checkout on branch `main`, with a commit `base`."""

    def __init__(self, path: Path, *options: str) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "-q", "-b", "main", *options)
        with open(path / ".git/config", "a") as config:
            config.write("[user]\n\temail = person@example.org\n\tname = Person\n")
        self.base = self.commit(boat="a boat\n", sail="\n".join(f"sail {number}" for number in range(20)) + "\n")

    @property
    def repository(self) -> Repository:
        return Repository.at(self.path)

    def raw(self, *words: str | bytes, stdin: bytes = b"") -> bytes:
        return subprocess.run(["git", "-C", self.path, *words], input=stdin, capture_output=True, check=True).stdout

    def git(self, *words: str | bytes) -> str:
        return self.raw(*words).decode("utf-8", "surrogateescape").rstrip("\n")

    def commit(self, *, message: str = "by the person", **files: Any) -> str:
        """Commit files in the checkout; None deletes a file, `__` is a slash."""
        for name, text in files.items():
            path = self.path / name.replace("__", "/")
            if text is None:
                path.unlink()
                continue
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        self.git("add", "-A")
        self.git("-c", "maintenance.auto=false", "commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def branch(self, *, start: str | None = None, message: str = "by an agent", **files: Any) -> str:
        """Return a commit with files changed since `base`, created without touching the checked out branch."""
        self.git("checkout", "-q", "--detach", start or self.base)
        try:
            return self.commit(message=message, **files)
        finally:
            self.git("checkout", "-q", "main")

    def show(self, revision: str, path: str) -> str:
        return self.raw("cat-file", "blob", f"{revision}:{path}").decode()

    def parents(self, commit: str) -> list[str]:
        return self.git("rev-parse", f"{commit}^@").split()
