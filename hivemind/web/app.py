"""The page: addresses, what answers them, the stream of changes; one hive, one secret, this machine alone.

`serve` is the process of `hivemind web`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from hivemind.errors import HivemindError, UserError, exit_line
from hivemind.hive import Hive
from hivemind.layout import HUMAN
from hivemind.loopback import LOOPBACK, listen_on, server_settings
from hivemind.web.access import Access
from hivemind.web.acts import ACTS, ActionOutcome, Upload
from hivemind.web.pages import agent, costs, journal, knowledge, mail, now, task
from hivemind.web.render import HERE, Render, told
from hivemind.web.site import Page, PageQuery, Site

__all__ = ["DID", "PAGES", "chrome", "serve"]

DID = "human.did"
"""The kind of the journal's event that says what a person did here."""
_ALIVE_S = 20.0  # so often is a quiet stream told that we are there, and whoever has gone is found out
_OUTCOMES = 10_000  # forms whose number is remembered
_FILES = 50

Make = Callable[..., Page]
PAGES: dict[str, Make] = {
    "/": now.now,
    "/tasks/{id}": lambda site, query, id: task.task(site, id, query),  # noqa: A006 - the address's own word
    "/tasks/{id}/turns/{number}": lambda site, _, id, number: task.turn(site, id, number),  # noqa: A006
    "/files": task.file,
    "/mail": mail.mailboxes,
    "/mail/{box}": lambda site, query, box: mail.mailbox(site, box, query),
    "/mail/{box}/{id:path}": lambda site, _, box, id: mail.thread(site, box, id),  # noqa: A006
    "/agents/{name}": lambda site, _, name: agent.agent(site, name),
    "/knowledge": knowledge.knowledge,
    "/knowledge/{node}": lambda site, query, node: knowledge.document(site, node, query),
    "/memory": knowledge.memory,
    "/journal": journal.journal,
    "/costs": costs.costs,
}
"""The page at each address; what stands in braces is given to it by name."""


def chrome(site: Site, page: Page, path: str, **more: Any) -> dict[str, Any]:
    """What stands around every page."""
    overview = site.watch.snapshot().overview
    return {
        **page.context,
        "title": page.title,
        "topics": page.topics,
        "path": path,
        "hive_name": site.root.name,
        "unread": overview.human_unread,
        "is_up": overview.supervisor is not None,
        "human": HUMAN,
        "said": None,
        "is_live": False,
        "here": path,
        "root": "",
        **more,
    }


def _relative(address: str) -> str:
    """An address of the hive, relative to the `base` of its page."""
    return f".{address}"


class _App:
    """The answers."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._site = Site(root)
        self._render = Render()
        self._acting = threading.Lock()  # one act at a time; pages do not wait for it
        self._outcomes: OrderedDict[str, tuple[bytes, ActionOutcome]] = OrderedDict()
        self._streams: set[asyncio.Event] = set()

    def close(self) -> None:
        for closing in self._streams:
            closing.set()
        self._site.close()

    # reading

    def page(self, make: Make, request: Request) -> Response:
        """A page, or the one part of it that htmx asks for."""
        query = PageQuery(request.query_params)
        try:
            with self._site.mutex:
                page = make(self._site, query, **request.path_params)
            return HTMLResponse(self._drawn(page, request, query))
        except (HivemindError, OSError) as error:
            return self._failed(request, error)

    def _drawn(self, page: Page, request: Request, query: PageQuery) -> str:
        """The page as HTML. Not under the mutex: a long text holds up nobody else."""
        part = request.headers.get("hx-target") if request.headers.get("hx-request") else None
        outcome = self._outcomes.get(query.get("said", ""))
        return self._render.page(page.template, self._chrome(page, request, outcome and outcome[1].said), part)

    def _chrome(self, page: Page, request: Request, said: str | None = None) -> dict[str, Any]:
        """What stands around it. Its addresses are relative to `root`, which leads up from this one: none has the secret."""
        address = request.scope["address"]
        root = "../" * (address.partition("?")[0].count("/") - 1) or "./"
        return chrome(
            self._site, page, request.scope["path"], is_live=True, here=_relative(address), root=root, said=said
        )

    def _failed(self, request: Request, error: HivemindError | OSError) -> Response:
        status = 500 if not isinstance(error, UserError) else 404 if request.method == "GET" else 400
        return self._wrong(request, status, exit_line(error)[0])

    def _wrong(self, request: Request, status: int, reason: str) -> Response:
        page = Page("wrong.html", {"why": reason}, "Not found" if status == 404 else "Refused")
        try:
            context = self._chrome(page, request)
        except (HivemindError, OSError):
            return PlainTextResponse(told(reason) + "\n", status)
        return HTMLResponse(self._render.page(page.template, context), status)

    def unknown(self, request: Request, error: Exception) -> Response:
        """An address that is none, or a form that cannot be read."""
        assert isinstance(error, HTTPException)
        is_unknown = error.status_code == 404
        return self._wrong(request, error.status_code, "there is no such page" if is_unknown else error.detail)

    def hives(self, _: Request) -> Response:
        """The linked hives, as they last told the exchange: a part that the first page asks for by itself, as their server may
        take seconds to answer, or not to."""
        from hivemind.exchange.link import hives_now, open_exchange

        found, problem = [], None
        try:
            with open_exchange(self._site.hive.layout) as connection:
                found = hives_now(connection)
        except HivemindError as error:
            problem = str(error)
        return HTMLResponse(self._render.page("hives.html", {"hives": found, "problem": problem}))

    async def live(self, request: Request) -> Response:
        """What changes, as it changes: the names of the page's topics, one event each."""
        wanted = frozenset(request.query_params.get("of", "").split(","))
        return StreamingResponse(self._changes(wanted), media_type="text/event-stream")

    async def _changes(self, wanted: frozenset[str]) -> AsyncIterator[str]:
        loop, changed, heard = asyncio.get_running_loop(), set[str](), asyncio.Event()

        def hear(topics: frozenset[str]) -> None:
            if found := topics & wanted:
                changed.update(found)
                loop.call_soon_threadsafe(heard.set)

        self._streams.add(heard)
        try:
            with self._site.watch.onlooker(hear):
                yield "retry: 2000\n\n"
                while not self._site.watch.is_closing:
                    try:
                        await asyncio.wait_for(heard.wait(), _ALIVE_S)
                    except TimeoutError:
                        yield ": still here\n\n"
                    heard.clear()
                    for topic in sorted(changed):
                        changed.discard(topic)
                        yield f"event: {topic.partition(':')[0]}\ndata: 1\n\n"
        finally:
            self._streams.discard(heard)

    # doing

    async def act(self, request: Request) -> Response:
        """Do what a form says, tell the journal, and lead to where it is seen."""
        async with request.form(max_files=_FILES, max_fields=50) as sent:
            form = {name: value for name, value in sent.items() if isinstance(value, str)}
            files = [
                Upload(one.filename, one.file)
                for one in sent.getlist("files")
                if isinstance(one, UploadFile) and one.filename
            ]
            return await run_in_threadpool(self._act, request, form, files)

    def _act(self, request: Request, form: dict[str, str], files: list[Upload]) -> Response:
        try:
            done = self._done_once(request.path_params["act"], form, files)
        except KeyError as error:
            return self._failed(request, UserError(f"the form lacks {error}"))
        except (HivemindError, OSError) as error:
            return self._failed(request, error)
        path, mark, anchor = done.place.partition("#")
        # Relative to /do/ACT: it cannot lead to another host, whatever the form says.
        place = f"../{path.lstrip('/')}{'&' if '?' in path else '?'}said={quote(form['number'], safe='')}{mark}{anchor}"
        return RedirectResponse(place, 303)

    def _done_once(self, name: str, form: dict[str, str], files: list[Upload]) -> ActionOutcome:
        """Do it under the form's number; the same form sent again has the outcome of the first. One that failed may be sent
        again. Raises UserError if the number was used for something else."""
        if name not in ACTS:
            raise UserError("there is no such thing to do here")
        number, content = form["number"], _digest(name, form, files)
        with self._acting:
            if number not in self._outcomes:
                hive = Hive.open(self._root)
                done = ACTS[name](hive, form, files)
                self._outcomes[number] = content, done
                if len(self._outcomes) > _OUTCOMES:
                    self._outcomes.popitem(last=False)
                self._site.watch.forget()
                hive.journal.append(DID, agent_id=HUMAN, **done.about, time=int(time.time()))
            first, done = self._outcomes[number]
        if content != first:
            raise UserError(f"this form was sent already, with other words: {done.said}", remedy="load its page again")
        return done


def _digest(name: str, form: dict[str, str], files: list[Upload]) -> bytes:
    """A digest of everything that a form says, by which the same form is known again."""
    digest = hashlib.sha256(json.dumps([name, form, [upload.name for upload in files]], sort_keys=True).encode())
    for upload in files:
        digest.update(hashlib.sha256(upload.file.read()).digest())
        upload.file.seek(0)
    return digest.digest()


def _build(root: Path, secret: str) -> tuple[Access, Callable[[], None]]:
    """(the application, behind its access; what ends it)."""
    app = _App(root)
    routes: list[Route | Mount] = [
        Route("/live", app.live),
        Route("/hives", app.hives),
        Route("/do/{act}", app.act, methods=["POST"]),
        Mount("/static", StaticFiles(directory=HERE / "static")),
        *(Route(path, partial(app.page, make)) for path, make in PAGES.items()),
    ]
    served = Starlette(routes=routes, exception_handlers={HTTPException: app.unknown})
    served.router.redirect_slashes = False  # it would redirect to an address without the secret
    return Access(served, secret), app.close


class _Server(uvicorn.Server):
    """One that says when it is up: from then on, and no earlier, a Ctrl-C ends it in order."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()


def serve(root: Path, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve the hive at `port` (0: any that is free) until Ctrl-C or SIGTERM; `on_ready` gets the link with its secret.

    Raises UserError for a port that is in use.
    """
    secret = secrets.token_urlsafe(32)
    with listen_on(port) as bound:
        app, close = _build(root, secret)
        link = f"http://{LOOPBACK}:{bound.getsockname()[1]}/s/{secret}/"
        try:
            server = _Server(server_settings(app, lifespan=False), lambda: on_ready(link))
            asyncio.run(server.serve(sockets=[bound]))
        finally:
            close()
