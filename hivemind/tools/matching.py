"""Searching texts with a regular expression that anyone may have written.

Some expressions take for ever on some lines, and some take all memory to be read. So they are read and tried in a process of
their own that has so much time and memory and no more; it ends by itself when this one is gone. An expression without signs
of its own is a text, and needs none.
"""

from __future__ import annotations

import marshal
import math
import subprocess
import sys
from collections.abc import Iterable

from hivemind.guarded import bare_environment
from hivemind.tools import matcher
from hivemind.tools.matcher import SHOWN_CHARS, Found, find
from hivemind.tools.tool import ToolProblem

__all__ = ["LIMIT_S", "SHOWN_CHARS", "search_lines"]

LIMIT_S = 10.0
_MEMORY_BYTES = 1 << 30
_MOST_CHARS = 33_554_432
_SIGNS = frozenset(r"\.^$*+?{}[]|()")


def search_lines(pattern: str, texts: Iterable[tuple[str, str]], most: int) -> Found:
    """The first lines of named texts that match, and whether there may be more: over `most`, or beyond 32 Mi characters.

    Raises ToolProblem for what is no regular expression, and for one that takes more than ten seconds or 1 GiB.
    """
    bounded: list[tuple[str, str]] = []
    room = _MOST_CHARS
    for name, text in texts:
        room -= len(text)
        if room < 0:
            break
        bounded.append((name, text))
    found, cut = (
        find(lambda line: pattern in line, bounded, most)
        if _SIGNS.isdisjoint(pattern)
        else _find_elsewhere(pattern, bounded, most)
    )
    return found, cut or room < 0


def _find_elsewhere(pattern: str, texts: list[tuple[str, str]], most: int) -> Found:
    asked = marshal.dumps((pattern, texts, most))
    # Its own limits end it if we are killed; Python takes some of the time to start.
    words = [sys.executable, "-I", "-S", matcher.__file__, str(math.ceil(LIMIT_S) + 1), str(_MEMORY_BYTES)]
    try:
        done = subprocess.run(
            words, input=asked, capture_output=True, timeout=LIMIT_S, check=False, env=bare_environment()
        )
    except subprocess.TimeoutExpired:
        raise ToolProblem(
            f"the search took more than {LIMIT_S:g} s", where=repr(pattern),
            mend="search fewer files, or without repeats within repeats such as (a+)+",
        ) from None  # fmt: skip
    except OSError as error:
        raise ToolProblem(f"the search can't be started ({error.strerror})") from None
    if done.returncode != 0:
        raise ToolProblem("the search took too much time or memory", where=repr(pattern), mend="a simpler expression")
    answer: Found | str = marshal.loads(done.stdout)  # noqa: S302 - from the script beside us
    if isinstance(answer, str):
        raise ToolProblem(f"{pattern!r} is no regular expression: {answer}")
    return answer
