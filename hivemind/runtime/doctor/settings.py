"""hive.yaml and agents/*.yaml: understood, each file by itself, so that one error does not hide the next."""

from __future__ import annotations

from collections.abc import Iterator

from hivemind.config import AgentConfig, load_agents, load_hive
from hivemind.errors import UserError
from hivemind.frontmatter import parse, validate
from hivemind.minds import open_mind
from hivemind.runtime.doctor.finding import Finding
from hivemind.runtime.doctor.patient import Patient

__all__ = ["check_settings"]

_NAME = "settings"


def check_settings(patient: Patient) -> Iterator[Finding]:
    """What hive.yaml and each agent's file say."""
    try:
        hive = load_hive(patient.layout)
    except UserError as error:
        yield _told(error)
        return
    wrong = False
    for path in sorted(patient.layout.agents.glob("*.y*ml")):
        if path.name.startswith("."):
            continue
        try:
            config = validate(AgentConfig, parse(path.read_text("utf-8"), path))
            if not config.outside:
                open_mind(config.mind, root=patient.layout.root)
        except UserError as error:
            wrong = True
            yield _told(error, path)
        except UnicodeDecodeError as error:
            wrong = True
            yield Finding(_NAME, str(path), f"is not UTF-8 (byte {error.start})", "save it as UTF-8 text")
    if wrong:
        return
    try:
        agents = load_agents(patient.layout, hive)
    except UserError as error:
        yield _told(error)
        return
    if not agents:
        where = patient.layout.relative(patient.layout.agents)
        yield Finding(_NAME, where, "there is no agent: nobody works on tasks", "hivemind agent add NAME", note=True)


def _told(error: UserError, path: object = None) -> Finding:
    return Finding(
        _NAME,
        error.where or str(path),
        f"{error.what}; nothing starts until it is mended",
        error.mend or "mend the file",
    )
