"""A separate process for tests: `python worker.py DATABASE NAME [ARGUMENT]` does one thing to a database.

With `serve` it takes operations from standard input, one JSON list a line, and answers each with a line.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

from hivemind.documents import CycleError, Docmem, DocmemError, Knowledge, classes, files, knowledge
from hivemind.documents.formats import read_outline
from hivemind.errors import UserError
from hivemind.layout import Layout
from tests.durability import relaxed


def words(text: str) -> int:
    return len(text.split())


def build(docmem: Docmem, _: str) -> None:
    """A document of 800 nodes, `big`, and an empty one, `other`."""
    with docmem.transaction():
        docmem.create_root("big", text="big")
        docmem.create_root("other", text="other")
        for section in range(8):
            docmem.append_child("big", "m", "n", "v", f"section {section}", id=f"s{section}")
            for leaf in range(99):
                docmem.append_child(f"s{section}", "m", "n", "v", f"leaf {section} {leaf}", id=f"l{section}-{leaf}")


def delete(docmem: Docmem, _: str) -> None:
    docmem.delete("big")


def copy(docmem: Docmem, _: str) -> None:
    docmem.copy_append_child("big", "other")


def move(docmem: Docmem, _: str) -> None:
    for number in range(99):
        docmem.set_sticky(f"l0-{number}")
    docmem.move_append_child("l0-0", "other")


def import_file(docmem: Docmem, path: str) -> None:
    docmem.import_file(path)


def read_endless(docmem: Docmem, path: str) -> None:
    """Read files that are one piece of markup over and over; its parts never end or never fit together."""
    pieces = Path(__file__).with_name("endless.txt").read_text(encoding="utf-8").split()
    around = cycle([("# x", "y"), ("", "\n")])
    for piece, (before, after) in zip(pieces, around, strict=False):
        print(repr((before, piece, after)), flush=True)
        text = before + piece.encode().decode("unicode_escape") * (20_000 // len(piece)) + after
        start = time.process_time()
        with contextlib.suppress(UserError):
            if path.endswith(".toml"):
                docmem.import_toml(text)
            else:
                classes.classify(path, read_outline(text.encode(), path, len))
        assert time.process_time() - start < 0.6, "some hundredths of a second, or the work grows with the square"


def import_another(docmem: Docmem, path: str) -> None:
    """Import files in the place of other ones that are as long and like them nowhere."""
    parts = ("a\n\n", "* a\n", "    a\n\nb\n\n", "# a\n", "> a\n\n", "@a b\n\n", "@a-")
    for part in (*parts, *reversed(parts)):
        print(repr(part), flush=True)
        Path(path).write_text(part * (6_000 // len(part)), encoding="utf-8")
        docmem.import_file(path)


def die_over(docmem: Docmem, root: str) -> None:
    """Sync, and be killed in the middle of reading a file."""
    knowledge.read_outline = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[attr-defined]
    Knowledge(docmem, Layout.at(root)).sync()


def summarise(docmem: Docmem, _: str) -> None:
    docmem.add_summary("l1-0", "l1-98", "in short")


def toml(docmem: Docmem, _: str) -> None:
    docmem.import_toml(docmem.export_toml("big"))


def append(docmem: Docmem, count: str) -> None:
    for number in range(int(count)):
        docmem.append_child("other", "m", "n", "v", f"{os.getpid()} {number}")


def swap(docmem: Docmem, count: str) -> None:
    """Move two sections under each other, again and again; cycles are refused."""
    for number in range(int(count)):
        first, second = ("s0", "s1") if (number + os.getpid()) % 2 else ("s1", "s0")
        try:
            docmem.move_append_child(first, second)
            docmem.move_append_child(first, "big")
        except CycleError:
            continue  # the other one was first


def sync(docmem: Docmem, root: str) -> None:
    report = Knowledge(docmem, Layout.at(root)).sync()
    print(json.dumps([len(report.imported), len(report.changed), report.unchanged]))


def mend(docmem: Docmem, root: str) -> None:
    Knowledge(docmem, Layout.at(root)).restore()


def count_reads(docmem: Docmem, root: str) -> None:
    """Sync, and print the names of the files below knowledge/ that were opened; no file counts as young."""
    files._YOUNG_NS = -1
    paths: list[str] = []
    documents = Knowledge(docmem, Layout.at(root))
    names = {path.name for path in documents.layout.knowledge.iterdir()}

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str) and os.path.basename(arguments[0]) in names:
            paths.append(os.path.basename(arguments[0]))

    sys.addaudithook(watch)
    documents.sync()
    print(json.dumps(paths))


def serve(docmem: Docmem, _: str) -> None:
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            result = getattr(docmem, name)(*arguments)
            answer = {"id": getattr(result, "id", None), "hash": getattr(result, "hash", None)}
        except DocmemError as error:
            answer = {"error": type(error).__name__}
        print(json.dumps(answer), flush=True)


def main() -> None:
    database, name, argument = (*sys.argv[1:], "")[:3]
    work: Callable[[Docmem, str], None] = globals()[name]
    with Docmem(relaxed(Path(database)), token_counter=words) as docmem:
        work(docmem, argument)


if __name__ == "__main__":
    main()
