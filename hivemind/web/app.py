"""The web application of one hive: routes, forms and the stream of changes. `hivemind web` runs `serve`."""

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
from hivemind.web.acts import ACTIONS, ActionOutcome, Upload
from hivemind.web.metrics import MONITOR_PATHS, Monitor
from hivemind.web.pages import agent, costs, journal, knowledge, landing, lessons, mail, now, task
from hivemind.web.render import WEB_FOLDER, PageRenderer, masked_text
from hivemind.web.site import Page, PageQuery, Site

ACTION_EVENT = "human.did"
"""The kind of the events in the journal that record a person's actions on the page."""
_KEEPALIVE_S = 20.0  # a quiet stream sends a comment this often, which also reveals clients that are gone
_MAX_OUTCOMES = 10_000  # of the newest forms, which show their first outcome if they are sent again
_MAX_FILES = 50

PageFunction = Callable[..., Page]
PAGES: dict[str, PageFunction] = {
    "/": now.show_first_page,
    "/tasks/{id}": lambda site, query, id: task.show_task(site, id, query),  # noqa: A006 - the address's own word
    "/tasks/{id}/turns/{number}": lambda site, _, id, number: task.show_turn(site, id, number),  # noqa: A006
    "/files": task.show_file,
    "/landing": landing.show_landing,
    "/mail": mail.show_own_mailbox,
    "/mail/{box}": lambda site, query, box: mail.show_mailbox(site, box, query),
    "/mail/{box}/{id:path}": lambda site, _, box, id: mail.show_thread(site, box, id),  # noqa: A006
    "/agents/{name}": lambda site, _, name: agent.show_agent(site, name),
    "/knowledge": knowledge.show_knowledge,
    "/knowledge/{node}": lambda site, query, node: knowledge.show_document(site, node, query),
    "/memory": knowledge.show_memory,
    "/lessons": lessons.show_lessons,
    "/journal": journal.show_journal,
    "/costs": costs.show_costs,
}
"""For each address, the function that builds the page from the site, the query and the named parts of the address."""


def page_context(site: Site, page: Page, path: str, **extra: Any) -> dict[str, Any]:
    """Return the context (the variables) of a page's template: the page's own values, and the values that every page needs."""
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
        **extra,
    }


class _PageApp:
    """The request handlers of one hive's application, with their common state."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._site = Site(root)
        self._monitor = Monitor(self._site)
        self._render = PageRenderer()
        self._action_lock = threading.Lock()  # one action at a time; pages do not wait for it
        self._outcomes: OrderedDict[str, tuple[bytes, ActionOutcome]] = OrderedDict()
        self._streams: set[asyncio.Event] = set()

    def close(self) -> None:
        for wakeup in self._streams:
            wakeup.set()
        self._site.close()

    # reading

    def show_page(self, page_function: PageFunction, request: Request) -> Response:
        """Respond with a page. If htmx, the script of the pages, asks for one block of the page, respond with only this block."""
        query = PageQuery(request.query_params)
        try:
            with self._site.mutex:
                page = page_function(self._site, query, **request.path_params)
            return HTMLResponse(self._render_page(page, request, query))
        except (HivemindError, OSError) as error:
            return self._error_response(request, error)

    def _render_page(self, page: Page, request: Request, query: PageQuery) -> str:
        """Return the page as HTML. Call without holding the site's mutex, because a long text takes time to render."""
        block_name = request.headers.get("hx-target") if request.headers.get("hx-request") else None
        outcome = self._outcomes.get(query.get("said", ""))
        return self._render.render_page(
            page.template, self._page_context(page, request, outcome and outcome[1].message), block_name
        )

    def _page_context(self, page: Page, request: Request, message: str | None = None) -> dict[str, Any]:
        """Return the variables of the page's template. `root` is the relative address of the application, so no address
        contains the secret.

        `message` is the outcome of an action to show on the page, or None.
        """
        address = request.scope["address"]
        root = "../" * (address.partition("?")[0].count("/") - 1) or "./"
        return page_context(
            self._site,
            page,
            request.scope["path"],
            is_live=True,
            here=f".{address}",  # relative to the `base` of a page
            root=root,
            said=message,
        )

    def _error_response(self, request: Request, error: HivemindError | OSError) -> Response:
        status = 500 if not isinstance(error, UserError) else 404 if request.method == "GET" else 400
        return self._error_page(request, status, exit_line(error)[0])

    def _error_page(self, request: Request, status: int, reason: str) -> Response:
        page = Page("wrong.html", {"why": reason}, "Not found" if status == 404 else "Refused")
        try:
            context = self._page_context(page, request)
        except (HivemindError, OSError):
            return PlainTextResponse(masked_text(reason) + "\n", status)
        return HTMLResponse(self._render.render_page(page.template, context), status)

    def show_http_error(self, request: Request, error: Exception) -> Response:
        """Respond with the error page for an unknown address or an unreadable form."""
        assert isinstance(error, HTTPException)
        is_unknown = error.status_code == 404
        return self._error_page(request, error.status_code, "this page does not exist" if is_unknown else error.detail)

    def show_linked_hives(self, _: Request) -> Response:
        """Respond with the list of linked hives, in the state that each last reported.

        The first page loads this list separately, because the server that links the hives may take seconds to answer.
        """
        from hivemind.exchange.link import hive_overviews, open_exchange

        linked_hives, problem = [], None
        try:
            with open_exchange(self._site.hive.layout) as connection:
                linked_hives = hive_overviews(connection)
        except HivemindError as error:
            problem = str(error)
        return HTMLResponse(self._render.render_page("hives.html", {"hives": linked_hives, "problem": problem}))

    def answer_monitor(self, request: Request) -> Response:
        """Respond to a monitoring system, which asks for `/metrics`, `/healthz` or `/readyz`."""
        status, media_type, text = self._monitor.answer(request.scope["path"])
        return Response(text, status, media_type=media_type)

    async def stream_changes(self, request: Request) -> Response:
        """Respond with a stream of server-sent events: one for each change of something that the page shows (its topics)."""
        topics = frozenset(request.query_params.get("of", "").split(","))
        return StreamingResponse(self._event_stream(topics), media_type="text/event-stream")

    async def _event_stream(self, page_topics: frozenset[str]) -> AsyncIterator[str]:
        loop, pending_topics, wakeup = asyncio.get_running_loop(), set[str](), asyncio.Event()

        def on_change(changed_topics: frozenset[str]) -> None:
            if relevant_topics := changed_topics & page_topics:
                pending_topics.update(relevant_topics)
                loop.call_soon_threadsafe(wakeup.set)

        self._streams.add(wakeup)
        try:
            with self._site.watch.subscribe(on_change):
                yield "retry: 2000\n\n"
                while not self._site.watch.is_closing:
                    try:
                        await asyncio.wait_for(wakeup.wait(), _KEEPALIVE_S)
                    except TimeoutError:
                        yield ": still here\n\n"
                    wakeup.clear()
                    for topic in sorted(pending_topics):
                        pending_topics.discard(topic)
                        yield f"event: {topic.partition(':')[0]}\ndata: 1\n\n"
        finally:
            self._streams.discard(wakeup)

    # doing

    async def perform_action(self, request: Request) -> Response:
        """Perform the action of a form, record it in the journal, and redirect to the page that shows it."""
        async with request.form(max_files=_MAX_FILES, max_fields=50) as form_data:
            form = {name: value for name, value in form_data.items() if isinstance(value, str)}
            files = [
                Upload(upload.filename, upload.file)
                for upload in form_data.getlist("files")
                if isinstance(upload, UploadFile) and upload.filename
            ]
            return await run_in_threadpool(self._respond_to_action, request, form, files)

    def _respond_to_action(self, request: Request, form: dict[str, str], files: list[Upload]) -> Response:
        try:
            outcome = self._perform_once(request.path_params["act"], form, files)
        except KeyError as error:
            return self._error_response(request, UserError(f"the form lacks {error}"))
        except (HivemindError, OSError) as error:
            return self._error_response(request, error)
        path, mark, anchor = outcome.path.partition("#")
        # Relative to /do/ACT: no form can make it lead to another host.
        address = (
            f"../{path.lstrip('/')}{'&' if '?' in path else '?'}said={quote(form['number'], safe='')}{mark}{anchor}"
        )
        return RedirectResponse(address, 303)

    def _perform_once(self, name: str, form: dict[str, str], files: list[Upload]) -> ActionOutcome:
        """Perform an action once for the form's number. If the form is sent again, return the first outcome.

        A form that failed may be sent again. Raises UserError if a form with the same number but other content was sent.
        """
        if name not in ACTIONS:
            raise UserError(f"unknown action {name!r}")
        number, digest = form["number"], _form_digest(name, form, files)
        with self._action_lock:
            if number not in self._outcomes:
                hive = Hive.open(self._root)
                outcome = ACTIONS[name](hive, form, files)
                self._outcomes[number] = digest, outcome
                if len(self._outcomes) > _MAX_OUTCOMES:
                    self._outcomes.popitem(last=False)
                self._site.watch.invalidate()
                hive.journal.append(ACTION_EVENT, agent_id=HUMAN, **outcome.event_fields, time=int(time.time()))
            first_digest, outcome = self._outcomes[number]
        if digest != first_digest:
            raise UserError(
                f"this form was sent before with other content: {outcome.message}", remedy="load the form's page again"
            )
        return outcome


def _form_digest(name: str, form: dict[str, str], files: list[Upload]) -> bytes:
    """Return a digest of a form's action, fields and files. Two forms are the same if their digests are equal."""
    digest = hashlib.sha256(json.dumps([name, form, [upload.name for upload in files]], sort_keys=True).encode())
    for upload in files:
        digest.update(hashlib.sha256(upload.file.read()).digest())
        upload.file.seek(0)
    return digest.digest()


def _build_app(root: Path, secret: str) -> tuple[Access, Callable[[], None]]:
    """Return the application, wrapped in its access check, and the function that closes the application."""
    app = _PageApp(root)
    routes: list[Route | Mount] = [
        *(Route(path, app.answer_monitor) for path in MONITOR_PATHS),
        Route("/live", app.stream_changes),
        Route("/hives", app.show_linked_hives),
        Route("/do/{act}", app.perform_action, methods=["POST"]),
        Mount("/static", StaticFiles(directory=WEB_FOLDER / "static")),
        *(Route(path, partial(app.show_page, page_function)) for path, page_function in PAGES.items()),
    ]
    application = Starlette(routes=routes, exception_handlers={HTTPException: app.show_http_error})
    application.router.redirect_slashes = False  # redirects would lead to an address without the secret
    return Access(application, secret, MONITOR_PATHS), app.close


class _Server(uvicorn.Server):
    """A uvicorn server that calls `on_ready` once it listens."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()


def serve(root: Path, port: int, on_ready: Callable[[str], None]) -> None:
    """Serve the hive at `port` (0: any free port) until Ctrl-C or SIGTERM. `on_ready` is called with the link, which
    contains the secret.

    Raises UserError if the port is in use.
    """
    secret = secrets.token_urlsafe(32)
    with listen_on(port) as listener:
        app, close = _build_app(root, secret)
        link = f"http://{LOOPBACK}:{listener.getsockname()[1]}/s/{secret}/"
        try:
            server = _Server(server_settings(app, lifespan=False), lambda: on_ready(link))
            asyncio.run(server.serve(sockets=[listener]))
        finally:
            close()
