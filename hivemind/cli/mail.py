"""hivemind mail: the mailboxes, from a shell."""

from __future__ import annotations

import argparse
import errno
from typing import TYPE_CHECKING

from hivemind.cli.given import standard_input
from hivemind.cli.hive_of import hive_of, known_name, known_names, look_at
from hivemind.cli.output import print_json, print_table, say, warn
from hivemind.cli.parser import Commands, Parser, add_command, add_group, add_json, number
from hivemind.cli.text import clock_time, one_line
from hivemind.errors import UserError
from hivemind.layout import HUMAN

if TYPE_CHECKING:
    from hivemind.mail import Message, MessageSummary, SendReport

__all__ = ["add_to"]

_UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)
FOLDERS = ("inbox", "sent", "archive", "dead")
_RECEIVED = ("id", "from", "date", "flags", "subject", "preview")
_SENT = ("id", "to", "date", "subject", "preview")


def add_to(commands: Commands, common: Parser) -> None:
    mail = add_group(
        commands,
        common,
        "mail",
        "list, read, send and answer mail",
        examples="  hivemind mail list\n"
        '  hivemind mail send --to researcher --subject "A question" "What is a lease?"\n'
        "  hivemind mail read human 1763766000.M1P2Q3R4.host@hive\n\n"
        "Mailboxes are Maildirs: mutt -f mailboxes/human reads them as well.",
    )
    _add_list(mail, common)
    _add_read(mail, common)
    _add_send(mail, common)
    _add_reply(mail, common)
    for name, run, line in (
        ("thread", _thread, "show the messages of one conversation, oldest first"),
        ("status", _status, "show what became of a message that BOX sent"),
    ):
        parser = add_command(mail, common, name, run, line, examples=f"  hivemind mail {name} human ID")
        _add_box_and_id(parser)
        add_json(parser)


def _add_list(mail: Commands, common: Parser) -> None:
    parser = add_command(
        mail,
        common,
        "list",
        _list,
        "list a mailbox, newest last",
        examples="  hivemind mail list\n  hivemind mail list researcher --folder dead --json",
    )
    parser.add_argument("box", nargs="?", default=HUMAN, metavar="BOX", help="whose mailbox (default: human, yours)")
    parser.add_argument("--folder", choices=FOLDERS, default="inbox", help="inbox (default), sent, archive or dead")
    parser.add_argument("--unread", action="store_true", help="only what has not been read")
    parser.add_argument("--limit", type=number("from 1", 1), metavar="N", help="only the N newest")
    add_json(parser)


def _add_read(mail: Commands, common: Parser) -> None:
    parser = add_command(
        mail,
        common,
        "read",
        _read,
        "show a message and mark it read",
        examples="  hivemind mail read human ID\n  hivemind mail read ID --keep-unread\n  hivemind mail read ID --save .",
    )
    _add_box_and_id(parser)
    parser.add_argument("--keep-unread", action="store_true", help="leave it unread")
    parser.add_argument("--save", metavar="FOLDER", help="write its attachments there; existing files stay as they are")
    add_json(parser)


def _add_send(mail: Commands, common: Parser) -> None:
    parser = add_command(
        mail,
        common,
        "send",
        _send,
        "send a message",
        about="Prints the Message-ID. Exit status 1 if not everyone has it: sending again with --id ID delivers only\n"
        "what is missing.",
        examples='  hivemind mail send --to researcher --subject "A question" "What is a lease?"\n'
        "  git diff | hivemind mail send --to reviewer,analyst --subject Diff -",
    )
    parser.add_argument("--from", dest="sender", default=HUMAN, metavar="NAME", help="who sends it (default: human)")
    parser.add_argument("--to", action="append", required=True, metavar="NAME[,NAME]", help="who gets it")
    parser.add_argument("--cc", action="append", default=[], metavar="NAME[,NAME]", help="who gets a copy")
    parser.add_argument("--subject", default="", metavar="TEXT", help="one line")
    parser.add_argument(
        "--id", metavar="ID", help="its Message-ID: a second send with it delivers only what is missing"
    )
    parser.add_argument("--task", metavar="ID", help="the task that it is about")
    parser.add_argument("--reply-to", metavar="ID", help="the Message-ID that it answers")
    parser.add_argument("--importance", choices=("low", "normal", "high"), help="low, normal or high")
    parser.add_argument("--attach", action="append", default=[], metavar="FILE", help="a file to go with it")
    parser.add_argument("body", metavar="BODY", help="the text, Markdown; - reads standard input")
    add_json(parser)


def _add_reply(mail: Commands, common: Parser) -> None:
    parser = add_command(
        mail,
        common,
        "reply",
        _reply,
        "answer a message in a mailbox",
        examples='  hivemind mail reply human ID "Yes, do."',
    )
    _add_box_and_id(parser)
    parser.add_argument("body", metavar="BODY", help="the text, Markdown; - reads standard input")
    add_json(parser)


def _add_box_and_id(parser: Parser) -> None:
    parser.add_argument("box", nargs="?", default=HUMAN, metavar="BOX", help="whose mailbox (default: human, yours)")
    parser.add_argument("id", metavar="ID", help="the message's id, as `mail list` shows it")


def _body(text: str) -> str:
    """The text itself, or what standard input says for `-`."""
    return standard_input() if text == "-" else text


def _list(arguments: argparse.Namespace) -> int:
    hive = look_at(arguments)
    box = known_name(hive, arguments.box)
    found = hive.mail.list(box, arguments.folder, limit=None if arguments.unread else arguments.limit)
    if arguments.unread:
        found = [message for message in found if message.unread][-(arguments.limit or 0) :]
    if arguments.json:
        print_json([message.as_record() for message in found])
        return 0
    rows = [{**message.as_record(), "date": clock_time(message.date), "flags": _flags(message)} for message in found]
    columns = _SENT if arguments.folder == "sent" else _RECEIVED
    print_table(rows, columns, empty=f"No mail in {box}/{arguments.folder}.")
    return 0


def _flags(message: MessageSummary) -> str:
    """The Maildir's flags as a person reads them: `new` as long as nobody has read it."""
    return f"new {message.flags}".strip() if message.unread else message.flags


def _read(arguments: argparse.Namespace) -> int:
    hive = look_at(arguments)
    box = known_name(hive, arguments.box)
    try:
        message = hive.mail.read(box, arguments.id, mark=not arguments.keep_unread)
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        message = hive.mail.read(box, arguments.id, mark=False)
        warn(f"{one_line(message.path)}: it stays unread ({error.strerror})")
    if arguments.save:
        _save(message, arguments.save)
    if arguments.json:
        print_json(_record(message))
    else:
        _show(message)
    return 0


def _save(message: Message, folder: str) -> None:
    from pathlib import Path

    from hivemind import fs

    taken: set[str] = set()
    for at, attachment in enumerate(message.attachments, 1):
        name = _file_name(attachment.name) or f"attachment-{at}"
        if name in taken:
            name = f"{at}-{name}"
        taken.add(name)
        try:
            fs.create(Path(folder) / name, attachment.content)
        except FileExistsError:
            raise UserError("is there already", where=Path(folder) / name, mend="name another folder") from None


def _file_name(name: str) -> str:
    """The last part of a name as any file system takes it: at most 200 bytes, its ending kept; empty for one that hides."""
    plain = name.replace("\\", "/").rpartition("/")[2].strip()
    if plain.startswith(".") or not plain.isprintable():
        return ""
    stem, dot, ending = plain.rpartition(".")
    kept = ending.encode()[:20].decode(errors="ignore")
    return plain if len(plain.encode()) <= 200 else stem.encode()[:170].decode(errors="ignore") + dot + kept


def _record(message: Message) -> dict[str, object]:
    return {
        "id": message.id,
        "from": message.sender,
        "to": list(message.to),
        "cc": list(message.cc),
        "subject": message.subject,
        "date": message.date,
        "flags": message.flags,
        "path": message.path,
        "trusted": message.trusted,
        "in_reply_to": message.in_reply_to,
        "references": list(message.references),
        "task": message.task,
        "step": message.step,
        "lane": message.lane,
        "importance": message.importance,
        "attachments": [
            {"name": one.name, "type": one.content_type, "bytes": len(one.content)} for one in message.attachments
        ],
        "body": message.body,
    }


def _show(message: Message) -> None:
    sender = message.sender if message.trusted else f"{message.sender} (as the file says of itself)"
    heads = (
        ("From", sender),
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
    for name, value in heads:
        if value:
            say(f"{name + ':':9} {one_line(value)}")
    say()
    say(message.body.rstrip("\n"))


def _send(arguments: argparse.Namespace) -> int:
    hive = hive_of(arguments)
    sender = known_name(hive, arguments.sender)
    to = known_names(hive, arguments.to)
    if not to:
        raise UserError("nobody is named to send it to", mend="--to NAME")
    report = hive.mail.send(
        sender,
        to,
        arguments.subject,
        _body(arguments.body),
        cc=known_names(hive, arguments.cc),
        message_id=arguments.id,
        in_reply_to=arguments.reply_to,
        task=arguments.task,
        importance=arguments.importance,
        attachments=arguments.attach,
    )
    return _answer(report, arguments.json)


def _reply(arguments: argparse.Namespace) -> int:
    hive = hive_of(arguments)
    box = known_name(hive, arguments.box)
    before = hive.mail.read(box, arguments.id, mark=False)
    report = hive.mail.reply(box, arguments.id, _body(arguments.body))
    if "R" in before.flags and before.task is not None:
        warn(
            "that was answered before: a step that asked goes on with the first answer, this one is mail like any other"
        )
    return _answer(report, arguments.json)


def _answer(report: SendReport, as_json: bool) -> int:
    """Say who has the message and who has not; exit status 1 if anyone has not."""
    if as_json:
        print_json({"id": report.message_id, "delivered": list(report.delivered), "failed": dict(report.failed)})
    else:
        say(report.message_id)
    if not report.failed:
        return 0
    have = ", ".join(report.delivered) or "nobody"
    lack = "; ".join(f"{name} has it not: {why}" for name, why in report.failed.items())
    warn(f"{have} has it; {lack}; sending it again with --id {report.message_id} delivers only what is missing")
    return 1


def _thread(arguments: argparse.Namespace) -> int:
    hive = look_at(arguments)
    found = hive.mail.thread(known_name(hive, arguments.box), arguments.id)
    if arguments.json:
        print_json([_record(message) for message in found])
        return 0
    for at, message in enumerate(found):
        if at:
            say("\n" + "-" * 72)
        _show(message)
    return 0


def _status(arguments: argparse.Namespace) -> int:
    hive = look_at(arguments)
    found = hive.mail.status(known_name(hive, arguments.box), arguments.id)
    if arguments.json:
        print_json(dict(found))
        return 0
    rows = [{"recipient": name, "state": state} for name, state in found.items()]
    print_table(rows, ("recipient", "state"), empty="It was sent to nobody.")
    return 0
