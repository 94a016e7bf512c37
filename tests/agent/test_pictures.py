"""Pictures beside a task: a mind that takes them is shown them, any other is told where they are."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.mail import Attachment
from hivemind.minds import ChatMessage, Thought, ToolCall, Turn
from tests.agent.conftest import Crew
from tests.messages import messages_of

PICTURES = {
    "boat.png": ("image/png", b"\x89PNG\r\n\x1a\n..."),
    "oar.jpg": ("image/jpeg", b"\xff\xd8\xff\xe0..."),
    "sea.gif": ("image/gif", b"GIF89a..."),
    "sky.bin": ("image/webp", b"RIFF\x04\x00\x00\x00WEBP..."),
}


def opening(crew: Crew, *, takes_pictures: bool) -> ChatMessage:
    folder = crew.root / "tasks" / "inbox" / "look"
    folder.mkdir()
    (folder / "task.md").write_text("Look at the pictures.\n")
    for name, (_, content) in PICTURES.items():
        (folder / name).write_bytes(content)
    (folder / "no.png").write_text("This is no picture.")
    (folder / "large.png").write_bytes(PICTURES["boat.png"][1].ljust(5 * 2**20 + 1, b"."))
    seen: list[ChatMessage] = []

    def think(turn: Turn) -> Thought:
        seen.append(turn.messages[1])
        return Thought()

    agent = crew.start(think)
    agent.mind.takes_pictures = takes_pictures  # type: ignore[attr-defined]
    agent.cycle()
    return seen[0]


def test_the_pictures_beside_a_task_are_parts_of_its_opening_and_of_its_record(crew: Crew) -> None:
    message = opening(crew, takes_pictures=True)
    found = {Path(part["path"]).name: (part["kind"], part["sha256"]) for part in message.parts}
    assert found == {name: (kind, hashlib.sha256(raw).hexdigest()) for name, (kind, raw) in PICTURES.items()}
    assert all((crew.root / part["path"]).is_file() for part in message.parts)
    assert messages_of(crew.root / "tasks/active/look")[1]["parts"] == [dict(part) for part in message.parts]


@pytest.mark.parametrize("takes_pictures", [True, False])
def test_every_attachment_is_named_in_the_text(crew: Crew, takes_pictures: bool) -> None:
    message = opening(crew, takes_pictures=takes_pictures)
    assert all(name in message.text for name in (*PICTURES, "no.png", "large.png"))
    assert bool(message.parts) is takes_pictures


def test_no_more_pictures_are_shown_than_there_is_room_for(crew: Crew) -> None:
    crew.agent_file("role: analyst\nmax_tokens: 20000\n")
    assert len(opening(crew, takes_pictures=True).parts) < len(PICTURES)


def seen_after(crew: Crew, *wishes: tuple[str, dict[str, str]], takes_pictures: bool) -> list[ChatMessage]:
    """What the mind is sent after a turn with these calls."""
    seen: list[list[ChatMessage]] = []

    def think(turn: Turn) -> Thought:
        seen.append(list(turn.messages))
        return Thought("", tuple(ToolCall(*wish) for wish in wishes) if len(seen) == 1 else ())

    agent = crew.start(think)
    agent.mind.takes_pictures = takes_pictures  # type: ignore[attr-defined]
    for _ in range(2):
        agent.cycle()
    return seen[-1]


@pytest.mark.parametrize("takes_pictures", [True, False])
def test_a_picture_that_is_read_is_shown_after_the_last_result_as_it_was_then(crew: Crew, takes_pictures: bool) -> None:
    path = crew.root / "knowledge" / "boat.png"
    path.write_bytes(PICTURES["boat.png"][1])
    crew.drop("Look.\n")
    wishes = [("read_file", {"path": "knowledge/boat.png"}), ("list_files", {"path": "knowledge"})]
    *_, first, second, last = seen_after(crew, *wishes, takes_pictures=takes_pictures)
    if not takes_pictures:
        assert "which you cannot see" in second.text
        assert not any(message.parts for message in (first, second, last))
        return
    assert "a picture (image/png, 11 bytes), shown below" in first.text
    assert (second.role, last.role, last.text) == ("tool", "user", "knowledge/boat.png:")
    [part] = last.parts
    path.unlink()
    assert (crew.root / part["path"]).read_bytes() == PICTURES["boat.png"][1]


def test_the_pictures_of_a_letter_are_shown_with_it_and_all_that_it_has_is_named(crew: Crew) -> None:
    attached = [
        Attachment("boat.png", PICTURES["boat.png"][1], "image/png"),
        Attachment("list.csv", b"a,b", "text/csv"),
    ]
    hive = Hive.open(crew.root)
    hive.mail.send("human", ["ada"], "Look", "What is it?", attachments=attached)
    message = seen_after(crew, ("check_mailbox", {}), takes_pictures=True)[1]
    assert "boat.png (image/png, 11 bytes), list.csv (text/csv, 3 bytes)" in message.text
    assert [part["kind"] for part in message.parts] == ["image/png"]
