"""Mailboxes as a mail client shows them: folders, threads, a search, letters from and to a person."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from itertools import islice
from typing import Any

from hivemind.boundary import Unreadable
from hivemind.fs import time_tells
from hivemind.hive import Hive
from hivemind.layout import HUMAN
from hivemind.mail import Message, MessageSummary
from hivemind.mail.maildir import DATED, Maildir, MailFile, split
from hivemind.mail.reading import time_key
from hivemind.web.site import Page, PageQuery, Site

_FOLDERS = {"inbox": "Inbox", "sent": "Sent", "archive": "Archive", "dead": "Set aside"}
_ROWS = 50
_LETTERS = 60  # of a thread, the newest
_BODY_CHARS = 6_000
_TIMED = re.compile(r"\d{10}\.")
_SEARCH_S = 0.12  # a search goes back so long; where it stopped it can be taken up

_listed: dict[tuple[str, str], tuple[tuple[int, ...], list[tuple[str, bool]]]] = {}


def mailboxes(site: Site, query: PageQuery) -> Page:
    """A person's own mailbox, and all others beside it."""
    return mailbox(site, HUMAN, query)


def mailbox(site: Site, box: str, query: PageQuery) -> Page:
    """One folder of one mailbox, newest first; with `q` the letters that have these words."""
    hive = site.hive
    own = hive.mail.boxes.get(box)
    months = [month for kind in DATED if query.get("folder", "").startswith(kind) for month in own.months(kind)]
    folders = {**_FOLDERS, **{month: month.partition("/")[2] for month in months}}  # of the folder that is open
    folder = query.choice("folder", folders, "inbox")
    entries = _entries(hive, box, folder)
    text, start = query.get("q", "")[:200], query.number("from")
    letters, end = _found(hive, box, folder, entries, text, start)
    context = {
        "boxes": boxes(site),
        "box": box,
        "folder": folder,
        "folders": folders,
        "letters": letters,
        "total": len(entries),
        "start": start,
        "end": end,
        "text": text,
        "to_whom": query.get("to", "")[:200],
    }
    return Page("mail.html", context, f"Mail of {box}", ("mail",))


def boxes(site: Site) -> list[tuple[str, int]]:
    """(name, unread) of each mailbox, a person's own first."""
    overview = site.watch.snapshot().overview
    unread = {agent.name: agent.unread for agent in overview.agents}
    return [(HUMAN, overview.human_unread), *((name, unread[name]) for name in site.hive.agents if name in unread)]


def _entries(hive: Hive, box: str, folder: str) -> list[tuple[str, bool]]:
    """The files of a folder, newest first, by name and whether they are in `new`; listed again only if it has changed."""
    maildir = hive.mail.boxes.get(box, folder)
    stamp = []
    for path in (maildir.new, maildir.cur):
        with suppress(OSError):
            stamp.append(os.stat(path).st_mtime_ns)
    known = _listed.get((box, folder))
    if known is not None and known[0] == tuple(stamp) and time_tells(max(stamp, default=0)):
        return known[1]
    names = [(name, new) for new in (True, False) for name in maildir.names(new)]
    # Most names begin with their time in ten digits, and are in order as they stand.
    found = sorted(names, key=lambda one: one[0] if _TIMED.match(one[0]) else _time(maildir, *one), reverse=True)
    _listed[box, folder] = tuple(stamp), found
    return found


def _entry(maildir: Maildir, name: str, new: bool) -> MailFile:
    base, flags = split(name)
    return MailFile(base, flags, os.path.join(maildir.new if new else maildir.cur, name), new)


def _time(maildir: Maildir, name: str, new: bool) -> str:
    return f"{max(0, time_key(_entry(maildir, name, new))[0]):010}"


def _found(
    hive: Hive, box: str, folder: str, entries: list[tuple[str, bool]], text: str, start: int
) -> tuple[list[MessageSummary], int]:
    """(the letters, which entry comes after the last one that was looked at)."""
    maildir, words = hive.mail.boxes.get(box, folder), text.casefold().split()
    found: list[MessageSummary] = []
    until = time.monotonic() + _SEARCH_S
    at = start
    for name, new in islice(entries, start, None):
        if len(found) >= _ROWS or (words and time.monotonic() > until):
            break
        at += 1
        entry = _entry(maildir, name, new)
        if not hive.mail.reader.settled(entry):
            continue
        one = hive.mail.reader.summary(box, maildir, entry)
        if one is not None and all(word in _said(one) for word in words):
            found.append(one)
    return found, at


def _said(letter: MessageSummary) -> str:
    return " ".join((letter.sender, *letter.to, letter.subject, letter.preview)).casefold()


def thread(site: Site, box: str, letter: str) -> Page:
    """A letter with all that belongs to its conversation, oldest first. Raises UserError if there is none."""
    hive = site.hive
    chosen = hive.mail.read(box, letter, mark=False)
    letters = [chosen]
    if len(_entries(hive, box, "inbox")) + len(_entries(hive, box, "sent")) <= 2_000:  # else it would read them all
        with suppress(Unreadable):
            letters = hive.mail.thread(box, chosen.id)[-_LETTERS:] or [chosen]
    context = {
        "boxes": boxes(site),
        "box": box,
        "chosen": chosen,
        "letters": [_letter(one) for one in letters],
        "knows": hive.mail.knows(chosen.sender),
    }
    return Page("thread.html", context, chosen.subject or "(no subject)", ("mail",))


def _letter(message: Message) -> dict[str, Any]:
    body = message.body
    return {
        "message": message,
        "body": body[:_BODY_CHARS],
        "more": max(0, len(body) - _BODY_CHARS),
        "attached": [(one.name, len(one.content)) for one in message.attachments],
    }
