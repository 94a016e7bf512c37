"""Document memory: `python -m benchmarks.documents [--quick] [PART…]`.

Each baseline is plain SQLite storing the rows alone (same file system, same fsync, same run: no hash, no
token count, no full text, no history), or what the browser implementation on sql.js published (in memory, no fsync).
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.hives import placed
from benchmarks.table import Row, show
from hivemind.documents import Docmem, Knowledge
from hivemind.embedding import MiniLM
from hivemind.embedding.local import is_installed
from hivemind.layout import Layout

CONTEXT = ("message", "role", "user")
GROUP = 100
TEXT = "The quick brown fox jumps over the lazy dog, number {}."


def rate(count: int, work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return count / (time.perf_counter() - start)


def milliseconds(work: Callable[[], object], repeats: int = 5) -> float:
    return 1000 * min(1 / rate(1, work) for _ in range(repeats))


def side_by_side(count: int, measured: Callable[[int], object], floor: Callable[[int], object]) -> tuple[float, float]:
    """Return both rates per second, measured in turns: other load on the disk falls on both."""
    took = [0.0, 0.0]
    for number in range(count):
        for at, work in enumerate((measured, floor)):
            start = time.perf_counter()
            work(number)
            took[at] += time.perf_counter() - start
    return count / took[0], count / took[1]


class Plain:
    """The rows of a tree in SQLite, without anything else."""

    def __init__(self, path: Path, durable: bool) -> None:
        self.sql = sqlite3.connect(path, isolation_level=None)
        self.sql.execute("PRAGMA journal_mode = WAL")
        self.sql.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        self.sql.execute("CREATE TABLE nodes (id INTEGER PRIMARY KEY, parent INTEGER, place REAL, text TEXT)")
        self.sql.execute("CREATE INDEX siblings ON nodes (parent, place)")

    def append(self, number: int) -> None:
        insert = (
            "INSERT INTO nodes (parent, place, text)"
            " SELECT 1, coalesce(max(place), 0) + 1, ? FROM nodes WHERE parent = 1"
        )
        self.sql.execute(insert, (TEXT.format(number),))

    def update(self, number: int) -> None:
        self.sql.execute("UPDATE nodes SET text = ? WHERE id = ?", (f"changed {number}", number + 1))


def writing(folder: Path, count: int) -> list[Row]:
    return [row for durable in (True, False) for row in writing_once(folder, count, durable)]


def writing_once(folder: Path, count: int, durable: bool) -> list[Row]:
    mode = "durable" if durable else "relaxed"
    plain, docmem = (
        Plain(folder / f"plain-{mode}.db", durable),
        Docmem(placed(folder / f"{mode}.db", durable=durable)),
    )
    root = docmem.create_root(text="flat").id
    docmem.append_child(root, *CONTEXT, TEXT)  # the vocabulary is loaded, the file is made
    ids: list[str] = []

    def append(number: int) -> None:
        ids.append(docmem.append_child(root, *CONTEXT, TEXT.format(number)).id)

    def insert(number: int) -> None:
        docmem.insert_before(ids[number * 2 + 1], *CONTEXT, TEXT.format(number))

    def update(number: int) -> None:
        docmem.update_content(ids[number], f"changed {number}")

    def grouped() -> None:
        for at in range(0, count, GROUP):
            with docmem.transaction():
                for number in ids[at : at + GROUP]:
                    docmem.update_content(number, f"changed once more {number}")

    rows = []
    for name, number, work, floor, note, target in (
        ("append to a flat list", count, append, plain.append, "sql.js 159–183", None),
        (f"insert among {count:,}", count // 4, insert, plain.append, "sql.js 69–78", None),
        ("update", count, update, plain.update, "sql.js 4,749–6,229", 1 / 1.3 if durable else None),
    ):
        value, plain_rate = side_by_side(number, work, floor)
        least = None if target is None else plain_rate * target
        rows.append(Row(f"{name}, {mode}", value, "1/s", f"plain SQLite, {mode}", plain_rate, "more", note, least))
    name = f"update, {GROUP} in a transaction, {mode}"
    rows.append(Row(name, rate(count, grouped), "1/s", "sql.js, in memory", 5_489, "more"))
    docmem.close()
    return rows


def tree(docmem: Docmem, sections: int) -> str:
    root = docmem.create_root(text="tree").id
    with docmem.transaction():
        for section in range(sections):
            part = docmem.append_child(root, *CONTEXT, f"section {section}").id
            for number in range(99):
                docmem.append_child(part, *CONTEXT, TEXT.format(number))
    return root


def reading(folder: Path, sections: int) -> list[Row]:
    docmem = Docmem(folder / "tree.db")
    roots: list[str] = []
    built = rate(sections * 100, lambda: roots.append(tree(docmem, sections)))
    root = roots[0]
    nodes = f"{sections * 100:,} nodes"
    copy_target = docmem.create_root(text="other").id
    rows = [
        Row(f"append to a 100×99 tree, one transaction, {nodes}", built, "1/s", "sql.js", 1275, "more"),
        Row(f"serialize {nodes}", milliseconds(lambda: docmem.serialize(root)), "ms", "sql.js", 455),
        Row(f"structure {nodes}", milliseconds(lambda: docmem.structure(root)), "ms", "sql.js", 455),
        Row(f"expand {nodes}, all", milliseconds(lambda: docmem.expand_to_length(root, 10**9)), "ms", "sql.js", 255),
        Row(
            f"expand {nodes} to 1,000 tokens",
            milliseconds(lambda: docmem.expand_to_length(root, 1_000)),
            "ms",
            "sql.js",
            255,
        ),
        Row(f"copy {nodes}", milliseconds(lambda: docmem.copy_append_child(root, copy_target), 1), "ms"),
    ]
    section = docmem.structure(root)[1]["id"]
    target = [copy_target, root]

    def move() -> None:
        docmem.move_append_child(section, target[0])
        target.reverse()

    rows.append(Row("move a section of 100", milliseconds(move, 9), "ms"))
    copies = [node["id"] for node in docmem.structure(copy_target) if node["parentId"] == copy_target]
    rows.append(Row(f"delete {nodes}", milliseconds(lambda: docmem.delete(copies[0]), 1), "ms"))
    docmem.close()
    return rows


def siblings(folder: Path, size: int) -> list[Row]:
    """The cost of one more node among 10 and among many siblings."""
    docmem = Docmem(placed(folder / "siblings.db"))
    rates: dict[tuple[str, int], float] = {}
    for count in (10, size):
        root = docmem.create_root(text=str(count)).id
        with docmem.transaction():
            ids = [docmem.append_child(root, *CONTEXT, "x").id for _ in range(count)]
        middle = ids[count // 2]
        docmem.append_child(root, *CONTEXT, "x")  # the write-ahead log of the many is worked off here

        def append(root: str = root) -> None:
            for _ in range(100):
                docmem.append_child(root, *CONTEXT, "x")

        def insert(middle: str = middle) -> None:
            at = middle
            for _ in range(100):
                at = docmem.insert_after(at, *CONTEXT, "x").id

        rates["append", count] = rate(100, append)
        rates["insert", count] = rate(100, insert)
    docmem.close()
    return [
        Row(f"{name} beside {size:,} siblings", rates[name, size], "1/s", "beside 10", rates[name, 10], "more")
        for name in ("append", "insert")
    ]


def knowledge(folder: Path, files: int) -> list[Row]:
    layout = Layout.at(folder / "hive")
    for subfolder in layout.folders():
        subfolder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        body = "\n\n".join(f"## Part {part}\n\n" + TEXT.format(f"{number}-{part}") for part in range(20))
        (layout.knowledge / f"{number}.md").write_text(f"# Document {number}\n\n{body}\n")
    docmem = Docmem(layout.documents_db)
    hive_knowledge = Knowledge(docmem, layout)
    imported = rate(files, hive_knowledge.sync)
    with docmem.transaction() as edit:  # no longer young
        edit.sql.execute("UPDATE files SET seen_ns = seen_ns + 60000000000")

    def walk() -> None:
        with os.scandir(layout.knowledge) as entries:
            for entry in entries:
                entry.stat(follow_symlinks=False)

    (layout.knowledge / "0.md").write_text("# Document 0\n\nOne other text.\n")
    changed_file_ms = milliseconds(hive_knowledge.sync, 1)
    with docmem.transaction() as edit:
        edit.sql.execute("UPDATE files SET seen_ns = seen_ns + 60000000000")
    question, match = (
        f"What does the fox number {files // 2}-7 jump over?",
        f'"fox" OR "number" OR "{files // 2}" OR "7"',
    )

    def full_text() -> None:
        with docmem.database.read() as sql:
            sql.execute("SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank LIMIT 8", (match,)).fetchall()

    floor = milliseconds(full_text)
    rows = [
        Row(f"import {files} files of 41 nodes", imported, "files/s", better="more"),
        Row(
            f"sync {files} unchanged files",
            milliseconds(hive_knowledge.sync),
            "ms",
            "scandir and stat alone",
            milliseconds(walk),
        ),
        Row(f"sync with one of {files} files changed", changed_file_ms, "ms"),
        Row(
            f"search {files * 20:,} passages",
            milliseconds(lambda: hive_knowledge.search(question)),
            "ms",
            "FTS5 bm25 alone",
            floor,
        ),
    ]
    docmem.close()
    return rows


def deep(folder: Path, depth: int) -> list[Row]:
    docmem = Docmem(placed(folder / "deep.db"))
    at = root = docmem.create_root(text="deep").id
    with docmem.transaction():
        for _ in range(depth):
            at = docmem.append_child(at, *CONTEXT, "x").id
    copy_target = docmem.create_root().id
    rows = [
        Row(f"serialize {depth:,} levels", milliseconds(lambda: docmem.serialize(root), 1), "ms"),
        Row(f"expand {depth:,} levels", milliseconds(lambda: docmem.expand_to_length(root, 10**9), 1), "ms"),
        Row(f"copy {depth:,} levels", milliseconds(lambda: docmem.copy_append_child(root, copy_target), 1), "ms"),
        Row(f"delete {depth:,} levels", milliseconds(lambda: docmem.delete(root), 1), "ms"),
    ]
    docmem.close()
    return rows


def million(folder: Path, sections: int) -> list[Row]:
    docmem = Docmem(placed(folder / "million.db"))
    roots: list[str] = []
    built = rate(sections * 100, lambda: roots.append(tree(docmem, sections)))
    root = roots[0]
    with docmem.database.read() as sql:
        (middle,) = sql.execute("SELECT id FROM nodes WHERE seq = ?", (sections * 50,)).fetchone()
    section = docmem.root_of(middle).id if sections < 2 else docmem.structure(root)[1]["id"]

    def insert() -> None:
        docmem.insert_after(middle, *CONTEXT, "one more")

    def to_length() -> None:
        docmem.expand_to_length(root, 1_000)

    size = f"{sections * 100:,} nodes"
    rows = [
        Row(f"build {size} in one transaction", built, "1/s", better="more"),
        Row(f"insert one among {size}", milliseconds(insert, 9), "ms"),
        Row(f"update one of {size}", milliseconds(lambda: docmem.update_content(middle, "changed"), 9), "ms"),
        Row(f"search {size}", milliseconds(lambda: docmem.query("section 77"), 3), "ms"),
        Row(f"expand {size} to 1,000 tokens", milliseconds(to_length, 3), "ms"),
        Row(f"delete 100 of {size}", milliseconds(lambda: docmem.delete(section), 1), "ms"),
    ]
    rows += [row for operation in OF_A_MILLION for row in process_rows(folder, root, operation, size)]
    docmem.close()
    on_disk = sum(path.stat().st_size for path in folder.glob("million.db*")) / (sections * 100)
    rows.append(Row(f"{size} on the disk", on_disk, "bytes a node"))
    return rows


OF_A_MILLION = {
    "expand to 1,000 tokens": "docmem.expand_to_length(root, 1000)",
    "serialize": "docmem.serialize(root)",
    "structure": "docmem.structure(root)",
    "size": "docmem.size(root)",
    "check": "assert docmem.check() == []",
    "copy": "docmem.copy_append_child(root, docmem.create_root().id)",
    "delete": "docmem.delete(root)",
}
"""Operations on the whole tree, each in a separate process to measure its memory."""


def process_rows(folder: Path, root: str, operation: str, size: str) -> list[Row]:
    """Return the time of an operation, and by how many MB its process grew at most."""
    program = (
        "import sys, time; from hivemind.documents import Docmem; from hivemind.fs import set_durability\n"
        "def most(): return int(next(x for x in open('/proc/self/status') if x.startswith('VmHWM')).split()[1]) / 1024\n"
        "set_durability(sys.argv[1], durable=False)\n"
        "docmem = Docmem(sys.argv[1], token_counter=len); root = sys.argv[2]; before = most()\n"
        f"start = time.perf_counter(), time.process_time(); {OF_A_MILLION[operation]}\n"
        "print(time.perf_counter() - start[0], time.process_time() - start[1], most() - before)"
    )
    command = [sys.executable, "-c", program, str(folder / "million.db"), root]
    stdout = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    took, busy, memory = map(float, stdout.split())
    return [
        Row(f"{operation}: all {size}", took * 1000, "ms", note=f"processor {busy * 1000:,.0f} ms"),
        Row(f"{operation}: memory for {size}", memory, "MB"),
    ]


def first_minute(folder: Path, files: int) -> list[Row]:
    """Compare questions before any passage is embedded with the same after all are: processor time of the model."""
    if not is_installed():
        return []
    layout = Layout.at(folder / "hive")
    for subfolder in layout.folders():
        subfolder.mkdir(parents=True, exist_ok=True)
    manual = sorted((Path(__file__).parent.parent / "knowledge" / "manual").glob("*.md"))[:files]
    for page in manual:
        shutil.copy(page, layout.knowledge)
    docmem = Docmem(placed(layout.documents_db), embedder=MiniLM())
    hive_knowledge = Knowledge(docmem, layout)
    hive_knowledge.sync()
    questions = [f"What does the page about {page.stem[3:].replace('-', ' ')} say first?" for page in manual]
    docmem.passages("the model is loaded", 1, ["nothing"])
    began = time.process_time()
    first = [[passage.text for passage in hive_knowledge.search(question)[:1]] for question in questions]
    questions_s, (embedded, total) = time.process_time() - began, docmem.embedded_counts()
    began = time.process_time()
    remaining_passages = docmem.embed_pending(1_000_000)
    indexing = time.process_time() - began
    began = time.process_time()
    same = sum([p.text for p in hive_knowledge.search(q)[:1]] == best for q, best in zip(questions, first, strict=True))
    later = time.process_time() - began
    docmem.close()
    name = f"{len(questions)} questions, nothing embedded before"
    return [
        Row(name, questions_s, "s", "all embedded", later, note=f"they embed {embedded} of {total} passages"),
        Row("the first passage as with all embedded", 100 * same / len(questions), "%", better="more", target=92),
        Row(
            "passages embedded a processor-second, for questions",
            embedded / questions_s,
            "1/s",
            "in the background",
            remaining_passages / indexing,
            "more",
        ),
    ]


PARTS: dict[str, tuple[Callable[[Path, int], list[Row]], int, int, int]] = {
    "writing": (writing, 1_000, 1_000, 50),
    "reading": (reading, 100, 100, 10),
    "siblings": (siblings, 100_000, 100_000, 200),
    "knowledge": (knowledge, 1_000, 1_000, 10),
    "first_minute": (first_minute, 21, 21, 3),
    "deep": (deep, 10_000, 10_000, 100),
    "million": (million, 10_000, 2_000, 20),
}
"""Each with its size where it is named, where all are run, and where that is quick."""


def run(quick: bool = False, parts: Iterable[str] = ()) -> list[Row]:
    """All rows (about two minutes), or those of some parts; `quick` with small sizes, to see that it runs."""
    rows: list[Row] = []
    for name in parts or PARTS:
        part, alone, among, small = PARTS[name]
        with tempfile.TemporaryDirectory() as folder:
            rows += part(Path(folder), small if quick else alone if parts else among)
    return rows


if __name__ == "__main__":
    show("Document memory", run("--quick" in sys.argv, [name for name in sys.argv[1:] if name in PARTS]))
