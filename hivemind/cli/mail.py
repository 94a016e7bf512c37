"""List, read, send and answer mail.

Mailboxes are Maildirs: mutt -f mailboxes/human reads them as well.

examples:
  hivemind mail list
  hivemind mail send --to researcher --subject "A question" "What is a lease?"
  hivemind mail read human 1763766000.M1P2Q3R4.host@hive
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hivemind.cli.command import Answer, Attached, Box, Positive, Text, command
from hivemind.cli.opening import acting, known_agent, known_name, known_names, look_at, open_hive
from hivemind.cli.output import sheet, table_lines, warn
from hivemind.cli.text import clock_time, one_line
from hivemind.errors import UserError
from hivemind.layout import HUMAN

if TYPE_CHECKING:
    from hivemind.hive import Hive
    from hivemind.mail import Message, SendReport

_UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)
_RECEIVED = ("id", "from", "date", "flags", "subject", "preview")
_SENT = ("id", "to", "date", "subject", "preview")


@command("mail list", look_at)
def messages(
    hive: Hive,
    box: Box,
    *,
    folder: Literal["inbox", "sent", "archive", "dead"] = "inbox",
    unread: bool = False,
    limit: Positive | None = None,
) -> Answer:
    """List a mailbox, newest last.

    arguments:
      BOX  whose mailbox (default: human, yours)
      --folder  inbox (default), sent, archive or dead
      --unread  only what has not been read
      --limit N  only the N newest

    examples:
      hivemind mail list
      hivemind mail list researcher --folder dead --json
    """
    name = known_name(hive, box)
    found = hive.mail.list(name, folder, limit=None if unread else limit)
    if unread:
        found = [message for message in found if message.unread][-(limit or 0) :]
    rows = [
        {  # the Maildir's flags as a person reads them: `new` as long as nobody has read it
            **message.as_record(),
            "date": clock_time(message.date),
            "flags": f"new {message.flags}".strip() if message.unread else message.flags,
        }
        for message in found
    ]
    lines = table_lines(rows, _SENT if folder == "sent" else _RECEIVED, empty=f"No mail in {name}/{folder}.")
    return Answer([message.as_record() for message in found], lines)


@command("mail read", look_at)
def read(hive: Hive, box: Box, id_: str, *, keep_unread: bool = False, save: str | None = None) -> Answer:
    """Show a message and mark it read.

    arguments:
      BOX  whose mailbox (default: human, yours)
      ID  the message's id, as `mail list` shows it
      --keep-unread  leave it unread
      --save FOLDER  write its attachments there; existing files stay as they are

    examples:
      hivemind mail read human ID
      hivemind mail read ID --keep-unread
      hivemind mail read ID --save .
    """
    name = known_name(hive, box)
    try:
        message = hive.mail.read(name, id_, mark=not keep_unread)
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        message = hive.mail.read(name, id_, mark=False)
        warn(f"{one_line(message.path)}: it stays unread ({error.strerror})")
    if save:
        _save(message, Path(save))
    return Answer(_record(message), _message_lines(message))


def _save(message: Message, folder: Path) -> None:
    from hivemind import fs

    for name, attachment in message.files.items():
        try:
            fs.create(folder / name, attachment.content)
        except FileExistsError:
            raise UserError("is there already", where=folder / name, mend="name another folder") from None


def _record(message: Message) -> dict[str, Any]:
    same = (
        "id", "subject", "date", "flags", "path", "trusted", "in_reply_to", "task", "step", "lane", "importance", "body",
    )  # fmt: skip
    return {
        **{name: getattr(message, name) for name in same},
        "from": message.sender,
        "to": message.to,
        "cc": message.cc,
        "references": message.references,
        "attachments": [
            {"name": one.name, "type": one.content_type, "bytes": len(one.content)} for one in message.attachments
        ],
    }


def _message_lines(message: Message) -> Iterator[str]:
    heads = (
        ("From", message.sender if message.trusted else f"{message.sender} (as the file says of itself)"),
        ("To", ", ".join(message.to)),
        ("Cc", ", ".join(message.cc)),
        ("Subject", message.subject),
        ("Date", clock_time(message.date)),
        ("Id", message.id),
        ("Answers", message.in_reply_to),
        ("Task", message.task),
        ("Attached", ", ".join(f"{one.name} ({len(one.content)} bytes)" for one in message.attachments)),
        ("File", message.path),
    )
    return sheet(heads, message.body)


@command("mail send", open_hive, agents=True)
def send(
    hive: Hive,
    body: Text,
    *,
    from_: str = HUMAN,
    to: list[str],
    cc: list[str] | None = None,
    subject: str = "",
    id_: str | None = None,
    task: str | None = None,
    reply_to: str | None = None,
    importance: Literal["low", "normal", "high"] | None = None,
    attach: Attached = None,
) -> Answer:
    """Send a message.

    Prints the Message-ID. Exit status 1 if not everyone has it: sending again with --id ID delivers only
    what is missing.

    arguments:
      BODY  the text, Markdown; - reads standard input
      --from WHO  who sends it (default: human)
      --to WHO[,WHO]  who gets it
      --cc WHO[,WHO]  who gets a copy
      --subject TEXT  one line
      --id ID  its Message-ID: a second send with it delivers only what is missing
      --task TASK  the task that it is about
      --reply-to ID  the Message-ID that it answers
      --importance  low, normal or high
      --attach FILE  a file to go with it

    examples:
      hivemind mail send --to researcher --subject "A question" "What is a lease?"
      git diff | hivemind mail send --to reviewer,analyst --subject Diff -
    """
    sender, receivers = acting(hive, from_), known_names(hive, to)
    if not receivers:
        raise UserError("nobody is named to send it to", mend="--to NAME")
    return _sent(
        hive.mail.send(
            sender,
            receivers,
            subject,
            body,
            cc=known_names(hive, cc),
            message_id=id_,
            in_reply_to=reply_to,
            task=task,
            importance=importance,
            attachments=attach or [],
        )
    )


@command("mail reply", open_hive, agents=True)
def reply(hive: Hive, box: Box, id_: str, body: Text) -> Answer:
    """Answer a message in a mailbox.

    arguments:
      BOX  whose mailbox (default: human, yours)
      ID  the message's id, as `mail list` shows it
      BODY  the text, Markdown; - reads standard input

    examples:
      hivemind mail reply human ID "Yes, do."
    """
    from hivemind.taskrun.waits import is_question

    name = acting(hive, box)
    before = hive.mail.read(name, id_, mark=False)
    report = hive.mail.reply(name, id_, body)
    if before.task is not None:
        if is_question(before.id, hive.config.workspace) and not hive.tasks.is_open(before.task):
            warn(f"the task {before.task} that asked is over, and does not go on: hivemind task show {before.task}")
        elif "R" in before.flags:
            warn("it was answered before: a step that asked goes on with the first answer, this is mail like any other")
    return _sent(report)


def _sent(report: SendReport) -> Answer:
    """Who has the message and who has not; exit status 1 if anyone has not."""
    if report.failed:
        have = ", ".join(report.delivered) or "nobody"
        lack = "; ".join(f"{name} has it not: {why}" for name, why in report.failed.items())
        warn(f"{have} has it; {lack}; sending it again with --id {report.message_id} delivers only what is missing")
    record = {"id": report.message_id, "delivered": list(report.delivered), "failed": dict(report.failed)}
    return Answer(record, [report.message_id], 1 if report.failed else 0)


@command("mail thread", look_at)
def thread(hive: Hive, box: Box, id_: str) -> Answer:
    """Show the messages of one conversation, oldest first.

    arguments:
      BOX  whose mailbox (default: human, yours)
      ID  the message's id, as `mail list` shows it

    examples:
      hivemind mail thread human ID
    """
    found = hive.mail.thread(known_name(hive, box), id_)
    rule = "\n" + "-" * 72
    lines = (line for at, one in enumerate(found) for line in [*([rule] if at else ()), *_message_lines(one)])
    return Answer([_record(message) for message in found], lines)


@command("mail keep", open_hive)
def keep(hive: Hive, box: Box, id_: str) -> Answer:
    """Keep a conversation as a document, which `doc find` and agents find by what its letters say.

    Each letter is kept with who wrote it and when. Called again, it adds what was written since.

    arguments:
      BOX  whose mailbox (default: human, yours)
      ID  the id of one of its messages, as `mail list` shows it

    examples:
      hivemind mail keep human ID
    """
    from hivemind.documents import Letter

    found = hive.mail.thread(known_name(hive, box), id_)
    letters = [Letter(one.id, one.sender, one.date.isoformat(timespec="seconds"), one.body) for one in found]
    root = hive.documents.keep_thread(found[0].subject, letters, found[0].thread)
    record = {"node": root.id, "class": root.context_value, "letters": len(letters)}
    return Answer(record, [f"{root.id}  {one_line(root.text)}  ({root.context_value}, {len(letters)} letters)"])


@command("mail status", look_at)
def status(hive: Hive, box: Box, id_: str) -> Answer:
    """Show who has received, read and answered a message that BOX sent.

    arguments:
      BOX  whose mailbox (default: human, yours)
      ID  the message's id, as `mail list` shows it

    examples:
      hivemind mail status human ID
    """
    found = hive.mail.status(known_name(hive, box), id_)
    rows = [{"recipient": name, "state": state} for name, state in found.items()]
    return Answer(dict(found), table_lines(rows, ("recipient", "state"), empty="It was sent to nobody."))


@command("mail transcript", look_at)
def transcript(hive: Hive, agent: str, id_: str) -> Answer:
    """Show what an agent's mind was told, and did, about a message and the others of its thread, turn by turn.

    Of messages that belong to a task `task transcript` tells; an agent that works by rule has no such conversation.

    arguments:
      AGENT  whose mailbox it is in
      ID  the message's id, as `mail list` shows it

    examples:
      hivemind mail transcript researcher ID
    """
    from hivemind.cli.transcript import entry_lines
    from hivemind.taskrun.conversation import open_thread
    from hivemind.taskrun.transcript import Transcript

    name = known_agent(hive, agent)
    message = hive.mail.read(name, id_, mark=False)
    found = Transcript(open_thread(hive.layout, name, message.thread, durable=False).records())
    if not found.entries:
        raise UserError("its mind took no turn about it", where=id_, mend="hivemind mail thread shows the messages")
    head = one_line(f"{message.thread}: {message.subject}, {found.in_words}")
    lines = (line for one in found.entries for line in entry_lines(one, None))
    record = {"thread": message.thread, "totals": asdict(found.account.spent())}
    return Answer({**record, "entries": [one.as_record() for one in found.entries]}, [head, *lines])
