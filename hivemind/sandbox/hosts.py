"""The hosts that a program in a box may reach: the entries of `network:` in an agent's file."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from hivemind.frozen import frozen
from hivemind.pattern import pattern

_AUTHORITY = pattern(r"(\[[0-9a-f:.]+\]|(?:\*\.)?[\w-]+(?:\.[\w-]+)*\.?)(?::([0-9]{1,5}))?", re.IGNORECASE | re.ASCII)
_WEB_PORTS = (443, 80)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@frozen
class Hosts:
    """Pairs of a name and a port. A name is in lower case, an address in its shortest form, `localhost` is 127.0.0.1, and
    `*.example.org` means all names below example.org."""

    pairs: frozenset[tuple[str, int]]

    @classmethod
    def parse(cls, entries: Iterable[str]) -> Hosts:
        """Read entries: `example.org` (ports 443 and 80), `*.example.org:8443`, `127.0.0.1:11434`. Raises ValueError."""
        pairs = set[tuple[str, int]]()
        for entry in entries:
            try:
                name, port = split_authority(entry)
            except ValueError:
                raise ValueError(
                    f"{entry!r} is not a host: write it like example.org, *.example.org or 127.0.0.1:11434"
                ) from None
            pairs |= {(name, number) for number in (_WEB_PORTS if port is None else (port,))}
        return cls(frozenset(pairs))

    def allow(self, name: str, port: int) -> bool:
        """Return True if the program may connect to a name or an address at that port."""
        names = [name, *(f"*.{name.split('.', dots)[-1]}" for dots in range(1, name.count(".") + 1))]
        return any((candidate, port) in self.pairs for candidate in names)

    @property
    def loopback(self) -> list[tuple[str, int]]:
        """The addresses on this machine's loopback among the hosts, as (address, port), sorted."""
        return sorted(
            pair for pair in self.pairs if (address := as_address(pair[0])) is not None and address.is_loopback
        )


def split_authority(text: str) -> tuple[str, int | None]:
    """Return host and port (None: not given) of `host` or `host:port`. The host is written as `Hosts` does. Raises ValueError."""
    match = _AUTHORITY.fullmatch(text)
    if match is None or (match[2] is not None and not 0 < int(match[2]) < 1 << 16):
        raise ValueError(text)
    name = match[1].lower().rstrip(".")
    address = ipaddress.IPv6Address(name[1:-1]) if name.startswith("[") else as_address(name)
    name = "127.0.0.1" if name == "localhost" else name if address is None else str(address)
    return name, None if match[2] is None else int(match[2])


def as_address(name: str) -> _Address | None:
    """Parse a name that is an IP address. Return None for any other name."""
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def is_public(address: _Address) -> bool:
    """Return False for an address of this machine or a local network, even if an IPv6 address embeds it (NAT64, 6to4, Teredo)."""
    if isinstance(address, ipaddress.IPv6Address):
        embedded = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if address in _NAT64:
            embedded = ipaddress.IPv4Address(address.packed[-4:])
        if embedded is not None:
            return is_public(embedded)
        if address.is_site_local:
            return False
    return address.is_global and not address.is_multicast
