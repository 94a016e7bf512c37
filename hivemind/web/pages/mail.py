"""The pages of mailboxes: folders, threads, a search, and forms to write letters."""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from itertools import islice
from typing import Any

from hivemind.boundary import Unreadable
from hivemind.fs import is_timestamp_reliable
from hivemind.hive import Hive
from hivemind.layout import HUMAN
from hivemind.mail import Message, MessageSummary
from hivemind.mail.maildir import DATED, Maildir, MailFile, split_name
from hivemind.mail.reading import time_key
from hivemind.web.site import Page, PageQuery, Site

_FOLDERS = {"inbox": "Inbox", "sent": "Sent", "archive": "Archive", "dead": "Set aside"}
_MAX_ROWS = 50
_MAX_LETTERS = 60  # the newest of a thread
_BODY_CHARS = 6_000
_TIME_PREFIX = re.compile(r"\d{10}\.")
_SEARCH_S = 0.12  # a search stops after this time; the page offers to continue it

_folder_cache: dict[tuple[str, str], tuple[tuple[int, ...], list[tuple[str, bool]]]] = {}


def show_own_mailbox(site: Site, query: PageQuery) -> Page:
    """Build the page of the person's mailbox, with links to all mailboxes."""
    return show_mailbox(site, HUMAN, query)


def show_mailbox(site: Site, box: str, query: PageQuery) -> Page:
    """Build a list of the letters in one folder of the mailbox `box`, newest first. If the query has a `q`, list only
    letters with these words."""
    hive = site.hive
    inbox = hive.mail.mailboxes.get(box)
    months = [month for kind in DATED if query.get("folder", "").startswith(kind) for month in inbox.months(kind)]
    folders = {**_FOLDERS, **{month: month.partition("/")[2] for month in months}}  # months of the open folder
    folder = query.choice("folder", folders, "inbox")
    entries = _list_folder(hive, box, folder)
    text, start = query.get("q", "")[:200], query.number("from")
    letters, end = _search_folder(hive, box, folder, entries, text, start)
    context = {
        "boxes": list_mailboxes(site),
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


def list_mailboxes(site: Site) -> list[tuple[str, int]]:
    """Return the name and the number of unread letters of each mailbox, the person's mailbox first."""
    overview = site.watch.snapshot().overview
    unread = {agent.name: agent.unread for agent in overview.agents}
    return [(HUMAN, overview.human_unread), *((name, unread[name]) for name in site.hive.agents if name in unread)]


def _list_folder(hive: Hive, box: str, folder: str) -> list[tuple[str, bool]]:
    """Return a folder's files, newest first, as (name, True if in `new`). The list is cached until the folder changes."""
    maildir = hive.mail.mailboxes.get(box, folder)
    stamp = []
    for path in (maildir.new, maildir.cur):
        with suppress(OSError):
            stamp.append(os.stat(path).st_mtime_ns)
    cached_listing = _folder_cache.get((box, folder))
    if (
        cached_listing is not None
        and cached_listing[0] == tuple(stamp)
        and is_timestamp_reliable(max(stamp, default=0))
    ):
        return cached_listing[1]
    names = [(name, is_new) for is_new in (True, False) for name in maildir.file_names(is_new)]
    # Most names begin with ten digits of a time. The key of any other name is its file's time in the same form.
    sorted_names = sorted(
        names,
        key=lambda name_and_part: (
            name_and_part[0] if _TIME_PREFIX.match(name_and_part[0]) else _time_prefix(maildir, *name_and_part)
        ),
        reverse=True,
    )
    _folder_cache[box, folder] = tuple(stamp), sorted_names
    return sorted_names


def _mail_file(maildir: Maildir, name: str, is_new: bool) -> MailFile:
    base, flags = split_name(name)
    return MailFile(base, flags, os.path.join(maildir.new if is_new else maildir.cur, name), is_new)


def _time_prefix(maildir: Maildir, name: str, is_new: bool) -> str:
    return f"{max(0, time_key(_mail_file(maildir, name, is_new))[0]):010}"


def _search_folder(
    hive: Hive, box: str, folder: str, entries: list[tuple[str, bool]], text: str, start: int
) -> tuple[list[MessageSummary], int]:
    """Return the letters from entry `start` on that contain the words of `text`, and the index where the next search continues.

    The search ends after a page of letters or a time limit.
    """
    maildir, words = hive.mail.mailboxes.get(box, folder), text.casefold().split()
    summaries: list[MessageSummary] = []
    deadline = time.monotonic() + _SEARCH_S
    position = start
    for name, is_new in islice(entries, start, None):
        if len(summaries) >= _MAX_ROWS or (words and time.monotonic() > deadline):
            break
        position += 1
        entry = _mail_file(maildir, name, is_new)
        if not hive.mail.reader.is_finished(entry):
            continue
        summary = hive.mail.reader.summary(box, maildir, entry)
        if summary is not None and all(word in _search_text(summary) for word in words):
            summaries.append(summary)
    return summaries, position


def _search_text(letter: MessageSummary) -> str:
    return " ".join((letter.sender, *letter.to, letter.subject, letter.preview)).casefold()


def show_thread(site: Site, box: str, letter_id: str) -> Page:
    """Build the page of the thread of a letter, oldest letter first. Raises UserError if the letter does not exist."""
    hive = site.hive
    open_letter = hive.mail.read(box, letter_id, mark=False)
    letters = [open_letter]
    # collecting a thread reads all letters: with many of them, show only the opened letter
    if len(_list_folder(hive, box, "inbox")) + len(_list_folder(hive, box, "sent")) <= 2_000:
        with suppress(Unreadable):
            letters = hive.mail.thread(box, open_letter.id)[-_MAX_LETTERS:] or [open_letter]
    context = {
        "boxes": list_mailboxes(site),
        "box": box,
        "chosen": open_letter,
        "letters": [_letter_context(message) for message in letters],
        "knows": hive.mail.is_known_sender(open_letter.sender),
    }
    return Page("thread.html", context, open_letter.subject or "(no subject)", ("mail",))


def _letter_context(message: Message) -> dict[str, Any]:
    body = message.body
    return {
        "message": message,
        "body": body[:_BODY_CHARS],
        "more": max(0, len(body) - _BODY_CHARS),
        "attached": [(attachment.name, len(attachment.content)) for attachment in message.attachments],
    }
