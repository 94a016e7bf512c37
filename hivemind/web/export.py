"""The pages as files, to keep or to send: the same as in the browser, without forms and without what moves."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import quote, unquote

from hivemind.errors import HivemindError, UserError
from hivemind.layout import HUMAN
from hivemind.web.app import chrome
from hivemind.web.pages import agent, costs, journal, knowledge, mail, now, task
from hivemind.web.render import HERE, Render
from hivemind.web.site import Page, Query, Site

__all__ = ["export"]

_ENDED = 500  # tasks that are over are written, the newest
_INDEXED_S = 600.0
_NAME_BYTES = 200
_STATIC = ("app.css", "drawing.css", "icon.svg")


def export(root: Path, folder: Path) -> int:
    """Write the pages into a folder that is made, or empty; returns how many. Raises UserError, OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise UserError("is not empty", where=folder, mend="name another folder")
    site = Site(root)
    try:
        site.index.sync(_INDEXED_S)
        made = dict(_pages(site))

        def to(address: str) -> str:
            path = address.partition("#")[0].partition("?")[0]
            if path.startswith("/static/"):
                return path.removeprefix("/")
            return quote(_name(path)) if path in made else "#"

        render, count = Render(to), 0
        for path, make in made.items():
            try:
                page = make()
            except (HivemindError, OSError):  # it has gone meanwhile, or cannot be read: its link leads to nothing
                continue
            written = render.page(page.template, chrome(site, page, path))
            (folder / _name(path)).write_text(written, "utf-8", "backslashreplace")
            count += 1
    finally:
        site.close()
    (folder / "static").mkdir()
    for name in _STATIC:
        shutil.copyfile(HERE / "static" / name, folder / "static" / name)
    return count


def _name(path: str) -> str:
    """The file of an address: `index.html`, `tasks--what-is-a-lease.html`."""
    plain = unquote(path).strip("/").replace("/", "--").replace(os.sep, "--")
    if len(plain.encode("utf-8", "replace")) > _NAME_BYTES:
        plain = plain[: _NAME_BYTES // 4] + hashlib.sha256(plain.encode("utf-8", "replace")).hexdigest()
    return f"{plain or 'index'}.html"


def _pages(site: Site) -> Iterator[tuple[str, Callable[[], Page]]]:
    """Each address with what makes its page."""
    nothing, hive = Query(), site.hive
    yield "/", partial(now.now, site, nothing)
    yield "/mail", partial(mail.mailboxes, site, nothing)
    for box in (HUMAN, *hive.agents):
        yield f"/mail/{quote(box, safe='')}", partial(mail.mailbox, site, box, nothing)
    for letter in hive.mail.list(HUMAN, limit=_ENDED):
        yield f"/mail/{HUMAN}/{quote(letter.id, safe='')}", partial(mail.thread, site, HUMAN, letter.id)
    for name in hive.agents:
        yield f"/agents/{quote(name, safe='')}", partial(agent.agent, site, name)
    yield "/knowledge", partial(knowledge.knowledge, site, nothing)
    yield "/memory", partial(knowledge.memory, site, nothing)
    yield "/journal", partial(journal.journal, site, nothing)
    yield "/costs", partial(costs.costs, site, nothing)
    ended, _ = site.index.ended(("done", "failed"), "", "newest", _ENDED, 0)
    for task_id in [*(one.id for one in site.watch.snapshot().open_tasks), *(one.id for one in ended)]:
        yield f"/tasks/{quote(task_id, safe='')}", partial(task.task, site, task_id, nothing)
