"""Fetch LangGraph's store tests: `langgraph_tests.py FOLDER`. LANGGRAPH_CHECKOUT can name that folder.

A package index has them in the source distributions. Their plugins are installed into `plugins`, apart from those of our
tests. An existing folder is left alone; a failure is reported in one line.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = {"checkpoint": "langgraph-checkpoint==4.3.2", "checkpoint-sqlite": "langgraph-checkpoint-sqlite==3.1.2"}
PLUGINS = ("pytest-mock>=3.14", "pytest-asyncio>=1.0")
SECONDS = 120


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)


def fetch(folder: Path) -> None:
    """Fill the folder: `libs/<library>/tests` and `plugins`. Raises CalledProcessError, TimeoutExpired."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        work = Path(name)
        pip("install", "--target", str(work / "plugins"), *PLUGINS)
        for library, package in SOURCES.items():
            pip("download", package, "--dest", str(work), "--no-binary", package.partition("==")[0])
            (archive,) = work.glob("*.tar.gz")
            shutil.unpack_archive(archive, work / "libs")
            archive.unlink()
            (unpacked,) = (work / "libs").glob("langgraph_*")
            unpacked.rename(work / "libs" / library)
        work.rename(folder)
        work.mkdir()  # TemporaryDirectory removes it


if __name__ == "__main__":
    target = Path(sys.argv[1])
    if not target.exists():
        try:
            fetch(target)
        except (subprocess.SubprocessError, OSError) as error:
            stderr_lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
            print(
                f"LangGraph's own tests could not be fetched and are left out: {stderr_lines[-1] if stderr_lines else error}"
            )
