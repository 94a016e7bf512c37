"""News for clients: who has subscribed to a resource is told when it has changed, and need not ask again and again."""

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
from hivemind.mcp_server.member import Arrivals, Member

INBOX = "hive://inbox"
_LOOK_S = 1.0
_MOST = 100
_log = logging.getLogger(__name__)
_Context = ServerRequestContext[Any]


class News:
    """Subscriptions of every client of one server: by `resources/subscribe` until 2025, by `subscriptions/listen` since.

    What changes by itself is the inbox. Of another resource nothing is ever told, as the protocol allows.
    """

    def __init__(self) -> None:
        self._bus = InMemorySubscriptionBus()
        self._sessions: dict[tuple[str, str], ServerSession] = {}
        self.listen = ListenHandler(self._bus, max_subscriptions=_MOST)

    async def subscribe(self, context: _Context, asked: types.SubscribeRequestParams) -> types.EmptyResult:
        """Tell this client of the resource. Of a hundred subscriptions the oldest gives way."""
        if len(self._sessions) >= _MOST:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[_client(context), str(asked.uri)] = context.session
        return types.EmptyResult()

    async def unsubscribe(self, context: _Context, asked: types.UnsubscribeRequestParams) -> types.EmptyResult:
        self._sessions.pop((_client(context), str(asked.uri)), None)
        return types.EmptyResult()

    async def tell(self, uri: str) -> None:
        """The resource has changed. A client that has gone hears nothing."""
        await self._bus.publish(ResourceUpdated(uri))
        for session in [session for (_, subscribed_uri), session in self._sessions.items() if subscribed_uri == uri]:
            await session.send_resource_updated(uri)

    async def follow(self, member: Member) -> None:
        """Tell of new mail until cancelled: when the member's doorbell rings, and within a second in any case."""
        arrivals = Arrivals(member.hive.mail, member.name)
        arrivals.count()
        try:
            with Doorbell(member.hive.layout.doorbells, member.name) as bell:
                await self._look(arrivals, bell)
        except UserError as error:  # no sockets here, or none any more
            _log.warning("new mail is looked for once a second: %s", error)
            await self._look(arrivals, None)

    async def _look(self, arrivals: Arrivals, bell: Doorbell | None) -> None:
        while True:
            with anyio.move_on_after(_LOOK_S):
                await (anyio.sleep_forever() if bell is None else anyio.wait_readable(bell))
            if bell is not None:
                bell.wait(0)
            if arrivals.count():
                await self.tell(INBOX)


def _client(context: _Context) -> str:
    """What tells the clients of one server apart: the session's id over HTTP; over a pipe there is one."""
    headers = getattr(context.request, "headers", {})
    return str(headers.get("mcp-session-id", ""))
