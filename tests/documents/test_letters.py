"""Letters as documents: an .eml file and an mbox, as other programs write them."""

from __future__ import annotations

import mailbox
from email.message import EmailMessage
from pathlib import Path

import pytest

from hivemind.documents import Knowledge, verify
from hivemind.documents.formats.letters import letters

KEY = "Der Lizenzschlüssel für das Gerät lautet K7-2291, und er gilt vom ersten März bis zum Ende des übernächsten Jahres."


def letter(subject: str, text: str, encoding: str = "quoted-printable", subtype: str = "plain") -> EmailMessage:
    message = EmailMessage()
    message["Subject"], message["From"], message["Date"] = (
        subject,
        "Ann <ann@example.org>",
        "Mon, 2 Nov 2026 10:00:00 +0000",
    )
    message.set_content(text, subtype=subtype, cte=encoding)
    return message


def mbox(path: Path, *messages: EmailMessage) -> Path:
    box = mailbox.mbox(path)
    for message in messages:
        box.add(message)
    box.close()
    return path


@pytest.mark.parametrize("encoding", ["quoted-printable", "base64", "8bit"])
def test_a_letter_is_found_by_its_words_and_its_quote_is_checked(knowledge: Knowledge, encoding: str) -> None:
    raw = bytes(letter("Schlüssel", f"Guten Tag,\n\n{KEY}\n\nAnn\n", encoding))
    (knowledge.layout.knowledge / "ticket.eml").write_bytes(raw)
    assert not knowledge.sync().skipped
    [passage, *_] = knowledge.search("Wie lautet der Lizenzschlüssel?")
    assert KEY in passage.text
    assert (passage.path, passage.titles[0]) == ("knowledge/ticket.eml", "Schlüssel")
    assert verify(passage.cite(), knowledge.layout).is_confirmed


def test_the_letters_of_an_mbox_are_sections_and_no_passage_has_two_of_them(knowledge: Knowledge) -> None:
    path = mbox(
        knowledge.layout.knowledge / "tickets.mbox",
        letter("Gate code", "The gate code is 4711.\n"),
        letter("Lamp", "<h1>Lamp</h1><p>The <b>red</b> lamp means overload.</p>", subtype="html"),
    )
    lines = path.read_text().split("\n")
    knowledge.sync()
    [gate, *_], [lamp, *_] = (
        knowledge.search("What is the gate code?"),
        knowledge.search("What does the red lamp mean?"),
    )
    assert "4711" in gate.text
    assert "overload" not in gate.text
    assert "The red lamp means overload." in lamp.text
    for passage, subject in ((gate, "Gate code"), (lamp, "Lamp")):
        assert f"Subject: {subject}" in lines[passage.start_line - 1 : passage.end_line]
        assert lines[passage.start_line - 1].startswith("From ")


def test_a_letter_that_cannot_be_read_hides_no_other() -> None:
    begin = b"From a@b Mon Nov  2 10:00:00 2026\n"
    raw = begin + b"Subject: " + b"x" * 70_000 + b"\n\nspam\n\n" + begin + b"Subject: Good\n\nText.\n"
    assert "has more than 64 KiB" in (extract := letters(raw, "box.mbox")).text
    assert extract.text.endswith("Good\n\nText.\n\n")
    assert extract.title == "box"


def test_attachments_are_named_and_not_read() -> None:
    message = letter("Invoice", "See below.\n")
    message.add_attachment(b"\0" * 99, maintype="application", subtype="pdf", filename="Größe.pdf")
    assert letters(bytes(message), "a.eml").text.endswith("See below.\n\nAttached: Größe.pdf\n\n")
