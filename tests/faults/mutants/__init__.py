"""Mutants: small patches, each of which breaks one promise; the harness must find every one.

They were written by somebody who had not read the checkers. A patch is a unified diff against `hivemind/` whose hunks have
no line numbers: each is found by what it replaces, which must stand in the file exactly once, so that edits elsewhere do not
matter, and an edit of that very place makes the patch fail, loudly. Before the diff stand `Promise:`, `Broken by:` and
`Shown under:`, the detectors (see `run.py`) that are tried first.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FOLDER", "REPOSITORY", "Mutant", "mutants"]

FOLDER = Path(__file__).parent
REPOSITORY = FOLDER.parents[2]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A patch: what it replaces with what, (file, before, after) each."""

    name: str
    promise: str
    broken_by: str
    detectors: tuple[str, ...]
    changes: tuple[tuple[str, str, str], ...]

    @classmethod
    def read(cls, path: Path) -> Mutant:
        head, told = {}, path.read_text("utf-8").split("\n--- a/")
        for line in told[0].splitlines():
            key, _, value = line.partition(": ")
            head[key] = value
        changes = [(file, *_sides(hunk)) for one in told[1:] for file, hunk in _hunks(one)]
        return cls(
            path.stem, head["Promise"], head["Broken by"], tuple(head["Shown under"].split(", ")), tuple(changes)
        )

    def apply(self, house: Path) -> None:
        """Change the files below `house`. Raises AssertionError, naming the place, if the patch does not fit any more."""
        for file, before, after in self.changes:
            path = house / file
            text = path.read_text("utf-8")
            assert text.count(before) == 1, f"{self.name}: in {file} this stands {text.count(before)} times:\n{before}"
            path.write_text(text.replace(before, after), "utf-8")

    def house(self, folder: Path) -> Path:
        """A repository at `folder` that is this one but for the mutant's changes."""
        folder.mkdir()
        for path in REPOSITORY.iterdir():
            if path.name == "hivemind":
                shutil.copytree(path, folder / path.name, ignore=shutil.ignore_patterns("__pycache__"))
            elif path.name not in (".git", ".venv", ".hive"):
                (folder / path.name).symlink_to(path)
        self.apply(folder)
        return folder


def _hunks(diff: str) -> Iterator[tuple[str, list[str]]]:
    """(file, lines) for each hunk of one file's diff, which begins with the file's name."""
    name, _, rest = diff.partition("\n")
    for hunk in rest.split("\n@@\n")[1:]:
        yield name, hunk.rstrip("\n").split("\n")


def _sides(lines: list[str]) -> tuple[str, str]:
    before = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
    after = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
    return before, after


def mutants() -> list[Mutant]:
    """All of them, by name."""
    return [Mutant.read(path) for path in sorted(FOLDER.glob("*.patch"))]
