"""Whatever lies in a mailbox is read, or refused with a reason; nothing else is raised."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind.boundary import Unreadable, boundary
from hivemind.mail.parse import derived_id, parse_message
from hivemind.mime.header import decode_text
from tests.sample import examples

_PIECES = st.sampled_from(
    [
        b"From: a@b\n", b"Subject: x\n", b"Subject: =?x?q?=?=\n", b"To: <a@b>, \"c, d\" <e@f>\n", b"\n", b"\r\n",
        b"Content-Type: multipart/mixed; boundary=x\n", b"Content-Type: multipart/mixed\n", b"--x\n", b"--x--\n",
        b"Content-Type: message/rfc822\n", b"Content-Type: text/plain; charset=klingon\n", b" folded\n",
        b"Content-Transfer-Encoding: base64\n", b"Content-Transfer-Encoding: quoted-printable\n", b"=3D=\n", b"!!!\n",
        b"Content-Disposition: attachment; filename*=utf-8''%ff\n", b"Content-Disposition: attachment; filename*0*=k'",
        b"Date: Fri, 99 Foo 20260 99:99:99 +9999\n", b"Message-ID: <>\n", b"Message-ID: <a b>\n", b"From \n", b"\xff\xfe",
        b"\0", b":\n", b"no header\n", b"Content-Type: text/html\n", b"Content-Type: /\n", b"Date: 1 Jan 1 00:00:00\n",
    ]
)  # fmt: skip


@examples(400, 150)
@given(st.lists(_PIECES | st.binary(max_size=20), max_size=14), st.booleans())
def test_junk_is_read_or_refused_with_a_reason(pieces: list[bytes], whole: bool) -> None:
    try:
        with boundary("letter"):
            found = parse_message(b"".join(pieces), "hive", is_complete=whole)
    except Unreadable:
        return
    assert "\n" not in found.subject + found.sender + "".join(found.to) + (found.id or "")
    assert found.date is None or found.date.tzinfo is not None


@given(st.text(max_size=200))
def test_header_text_never_fails_to_decode(text: str) -> None:
    decode_text(text)
    decode_text(f"=?utf-8?q?{text}?= =?latin-1?b?{text}?=")


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("=?utf-8?q?Gr=C3=BC=C3=9Fe?=", "Grüße"),
        ("=?UTF-8?B?R3LDvA==?= =?utf-8?B?w59l?=", "Grüße"),
        ("=?iso-8859-1?q?caf=E9_au?= lait", "café au lait"),
        ("a =?utf-8?q?b?= =?iso-8859-1?q?=E9?= c", "a bé c"),
        ("=?utf-8?b?w?= =?utf-8?b?7w=?=", "=?utf-8?b?w?= ï"),
        ("=?utf-8?b?w4M=?= =?utf-8?q?=C3?= =?utf-8?q?=BC?=", "Ãü"),
        ("=?klingon?q?x?=", "x"),
        ("=?utf-8*en?q?x?=", "x"),
        ("plain", "plain"),
    ],
)
def test_encoded_words_are_decoded(written: str, text: str) -> None:
    assert decode_text(written) == text


def test_a_note_without_headers_is_from_human_with_its_first_line_as_subject() -> None:
    found = parse_message("\n\n  Note: buy milk  \n\nand Brötchen\n".encode(), "hive")
    assert (found.id, found.sender, found.subject) == (None, "human", "Note: buy milk")
    assert found.body == "\n\n  Note: buy milk  \n\nand Brötchen"


@pytest.mark.parametrize("text", ["Note: milk\n\nmore", "TODO: a\nWHY: b\n", "http://x\n", "a: b\nc"])
def test_text_that_looks_like_headers_is_text(text: str) -> None:
    assert parse_message(text.encode(), "hive").body == text.removesuffix("\n")


def test_headers_without_a_sender_are_from_human() -> None:
    found = parse_message(b"Subject: Go\nTo: bob\n\nnow\n", "hive")
    assert (found.sender, found.to, found.subject, found.body) == ("human", ("bob",), "Go", "now")


def test_headers_alone_are_a_message() -> None:
    assert parse_message(b"Subject: Go", "hive").subject == "Go"


def test_a_line_that_is_no_header_begins_the_body() -> None:
    found = parse_message(b"Subject: Go\nnow: yes\nthis is text\nmore\n\nrest\n", "hive")
    assert (found.subject, found.body) == ("Go", "this is text\nmore\n\nrest")


def test_line_ends_of_windows_are_read() -> None:
    found = parse_message(b"From: bob@hive\r\nSubject: a\r\n b\r\n\r\none\r\ntwo\r\n", "hive")
    assert (found.sender, found.subject, found.body) == ("bob", "a b", "one\ntwo")


def test_the_line_of_an_mbox_file_is_passed_over() -> None:
    assert parse_message(b"From bob Sat Nov 21\nSubject: a\n\nb\n", "hive").subject == "a"


def test_eight_bit_junk_is_shown_as_well_as_can_be() -> None:
    found = parse_message(b"From: caf\xe9@hive\nSubject: caf\xe9 \xc3\xa9\nTo: bob\n\ncaf\xe9\n", "hive")
    assert (found.to, found.body) == (("bob",), "café")
    assert found.subject.startswith("café")


def test_of_two_senders_the_first_counts() -> None:
    assert parse_message(b"From: a@hive\nFrom: b@hive\n continued\nSubject: x\n\n", "hive").sender == "a"


def test_an_address_of_another_place_stays_whole() -> None:
    found = parse_message(b'From: "Bob, the one" <bob@example.org>\nTo: x@HIVE, <carol@hive>\n\n', "hive")
    assert (found.sender, found.to) == ("bob@example.org", ("x", "carol"))


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("Sat, 21 Nov 2026 12:00:05 +0000", datetime(2026, 11, 21, 12, 0, 5, tzinfo=UTC)),
        ("21 Nov 2026 13:00:05 +0100 (CET)", datetime(2026, 11, 21, 12, 0, 5, tzinfo=UTC)),
        ("yesterday", None),
        ("31 Feb 2026 12:00:05 +0000", None),
    ],
)
def test_dates_are_read_as_utc(text: str, when: datetime | None) -> None:
    assert parse_message(f"Subject: x\nDate: {text}\n\n".encode(), "hive").date == when


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(ValueError, match="not text"):
        parse_message(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "hive")


def test_endless_headers_are_refused() -> None:
    with pytest.raises(ValueError, match="headers"):
        parse_message(b"Subject: x\n" + b" y\n" * 600_000, "hive")


_PAGE = """<!DOCTYPE html><html><head><title>t</title><style>p {color: red}</style></head><body>
<!-- hidden --><script>alert("x < y")</script><h1>Boats &amp; sails</h1><p>One <b>rowing</b>
boat,<br>two&nbsp;oars: 3 &lt; 4.</p><ul><li>oar<li>sail</ul><a href="https://x.org/?a=1">more</a></body></html>"""


@pytest.mark.parametrize(
    "head",
    [
        "Content-Type: text/html",
        "Content-Type: multipart/alternative; boundary=x\n\n--x\nContent-Type: text/html; charset=utf-8",
    ],
)
def test_a_page_is_read_without_its_tags(head: str) -> None:
    body = parse_message(f"From: a@hive\n{head}\n\n{_PAGE}\n".encode(), "hive").body
    assert body == "Boats & sails\n\nOne rowing boat,\ntwo\xa0oars: 3 < 4.\n\n- oar\n- sail\nmore"


def test_the_text_beside_a_page_is_what_counts() -> None:
    raw = b"Content-Type: multipart/alternative; boundary=x\n\n--x\n\nplain\n--x\nContent-Type: text/html\n\n<p>page\n--x--\n"
    assert parse_message(raw, "hive").body == "plain"


def test_a_derived_id_depends_on_name_time_and_text() -> None:
    one = derived_id(b"a", "note", 1, "hive")
    assert one == derived_id(b"a", "note", 1, "hive")
    others = {
        derived_id(b"b", "note", 1, "hive"),
        derived_id(b"a", "x", 1, "hive"),
        derived_id(b"a", "note", 2, "hive"),
    }
    assert one not in others
    assert len(others) == 3
