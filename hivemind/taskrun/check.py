"""What may be wrong with the results of tasks: places that do not have what is cited from there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from hivemind.boundary import Unreadable, boundary, checked
from hivemind.documents import Citation, Verdict
from hivemind.documents.formats import EXTRACTED, format_of
from hivemind.fs.check import CheckFinding
from hivemind.reasoning import SNAPSHOT_NAME

__all__ = ["check_citations"]


def check_citations(folder: Path, verify: Callable[[Citation], Verdict]) -> Iterator[CheckFinding]:
    """Quotes of a finished task that stand in unchanged files, and elsewhere than its result says.

    Earlier versions cited HTML and PDF so. They checked that a quote stood within the lines cited: one line or page is right.
    """
    path = folder / SNAPSHOT_NAME
    try:
        with boundary("snapshot", path):
            nodes = json.loads(path.read_bytes())["nodes"].values()
            fields = [node["meta"]["citation"] for node in nodes if "citation" in node["meta"]]
            citations = [checked(Citation, one, "citation", path) for one in fields]
    except (Unreadable, FileNotFoundError):  # the check of graphs tells of it
        return
    for citation in dict.fromkeys(citations):  # an evidence and its published copy have the same
        if format_of(citation.path) in EXTRACTED and citation.start_line < citation.end_line:
            verdict = verify(citation)
            if not verdict.stands and not verdict.changed and verdict.lines is not None:
                what = f"cites {citation.place}, but the quote {verdict.reason}"
                yield CheckFinding(folder / "result.md", what, note=True)
