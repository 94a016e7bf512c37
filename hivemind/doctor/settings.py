"""hive.yaml and agents/*.yaml: understood, each file by itself, so that one error does not hide the next."""

from __future__ import annotations

from collections.abc import Iterator

from hivemind.config import load_agents, load_hive
from hivemind.doctor.finding import Finding
from hivemind.doctor.patient import Patient
from hivemind.errors import UserError
from hivemind.minds import open_mind

__all__ = ["check_settings"]

_NAME = "settings"


def check_settings(patient: Patient) -> Iterator[Finding]:
    """What hive.yaml and each agent's file say."""
    try:
        hive = load_hive(patient.layout)
    except UserError as error:
        yield _told(error)
        return
    found = load_agents(patient.layout, hive)
    for why in found.aside.values():
        yield _told(why, "that agent is set aside until it is mended")
    for name, config in found.known.items():
        try:
            if not config.outside:
                open_mind(config.mind, root=patient.layout.root)
        except UserError as error:
            yield _told(error, where=patient.layout.agent_config(name))
    if not found:
        where = patient.layout.relative(patient.layout.agents)
        yield Finding(_NAME, where, "there is no agent: nobody works on tasks", "hivemind agent add NAME", note=True)


def _told(error: UserError, follows: str = "nothing starts until it is mended", where: object = None) -> Finding:
    return Finding(
        _NAME,
        error.where or str(where),
        f"{error.what}; {follows}",
        error.mend or "mend the file",
    )
