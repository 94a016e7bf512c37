"""Finding lines; as a script (`python -I -S`) with a regular expression, in a process that is bounded (see `matching`).

It imports nothing of hivemind. Its input is `marshal` of `(pattern, texts, most)`, its output of `(found, cut)`, or of the
words in which `re` refuses the pattern.
"""

from __future__ import annotations

import marshal
import re
import sys
from collections.abc import Callable, Iterable
from io import StringIO

SHOWN_CHARS = 300
Found = tuple[list[tuple[str, int, str]], bool]
"""The name of the text, the line's number from 1 and its beginning, for each; whether there are more."""


def find(matches: Callable[[str], object], texts: Iterable[tuple[str, str]], most: int) -> Found:
    """The first `most` lines of named texts that match."""
    found: list[tuple[str, int, str]] = []
    for name, text in texts:
        for number, whole in enumerate(StringIO(text), 1):
            line = whole.rstrip("\r\n")
            if matches(line):
                found.append((name, number, line[:SHOWN_CHARS]))
                if len(found) == most:
                    return found, True
    return found, False


def _main(cpu_s: int, memory: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pattern, texts, most = marshal.load(sys.stdin.buffer)  # noqa: S302 - from our parent, the same interpreter
    try:
        answer: Found | str = find(re.compile(pattern).search, texts, most)
    except (re.error, OverflowError, RecursionError) as error:
        answer = str(error)
    marshal.dump(answer, sys.stdout.buffer)


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]))
