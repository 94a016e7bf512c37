"""Who an address means: an agent of this hive, the operator, or nobody here."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.layout import EXCHANGE, HUMAN, POSTMASTER
from hivemind.mail.header import addresses, one_line
from hivemind.names import address, is_name, slug

_OUTSIDE = re.compile(r"[!#-'*+\-./0-9=?A-Z^_`a-z{|}~]{1,100}@[A-Za-z0-9.-]{1,100}")


@frozen
class Recipient:
    """`name` of the mailbox, or None with the reason; `shown` is what a report calls it.

    `address` is what a header field may hold of it, None if nothing.
    """

    name: str | None
    shown: str
    address: str | None
    reason: str = ""


class Addressing:
    """Addresses `<agent>@<workspace>`; a bare agent name is accepted. `agents` tells who there is, `hives` which hives are
    linked with this one, when asked: what goes there is delivered to the mailbox of `exchange`, which sends it on."""

    __slots__ = ("_agents", "_hives", "_workspace", "domain")

    def __init__(
        self, workspace: str, agents: Callable[[], Collection[str]], hives: Callable[[], Collection[str]] = tuple
    ) -> None:
        self._workspace = workspace.lower()
        self._agents = agents
        self._hives = hives
        self.domain = workspace if workspace.isascii() else _ascii_domain(workspace)

    def address(self, name: str) -> str:
        return address(name, self.domain)

    def resolve(self, given: str | Iterable[str]) -> list[Recipient]:
        """Each address once, in the order given; a text may hold several, with commas between them."""
        texts = [given] if isinstance(given, str) else list(given)
        known = self._agents()
        found: dict[str, Recipient] = {}
        for text in texts:
            for one in addresses(text) if is_name(text) is False else [text]:
                recipient = self._one(one, known)
                found.setdefault(recipient.shown, recipient)
        return list(found.values())

    def knows(self, sender: str) -> bool:
        """Whether that is somebody here: an agent, the operator, or the hive's own postmaster."""
        return sender in (HUMAN, POSTMASTER) or sender in self._agents() or self.is_linked(sender)

    def is_linked(self, address: str) -> bool:
        """Whether that is an address of a linked hive."""
        local, at, hive = address.rpartition("@")
        return bool(at) and is_name(local) and hive.lower() in self._hives()

    def outside(self, sender: str) -> Recipient:
        """How somebody unknown is written to: their address in the header, the message in the operator's mailbox."""
        plain = _OUTSIDE.fullmatch(sender) is not None
        return Recipient(HUMAN, HUMAN, sender if plain else self.address(HUMAN))

    def _one(self, text: str, known: Collection[str]) -> Recipient:
        if text in known and is_name(text):
            return Recipient(text, text, self.address(text))
        local, at, domain = text.rpartition("@")
        name = (local if at else text).strip().lower()
        shown = one_line(text)[:200]
        if not is_name(name):
            return Recipient(None, shown, None, "is no address")
        if at and domain.lower() not in (self._workspace, self.domain.lower()):
            if self.is_linked(text.strip()):
                there = address(name, domain.lower())
                return Recipient(EXCHANGE, there, there)
            shown_address = f"{name}@{domain}" if is_name(domain) else None
            return Recipient(None, shown, shown_address, f"is not of this hive: its addresses end in @{self.domain}")
        if name != HUMAN and name not in known:
            return Recipient(None, name, self.address(name), unknown_agent(name, known))
        return Recipient(name, name, self.address(name))

    def names(self, given: str | Iterable[str]) -> tuple[str, ...]:
        """The mailboxes that are meant. Raises UserError naming the first address that nobody has here."""
        recipients = self.resolve(given)
        for recipient in recipients:
            if recipient.name is None:
                raise UserError(
                    recipient.reason, where=recipient.shown, mend="hivemind agent list names the agents there are"
                )
        return tuple(recipient.shown for recipient in recipients)


def unknown_agent(name: str, known: Iterable[str], of: str = "") -> str:
    """The reason why a letter to `name` is not delivered: none of the `known` agents has it."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"no agent{of} has that name{f' (did you mean {near[0]}?)' if near else ''}"


def _ascii_domain(workspace: str) -> str:
    try:
        return workspace.encode("idna").decode()
    except UnicodeError:
        return slug(workspace, "hive")
