"""The hive that a command works in, and the names that it may use there."""

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


def anywhere(path: str | None) -> str | None:
    """--hive as it was given, for a command that needs no hive or opens it itself."""
    return path


def layout_of(path: str | None) -> Layout:
    """Where the hive lies (--hive, $HIVEMIND_HIVE, the nearest above). Raises UserError if there is none."""
    try:
        return find_hive(path)
    except FileNotFoundError:  # the current folder was deleted under the shell
        raise UserError("the folder that you are in is gone", mend="cd into the hive, or say --hive PATH") from None


def open_hive(path: str | None) -> Hive:
    """The hive, opened to be changed. Raises UserError."""
    from hivemind.hive import Hive

    return Hive.open(layout_of(path).root)


def look_at(path: str | None) -> Hive:
    """The hive, opened to be looked at: nothing is written. Raises UserError.

    State that belongs to another workspace or project (a backup, a copy) is shown all the same, with a warning.
    """
    from hivemind.hive import Hive

    hive = Hive.look(layout_of(path).root)
    layout, config = hive.layout, hive.config
    if layout.workspace_record.exists():
        from hivemind.coordination import CoordinationError, check_workspace

        try:
            check_workspace(layout.workspace_record, config.workspace, layout.root, config.guard)
        except UserError as error:
            code = f"{error.code}: " if isinstance(error, CoordinationError) else ""
            warn(f"shown all the same, for looking only: {code}{error}")
    return hive


def caller(layout: Layout) -> str:
    """Who calls: a person, or the agent of this hive in one of whose commands this process runs."""
    agent, root = os.environ.get("HIVEMIND_AGENT"), os.environ.get("HIVEMIND_HIVE")
    return agent if agent and root == str(layout.root) else HUMAN


def acting(hive: Hive, text: str) -> str:
    """The one that a command acts for; an agent's command acts for that agent, where it names nobody else.
    Raises UserError."""
    name, who = known_name(hive, text), caller(hive.layout)
    if who == HUMAN:
        return name
    if name not in (HUMAN, who):
        raise UserError(f"a command of the agent {who} cannot act for {name}", mend="leave the name out")
    return who


def known_names(hive: Hive, texts: Iterable[str] | None) -> list[str]:
    """The mailboxes that names or addresses mean, each once. Raises UserError naming those that there are."""
    try:
        return list(dict.fromkeys(hive.mail.recipients(listed(texts))))
    except UserError as error:
        raise UserError(error.what, where=error.where, mend=_boxes(hive)) from None


def known_name(hive: Hive, text: str) -> str:
    """The one mailbox that a name or address means. Raises UserError naming those that there are."""
    found = known_names(hive, [text])
    if len(found) != 1:
        raise UserError(f"{text!r} is not one name", mend=_boxes(hive))
    return found[0]


def known_agent(hive: Hive, text: str) -> str:
    """The agent of this hive that has that name. Raises UserError naming those that there are."""
    name = check_name(text, "agent name")
    hive.agent_files.get(name)
    return name


def listed(texts: Iterable[str] | None) -> list[str]:
    """What stands in `a,b` and in repeated options, each once, in that order."""
    return list(dict.fromkeys(part.strip() for text in texts or () for part in text.split(",") if part.strip()))


def _boxes(hive: Hive) -> str:
    """The names that mail can be for, in a sentence; a swarm's hundreds are cut short."""
    if not (names := list(hive.agents)):
        return f"there is {HUMAN} alone"
    more = f", … ({len(names)} in all)" if len(names) > 12 else ""
    return f"there are {', '.join(names[:12])}{more} and {HUMAN}"
