"""The doctor's check of finished tasks: it finds citations whose place does not contain the quote."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from hivemind.boundary import Unreadable, as_dataclass, boundary
from hivemind.documents import Citation, Verdict
from hivemind.documents.formats import EXTRACTED_FORMATS, format_of
from hivemind.fs.integrity import DoctorFinding
from hivemind.reasoning import SNAPSHOT_NAME


def check_citations(folder: Path, verify: Callable[[Citation], Verdict]) -> Iterator[DoctorFinding]:
    """Find quotes of a finished task that are not at their cited place, although the cited file is unchanged.

    Earlier versions cited several lines of HTML and PDF without checking at which of them the quote begins and ends.
    """
    path = folder / SNAPSHOT_NAME
    try:
        with boundary("snapshot", path):
            nodes = json.loads(path.read_bytes())["nodes"].values()
            fields = [node["meta"]["citation"] for node in nodes if "citation" in node["meta"]]
            citations = [as_dataclass(Citation, citation_fields, "citation", path) for citation_fields in fields]
    except (Unreadable, FileNotFoundError):  # the check of graphs reports it
        return
    for citation in dict.fromkeys(citations):  # evidence and its published copy have the same citation
        if format_of(citation.path) in EXTRACTED_FORMATS and citation.start_line < citation.end_line:
            verdict = verify(citation)
            if not verdict.is_confirmed and not verdict.is_file_changed and verdict.lines is not None:
                message = f"cites {citation.place}, but the quote {verdict.reason}"
                yield DoctorFinding(folder / "result.md", message, note=True)
