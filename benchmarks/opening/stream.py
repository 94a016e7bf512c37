"""Streams of tasks for learned relevance: what openings show with and without it, and how much of that is of use.

`real` are the tasks of `tune.yaml`, `held.yaml` and `new.yaml`, of which each uses what the judgements call right; the
weights go on from repository to repository. `kinds` is a made-up hive in which tasks use guides and never use minutes and
memories, which share as many words with them: it shows what relevance could do if a kind alone decided.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.opening.__main__ import AGENT, measure, plans
from benchmarks.table import Row
from hivemind import Hive
from hivemind.agent.opening import source_of
from hivemind.agent.preview import Preview, preview_context
from hivemind.agent.relevance import save_samples
from hivemind.tools.memory import namespaces_of

HALVES = ("tune", "held", "new")
_THINGS = (
    "anchor", "ballast", "bilge", "binnacle", "bowsprit", "bulkhead", "capstan", "centreboard", "cleat", "deadlight",
    "fairlead", "forestay", "gangway", "gooseneck", "gunwale", "halyard", "hawser", "jackstay", "keelson", "lazarette",
    "mainsheet", "outrigger", "painter", "propeller", "ratline", "rudder", "scupper", "shackle", "spinnaker", "sternpost",
    "tiller", "topsail", "transom", "traveller", "turnbuckle", "vang", "wheelhouse", "winch", "windlass", "yardarm",
)  # fmt: skip
_GUIDE = "# The {0}\n\nThe {0} of the sloop Ondine is mended with tar from the red pot and two turns of marline.\n"
_MINUTES = (
    "# Meeting on the {0}\n\nThe {0} of the sloop Ondine was on the agenda, and everybody wanted it to be mended.\n"
)
_MEMORY = "The {0} of the sloop Ondine is something that visitors ask about, and whether it will be mended."


@dataclass
class Showing:
    """The texts that an opening shows, those of them that the task uses, and the needed ones."""

    shown: int
    used: int
    needed: int
    needed_shown: int


def real(mirror: Path, *, is_on: bool) -> Iterator[Showing]:
    weights = b""
    for plan in (plan for half in HALVES for plan in plans(half)):
        settings = f"relevance: {'on' if is_on else 'learn'}\n"
        for number, (hive, preview, opening) in enumerate(measure(plan, mirror, settings, weights)):
            uses = [opening.is_right(source_of(entry)) for entry in preview.selected.entries]
            learn(hive, preview, f"{plan['repository']}.{number}", uses)
            if hive.layout.relevance.exists():
                weights = hive.layout.relevance.read_bytes()
            needs = [any(place in places for places in opening.places.values()) for place in opening.needed_places]
            right = sum(map(opening.is_right, opening.places))
            yield Showing(len(opening.places), right, len(needs), sum(needs))


def kinds(*, is_on: bool) -> Iterator[Showing]:
    with tempfile.TemporaryDirectory(prefix="kinds-") as folder:
        hive = Hive.init(Path(folder) / "hive")
        for path in hive.layout.agents.glob("*.yaml"):
            path.unlink()
        hive.layout.agent_config(AGENT).write_text("toolset: coder\nmind: {scripted: none.jsonl}\n")
        (hive.layout.root / "none.jsonl").touch()
        hive.layout.config.write_text(f"durability: relaxed\nembedder: none\nrelevance: {'on' if is_on else 'learn'}\n")
        for thing in _THINGS:
            for name, text in (("guides", _GUIDE), ("minutes", _MINUTES)):
                path = hive.layout.knowledge / f"{name}/{thing}.md"
                path.parent.mkdir(exist_ok=True)
                path.write_text(text.format(thing))
            hive.memory.put(namespaces_of(hive, AGENT)[-1], f"visitors_{thing}", _MEMORY.format(thing))
        hive = Hive.open(hive.layout.root)
        for number, thing in enumerate(_THINGS):
            (hive.layout.inbox / f"t{number}.md").write_text(f"Mend the {thing} of the sloop Ondine.\n")
            preview = preview_context(hive, AGENT, f"t{number}")
            uses = [f"guides/{thing}.md" in str(entry["metadata"].get("path")) for entry in preview.selected.entries]
            (hive.layout.inbox / f"t{number}.md").unlink()
            learn(hive, preview, f"t{number}", uses)
            yield Showing(len(uses), sum(uses), 1, int(any(uses)))


def learn(hive: Hive, preview: Preview, task: str, uses: Sequence[bool]) -> None:
    """Learn from a task, which used some texts of its opening."""
    blocks = {block.id: block for block in preview.selected.blocks}
    texts = [preview.selected.relevance.shown_text(blocks[str(entry["id"])]) for entry in preview.selected.entries]
    save_samples(hive, task, zip(texts, uses, strict=True))


def compare(mirror: Path) -> Iterator[Row]:
    """Compare the second half of each stream, with and without relevance."""
    streams = {
        "real": [[*real(mirror, is_on=is_on)] for is_on in (True, False)],
        "kinds": [[*kinds(is_on=is_on)] for is_on in (True, False)],
    }
    for name, (with_showings, bare_showings) in streams.items():
        halves = [showings[len(showings) // 2 :] for showings in (with_showings, bare_showings)]
        figures = (
            ("shown texts that are of use", "used", "shown"),
            ("needed texts that are shown", "needed_shown", "needed"),
        )
        for label, part, whole in figures:
            pairs = [(sum(getattr(s, part) for s in half), sum(getattr(s, whole) for s in half)) for half in halves]
            (part_with, whole_with), (part_bare, whole_bare) = pairs
            note = f"{part_with} of {whole_with}; without {part_bare} of {whole_bare}"
            shares = [100 * part / max(1, whole) for part, whole in pairs]
            yield Row(f"{name}: {label}", shares[0], "%", "without", shares[1], "more", note)
