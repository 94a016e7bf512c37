"""Open the hive that a command works in, and check names of agents and mailboxes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hivemind.cli.output import warn
from hivemind.errors import UserError
from hivemind.layout import HUMAN, Layout, find_hive
from hivemind.names import check_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hivemind.hive import Hive


def without_hive(path: str | None) -> str | None:
    """Return the path of --hive unchanged, for a command that needs no hive or opens one itself."""
    return path


def find_layout(path: str | None) -> Layout:
    """Find the hive by --hive, by $HIVEMIND_HIVE or in the nearest parent folder. Raises UserError if no hive is found."""
    try:
        return find_hive(path)
    except FileNotFoundError:  # the current folder was deleted under the shell
        raise UserError("the current folder has been deleted", remedy="cd into the hive, or use --hive PATH") from None


def open_hive(path: str | None) -> Hive:
    """Open the hive at `path` (None: see `find_layout`) for reading and writing. Raises UserError if it cannot be opened."""
    from hivemind.hive import Hive

    return Hive.open(find_layout(path).root)


def open_read_only(path: str | None) -> Hive:
    """Open the hive at `path` (None: see `find_layout`) for reading only. Raises UserError if it cannot be opened.

    A hive with the state of another workspace or project (a backup, a copy) is opened with a warning. So is a hive
    whose hive.yaml has become invalid, with its last valid settings: a running swarm uses them, too.
    """
    from hivemind.config import last_valid_hive
    from hivemind.hive import Hive

    layout = Layout.at(find_layout(path).root, read_only=True)
    try:
        hive = Hive.look(layout.root)
    except UserError as error:
        if (config := last_valid_hive(layout)) is None:
            raise
        warn(f"shown with the last valid settings: {error}")
        hive = Hive(layout, config)
    config = hive.config
    if layout.workspace_record.exists():
        from hivemind.coordination import CoordinationError, check_workspace

        try:
            check_workspace(layout.workspace_record, config.workspace, layout.root, config.guard)
        except UserError as error:
            code = f"{error.code}: " if isinstance(error, CoordinationError) else ""
            warn(f"shown for reading only: {code}{error}")
    return hive


def caller(layout: Layout) -> str:
    """Return the agent of this hive that runs this process as its command; `human` if no agent does."""
    agent, root = os.environ.get("HIVEMIND_AGENT"), os.environ.get("HIVEMIND_HIVE")
    return agent if agent and root == str(layout.root) else HUMAN


def acting_name(hive: Hive, text: str) -> str:
    """Return the agent that runs this command. If a person runs it, return the mailbox that `text` names.

    Raises UserError if an agent's command names another agent.
    """
    name, caller_name = resolve_name(hive, text), caller(hive.layout)
    if caller_name == HUMAN:
        return name
    if name not in (HUMAN, caller_name):
        raise UserError(f"a command of the agent {caller_name} cannot act for {name}", remedy="leave the name out")
    return caller_name


def resolve_names(hive: Hive, addresses: Iterable[str] | None) -> list[str]:
    """Return the mailboxes that names or addresses stand for, each once. Raises UserError, which lists the existing mailboxes."""
    try:
        return list(dict.fromkeys(hive.mail.recipients(split_lists(addresses))))
    except UserError as error:
        raise UserError(error.message, location=error.location, remedy=_mailbox_hint(hive)) from None


def resolve_name(hive: Hive, address: str) -> str:
    """Return the mailbox of a name or address. Raises UserError, which lists the existing mailboxes."""
    names = resolve_names(hive, [address])
    if len(names) != 1:
        raise UserError(f"{address!r} is not a single name", remedy=_mailbox_hint(hive))
    return names[0]


def known_agent(hive: Hive, text: str) -> str:
    """Return the name, after a check that the hive has an agent of this name. Raises UserError, which lists the agents."""
    name = check_name(text, "agent name")
    hive.agent_files.get(name)
    return name


def split_lists(texts: Iterable[str] | None) -> list[str]:
    """Split repeated and comma-separated values (`a,b`) into one list without duplicates, in order."""
    return list(dict.fromkeys(part.strip() for text in texts or () for part in text.split(",") if part.strip()))


def _mailbox_hint(hive: Hive) -> str:
    """Return a sentence that names the existing mailboxes: at most twelve agents, and `human`."""
    if not (names := list(hive.agents)):
        return f"there is only {HUMAN}"
    remainder = f", … ({len(names)} in all)" if len(names) > 12 else ""
    return f"there are {', '.join(names[:12])}{remainder} and {HUMAN}"
