"""The page of landing, and what a person decides there."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from hivemind import Hive
from tests import program
from tests.landing.conftest import *  # noqa: F403 - its fixtures
from tests.landing.conftest import Harbour
from tests.waiting import until
from tests.web.conftest import EVIL, Site, events, serving


@pytest.fixture
def page(harbour: Harbour) -> Iterator[Site]:
    """The page of a hive in which one task waits to land."""
    harbour.configure(land="ask", check=f"echo '{EVIL}'; true")
    harbour.work("mast", mast=f"a mast\n{EVIL}\n", src__sail="a new sail\n")
    harbour.land()
    with serving(harbour.root) as site:
        yield site


def test_the_queue_is_shown_with_reasons_changes_and_buttons(harbour, page):
    shown = page.get("/landing").text
    assert "waits for you: hivemind land mast" in shown
    assert "<code>hive/mast</code> into <code>main</code>" in shown
    assert "<code>src/sail</code>" in shown
    assert '<span class="added-line">+a new sail</span>' in shown
    assert '<span class="taken-line">-a sail</span>' in shown
    assert '<span class="hunk">@@ -1 +1 @@</span>' in shown
    assert all(f'action="./do/{act}"' in shown for act in ("land", "return", "hold"))
    assert "<script>alert" not in shown
    queue = page.get("/landing", **{"HX-Request": "true", "HX-Target": "queue"}).text
    assert queue.lstrip().startswith('<section id="queue"')


def test_what_waits_to_land_needs_the_person_on_the_first_page(harbour, page):
    first = page.get("/").text
    assert 'class="need need-landing"' in first
    assert 'action="./do/land"' in first
    task = page.get("/tasks/mast").text
    assert 'href="./agents/ada"' in task
    assert "agents/landing" not in task
    assert '<span class="added-line">+a new sail</span>' in task


def test_a_person_lets_a_task_land_and_sees_the_output_of_its_check(harbour, page):
    assert "lands when it is its turn, once the swarm is up." in page.followed(page.post("land", task="mast"))
    assert harbour.entry("mast")["approved"] is True
    harbour.configure(check=f"echo '{EVIL}'; ! test -e mast")
    harbour.land()
    assert "returned" in page.get("/landing").text
    output = page.get("/landing?open=mast").text.partition('id="check"')[2]
    assert "&lt;script&gt;alert(1)" in output
    assert [event["act"] for event in events(page.hive)] == ["land"]


def test_the_output_of_a_check_is_shown_as_it_comes(harbour, page, monkeypatch):
    gate = harbour.root.parent / "gate"
    os.mkfifo(gate)
    harbour.configure(check=f"echo looking; cat {gate}", check_box="none")
    monkeypatch.setenv("HIVEMIND_HIVE", str(harbour.root))
    with program.Program(("land", "mast"), stdout=-1) as lander:
        until(lambda: "looking" in page.get("/landing").text.partition('id="check"')[2])
        shown = page.get("/landing").text
        assert "The check of mast" in shown
        assert 'hx-trigger="every 2s, ' in shown
        gate.write_text("")
        assert lander.wait(60) == 0


def test_a_landed_task_is_listed_and_its_page_still_has_its_changes(harbour, page):
    page.post("land", task="mast")
    harbour.land()
    shown = page.get("/landing").text
    assert "Nothing is to land." in shown
    assert 'href="./tasks/mast"' in shown
    assert '<span class="added-line">+a new sail</span>' in page.get("/tasks/mast").text


def test_a_person_returns_a_task_with_words(harbour, page):
    assert "mast goes back to its agent." in page.followed(page.post("return", task="mast", text="Of oak."))
    harbour.land()
    assert harbour.state("mast") == "inbox"
    assert Hive.open(harbour.root).tasks.get("mast").said[-1].text == "Of oak."


def test_a_root_is_held_and_goes_on(harbour, page):
    root = str(harbour.repo.path)
    assert f"{root} is held." in page.followed(page.post("hold", root=root))
    assert 'action="./do/resume"' in page.get("/landing").text
    page.post("land", task="mast")
    harbour.land()
    assert harbour.state("mast") == "active"
    assert f"{root} goes on." in page.followed(page.post("resume", root=root))
    harbour.land()
    assert harbour.state("mast") == "done"


def test_what_cannot_be_done_is_refused(harbour, page):
    harbour.agent()
    harbour.crew.drop("---\nassignee: ada\n---\nRig it.\n", "rig.md")
    harbour.turn(("list_files", {}))
    assert page.post("return", task="rig", text="x").status == 400, "its agent has it"
    forms = {"land": {"task": "sail"}, "return": {"task": "sail", "text": "x"}, "hold": {"root": "/"}, "resume": {}}
    for act, form in forms.items():
        assert page.post(act, **form).status == 400, act


def test_a_long_diff_is_bounded(harbour):
    harbour.configure(land="ask")
    harbour.work("mast", **{f"part{number}": "x\n" * 20_000 for number in range(3)})
    with serving(harbour.root) as site:
        shown = site.get("/landing").text
    assert "lines more" in shown
    assert len(shown) < 2_000_000
