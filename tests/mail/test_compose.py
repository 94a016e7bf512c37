"""Round trips: what is composed is read back, by us and by Python's email package."""

from __future__ import annotations

import string
from datetime import UTC, datetime
from email import message_from_bytes, policy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind.errors import UserError
from hivemind.mail import Attachment
from hivemind.mail.compose import MAX_SUBJECT, LetterDraft, compose
from hivemind.mail.parse import parse_message
from hivemind.mail.seal import Seal
from hivemind.mime.header import one_line
from tests.sample import examples

_NOW = datetime(2026, 11, 21, 12, 0, 5, tzinfo=UTC)
_ANYTHING = st.text(max_size=300) | st.text("ab =?utf-8?b?\r\n\0\t\u2028äß€😀", max_size=300)


def _draft(**fields: object) -> LetterDraft:
    usual = {"message_id": "1@hive", "sender": "alice@hive", "to": ("bob@hive",), "subject": "s", "body": "b"}
    return LetterDraft(**{**usual, "date": _NOW, **fields})  # type: ignore[arg-type]


def _raw(draft: LetterDraft) -> bytes:
    head, body = compose(draft)
    return head + b"\n" + body


def _replaced(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


@examples(100, 40)
@given(_ANYTHING, _ANYTHING)
def test_subject_and_body_come_back_as_they_were(subject: str, body: str) -> None:
    found = parse_message(_raw(_draft(subject=subject, body=body)), "hive")
    assert found.subject == one_line(subject)
    assert found.body == _replaced(body)


@examples(100, 40)
@given(_ANYTHING, _ANYTHING)
def test_pythons_email_package_reads_the_same(subject: str, body: str) -> None:
    found = message_from_bytes(_raw(_draft(subject=subject, body=body)), policy=policy.default)
    assert not found.defects
    assert one_line(str(found["Subject"])) == one_line(subject)
    content = found.get_payload(decode=True)
    assert isinstance(content, bytes)
    assert content.decode() == _replaced(body) + "\n"


@examples(100, 40)
@given(*[st.text(st.characters() | st.sampled_from("\r\n\0<>@,:"), max_size=120) for _ in range(4)])
def test_no_text_adds_a_field_or_ends_the_head(subject: str, task: str, step: str, lane: str) -> None:
    evil = "\nBcc: everyone@hive\n\nevil"
    raw = _raw(_draft(subject=subject + evil, task=task + evil, step=step + evil, lane=lane + evil))
    found = message_from_bytes(raw)
    assert "Bcc" not in found
    assert {name.lower() for name in found} <= {
        "from", "to", "subject", "date", "message-id", "x-hive-task", "x-hive-step", "x-hive-lane",
        "mime-version", "content-type", "content-transfer-encoding",
    }  # fmt: skip
    assert found.get_payload() == "b\n"


@examples(100, 40)
@given(st.lists(st.text(string.ascii_lowercase, min_size=1, max_size=60), min_size=1, max_size=60, unique=True))
def test_lines_are_folded_and_addresses_come_back(names: list[str]) -> None:
    raw = _raw(_draft(to=tuple(f"{name}@hive" for name in names)))
    assert max(map(len, raw.split(b"\n"))) <= 100
    assert parse_message(raw, "hive").to == tuple(names)


@pytest.mark.parametrize("subject", ["x" * 5000, "é" * 5000, "word " * 2000])
def test_a_huge_subject_is_cut_and_begins_the_body(subject: str) -> None:
    raw = _raw(_draft(subject=subject))
    found = parse_message(raw, "hive")
    assert len(found.subject) == MAX_SUBJECT
    assert found.body == f"{one_line(subject)}\n\nb"
    assert max(map(len, raw.split(b"\n"))) < 998


@pytest.mark.parametrize("body", ["x" * 2000, "é" * 600, "a\rb", "a\0b", "tab \nspace \n", "=41 " * 300])
def test_a_body_that_mail_cannot_carry_as_it_stands_is_quoted_printable(body: str) -> None:
    raw = _raw(_draft(body=body))
    assert max(map(len, raw.split(b"\n"))) <= 998
    assert parse_message(raw, "hive").body == body


def test_markdown_stands_in_the_file_as_it_was_written() -> None:
    body = "# Überschrift\n\n* **fett**\n\n```py\nprint('ä')\n```\n"
    assert body.encode() in _raw(_draft(body=body))


@examples(100, 40)
@given(
    st.lists(
        st.builds(Attachment, st.text(min_size=1, max_size=60), st.binary(max_size=3000), st.sampled_from(
            ["text/plain", "image/png", "nonsense", "a/b\nX: y", "message/rfc822", "multipart/mixed"]
        )),
        min_size=1, max_size=3,
    ),
    _ANYTHING,
)  # fmt: skip
def test_attachments_come_back_byte_for_byte(attachments: list[Attachment], body: str) -> None:
    raw = _raw(_draft(attachments=tuple(attachments), body=body))
    found = parse_message(raw, "hive")
    assert found.body == _replaced(body)
    assert [one.content for one in found.attachments] == [one.content for one in attachments]
    assert all("/" not in one.name and "\\" not in one.name for one in found.attachments)
    assert "X" not in message_from_bytes(raw)


def test_a_name_that_is_no_ascii_is_kept(tmp_path: Path) -> None:
    (tmp_path / "Größe €.txt").write_bytes(b"\xff\x00")
    attachment = Attachment.from_file(tmp_path / "Größe €.txt")
    (found,) = parse_message(_raw(_draft(attachments=(attachment,))), "hive").attachments
    assert found == Attachment("Größe €.txt", b"\xff\x00", "text/plain")


def test_an_unknown_importance_is_refused() -> None:
    with pytest.raises(UserError, match="high, normal, low"):
        compose(_draft(importance="very\nX: y"))


def test_all_that_a_draft_holds_is_read_back() -> None:
    draft = _draft(
        cc=("carol@hive",), in_reply_to="0@hive", references=("a@x", "0@hive"), task="t-1", step="2", lane="läne",
        importance="high", automatic=True,
    )  # fmt: skip
    found = parse_message(_raw(draft), "HIVE")
    assert (found.id, found.sender, found.to, found.cc) == ("1@hive", "alice", ("bob",), ("carol",))
    assert (found.in_reply_to, found.references) == ("0@hive", ("a@x", "0@hive"))
    assert (found.task, found.step, found.lane, found.importance) == ("t-1", "2", "läne", "high")
    assert found.automatic
    assert found.date == _NOW


def test_a_seal_holds_until_a_byte_is_changed(tmp_path: Path) -> None:
    seal = Seal(tmp_path / "key")
    raw = seal.seal_message(*compose(_draft()))
    assert seal.is_valid(raw)
    assert Seal(tmp_path / "key").is_valid(raw)
    for at in range(len(raw)):
        assert not seal.is_valid(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]), raw[at:]
    assert not seal.is_valid(_raw(_draft()))
    assert not Seal(tmp_path / "other").is_valid(raw)
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0
