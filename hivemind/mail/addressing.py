"""Resolve addresses to mailboxes: of agents, of the operator, and of the exchange for linked hives."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from hivemind.errors import UserError
from hivemind.frozen import frozen
from hivemind.layout import EXCHANGE, HUMAN, POSTMASTER
from hivemind.mime.header import one_line, parse_addresses
from hivemind.names import address, is_name, slug
from hivemind.pattern import pattern

_OUTSIDE = pattern(r"[!#-'*+\-./0-9=?A-Z^_`a-z{|}~]{1,100}@[A-Za-z0-9.-]{1,100}")


@frozen
class Recipient:
    """A resolved address.

    `name` is the mailbox, or None if no mailbox belongs to the address; `reason` then says why. `display_name` names the
    recipient in reports. `address` is the form for header fields, or None if a header field cannot contain it safely.
    """

    name: str | None
    display_name: str
    address: str | None
    reason: str = ""


class Addressing:
    """Resolves addresses `<agent>@<workspace>` and bare agent names.

    `agents` returns the names of the current agents, `hives` those of the linked hives. Mail to a linked hive is
    delivered to the mailbox `exchange`, from which the exchange process forwards it.
    """

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

    def resolve(self, to: str | Iterable[str]) -> list[Recipient]:
        """Return a recipient for each address, once, in order. A text may contain several addresses, separated by commas."""
        texts = [to] if isinstance(to, str) else list(to)
        agent_names = self._agents()
        recipients_by_name: dict[str, Recipient] = {}
        for text in texts:
            for address_text in parse_addresses(text) if is_name(text) is False else [text]:
                recipient = self._resolve_address(address_text, agent_names)
                recipients_by_name.setdefault(recipient.display_name, recipient)
        return list(recipients_by_name.values())

    def is_known(self, sender: str) -> bool:
        """Check that the sender is an agent, the operator, the hive's postmaster or an address of a linked hive."""
        return sender in (HUMAN, POSTMASTER) or sender in self._agents() or self.is_linked(sender)

    def is_linked(self, address: str) -> bool:
        """Check that the address belongs to a linked hive."""
        local, at_sign, hive = address.rpartition("@")
        return bool(at_sign) and is_name(local) and hive.lower() in self._hives()

    def recipient_for_stranger(self, sender: str) -> Recipient:
        """Return the recipient of a reply to an unknown sender: the operator's mailbox, with the sender's address."""
        is_plain = _OUTSIDE.fullmatch(sender) is not None
        return Recipient(HUMAN, HUMAN, sender if is_plain else self.address(HUMAN))

    def _resolve_address(self, address_text: str, agent_names: Collection[str]) -> Recipient:
        if address_text in agent_names and is_name(address_text):
            return Recipient(address_text, address_text, self.address(address_text))
        local, at_sign, domain = address_text.rpartition("@")
        name = (local if at_sign else address_text).strip().lower()
        display_name = one_line(address_text)[:200]
        if not is_name(name):
            return Recipient(None, display_name, None, "is not an address")
        if at_sign and domain.lower() not in (self._workspace, self.domain.lower()):
            if self.is_linked(address_text.strip()):
                linked_address = address(name, domain.lower())
                return Recipient(EXCHANGE, linked_address, linked_address)
            header_address = f"{name}@{domain}" if is_name(domain) else None
            domains = " or ".join(f"NAME@{hive}" for hive in (self.domain, *sorted(self._hives())))
            return Recipient(None, display_name, header_address, f"is not an address of this hive ({domains})")
        if name != HUMAN and name not in agent_names:
            return Recipient(None, name, self.address(name), unknown_agent_reason(name, agent_names))
        return Recipient(name, name, self.address(name))

    def resolve_known(self, to: str | Iterable[str]) -> tuple[str, ...]:
        """Return the display names of the recipients. Raises UserError naming the first that has no mailbox."""
        recipients = self.resolve(to)
        for recipient in recipients:
            if recipient.name is None:
                raise UserError(
                    recipient.reason, location=recipient.display_name, remedy="hivemind agent list shows the agents"
                )
        return tuple(recipient.display_name for recipient in recipients)


def unknown_agent_reason(name: str, agent_names: Iterable[str], hive_phrase: str = "") -> str:
    """Return a text that says that no agent has the name, and suggests a similar name. `hive_phrase` may be ` of <hive>`."""
    import difflib

    close_matches = difflib.get_close_matches(name, list(agent_names), n=1)
    return f"no agent{hive_phrase} has that name{f' (did you mean {close_matches[0]}?)' if close_matches else ''}"


def _ascii_domain(workspace: str) -> str:
    try:
        return workspace.encode("idna").decode()
    except UnicodeError:
        return slug(workspace, "hive")
