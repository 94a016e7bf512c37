"""Work that comes again: dropped once for each of its times, whoever is killed, waits or looks at the same moment."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivemind import Hive
from hivemind.errors import UserError
from hivemind.tasks import TaskProblem
from hivemind.tasks.recurrence import Every
from tests.program import Python, run

MONDAY = datetime(2026, 11, 23, 6, 0, tzinfo=UTC)  # 07:00 in Berlin


@pytest.fixture
def hive(tmp_path: Path) -> Hive:
    found = Hive.init(tmp_path / "hive")
    (found.layout.config).write_text("durability: relaxed\nzone: Europe/Berlin\n")
    return Hive.open(found.layout.root)


def written(hive: Hive, name: str, text: str, at: datetime = MONDAY) -> Path:
    path = hive.layout.root / "tasks/schedule" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    os.utime(path, (at.timestamp(), at.timestamp()))
    return path


def waiting(hive: Hive) -> list[str]:
    return sorted(path.stem for path in hive.layout.inbox.glob("*.md") if path.name != "README.md")


@pytest.mark.parametrize(
    ("every", "since", "times"),
    [
        ("90m", MONDAY, ["23 07:30", "23 09:00", "23 10:30"]),
        ("Mon 07:30", MONDAY, ["23 06:30", "30 06:30", "07 06:30"]),
        ("Fri-Mon 07:30 UTC", MONDAY, ["23 07:30", "27 07:30", "28 07:30"]),
        ("22:05", MONDAY, ["23 21:05", "24 21:05", "25 21:05"]),
        ("30 7 * * 1,4 America/New_York", MONDAY, ["23 12:30", "26 12:30", "30 12:30"]),
        # 02:30 is skipped on 29 March 2026 in Berlin: it comes at once after the change, at 03:00
        ("02:30", datetime(2026, 3, 28, 12, tzinfo=UTC), ["29 01:00", "30 00:30", "31 00:30"]),
        # 02:30 is there twice on 25 October 2026: it comes once
        ("02:30", datetime(2026, 10, 24, 12, tzinfo=UTC), ["25 00:30", "26 01:30", "27 01:30"]),
        ("02:30", datetime(2026, 10, 25, 1, tzinfo=UTC), ["26 01:30", "27 01:30", "28 01:30"]),
        # a distance is one by the clock that no government changes
        ("12h", datetime(2026, 10, 24, 12, tzinfo=UTC), ["25 00:00", "25 12:00", "26 00:00"]),
    ],
)
def test_the_times_of_every(every: str, since: datetime, times: list[str]):
    found = islice(Every.parse(every).times_after(since, since, "Europe/Berlin"), 3)
    assert [f"{time:%d %H:%M}" for time in found] == times


def test_who_looks_for_a_schedule_as_a_task_hears_where_its_file_is_and_how_it_ends(hive: Hive):
    written(hive, "Nightly run.md", "---\nevery: 1h\n---\nPaint.\n")
    for act in (hive.tasks.get, hive.tasks.cancel):
        with pytest.raises(UserError, match=r"run.md: is a schedule.*; delete the file to end it"):
            act("nightly-run")


@pytest.mark.parametrize(
    "text", ["", "soon", "Mon", "25:00", "5s", "61 * * * *", "07:30 Middle/Earth", "1h UTC", "Foo 07:30"]
)
def test_what_is_no_time_that_comes_again_is_refused_in_words(hive: Hive, text: str):
    with pytest.raises(TaskProblem, match="every"):
        hive.tasks.add("x", every=text)
    assert waiting(hive) == []


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["02:30", "Sun 02:30", "*/20 * * * *", "0 0 1 * *", "7h", "15 2,3 * * *"]),
    st.datetimes(datetime(2026, 3, 27), datetime(2026, 3, 31))
    | st.datetimes(datetime(2026, 10, 23), datetime(2026, 10, 27)),
    st.integers(0, 10_000),
)
def test_the_newest_time_that_was_missed_is_the_last_of_all_that_were(every: str, since: datetime, minutes: int):
    start, parsed = since.replace(tzinfo=UTC, microsecond=0), Every.parse(every)
    now = start + timedelta(minutes=minutes)
    all_times = []
    for time in parsed.times_after(start, start, "Europe/Berlin"):
        if time > now:
            break
        all_times.append(time)
    assert parsed.newest_time(start, start, now, "Europe/Berlin") == (all_times[-1] if all_times else None)


def test_a_task_is_dropped_at_each_time_as_its_file_says(hive: Hive):
    written(
        hive, "report.md", "---\nevery: Mon 07:30\nuntil: 2026-12-01\npriority: high\n---\n# Report\n\nWhat is new?\n"
    )
    drop = hive.tasks.schedule.drop_due
    assert drop(MONDAY) == ([], MONDAY.replace(minute=30))
    first = MONDAY.replace(minute=30)
    assert drop(first)[0] == ["report-20261123t063000z"]
    assert drop(first + timedelta(minutes=1)) == ([], first + timedelta(days=7))
    assert drop(first + timedelta(days=8)) == (["report-20261130t063000z"], None), "the last one before until:"
    assert drop(first + timedelta(days=90)) == ([], None)
    task = hive.tasks.get("report-20261123t063000z")
    assert (task.title, task.priority, task.maker) == ("Report", 2, "human")
    assert "What is new?" in task.text


@pytest.mark.parametrize(("missed", "count"), [("once", 1), ("all", 205)])
def test_what_was_missed_while_nobody_was_up_is_dropped_once_or_all_of_it(hive: Hive, missed: str, count: int):
    written(hive, "look.yaml", f'every: 1h\nmissed: {missed}\ntext: "What is new?"\n')
    assert hive.tasks.schedule.drop_due(MONDAY) == ([], MONDAY + timedelta(hours=1))
    now, found = MONDAY + timedelta(hours=205, minutes=3), []
    while True:
        dropped, following = hive.tasks.schedule.drop_due(now)
        found += dropped
        if following is None or following > now:
            break
    assert len(found) == len(set(found)) == count
    assert found[-1] == f"look-{MONDAY + timedelta(hours=205):%Y%m%dt%H%M%Sz}"
    assert following == MONDAY + timedelta(hours=206)


@pytest.mark.shows("promise: P54")
@pytest.mark.parametrize("missed", ["once", "all"])
def test_a_file_that_was_written_long_before_it_came_here_has_missed_one_time_at_most(hive: Hive, missed: str):
    written(hive, "old.md", f"---\nevery: 1m\nmissed: {missed}\n---\nWhat is new?\n", at=MONDAY - timedelta(days=400))
    drop = hive.tasks.schedule.drop_due
    assert drop(MONDAY) == (["old-20261123t060000z"], MONDAY + timedelta(minutes=1))
    assert drop(MONDAY) == ([], MONDAY + timedelta(minutes=1))
    assert len(drop(MONDAY + timedelta(minutes=3))[0]) == (3 if missed == "all" else 1), "from then on it is known"


def test_a_clock_that_was_years_ahead_once_silences_no_schedule(hive: Hive):
    written(hive, "look.md", "---\nevery: 1h\n---\nWhat is new?\n")
    drop, hour = hive.tasks.schedule.drop_due, timedelta(hours=1)
    drop(MONDAY)
    assert len(drop(MONDAY + timedelta(days=1800))[0]) == 1
    assert drop(MONDAY + hour / 2) == ([], MONDAY + hour)
    assert drop(MONDAY + hour) == (["look-20261123t070000z"], MONDAY + 2 * hour)
    assert drop(MONDAY + hour / 2) == ([], MONDAY + 2 * hour), "an hour back, nothing comes twice"


SCRIPT = """
import sys
from datetime import datetime
from hivemind import Hive
print(*Hive.open(sys.argv[1]).tasks.schedule.drop_due(datetime.fromisoformat(sys.argv[2]))[0])
"""


def process(hive: Hive, now: datetime, **environment: str) -> subprocess.Popen[str]:
    return Python(
        ["-c", SCRIPT, str(hive.layout.root), now.isoformat()],
        env={**os.environ, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.shows("promise: P54")
@pytest.mark.parametrize(
    "moment", ["fs.write.written", "fs.create.linked", "tasks.schedule.dropped", "fs.write.renamed"]
)
def test_killed_anywhere_a_time_has_its_one_task(hive: Hive, moment: str):
    written(hive, "look.md", "---\nevery: 1h\n---\nWhat is new?\n")
    now = MONDAY + timedelta(hours=2, minutes=5)
    killed = process(hive, now, HIVEMIND_CRASH_AT=moment)
    killed.communicate()
    assert killed.returncode != 0, f"{moment} is not on the way"
    process(hive, now).communicate()
    task = hive.tasks.claim("researcher")
    assert task is not None
    hive.tasks.finish(task, "done")
    process(hive, now).communicate()
    assert waiting(hive) == []
    assert [path.name for path in hive.layout.done.iterdir() if path.is_dir()] == ["look-20261123t080000z"]


@pytest.mark.shows("promise: P54")
def test_several_processes_that_look_at_the_same_moment_drop_one_task(hive: Hive):
    written(hive, "look.md", "---\nevery: 1h\n---\nWhat is new?\n")
    racing = [process(hive, MONDAY + timedelta(hours=1)) for _ in range(4)]
    told = [one.communicate()[0].split() for one in racing]
    assert [task for one in told for task in one] == waiting(hive) == ["look-20261123t070000z"]


def test_a_record_that_is_lost_or_damaged_drops_nothing_again(hive: Hive):
    written(hive, "look.md", "---\nevery: 1h\n---\nWhat is new?\n")
    now = MONDAY + timedelta(hours=1)
    hive.tasks.schedule.drop_due(now)
    (hive.layout.root / ".hive/schedule.json").write_text("{")
    assert "schedule.json" in str(hive.tasks.schedule.look(now)[0].problem)
    assert hive.tasks.schedule.drop_due(now)[0] == []
    assert waiting(hive) == ["look-20261123t070000z"]


def test_a_bad_file_is_said_and_the_others_go_on(hive: Hive):
    written(hive, "a.md", "---\nevery: 1h\nnonsense: 1\n---\nx\n")
    written(hive, "b.md", "no times at all\n")
    written(hive, "c.md", "---\nevery: 1h\n---\nWhat is new?\n")
    (hive.layout.schedule / "d.md").symlink_to("c.md")
    assert hive.tasks.schedule.drop_due(MONDAY + timedelta(hours=1))[0] == ["c-20261123t070000z"]
    shown = run(["--hive", str(hive.layout.root), "status", "--json"], capture_output=True, text=True)
    schedule = {one["name"]: one for one in json.loads(shown.stdout)["schedule"]}
    assert "nonsense" in schedule["a.md"]["problem"]
    assert "every" in schedule["b.md"]["problem"]
    assert "symbolic link" in schedule["d.md"]["problem"]
    assert schedule["c.md"]["every"] == "1h"
    assert schedule["c.md"]["last"].startswith("2026-11-23T07:00")


def test_a_bad_file_is_logged_once_and_again_when_something_else_is_wrong_with_it(
    hive: Hive, caplog: pytest.LogCaptureFixture
):
    written(hive, "a.md", "---\nevery: 1h\nnonsense: 1\n---\nx\n")
    for hours in range(3):
        assert Hive.open(hive.layout.root).tasks.schedule.drop_due(MONDAY + timedelta(hours=hours))[0] == []
    assert [record.getMessage().count("nonsense") for record in caplog.records] == [1]
    written(hive, "a.md", "no times at all\n")
    hive.tasks.schedule.drop_due(MONDAY)
    assert "has no every:" in caplog.records[-1].getMessage()
    written(hive, "a.md", "---\nevery: 1h\n---\nx\n")
    assert hive.tasks.schedule.drop_due(MONDAY + timedelta(hours=1))[0] == ["a-20261123t070000z"]
    written(hive, "a.md", "no times at all\n")
    hive.tasks.schedule.drop_due(MONDAY)
    assert len(caplog.records) == 3


def test_a_file_in_the_inbox_that_comes_again_goes_to_the_schedule_and_only_people_make_such(hive: Hive):
    (hive.layout.inbox / "look.md").write_text("---\nevery: 1h\n---\nWhat is new?\n")
    (hive.layout.inbox / "plain.md").write_text("What is old?\n")
    claimed = hive.tasks.claim("researcher")
    assert claimed is not None
    assert claimed.id == "plain"
    assert [path.name for path in (hive.layout.root / "tasks/schedule").iterdir()] == ["look.md"]
    assert hive.tasks.add("What is new?", every="07:30", until="2026-12-24", missed="all", id="daily") == "daily"
    assert (hive.layout.root / "tasks/schedule/daily.md").exists()
    with pytest.raises(TaskProblem, match="only people"):
        hive.tasks.add("---\nevery: 1h\n---\nx", by="researcher")
    with pytest.raises(TaskProblem, match="attachments"):
        hive.tasks.add("x", every="1h", attachments=[("a.txt", b"a")])
    folder = hive.layout.inbox / "folder"
    folder.mkdir()
    (folder / "task.md").write_text("---\nevery: 1h\n---\nx\n")
    while hive.tasks.claim("researcher") is None and not (hive.layout.failed / "folder").exists():
        pass
    assert "a folder" in (hive.layout.failed / "folder/error.md").read_text()


def test_a_zone_that_is_none_is_refused_in_hive_yaml(hive: Hive):
    hive.layout.config.write_text("zone: Middle/Earth\n")
    with pytest.raises(UserError, match="is not a time zone"):
        Hive.open(hive.layout.root)
