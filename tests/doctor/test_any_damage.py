"""Each file of a hive that has worked is damaged, one at a time: the doctor names it, mends it or says why not, loses nothing."""

from __future__ import annotations

import hashlib
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hivemind import Hive
from hivemind.doctor import DoctorContext, DoctorFinding, apply_fixes, examine
from hivemind.errors import HivemindError
from hivemind.layout import Layout
from hivemind.views import resume
from tests.cli.conftest import make_hive
from tests.program import run
from tests.sample import IS_WHOLE, sampled

DROPS = {
    "human.md": "---\nsteps:\n- wait: {human: Which colour?}\n---\nPaint it.\n",
    "runs.md": "---\nsteps:\n- run: exit 3\n---\nRun it.\n",
    "shop.md": "When is the shop closed?\n",
}
DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "truncated": lambda raw: raw[: len(raw) // 2],
    "garbled": lambda raw: raw[: len(raw) // 3] + random.Random(len(raw)).randbytes(12) + raw[len(raw) // 3 + 12 :],
    "emptied": lambda _: b"",
    "replaced by another record": lambda _: b"{}\n",
    "removed": lambda _: None,
}
IN_TURN = 2 if IS_WHOLE else 1
"""How many of the damages, the next ones in turn, are done to a file."""
MADE_ANEW = re.compile(
    r"\.hive/(tasks\.board|journal/(.*synced|.*line|snapshot.*)|locks/.*|(documents|graphs)\.db.*|logs/.*)"
)


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hive with tasks that are done, failed, waiting for a person and waiting to be claimed, and with mail."""
    root = make_hive(tmp_path_factory.mktemp("worked") / "hive")
    (root / "knowledge").mkdir()
    (root / "knowledge" / "shop.md").write_text("The shop is closed on Sundays.\n")
    hive = Hive.open(root)
    for name, text in DROPS.items():
        (hive.layout.inbox / name).write_text(text)
    words = ["--hive", str(root), "up", "--until-idle"]
    run(words, capture_output=True, timeout=60, check=False)
    hive.tasks.add("Wait", id="waiting", attachments=[root / "knowledge" / "shop.md"])
    hive.journal.snapshot()
    (root / ".hive" / "workspace.json").unlink()  # its guard is this folder's, and copies are examined
    return root


def _kinds(root: Path) -> Iterator[Path]:
    """One file of each kind, without those of which the next process makes a new one."""
    seen = set()
    for path in sorted(one for one in root.rglob("*") if one.is_file()):
        name = str(path.relative_to(root))
        kind = re.sub(
            r"\d[\w.:,]*|(?<=/)[0-9a-f]{40}", "N", re.sub(r"analyst|researcher|reviewer|human(?=/)", "NAME", name)
        )
        if kind not in seen and not MADE_ANEW.fullmatch(name) and "maildirfolder" not in name:
            seen.add(kind)
            yield Path(name)


def _digests(root: Path, but: Path) -> dict[str, str]:
    return {
        hashlib.sha256(path.read_bytes()).hexdigest(): str(path.relative_to(root))
        for path in root.rglob("*")
        if path.is_file() and path != but and not MADE_ANEW.fullmatch(str(path.relative_to(root)))
    }


def _refusals(root: Path) -> list[str]:
    """What a person who looks about is refused."""
    refused = []

    def attempt(look: Callable[[], object]) -> None:
        try:
            look()
        except HivemindError as error:
            refused.append(str(error))

    try:
        hive = Hive.look(root)
    except HivemindError as error:
        return [str(error)]
    attempt(lambda: hive.agents)
    attempt(lambda: hive.journal.read())
    attempt(lambda: [hive.tasks.get(one.id) for state in ("active", "done") for one in hive.tasks.list(state)])
    attempt(lambda: [hive.mail.read(name, one.id, mark=False) for name in hive.agents for one in hive.mail.list(name)])
    for task in ("human", "shop", "runs"):
        attempt(lambda task=task: resume(hive, task=task))  # type: ignore[misc]
    hive.journal.close()
    return refused


def _names(found: list[DoctorFinding], path: Path) -> bool:
    return any(str(path) in one.location or path.name in f"{one.location} {one.message}" for one in found)


@sampled
@pytest.mark.parametrize("damage", DAMAGES)
def test_the_doctor_survives_names_and_mends_any_damage(worked: Path, tmp_path: Path, damage: str) -> None:
    turn = list(DAMAGES).index(damage)
    for number, path in enumerate(_kinds(worked)):
        if (number - turn) % len(DAMAGES) >= IN_TURN:
            continue
        if damage == "removed" and path.parent.name == "agents":
            continue  # that is how an agent is taken away
        root = tmp_path / "hive"
        shutil.copytree(worked, root, symlinks=True)
        damaged = DAMAGES[damage]((root / path).read_bytes())
        if damaged is None:
            (root / path).unlink()
        else:
            (root / path).write_bytes(damaged)
        others = _digests(root, root / path)
        layout = Layout.at(root)
        found = examine(DoctorContext(layout))
        assert _names(found, path) or not _refusals(root), f"{path} {damage}: {_refusals(root)}"
        patient = DoctorContext(layout)
        left = {
            one.finding.check: one.unresolved_reason
            for one in apply_fixes(patient, found)
            if one.unresolved_reason is not None
        }
        again = [one for one in examine(DoctorContext(layout)) if not one.note]
        assert {one.check for one in again} <= left.keys(), f"{path} {damage}: {again}"
        assert again or not _refusals(root), f"{path} {damage}: {_refusals(root)}"
        kept = _digests(root, Path())
        assert not {name for digest, name in others.items() if digest not in kept}, f"{path} {damage}"
        shutil.rmtree(root)
