"""The letters scenario: sent by command, by hand and by a task; to several, with attachments, again under the same id."""

from __future__ import annotations

import email
import email.policy
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from email.message import EmailMessage
from functools import lru_cache
from pathlib import Path
from typing import Any

from .checkers import GENERAL
from .hives import make_hive
from .scenario import Checker, Scenario
from .subject import Subject
from .tasks import TASK_CHECKERS, drop_task, with_steps

__all__ = ["LETTERS", "LETTER_CHECKERS", "POST", "letters_in", "send"]

QUESTION = "What keeps a sailing boat upright?"
ANSWER = "has a keel that keeps it upright"
BODY = "Zeile eins: \u00e4\u00f6\u00fc \u2713\nFrom the second line on it is long: " + "wave " * 400 + "\n"


def workload(subject: Subject) -> dict[str, dict[str, Any]]:
    """By key: a letter that `hivemind mail send` sends, with the id that makes it one letter however often it is sent."""
    return {
        "one": {"to": ["ada"], "body": BODY},
        "both": {"to": ["ada", "bob"], "body": BODY, "attach": ["map.bin", "list.txt"]},
        "three": {"to": ["bob", "ada", "human"], "body": "Short.\n"},
        "question": {"to": ["bob"], "body": f"{QUESTION}\n", "question": True},
        "between": {"from": "ada", "to": ["bob", "human"], "body": "From one to the other.\n"},
    }


def attachments(subject: Subject) -> Path:
    return subject.scratch / "attachments"


def prepare(subject: Subject) -> None:
    make_hive(subject)
    folder = attachments(subject)
    folder.mkdir()
    (folder / "map.bin").write_bytes(bytes(range(256)) * 40)
    (folder / "list.txt").write_text("oars\nrope\n\u00e4nker\n")


def send(subject: Subject, key: str, letter: dict[str, Any]) -> None:
    words = ["mail", "send", "--from", letter.get("from", "human"), "--id", f"{key}@hive", "--subject", f"Letter {key}"]
    for name in letter["to"]:
        words += ["--to", name]
    for name in letter.get("attach", ()):
        words += ["--attach", str(attachments(subject) / name)]
    subject.ask("letter", key, *words, "--json", "-", stdin=letter["body"], **letter)


def by_hand(subject: Subject) -> None:
    """Files that a person puts into a mailbox: with headers and without."""
    letter = f"From: human@hive\nTo: bob@hive\nMessage-ID: <hand-1@elsewhere>\nSubject: By hand\n\n{QUESTION}\n"
    subject.drop("note", "hand-1", "mailboxes/bob/new/hand-1", letter.encode(), box="bob", text=QUESTION)
    subject.drop("note", "hand-2", "mailboxes/ada/new/hand-2", b"Just a note.\n", box="ada", text="Just a note.")


def posting(subject: Subject) -> None:
    mail = {"to": ["bob", "human"], "subject": "Letter step", "body": "From a step.\n"}
    drop_task(subject, "posts", with_steps({"mail": mail}, assignee="ada"), end="done")


def play(subject: Subject) -> None:
    every = list(workload(subject).items())
    subject.random.shuffle(every)
    begin = subject.random.randrange(0, len(every))
    for key, letter in every[:begin]:
        send(subject, key, letter)
    by_hand(subject)
    posting(subject)
    swarm = subject.begin_work()
    for key, letter in every[begin:]:
        send(subject, key, letter)
    subject.finish_work(swarm)


def retry(subject: Subject) -> None:
    """Everything is sent a second time under its id, what was acknowledged too: nobody gets it twice."""
    for key, letter in workload(subject).items():
        send(subject, key, letter)
    notes = subject.ledger.acknowledged("note")
    if len(notes) < 2:
        names = {path.name.partition(":")[0] for path in files_of(subject, "ada", "bob")}
        if not {"hand-1", "hand-2"} & names:
            by_hand(subject)
    if not subject.ledger.acknowledged("task"):
        posting(subject)


def prepare_post(subject: Subject) -> None:
    prepare(subject)
    for box in ("ada", "bob"):  # a first letter makes the mailbox
        subject.run("mail", "send", "--from", "human", "--to", box, "--subject", "First", "Welcome.")


def to_nobody(subject: Subject) -> None:
    words = ("mail", "send", "--from", "human", "--to", "ada", "--to", "nobody", "--subject", "Letter lost", "-")
    subject.ask("refused", "nobody", *words, stdin="Who are you?\n")


def play_post(subject: Subject) -> None:
    to_nobody(subject)
    every = [(key, letter) for key, letter in workload(subject).items() if not letter.get("question")]
    subject.random.shuffle(every)
    for key, letter in every:
        send(subject, key, letter)
    send(subject, *every[0])


def again_post(subject: Subject) -> None:
    to_nobody(subject)
    for key, letter in workload(subject).items():
        if not letter.get("question"):
            send(subject, key, letter)


# checks


def files_of(subject: Subject, *boxes: str, folders: tuple[str, ...] = ("", ".Archive")) -> Iterator[Path]:
    for box in boxes:
        for folder in folders:
            for state in ("new", "cur"):
                place = subject.root / "mailboxes" / box / folder / state
                yield from (path for path in (sorted(place.iterdir()) if place.is_dir() else ()) if path.is_file())


def letters_in(subject: Subject, box: str, folder: str = "") -> list[EmailMessage]:
    """The messages of a mailbox, as any mail program reads them."""
    return [_parse(path.read_bytes()) for path in files_of(subject, box, folders=(folder,))]


@lru_cache(maxsize=200)
def _parse(content: bytes) -> EmailMessage:
    message = email.message_from_bytes(content, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    return message


def ids_in(subject: Subject, box: str, folder: str = "") -> Counter[str]:
    return Counter(str(message["Message-ID"]).strip().strip("<>") for message in letters_in(subject, box, folder))


def sent_is_there(subject: Subject) -> Iterator[str]:
    acknowledged = subject.ledger.acknowledged("letter")
    for key, requests in subject.ledger.of("letter").items():
        fields, name = requests[-1].asked, f"{key}@hive"
        for box in fields["to"]:
            count = ids_in(subject, box)[name]
            if count != 1 and key in acknowledged:
                yield f"the letter {key} was reported as sent, and is in the box of {box} {count} times"
            elif count > 1:
                yield f"the letter {key} is in the box of {box} {count} times"
        sender = fields.get("from", "human")
        count = ids_in(subject, sender, ".Sent")[name]
        if (key in acknowledged and count != 1) or count > 1:
            yield f"the letter {key} is in .Sent of {sender} {count} times"
        for request in requests:
            yield from told_falsely(subject, name, request.answer, box_of=fields["to"])


def told_falsely(subject: Subject, name: str, answer: str, box_of: list[str]) -> Iterator[str]:
    """Check that the boxes which an answer names have the letter, also after an error."""
    try:
        report = json.loads(answer)
    except ValueError:
        return
    for box in report.get("delivered", ()) if isinstance(report, dict) else ():
        if box in box_of and ids_in(subject, box)[name] != 1:
            yield f"{name} was reported as delivered to {box}, and is in the box {ids_in(subject, box)[name]} times"


def letters_whole(subject: Subject) -> Iterator[str]:
    for key, requests in subject.ledger.of("letter").items():
        fields = requests[-1].asked
        digests = sorted(digest((attachments(subject) / name).read_bytes()) for name in fields.get("attach", ()))
        for box, folder in [*((box, "") for box in fields["to"]), (fields.get("from", "human"), ".Sent")]:
            for message in letters_in(subject, box, folder):
                if str(message["Message-ID"]).strip() != f"<{key}@hive>":
                    continue
                text = message.get_body(("plain",))
                if text is None or text.get_content().strip() != fields["body"].strip():
                    yield f"the body of {key} in {box}/{folder} is not what was sent"
                if sorted(digest(part.get_payload(decode=True)) for part in message.iter_attachments()) != digests:
                    yield f"the attachments of {key} in {box}/{folder} are not what was sent"


def digest(content: Any) -> str:
    return hashlib.sha256(content).hexdigest()


def notes_there(subject: Subject) -> Iterator[str]:
    for key, request in subject.ledger.acknowledged("note").items():
        files = [path for path in files_of(subject, request.asked["box"]) if path.name.startswith(key)]
        if len(files) != 1 or request.asked["text"] not in files[0].read_text("utf-8"):
            yield f"the note {key} that was put into the box of {request.asked['box']} is there {len(files)} times"


def taken_in_once(subject: Subject) -> Iterator[str]:
    """Each question of a person is answered once; all that agents have was read by them."""
    for box in subject.agent_names():
        for path in files_of(subject, box, folders=("",)):
            if path.parent.name == "new":
                yield f"{box} has not taken in {path.name}, although the swarm was idle"
    answers = Counter(str(message["In-Reply-To"]).strip("<> ") for message in letters_in(subject, "human"))
    questions = [
        f"{key}@hive" for key, request in subject.ledger.acknowledged("letter").items() if request.asked.get("question")
    ]
    if "hand-1" in subject.ledger.acknowledged("note"):
        questions.append("hand-1@elsewhere")
    for name in questions:
        if answers[name] != 1:
            yield f"the question {name} was answered {answers[name]} times"
    for message in letters_in(subject, "human"):
        if str(message["In-Reply-To"]).strip("<> ") in questions and ANSWER not in str(message.get_content()):
            yield f"the answer to {message['In-Reply-To']} does not answer it: {message.get_content()[:300]}"


def none_dead(subject: Subject) -> Iterator[str]:
    for path in files_of(subject, "human", *subject.agent_names(), folders=(".Dead",)):
        reason = path.parent.parent / f"{path.name.partition(':')[0]}.why"
        yield f"a good letter was given up: {path.name}: {reason.read_text() if reason.exists() else 'without a reason'}"


def refused_as_a_whole(subject: Subject) -> Iterator[str]:
    """A letter to somebody whom there is not is refused, also for those whom there is; asked without a fault, in words."""
    requests = subject.ledger.of("refused")["nobody"]
    if any(request.acknowledged for request in requests) or requests[-1].status != 2:
        yield f"mail to nobody was answered with {[request.status for request in requests]}, and should be with 2"
    if (subject.root / "mailboxes" / "nobody").exists():
        yield "mail to nobody has made a mailbox"
    if any(message["Subject"] == "Letter lost" for message in letters_in(subject, "ada")):
        yield "of a letter that was refused there is a copy"


def posted_once(subject: Subject) -> Iterator[str]:
    if not (subject.root / "tasks" / "done" / "posts").is_dir():  # it may have failed, and says why
        return
    for box in ("bob", "human"):
        copies = [message for message in letters_in(subject, box) if message["Subject"] == "Letter step"]
        if len(copies) != 1:
            yield f"the letter of the task's step is in the box of {box} {len(copies)} times"


LETTER_CHECKERS = (
    Checker("sent is there", ("P13", "P14", "P15"), sent_is_there),
    Checker("letters whole", ("P13", "P14"), letters_whole),
    Checker("notes there", ("P17",), notes_there),
    Checker("taken in once", ("P16", "P42"), taken_in_once),
    Checker("none dead", ("P18",), none_dead),
    Checker("posted once", ("P15",), posted_once),
)

LETTERS = Scenario(
    "letters", __doc__ or "", prepare, play, retry, (*LETTER_CHECKERS, *TASK_CHECKERS, *GENERAL),
    ("mail.", "fs.", "journal.", "tasks.", "graph."),
)  # fmt: skip

POST = Scenario(
    "post", "Letters sent by command alone, and again under their ids.", prepare_post, play_post, again_post,
    (*LETTER_CHECKERS[:2], LETTER_CHECKERS[4], Checker("refused as a whole", ("P19",), refused_as_a_whole), *GENERAL),
    ("mail.", "fs."), late=True,
)  # fmt: skip
