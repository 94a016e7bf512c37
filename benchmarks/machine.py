"""The machine of a run: a figure without its machine says little, and a loaded machine measures its load."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Machine", "load"]


@dataclass(frozen=True, slots=True)
class Machine:
    """The properties of a machine that matter here. `disk` is the file system below the temporary folder."""

    name: str
    processor: str
    cores: int
    memory_gb: float
    system: str
    python: str
    disk: str

    @classmethod
    def detect(cls, folder: Path) -> Machine:
        """The machine that runs this; `folder` is where the measuring writes."""
        return cls(
            name=re.sub(r"[^a-z0-9]+", "-", platform.node().lower()).strip("-") or "machine",
            processor=_processor(),
            cores=len(os.sched_getaffinity(0)),
            memory_gb=round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
            system=f"{platform.system()} {platform.release()}",
            python=platform.python_version(),
            disk=_file_system(folder),
        )


def load() -> float:
    """Return the load average of the last minute."""
    return os.getloadavg()[0]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _file_system(folder: Path) -> str:
    """Return the type of the file system of `folder`."""
    real_path = os.path.realpath(folder)
    best = ("", "unknown")
    for line in Path("/proc/self/mounts").read_text().splitlines():
        point, kind = line.split()[1:3]
        inside = real_path == point or real_path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]
