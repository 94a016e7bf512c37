"""Finds matching lines. Run as a script (`python -I -S`), matches a regular expression within limits of time and memory.

The script does not import hivemind. It reads `(pattern, texts, limit)` with `marshal` from standard input, and writes
`(hits, is_cut)`, or the error message of `re` for the pattern.
"""

from __future__ import annotations

import marshal
import re
import sys
from collections.abc import Callable, Iterable
from io import StringIO

SHOWN_CHARS = 300
LineMatches = tuple[list[tuple[str, int, str]], bool]
"""Hits as (name of the text, number of the line from 1, beginning of the line), and True if there may be more hits."""


def find_lines(matches: Callable[[str], object], texts: Iterable[tuple[str, str]], limit: int) -> LineMatches:
    """Return the first `limit` lines of named texts for which `matches` is true."""
    hits: list[tuple[str, int, str]] = []
    for name, text in texts:
        for number, raw_line in enumerate(StringIO(text), 1):
            line = raw_line.rstrip("\r\n")
            if matches(line):
                hits.append((name, number, line[:SHOWN_CHARS]))
                if len(hits) == limit:
                    return hits, True
    return hits, False


def _main(cpu_s: int, memory_bytes: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pattern, texts, limit = marshal.load(sys.stdin.buffer)  # noqa: S302 - from our parent, the same interpreter
    try:
        answer: LineMatches | str = find_lines(re.compile(pattern).search, texts, limit)
    except (re.error, OverflowError, RecursionError) as error:
        answer = str(error)
    marshal.dump(answer, sys.stdout.buffer)


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]))
