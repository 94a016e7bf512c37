"""The frame of the benchmarks: each topic in a process of its own, tables, files, a picture, an exit status."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.topics import TOPICS, Topic

QUIET = Topic("quiet", "Nothing is measured", "tests.benchmarks.quiet")
BROKEN = Topic("broken", "A topic that fails", "tests.benchmarks.broken")


def record(results: Path) -> dict:
    (path,) = (path for path in results.glob("*.json") if path.name != "latest.json")
    return json.loads(path.read_text())


def rows(results: Path, topic: str) -> dict[str, dict]:
    (found,) = (one for one in record(results)["topics"] if one["name"] == topic)
    return {row["name"]: row for row in found["rows"]}


def test_a_full_run_is_printed_and_written_with_ratios_and_targets(tmp_path, capsys):
    assert main([], topics=(QUIET,), results=tmp_path) == 0
    printed = capsys.readouterr().out
    assert "| half as long | 1 | s |  | a nap | 2 | 0.5 | less |" in printed
    assert "≥ 12 missed" in printed
    told = (tmp_path / "latest.md").read_text()
    assert "Targets: 0 of 1 met. Failed topics: none." in told
    assert "| quiet | 3 | 0 of 1 | twice as many: 10 1/s, target 12 |" in told
    assert "Load over the last minute" in told
    assert "quiet\thalf as long\t1\ts\t\ta nap\t2\t0.5\tless\t" in (tmp_path / "latest.tsv").read_text()
    assert rows(tmp_path, "quiet")["half as long"]["ratio"] == 0.5


def test_each_topic_has_a_process_and_a_folder_of_its_own(tmp_path):
    twice = (QUIET, Topic("again", "Once more", QUIET.module))
    assert main([], topics=twice, results=tmp_path) == 0
    first, second = rows(tmp_path, "quiet"), rows(tmp_path, "again")
    assert first["half as long"]["note"] != second["half as long"]["note"] != f"process {os.getpid()}"
    assert first["quick"]["note"] != second["quick"]["note"]
    assert not Path(first["quick"]["note"]).exists()


def test_a_topic_that_fails_says_so_and_the_others_go_on(tmp_path, capsys):
    assert main([], topics=(BROKEN, QUIET), results=tmp_path) == 1
    told = capsys.readouterr().err
    assert "broken failed: ended with status 1:\n" in told
    assert "\n    RuntimeError: the pump is dry\n" in told
    assert "\n    RuntimeError: the pump is dry\n" in (tmp_path / "latest.md").read_text()
    assert rows(tmp_path, "quiet")


@pytest.mark.parametrize("arguments", [["quiet"], ["--quick"]])
def test_only_a_full_run_of_every_topic_becomes_the_latest(tmp_path, arguments):
    assert main(arguments, topics=(QUIET, BROKEN) if "quiet" in arguments else (QUIET,), results=tmp_path) == 0
    assert not (tmp_path / "latest.md").exists()
    assert rows(tmp_path, "quiet")["quick"]["value"] == float("--quick" in arguments)


def test_an_unknown_topic_is_refused_with_the_known_ones(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["pumps"], topics=(QUIET,), results=tmp_path)
    assert ended.value.code == 2
    assert "no topic 'pumps'; there are: quiet" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_every_topic_is_a_module_that_is_there():
    for topic in TOPICS:
        assert Path(__file__).parents[2].joinpath(*topic.module.split(".")).with_suffix(".py").is_file(), topic


def test_the_picture_is_drawn_or_it_is_said_what_lacks(tmp_path, capsys):
    assert main([], topics=(QUIET,), results=tmp_path) == 0
    picture, told = tmp_path / "latest.png", capsys.readouterr().err
    if picture.exists():
        assert picture.read_bytes().startswith(b"\x89PNG")
    else:
        assert "matplotlib is not installed" in told
