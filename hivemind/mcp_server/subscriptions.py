"""Subscriptions: a client that subscribes to a resource is notified when the resource changes."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import mcp_types as types
from mcp.server import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated

from hivemind.errors import UserError
from hivemind.fs.doorbell import Doorbell
from hivemind.mcp_server.member import Member, NewMailCounter

INBOX_URI = "hive://inbox"
_POLL_INTERVAL_S = 1.0
_MAX_SUBSCRIPTIONS = 100
_log = logging.getLogger(__name__)
_Context = ServerRequestContext[Any]


class Subscriptions:
    """The subscriptions of all clients of one server. Clients subscribe with `resources/subscribe` (protocol versions until
    2025) or `subscriptions/listen` (later versions).

    Only changes of the inbox are reported, which the protocol allows.
    """

    def __init__(self) -> None:
        self._bus = InMemorySubscriptionBus()
        self._sessions: dict[tuple[str, str], ServerSession] = {}
        self.listen = ListenHandler(self._bus, max_subscriptions=_MAX_SUBSCRIPTIONS)

    async def subscribe(self, context: _Context, parameters: types.SubscribeRequestParams) -> types.EmptyResult:
        """Subscribe a client to a resource. At the limit, the oldest subscription is removed."""
        if len(self._sessions) >= _MAX_SUBSCRIPTIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[_client_id(context), str(parameters.uri)] = context.session
        return types.EmptyResult()

    async def unsubscribe(self, context: _Context, parameters: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self._sessions.pop((_client_id(context), str(parameters.uri)), None)
        return types.EmptyResult()

    async def notify(self, uri: str) -> None:
        """Notify the subscribers that a resource has changed. Clients that have left are skipped."""
        await self._bus.publish(ResourceUpdated(uri))
        for session in [session for (_, subscribed_uri), session in self._sessions.items() if subscribed_uri == uri]:
            await session.send_resource_updated(uri)

    async def watch_mail(self, member: Member) -> None:
        """Notify subscribers of new mail until cancelled: at once when the member's doorbell rings, otherwise within a second."""
        arrivals = NewMailCounter(member.hive.mail, member.name)
        arrivals.count()
        try:
            with Doorbell(member.hive.layout.doorbells, member.name) as bell:
                await self._poll(arrivals, bell)
        except UserError as error:  # no doorbell sockets on this file system
            _log.warning("the mailbox is polled once a second: %s", error)
            await self._poll(arrivals, None)

    async def _poll(self, arrivals: NewMailCounter, bell: Doorbell | None) -> None:
        while True:
            with anyio.move_on_after(_POLL_INTERVAL_S):
                await (anyio.sleep_forever() if bell is None else anyio.wait_readable(bell))
            if bell is not None:
                bell.wait(0)
            if arrivals.count():
                await self.notify(INBOX_URI)


def _client_id(context: _Context) -> str:
    """Return the id of a client: over HTTP the session id, on a pipe, which has one client, an empty text."""
    headers = getattr(context.request, "headers", {})
    return str(headers.get("mcp-session-id", ""))
