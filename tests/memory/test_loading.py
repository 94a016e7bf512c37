"""Loading: late, once, and never a reason to fail."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hivemind.errors import UserError
from hivemind.memory import ContentLoader, FileMemoryBlock, KnowledgeMemoryBlock, MessageMemoryBlock, TaskMemoryBlock
from hivemind.memory.compression import section
from hivemind.memory.loading import letter_body

_opened: list[str] | None = None


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event == "open" and _opened is not None and isinstance(args[0], str | bytes | os.PathLike):
        _opened.append(os.fsdecode(args[0]))


sys.addaudithook(_audit)


@pytest.fixture
def opened() -> Iterator[list[str]]:
    """The paths that are opened meanwhile, by whatever means."""
    global _opened
    _opened = []
    yield _opened
    _opened = None


def block(location: object, *lines: int | None, **fields: Any) -> FileMemoryBlock:
    start, end = lines or (None, None)
    return FileMemoryBlock(location=str(location), start_line=start, end_line=end, **fields)


def test_lines_are_one_based_and_inclusive(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1\n2\n3\n4\n")
    loader = ContentLoader(tmp_path)
    assert loader.load_content(block("a", 2, 3)) == "2\n3\n"
    assert loader.load_content(block("a", 4, 4)) == "4\n"
    assert loader.load_content(block("a", 3, 99)) == "3\n4\n"
    assert loader.load_content(block("a", 3, None)) == "3\n4\n"
    assert loader.load_content(block("a")) == "1\n2\n3\n4\n"
    past = loader.load(block("a", 5, 6))
    assert past.content == "[a: has 4 lines, there is no line 5]"
    assert past.error
    assert loader.loads == 1


def test_only_line_feeds_end_lines_as_editors_count_them(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("one\x0c\u2028still\r\ntwo".encode())
    assert ContentLoader(tmp_path).load_content(block("a", 2, 2)) == "two"


def test_an_unchanged_file_is_not_read_twice_and_a_changed_one_is_read_at_once(
    tmp_path: Path, opened: list[str]
) -> None:
    path = tmp_path / "a"
    path.write_text("one")
    loader = ContentLoader(tmp_path)
    opened.clear()
    assert [loader.load_content(block("a")) for _ in range(3)] == ["one"] * 3
    assert [Path(one).name for one in opened].count("a") == 1  # opened in its folder, which is opened first
    for content in ("two", "six"):  # as long as before, and written as fast as one can
        path.write_text(content)
        assert loader.load_content(block("a")) == content
    (tmp_path / "b").write_text("new")
    found = path.stat()
    os.utime(tmp_path / "b", ns=(found.st_atime_ns, found.st_mtime_ns))
    (tmp_path / "b").replace(path)  # another file of the same size and time
    assert loader.load_content(block("a")) == "new"


def test_the_cache_is_bounded_in_bytes_and_drops_the_least_recently_used(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text("x" * 1_000)
    loader = ContentLoader(tmp_path, cache_bytes=3_000)
    for name in "abaca":
        loader.load(block(name))
    assert loader.loads == 3
    loader.load(block("b"))
    assert loader.loads == 4
    assert loader.cache.bytes <= 3_000
    (tmp_path / "big").write_text("x" * 9_000)
    assert len(loader.load_content(block("big"))) == 9_000
    assert loader.cache.bytes <= 3_000


def test_with_a_ttl_what_is_older_is_read_anew(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    loader = ContentLoader(tmp_path, ttl=0.0)
    loader.load(block("a"))
    loader.load(block("a"))
    assert loader.loads == 2


def test_several_files_load_at_once_in_their_order(tmp_path: Path) -> None:
    for at in range(40):
        (tmp_path / f"{at}").write_text(f"content {at}")
    blocks = [block(at % 40) for at in range(60)]
    loader = ContentLoader(tmp_path)
    assert [loaded.content for loaded in loader.load_many(blocks)] == [f"content {at % 40}" for at in range(60)]
    assert loader.loads == 40


def test_what_cannot_be_loaded_says_so_in_one_line(tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.write_text("secret")
    (tmp_path / "link").symlink_to(outside)
    (tmp_path / "binary").write_bytes(b"\0\1\2")
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_text("x" * 2_000)
    loader = ContentLoader(tmp_path, max_file_bytes=1_000)
    reasons = {
        "missing": "does not exist",
        "binary": "binary",
        "latin": "not UTF-8 (byte 3)",
        "folder": "regular file",
        "fifo": "regular file",
        "link": "out of the hive",
        "../x": "out of the hive",
        "/etc/passwd": "out of the hive",
        "nul\0byte": "NUL",
        "large": "too large",
    }
    for name, reason in reasons.items():
        loaded = loader.load(block(name))
        assert loaded.error is not None
        assert reason in loaded.error
        assert loaded.content.count("\n") == 0
        assert "secret" not in loaded.content


def test_roots_beside_the_hive_are_read_and_marked(tmp_path: Path) -> None:
    hive, other = tmp_path / "hive", tmp_path / "other"
    hive.mkdir()
    other.mkdir()
    (other / "a").write_text("x")
    loaded = ContentLoader(hive, roots=[other]).load(block(other / "a"))
    assert (loaded.content, loaded.is_external) == ("x", True)
    assert ContentLoader(hive).load(block(other / "a")).error


def test_a_digest_that_no_longer_matches_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("new")
    new = hashlib.sha256(b"new").hexdigest()
    loader = ContentLoader(tmp_path)
    assert loader.load(block("a", digest=new)).digest is None
    assert loader.load(block("a", digest=f"sha256:{new}")).digest is None
    assert loader.load(block("a", digest="0" * 64)).digest == new


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfhello")
    assert ContentLoader(tmp_path).load_content(block("a")) == "hello"


MAIL = "From: a@hive\nSubject: hi\nContent-Type: text/plain; charset={}\nContent-Transfer-Encoding: 8bit\n\ncafé\n"


def test_a_message_is_its_body_in_whatever_character_set_it_came(tmp_path: Path) -> None:
    for charset in ("utf-8", "iso-8859-1"):
        (tmp_path / charset).write_bytes(MAIL.format(charset).encode(charset))
        message = MessageMemoryBlock(
            from_agent="a", to_agent="b", subject="hi", preview="c", full_path=str(tmp_path / charset)
        )
        assert ContentLoader(tmp_path).load_content(message) == "café"
    assert letter_body("no headers at all\n\nhere") == "no headers at all\n\nhere"
    assert "hello" in letter_body("Subject: x\nContent-Type: text/plain; charset=nonsense\n\nhello")


def test_a_message_is_found_when_a_mail_program_has_moved_it(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "cur").mkdir()
    (tmp_path / "cur" / "1.x.host:2,S").write_text("Subject: x\n\nbody\n")
    message = MessageMemoryBlock(
        from_agent="a", to_agent="b", subject="s", preview="p", full_path=str(tmp_path / "new/1.x.host")
    )
    assert ContentLoader(tmp_path).load_content(message) == "body"
    (tmp_path / "cur" / "1.x.host:2,S").unlink()
    assert ContentLoader(tmp_path).load(message).error
    message.full_path = ""
    assert ContentLoader(tmp_path).load_content(message) == "p"


def test_knowledge_is_a_file_a_section_lines_or_what_a_source_gives(tmp_path: Path) -> None:
    (tmp_path / "k.md").write_text("# A\none\n## B\ntwo\n```\n# no heading\n```\n# C\nthree\n")

    def source(reference: str, max_tokens: int | None) -> str:
        if reference == "bad":
            raise UserError("is gone")
        return f"{reference} within {max_tokens}"

    loader = ContentLoader(tmp_path, sources={"memory": source})

    def content(**fields: Any) -> str:
        return loader.load_content(KnowledgeMemoryBlock(topic="t", **fields))

    assert content(location="k.md", subtopic="b") == "## B\ntwo\n```\n# no heading\n```\n"
    assert content(location="k.md", subtopic="no such") == (tmp_path / "k.md").read_text()
    assert content(location="k.md", metadata={"lines": "2-4"}) == "one\n## B\ntwo\n"
    assert content(location="memory:x/y") == "x/y within None"
    assert content(location="memory:bad") == "[memory:bad: cannot be loaded (is gone)]"
    assert section("no headings", "x") == "no headings"


def test_a_block_that_carries_its_content_reads_nothing(tmp_path: Path) -> None:
    loader = ContentLoader(tmp_path)
    assert loader.load_content(TaskMemoryBlock(task_id="T", description="do it")) == "do it"
    assert loader.loads == 0
