"""Questions in other languages than English, by words alone; and where a passage of plain text ends."""

from __future__ import annotations

import pytest

from hivemind.documents import Knowledge

GERMAN = """# Verträge

## Kündigung

Die Kündigung ist schriftlich an die Verwaltung zu richten, und zwar drei Monate vor dem Ende des Vertrags.

## Geräte

Die neuen Geräte werden im Keller gelagert, bis sie von der Werkstatt geprüft sind.

## Miete

Die Miete ist am dritten Werktag des Monats fällig und wird von der Verwaltung eingezogen.
"""
CHINESE = """# 手册

## 备份

数据库每天凌晨两点自动备份,保存三十天。

## 密码

忘记密码时,请联系管理员重置。
"""
JAPANESE = """# 手引き

## 休暇

有給休暇は三日前までに上司へ申請してください。

## 経費

交通費は月末にまとめて精算します。
"""
UNDERLINED = """Pumps
=====

The pump is oiled in spring.

Sails
-----

The sails are washed in autumn.
"""
NUMBERED = """1. Pumps

The pump is oiled in spring.

2. Sails

The sails are washed in autumn.
"""


@pytest.mark.parametrize(
    ("text", "question", "answer"),
    [
        (GERMAN, "Wie kann ich kündigen?", "Die Kündigung ist schriftlich"),
        (GERMAN, "Wo lagert man ein neues Gerät?", "Die neuen Geräte"),
        (CHINESE, "忘记密码怎么办?", "请联系管理员重置"),
        (JAPANESE, "有給休暇の申請はどうすればいいですか?", "三日前までに"),
    ],
)
def test_a_question_finds_the_passage_that_has_other_forms_of_its_words(
    knowledge: Knowledge, text: str, question: str, answer: str
) -> None:
    (knowledge.layout.knowledge / "text.md").write_text(text)
    knowledge.sync()
    assert answer in knowledge.search(question)[0].text


@pytest.mark.parametrize("text", [UNDERLINED, NUMBERED])
def test_a_heading_in_plain_text_ends_a_passage(knowledge: Knowledge, text: str) -> None:
    (knowledge.layout.knowledge / "boat.txt").write_text(text)
    knowledge.sync()
    [best, *_] = knowledge.search("When are the sails washed?")
    assert "washed in autumn" in best.text
    assert "oiled" not in best.text


def test_a_question_in_another_language_than_the_documents_is_named(knowledge: Knowledge) -> None:
    (knowledge.layout.knowledge / "pump.md").write_text(
        "# Pump\n\nThe pump is oiled in the spring, and whoever does it writes the date on the card that hangs at the door.\n"
    )
    knowledge.sync()
    assert "documents are in English, the question in German" in knowledge.docmem.language_gap(
        "Wann wird die Pumpe geölt?"
    )
    assert knowledge.docmem.language_gap("When is the pump oiled?") == ""
    assert knowledge.docmem.language_gap("Pump?") == ""


def test_the_language_of_most_documents_is_that_of_most_files(knowledge: Knowledge) -> None:
    (knowledge.layout.knowledge / "a.md").write_text(GERMAN * 9)
    for number in range(3):
        knowledge.sync()
        assert number != 1 or knowledge.docmem.language_gap("Wann wird die Pumpe geölt?") == ""
        (knowledge.layout.knowledge / f"pump-{number}.md").write_text(
            f"# Pump {number}\n\nThe pump is oiled in the spring, and whoever does it writes the date on the card at the door.\n"
        )
    knowledge.sync()
    assert knowledge.docmem.language_gap("When is the pump oiled?") == ""


def test_one_long_log_does_not_hide_the_language_of_the_documents(knowledge: Knowledge) -> None:
    line = "2026-11-27T10:00:00Z kernel[431]: eth0 rx=8812 tx=9931 drop=0 err=0 qlen=1000 mtu=1500 irq=17 numa=3 txq=8 rxq=8"
    (knowledge.layout.knowledge / "a.log").write_text("\n\n".join([line] * 400))
    knowledge.sync()
    for name in ("pump", "sail"):
        text = f"The {name} has to be oiled in the spring before it is used, and it is put away when the winter comes."
        (knowledge.layout.knowledge / f"{name}.md").write_text(f"{text}\n")
    knowledge.sync()
    assert knowledge.docmem.language_gap("Wann wird die Pumpe geölt?").startswith("Most documents are in English")
