"""The page of landing, the merging of finished work: the queue, a task's changes, the output of its check, and the
person's decisions."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from typing import Any

from hivemind.hive import Hive
from hivemind.landing.changes import branch_diffs
from hivemind.landing.report import report_landing
from hivemind.taskrun.landing_entry import LOG
from hivemind.tasks import Task
from hivemind.web.site import Page, PageQuery, Site

_MAX_ROWS = 100
_MAX_FILES = 100
_FILE_CHARS = 20_000
_DIFF_CHARS = 200_000
_LOG_BYTES = 16_384


def show_landing(site: Site, query: PageQuery) -> Page:
    """Build the page of landing. The query's `open` selects the task to show with its changes and output, by default the
    first of the queue."""
    report = report_landing(site.hive)
    rows = (*report.queue, *report.returned)
    opened = next((row for row in rows if row.task.id == query.get("open")), rows[0] if rows else None)
    context = {
        "report": report,
        "rows": rows[:_MAX_ROWS],
        "more": max(0, len(rows) - _MAX_ROWS),
        "roots": list(site.hive.config.repository_roots(site.hive.layout)),
        "open": opened,
        "output": "" if opened is None else _log_tail(opened.task),
        # only the block with the changes asks git for them
        "files": partial(_changed_files, site.hive, None if opened is None else opened.task),
    }
    return Page("landing.html", context, "Landing", ("tasks", "journal"))


def _log_tail(task: Task) -> str:
    """Return the end of the output of the check of a task's work before it is merged; "" if there is none."""
    with suppress(OSError), open(task.path / LOG, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES))
        return file.read().decode("utf-8", "replace")
    return ""


def _changed_files(hive: Hive, task: Task | None) -> list[dict[str, Any]]:
    """Return the path and the diff's lines of each file that a task has changed. Number and length are bounded. Without
    a task, return []."""
    if task is None:
        return []
    return [
        {"branch": branch, **_file_context(part)}
        for branch, text in branch_diffs(hive, task)
        for part in text[:_DIFF_CHARS].split("\ndiff --git ")[:_MAX_FILES]
        if part
    ]


def _file_context(diff: str) -> dict[str, Any]:
    """Return the template's values for one file's diff: path, lines from the first hunk on, number of lines left out,
    of added and of removed ones."""
    header, mark, body = diff.removeprefix("diff --git ").partition("\n@@")
    lines = f"@@{body}".splitlines() if mark else header.splitlines()[1:]
    shown_lines = "\n".join(lines)[:_FILE_CHARS].splitlines()
    return {
        "path": header.partition("\n")[0].rpartition(" b/")[2],
        "lines": shown_lines,
        "more": len(lines) - len(shown_lines),
        "added": sum(line.startswith("+") for line in lines) if mark else 0,
        "removed": sum(line.startswith("-") for line in lines) if mark else 0,
    }
