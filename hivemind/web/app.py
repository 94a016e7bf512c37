"""The page: addresses, what answers them, the stream of changes; one hive, one token, this machine alone.

`serve` is the process of `hivemind web`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from hivemind.errors import HivemindError, UserError, exit_line
from hivemind.hive import Hive
from hivemind.layout import HUMAN
from hivemind.loopback import LOOPBACK, listen_on
from hivemind.web.access import Access
from hivemind.web.acts import ACTS, Done, Upload
from hivemind.web.pages import agent, costs, journal, knowledge, mail, now, task
from hivemind.web.render import HERE, Render, told
from hivemind.web.site import Page, Query, Site

__all__ = ["DID", "PAGES", "chrome", "serve"]

DID = "human.did"
"""The kind of the journal's event that says what a person did here."""
_ALIVE_S = 20.0  # so often is a quiet stream told that we are there, and whoever has gone is found out
_NOTES = 100
_FILES = 50
_log = logging.getLogger(__name__)

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
        "key": None,
        "here": path,
        **more,
    }


class _App:
    """The answers. `key` is what our own forms carry."""

    def __init__(self, root: Path, key: str) -> None:
        self._root = root
        self._site = Site(root)
        self._render = Render()
        self._key = key
        self._notes: OrderedDict[str, str] = OrderedDict()
        self._streams: set[asyncio.Event] = set()

    def close(self) -> None:
        for closing in self._streams:
            closing.set()
        self._site.close()

    # reading

    def page(self, make: Make, request: Request) -> Response:
        """A page, or the one part of it that htmx asks for."""
        query = Query(request.query_params)
        try:
            with self._site.mutex:
                page = make(self._site, query, **request.path_params)
                return HTMLResponse(self._drawn(page, request, query))
        except (HivemindError, OSError) as error:
            return self._failed(request, error)

    def _drawn(self, page: Page, request: Request, query: Query) -> str:
        part = request.headers.get("hx-target") if request.headers.get("hx-request") else None
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        said = self._notes.get(query.get("said", ""))
        context = chrome(self._site, page, request.url.path, key=self._key, here=here, said=said)
        return self._render.page(page.template, context, part)

    def _failed(self, request: Request, error: HivemindError | OSError) -> Response:
        why = exit_line(error)[0]
        status = 500 if not isinstance(error, UserError) else 404 if request.method == "GET" else 400
        page = Page("wrong.html", {"why": why}, "Not found" if status == 404 else "Refused")
        try:
            context = chrome(self._site, page, request.url.path, key=self._key)
        except (HivemindError, OSError):
            return PlainTextResponse(told(why) + "\n", status)
        return HTMLResponse(self._render.page(page.template, context), status)

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
            if not secrets.compare_digest(form.get("form_key", "").encode(), self._key.encode()):
                return PlainTextResponse("This form is not from our pages.\n", 403)
            files = [
                Upload(one.filename, one.file)
                for one in sent.getlist("files")
                if isinstance(one, UploadFile) and one.filename
            ]
            return await run_in_threadpool(self._act, request, form, files)

    def _act(self, request: Request, form: dict[str, str], files: list[Upload]) -> Response:
        act = ACTS.get(str(request.path_params["act"]))
        try:
            if act is None:
                raise UserError("there is no such thing to do here")
            done = self._done(Hive.open(self._root), act, form, files)
        except KeyError as error:
            return self._failed(request, UserError(f"the form lacks {error}"))
        except (HivemindError, OSError) as error:
            return self._failed(request, error)
        note = secrets.token_urlsafe(6)
        self._notes[note] = done.said
        while len(self._notes) > _NOTES:
            self._notes.popitem(last=False)
        place = done.place if done.place.startswith("/") and not done.place.startswith("//") else "/"
        path, mark, anchor = place.partition("#")
        return RedirectResponse(f"{path}{'&' if '?' in path else '?'}said={note}{mark}{anchor}", 303)

    def _done(self, hive: Hive, act: Callable[..., Done], form: dict[str, str], files: list[Upload]) -> Done:
        with self._site.mutex:
            done = act(hive, form, files)
            hive.journal.append(DID, agent_id=HUMAN, **done.about)
            self._site.watch.forget()
        return done


def _build(root: Path, token: str, port: int) -> tuple[Access, Callable[[], None]]:
    """(the application, behind its access; what ends it)."""
    app = _App(root, Access.key_of(token))
    routes: list[Route | Mount] = [
        Route("/live", app.live),
        Route("/hives", app.hives),
        Route("/do/{act}", app.act, methods=["POST"]),
        Mount("/static", StaticFiles(directory=HERE / "static")),
        *(Route(path, partial(app.page, make)) for path, make in PAGES.items()),
    ]
    return Access(Starlette(routes=routes), token, port), app.close


class _Server(uvicorn.Server):
    """One that says when it is up: from then on, and no earlier, a Ctrl-C ends it in order."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()


def serve(root: Path, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve the hive at `port` (0: any that is free) until Ctrl-C or SIGTERM; `on_ready` gets the link with its token.

    Raises UserError for a port that is in use.
    """
    token = secrets.token_urlsafe(32)
    with listen_on(port, 64) as bound:
        port = bound.getsockname()[1]
        app, close = _build(root, token, port)
        config = uvicorn.Config(
            app, log_level="error", access_log=False, timeout_graceful_shutdown=1, lifespan="off", server_header=False
        )
        link = f"http://{LOOPBACK}:{port}/?token={token}"
        try:
            asyncio.run(_Server(config, lambda: on_ready(link)).serve(sockets=[bound]))
        finally:
            close()
