"""Print output: tables for people, JSON for programs, without control characters that could steer a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hivemind.cli.streams import discard_output
from hivemind.cli.styled import has_rich, print_diff, print_markdown
from hivemind.cli.text import fit, is_terminal, one_line, terminal_size, width
from hivemind.masking import escape_controls, strip_controls

_MIN_COLUMN_WIDTH = 6
_GAP = "  "


class MarkdownText(str):
    """A text in Markdown, which a terminal shows with colours."""


class DiffText(str):
    """A unified diff, which a terminal shows with colours."""


def print_line(text: str = "") -> None:
    """Print a line to standard output with control characters masked."""
    if isinstance(text, MarkdownText | DiffText) and is_terminal() and has_rich():
        (print_markdown if isinstance(text, MarkdownText) else print_diff)(text)
        return
    sys.stdout.write(strip_controls(text) + "\n")


def warn(text: str) -> None:
    """Print a line to standard error: an error, or a remark for people that does not belong in the output."""
    try:
        sys.stderr.write(f"hivemind: {strip_controls(text)}\n")
        sys.stderr.flush()
    except OSError:  # closed, or a full disk: the exit status still reports the failure
        discard_output(sys.stderr)


def ask(question: str) -> None:
    """Print a question to standard error, without ending the line."""
    sys.stderr.write(strip_controls(question))
    sys.stderr.flush()


def as_json(value: Any, indent: int | None = None) -> str:
    """Return JSON text in which control characters are escaped, so it is safe to print to a terminal. Paths and times are
    written as strings."""
    return escape_controls(json.dumps(value, ensure_ascii=False, indent=indent, default=_as_text))


def print_array(elements: Iterable[Any]) -> None:
    """Print a JSON array, one element per line, without holding it in memory: a log may be large."""
    start = "["
    for element in elements:
        sys.stdout.write(f"{start}\n{as_json(element)}")
        start = ","
    print_line("[]" if start == "[" else "\n]")


def _as_text(value: object) -> str:
    isoformat = getattr(value, "isoformat", None)
    return str(isoformat()) if callable(isoformat) else str(value)


def table_lines(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, empty: str) -> Iterator[str]:
    """Yield the rows as aligned columns with headings, or the sentence `empty` if there are no rows.

    On a terminal the widest columns are cut to make each row fit into one line. The first column is never cut, because
    people copy ids from it. Elsewhere all columns have their full width.
    """
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    headings = [column.upper().replace("_", " ") for column in columns]
    yield from table([headings, *cells], terminal_size()[0] if is_terminal() else None) if cells else [empty]


def cut_lines(lines: Iterable[str]) -> Iterator[str]:
    """Cut each line to the terminal's width; leave lines whole if standard output is not a terminal."""
    return (fit(line, terminal_size()[0]) for line in lines) if is_terminal() else iter(lines)


def header_line(name: str, value: object) -> str:
    """Return `Name:    value`, a line of the header above a text."""
    return f"{name + ':' if name else '':9} {one_line(str(value))}"


def headed_text(headers: Iterable[tuple[str, object]], text: str | None) -> Iterator[str]:
    """Yield a line for each header that has a value, then, if the text is not None, an empty line and the text."""
    for name, value in headers:
        first_line, *lines = str(value or "").splitlines() or [""]
        if value:
            yield header_line(name, first_line)
            yield from (strip_controls(f"{'':10}{line}".rstrip()) for line in lines)
    if text is not None:
        yield from ("", type(text)(text.rstrip("\n")))


def separated(blocks: Iterable[Iterable[str]], mark: str) -> Iterator[str]:
    """Yield the lines of each block, and a line of marks between two blocks."""
    for position, block in enumerate(blocks):
        yield from ["\n" + mark * 72] if position else []
        yield from block


def table(rows: Sequence[Sequence[str]], max_width: int | None) -> list[str]:
    """Return rows of cells as aligned lines of at most `max_width` columns (None: unlimited)."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    if max_width is not None:
        _narrow(widths, max_width - len(_GAP) * (len(widths) - 1))
    return [_GAP.join(map(_padded, row, widths)).rstrip() for row in rows]


def _padded(cell: str, columns: int) -> str:
    return (cell := fit(cell, columns)) + " " * (columns - width(cell))


def _narrow(widths: list[int], available_width: int) -> None:
    """Shrink the widest column except the first until the row fits or every column has its minimum width."""
    while sum(widths) > available_width and (widest := max(widths[1:], default=0)) > _MIN_COLUMN_WIDTH:
        widths[widths.index(widest, 1)] -= 1


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str("" if value is None else value)
    return one_line(text) or "-"
