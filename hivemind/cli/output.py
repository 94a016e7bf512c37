"""How commands answer: tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from hivemind.cli.text import fit, is_terminal, one_line, terminal_size, width
from hivemind.errors import UserError
from hivemind.masking import escaped, harmless

_NARROWEST = 6
_GAP = "  "


def say(text: str = "") -> None:
    """A line on standard output, harmless."""
    sys.stdout.write(harmless(text) + "\n")


def put_out(text: str, path: str | None) -> None:
    """Write a text to the file that the user named, replacing it, or to standard output without what steers a terminal.
    Raises UserError if the file cannot be written."""
    text = text.rstrip("\n")
    if path is None:
        say(text)
        return
    from hivemind.fs import write

    try:
        write(path, f"{text}\n".encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise UserError(f"cannot be written ({error.strerror})", where=path) from None


def warn(text: str) -> None:
    """A line on standard error: what went wrong, or what a person should know and a program should not read."""
    try:
        sys.stderr.write(f"hivemind: {harmless(text)}\n")
        sys.stderr.flush()
    except OSError:  # nobody reads it, or it leads to a full disk: the exit status says that something went wrong
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """What to call with what is being done: shown on a terminal while it lasts, nowhere else."""
    shown = sys.stderr.isatty() and is_terminal()

    def tell(what: str) -> None:
        if shown:
            sys.stderr.write(f"\r{one_line(what)} …\x1b[K")
            sys.stderr.flush()

    try:
        yield tell
    finally:
        if shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def as_document(value: Any) -> str:
    """One JSON document; what JSON doesn't know (paths, times) is written as text."""
    return as_json(value, indent=1)


def as_json(value: Any, indent: int | None = None) -> str:
    """JSON in which nothing steers who is shown it: such characters are escapes."""
    return escaped(json.dumps(value, ensure_ascii=False, indent=indent, default=_as_text))


def print_array(values: Iterable[Any]) -> None:
    """A JSON array, one element a line, written as it comes: a log may be longer than memory."""
    first = True
    for value in values:
        sys.stdout.write(("[\n" if first else ",\n") + as_json(value))
        first = False
    say("[]" if first else "\n]")


def _as_text(value: object) -> str:
    stamp = getattr(value, "isoformat", None)
    return str(stamp()) if callable(stamp) else str(value)


def table_lines(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, empty: str) -> Iterator[str]:
    """Rows in aligned columns under their names, or the sentence `empty` if there are none.

    On a terminal the widest columns are cut so that a row keeps to its line, but never the first, which is what a person
    copies; elsewhere nothing is left out.
    """
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    heads = [column.upper().replace("_", " ") for column in columns]
    yield from table([heads, *cells], terminal_size()[0] if is_terminal() else None) if cells else [empty]


def cut(lines: Iterable[str]) -> Iterator[str]:
    """Lines, each cut to the terminal's width where there is one."""
    columns = terminal_size()[0] if is_terminal() else None
    return (line if columns is None else fit(line, columns) for line in lines)


def headed(name: str, value: object) -> str:
    """`Name:    value`, for what stands above a text."""
    return f"{name + ':' if name else '':9} {one_line(str(value))}"


def sheet(heads: Iterable[tuple[str, object]], text: str | None) -> Iterator[str]:
    """Those heads that have a value, and below them the text, if there is one."""
    yield from (headed(name, value) for name, value in heads if value)
    if text is not None:
        yield from ("", text.rstrip("\n"))


def table(rows: Sequence[Sequence[str]], columns: int | None) -> list[str]:
    """Rows of cells as aligned lines, at most `columns` wide (None: as wide as they are)."""
    widths = [max(width(row[at]) for row in rows) for at in range(len(rows[0]))]
    if columns is not None:
        _narrow(widths, columns - len(_GAP) * (len(widths) - 1))
    lines = []
    for row in rows:
        cells = [fit(cell, wide) for cell, wide in zip(row, widths, strict=True)]
        padded = (cell + " " * (wide - width(cell)) for cell, wide in zip(cells, widths, strict=True))
        lines.append(_GAP.join(padded).rstrip())
    return lines


def _narrow(widths: list[int], room: int) -> None:
    """Take from the widest column but the first until all fit, or none can give any more."""
    while sum(widths) > room and len(widths) > 1:
        at = max(range(1, len(widths)), key=widths.__getitem__)
        others = sorted(widths[1:])[-2] if len(widths) > 2 else 0
        least = max(_NARROWEST, min(others, widths[at] - 1), widths[at] - (sum(widths) - room))
        if least >= widths[at]:
            return
        widths[at] = least


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return one_line(", ".join(map(str, value))) or "-"
    return one_line(str(value)) or "-"
