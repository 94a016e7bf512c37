"""Mutants: small patches that each break one promise; the harness must find every one.

They were written by somebody who had not read the checkers. A patch is a unified diff without files' names and line numbers:
each hunk is found by what it replaces, which must stand in `hivemind/` exactly once. Edits elsewhere and moved files do not
matter; an edit of that very place makes the patch fail, loudly. Before the hunks stand `Promise:`, `Broken by:` and
`Shown under:`, the detectors (see `run.py`) that are tried first.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FOLDER", "REPOSITORY", "Mutant", "mutants", "sources"]

FOLDER = Path(__file__).parent
REPOSITORY = FOLDER.parents[2]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A patch: what it replaces with what."""

    name: str
    promise: str
    broken_by: str
    detectors: tuple[str, ...]
    changes: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, path: Path) -> Mutant:
        head, *hunks = path.read_text("utf-8").split("\n@@\n")
        fields = dict(line.split(": ", 1) for line in head.splitlines() if line)
        changes = tuple(_sides(hunk.rstrip("\n").split("\n")) for hunk in hunks)
        return cls(path.stem, fields["Promise"], fields["Broken by"], tuple(fields["Shown under"].split(", ")), changes)

    def apply(self, house: Path) -> None:
        """Change the program below `house`. Raises AssertionError, naming the place, if the patch does not fit any more."""
        for path, text in self.patch(sources(house)).items():
            path.write_text(text, "utf-8")

    def patch(self, files: Mapping[Path, str]) -> dict[Path, str]:
        """Return the patched files. Raises AssertionError like `apply`."""
        patched: dict[Path, str] = {}
        for before, after in self.changes:
            texts = {**files, **patched}
            hits = [path for path, text in texts.items() for _ in range(text.count(before))]
            assert len(hits) == 1, (
                f"{self.name}.patch does not fit any more: this occurs in hivemind/ {len(hits)} times and not once "
                f"({', '.join(map(str, hits))}); let it break the same promise where that is kept now:\n{before}"
            )
            patched[hits[0]] = texts[hits[0]].replace(before, after)
        return patched

    def house(self, folder: Path) -> Path:
        """A repository at `folder` that is this one but for the mutant's changes."""
        folder.mkdir()
        for path in REPOSITORY.iterdir():
            if path.name == "hivemind":
                shutil.copytree(path, folder / path.name)  # compiled modules too: all but the patched ones are reused
            elif path.name not in (".git", ".venv", ".hive"):
                (folder / path.name).symlink_to(path)
        self.apply(folder)
        return folder


def sources(house: Path) -> dict[Path, str]:
    """The program's modules, with their text."""
    return {path: path.read_text("utf-8") for path in sorted((house / "hivemind").rglob("*.py"))}


def _sides(lines: list[str]) -> tuple[str, str]:
    before = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
    after = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-"))
    return before, after


def mutants() -> list[Mutant]:
    """All of them, by name."""
    return [Mutant.read(path) for path in sorted(FOLDER.glob("*.patch"))]
