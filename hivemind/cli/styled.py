"""Show progress, Markdown and diffs on a terminal with the optional package rich.

Importing rich takes up to 100 ms, so it is imported when something is shown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from hivemind.cli.text import is_terminal, one_line
from hivemind.masking import strip_controls


def has_rich() -> bool:
    """Return True if rich is installed."""
    return find_spec("rich") is not None


@contextmanager
def progress() -> Iterator[Callable[..., None]]:
    """Yield a function `report(activity, done=0, total=None)`, which shows the progress on a terminal.

    The function does nothing without a terminal or without rich.
    """
    if not (sys.stderr.isatty() and is_terminal() and has_rich()):
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def report(activity: str, done: int = 0, total: int | None = None) -> None:
            bar.update(task, description=one_line(activity), completed=done, total=total)

        yield report


def print_markdown(text: str) -> None:
    """Print Markdown with colours. Links show their address. Control characters cannot steer the terminal."""
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.theme import Theme

    theme = Theme({"markdown.code": "cyan", "markdown.block_quote": "none"})  # legible on a bright terminal, too
    Console(theme=theme).print(Markdown(strip_controls(text), hyperlinks=False, code_theme="ansi_light"))


def print_diff(text: str) -> None:
    """Print a diff with colours. Control characters cannot steer the terminal. Lines are neither padded nor wrapped."""
    from rich.console import Console
    from rich.syntax import Syntax

    Console().print(Syntax("", "diff", theme="ansi_light").highlight(strip_controls(text)), soft_wrap=True, end="")
