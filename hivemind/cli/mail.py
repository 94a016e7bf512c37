"""List, read, send and answer mail.

Mailboxes are Maildirs: `mutt -f mailboxes/human` reads them, too.

examples:
  hivemind mail list
  hivemind mail send --to researcher --subject "A question" "What is a lease?"
  hivemind mail read human 1763766000.M1P2Q3R4.host@hive
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hivemind.cli.command import AttachedFiles, Box, CommandOutput, Positive, Text, command
from hivemind.cli.open_hive import acting_name, known_agent, open_hive, open_read_only, resolve_name, resolve_names
from hivemind.cli.output import headed_text, separated, table_lines, warn
from hivemind.cli.text import clock_time, one_line
from hivemind.errors import UserError
from hivemind.layout import HUMAN

if TYPE_CHECKING:
    from hivemind.hive import Hive
    from hivemind.mail import Delivery, Message

_UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)
_INBOX_COLUMNS = ("id", "from", "date", "flags", "subject", "preview")
_SENT_COLUMNS = ("id", "to", "date", "subject", "preview")


@command("mail list", open_read_only)
def messages(
    hive: Hive,
    box: Box,
    *,
    folder: Literal["inbox", "sent", "archive", "dead"] = "inbox",
    unread: bool = False,
    limit: Positive | None = None,
) -> CommandOutput:
    """List the messages in a mailbox, newest last.

    arguments:
      BOX  the mailbox (default: human, yours)
      --folder  inbox (default), sent, archive or dead
      --unread  only unread messages
      --limit N  only the N newest

    examples:
      hivemind mail list
      hivemind mail list researcher --folder dead --json
    """
    name = resolve_name(hive, box)
    letters = hive.mail.list(name, folder, limit=None if unread else limit)
    if unread:
        letters = [message for message in letters if message.unread][-(limit or 0) :]
    rows = [
        {  # the Maildir's flags, and `new` for an unread message
            **message.as_record(),
            "date": clock_time(message.date),
            "flags": f"new {message.flags}".strip() if message.unread else message.flags,
        }
        for message in letters
    ]
    lines = table_lines(
        rows, _SENT_COLUMNS if folder == "sent" else _INBOX_COLUMNS, empty=f"No mail in {name}/{folder}."
    )
    if folder == "inbox" and (dead_count := sum(1 for _ in hive.mail.mailboxes.get(name, "dead").mail_files())):
        lines = chain(lines, [f"{dead_count} not readable or not answered: hivemind mail list {name} --folder dead"])
    return CommandOutput([message.as_record() for message in letters], lines)


@command("mail read", open_read_only)
def read(hive: Hive, box: Box, id_: str, *, keep_unread: bool = False, save: str | None = None) -> CommandOutput:
    """Show a message and mark it read.

    arguments:
      BOX  the mailbox (default: human, yours)
      ID  the message's id, as `mail list` shows it
      --keep-unread  leave it unread
      --save FOLDER  write its attachments to this folder; existing files are not replaced

    examples:
      hivemind mail read human ID
      hivemind mail read ID --keep-unread
      hivemind mail read ID --save .
    """
    name = resolve_name(hive, box)
    hive.mail.marks_read = not keep_unread
    try:
        message = hive.mail.read(name, id_)
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        message = hive.mail.read(name, id_, mark=False)
        warn(f"{one_line(message.path)}: the message stays unread ({error.strerror})")
    if save:
        _save(message, Path(save))
    return CommandOutput(_message_record(message), _message_lines(message))


def _save(message: Message, folder: Path) -> None:
    from hivemind import fs

    for name, attachment in message.files.items():
        try:
            fs.create(folder / name, attachment.content)
        except FileExistsError:
            raise UserError("already exists", location=folder / name, remedy="name another folder") from None


def _message_record(message: Message) -> dict[str, Any]:
    attribute_names = (
        "id", "subject", "date", "flags", "path", "trusted", "in_reply_to", "task", "step", "lane", "importance", "body",
    )  # fmt: skip
    return {
        **{name: getattr(message, name) for name in attribute_names},
        "from": message.sender,
        "to": message.to,
        "cc": message.cc,
        "references": message.references,
        "attachments": [
            {"name": attachment.name, "type": attachment.content_type, "bytes": len(attachment.content)}
            for attachment in message.attachments
        ],
    }


def _message_lines(message: Message) -> Iterator[str]:
    headers = (
        ("From", message.sender if message.trusted else f"{message.sender} (unverified, taken from the file)"),
        ("To", ", ".join(message.to)),
        ("Cc", ", ".join(message.cc)),
        ("Subject", message.subject),
        ("Date", clock_time(message.date)),
        ("Id", message.id),
        ("Answers", message.in_reply_to),
        ("Task", message.task),
        (
            "Attached",
            ", ".join(f"{attachment.name} ({len(attachment.content)} bytes)" for attachment in message.attachments),
        ),
        ("File", message.path),
    )
    return headed_text(headers, message.body)


@command("mail send", open_hive, for_agents=True)
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
    attach: AttachedFiles = None,
) -> CommandOutput:
    """Send a message.

    Prints the Message-ID. Exit status 1 if a recipient did not get the message: send it again with --id ID to deliver
    the missing copies.

    arguments:
      BODY  the text, Markdown; - reads standard input
      --from WHO  the sender (default: human)
      --to WHO[,WHO]  the recipients
      --cc WHO[,WHO]  recipients of a copy
      --subject TEXT  one line
      --id ID  the Message-ID: a message sent again goes only to those recipients who do not have it
      --task TASK  the task that the message is about
      --reply-to ID  the Message-ID of the message that this one answers
      --importance  low, normal or high
      --attach FILE  a file to attach

    examples:
      hivemind mail send --to researcher --subject "A question" "What is a lease?"
      git diff | hivemind mail send --to reviewer,analyst --subject Diff -
    """
    sender, receivers = acting_name(hive, from_), resolve_names(hive, to)
    if not receivers:
        raise UserError("there is no recipient", remedy="--to NAME")
    return _delivery_output(
        hive.mail.send(
            sender,
            receivers,
            subject,
            body,
            cc=resolve_names(hive, cc),
            message_id=id_,
            in_reply_to=reply_to,
            task=task,
            importance=importance,
            attachments=attach or [],
        )
    )


@command("mail reply", open_hive, for_agents=True)
def reply(hive: Hive, box: Box, id_: str, body: Text) -> CommandOutput:
    """Answer a message in a mailbox.

    arguments:
      BOX  the mailbox (default: human, yours)
      ID  the message's id, as `mail list` shows it
      BODY  the text, Markdown; - reads standard input

    examples:
      hivemind mail reply human ID "Yes, do."
    """
    from hivemind.taskrun.waits import is_question

    name = acting_name(hive, box)
    original = hive.mail.read(name, id_, mark=False)
    report = hive.mail.reply(name, id_, body)
    if original.task is not None:
        if is_question(original.id, hive.config.workspace) and not hive.tasks.listing.is_open(original.task):
            warn(
                f"the task {original.task} that asked has ended and will not use the answer: hivemind task show {original.task}"
            )
        elif "R" in original.flags:
            warn("the message was answered before: the step that asked uses the first answer, yours is ordinary mail")
    return _delivery_output(report)


def _delivery_output(report: Delivery) -> CommandOutput:
    """Return the output of a delivery: Message-ID and recipients. If a delivery failed, warn, and set exit status 1."""
    if report.failed:
        delivered_names = ", ".join(report.delivered) or "nobody"
        failure_text = "; ".join(f"not delivered to {name}: {reason}" for name, reason in report.failed.items())
        warn(
            f"delivered to {delivered_names}; {failure_text}; "
            f"sending the message again with --id {report.message_id} delivers only the missing copies"
        )
    record = {"id": report.message_id, "delivered": list(report.delivered), "failed": dict(report.failed)}
    return CommandOutput(record, [report.message_id], 1 if report.failed else 0)


@command("mail thread", open_read_only)
def thread(hive: Hive, box: Box, id_: str) -> CommandOutput:
    """Show the messages of one thread, oldest first.

    arguments:
      BOX  the mailbox (default: human, yours)
      ID  the message's id, as `mail list` shows it

    examples:
      hivemind mail thread human ID
    """
    letters = hive.mail.thread(resolve_name(hive, box), id_)
    lines = separated(map(_message_lines, letters), "-")
    return CommandOutput([_message_record(message) for message in letters], lines)


@command("mail keep", open_hive)
def keep(hive: Hive, box: Box, id_: str) -> CommandOutput:
    """Keep a mail thread as a document that `doc find` and agents can search.

    Each letter is kept with its author and time. A second call adds the letters written since.

    arguments:
      BOX  the mailbox (default: human, yours)
      ID  the id of one of the thread's messages, as `mail list` shows it

    examples:
      hivemind mail keep human ID
    """
    from hivemind.documents import Letter

    thread_messages = hive.mail.thread(resolve_name(hive, box), id_)
    letters = [
        Letter(message.id, message.sender, message.date.isoformat(timespec="seconds"), message.body)
        for message in thread_messages
    ]
    root = hive.documents.keep_thread(thread_messages[0].subject, letters, thread_messages[0].thread_id)
    record = {"node": root.id, "class": root.context_value, "letters": len(letters)}
    return CommandOutput(record, [f"{root.id}  {one_line(root.text)}  ({root.context_value}, {len(letters)} letters)"])


@command("mail status", open_read_only)
def status(hive: Hive, box: Box, id_: str) -> CommandOutput:
    """Show who has received, read and answered a message that BOX sent.

    arguments:
      BOX  the mailbox (default: human, yours)
      ID  the message's id, as `mail list` shows it

    examples:
      hivemind mail status human ID
    """
    states = hive.mail.status(resolve_name(hive, box), id_)
    rows = [{"recipient": name, "state": state} for name, state in states.items()]
    return CommandOutput(dict(states), table_lines(rows, ("recipient", "state"), empty="It has no recipients."))


@command("mail transcript", open_read_only)
def transcript(hive: Hive, agent: str, id_: str) -> CommandOutput:
    """Show an agent's conversation about the messages of a thread, turn by turn.

    For messages that belong to a task, use `task transcript`. A rule-based agent has no conversations.

    arguments:
      AGENT  the agent whose mailbox the message is in
      ID  the message's id, as `mail list` shows it

    examples:
      hivemind mail transcript researcher ID
    """
    from hivemind.cli.transcript import entry_lines
    from hivemind.taskrun.conversation import open_thread
    from hivemind.taskrun.transcript import Transcript

    name = known_agent(hive, agent)
    message = hive.mail.read(name, id_, mark=False)
    thread_transcript = Transcript(open_thread(hive.layout, name, message.thread_id).records())
    if not thread_transcript.entries:
        raise UserError(
            "the agent's mind took no turn about this message", location=id_, remedy="see hivemind mail thread"
        )
    head = one_line(f"{message.thread_id}: {message.subject}, {thread_transcript.summary}")
    lines = (line for entry in thread_transcript.entries for line in entry_lines(entry, None))
    fields = {"thread": message.thread_id, "totals": asdict(thread_transcript.account.usage())}
    return CommandOutput(
        {**fields, "entries": [entry.as_record() for entry in thread_transcript.entries]}, [head, *lines]
    )
