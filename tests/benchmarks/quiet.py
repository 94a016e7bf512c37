"""An empty topic, for the tests of the frame."""

from __future__ import annotations

import os
import tempfile

from benchmarks.table import Row


def run(quick: bool = False) -> list[Row]:
    return [
        Row("half as long", 1.0, "s", "a nap", 2.0, note=f"process {os.getpid()}"),
        Row("twice as many", 10.0, "1/s", "one by hand", 5.0, "more", target=12.0),
        Row("quick", float(quick), "", note=tempfile.gettempdir()),
    ]
