from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind.tasks import log


def test_records_come_back_in_the_order_they_went_in(tmp_path: Path):
    for number in range(3):
        log.append(tmp_path, {"n": number, "text": "Grüße\n"}, durable=number == 1)
    assert [record["n"] for record in log.read(tmp_path)] == [0, 1, 2]


def test_no_log_is_an_empty_log(tmp_path: Path):
    assert list(log.read(tmp_path)) == []


def test_a_torn_last_line_is_cut_off_by_the_next_record(tmp_path: Path):
    log.append(tmp_path, {"n": 0}, durable=False)
    with open(tmp_path / log.LOG, "ab") as file:
        file.write(b'{"n": 1, "text": "' + b"x" * 200_000)
    assert [record["n"] for record in log.read(tmp_path)] == [0]
    log.append(tmp_path, {"n": 2}, durable=False)
    assert (tmp_path / log.LOG).read_bytes() == b'{"n":0}\n{"n":2}\n'


def test_a_last_line_that_only_lacks_its_newline_is_kept(tmp_path: Path):
    (tmp_path / log.LOG).write_bytes(b'{"n":0}\n{"n":1}')
    log.append(tmp_path, {"n": 2}, durable=False)
    assert [record["n"] for record in log.read(tmp_path)] == [0, 1, 2]


def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path):
    log.append(tmp_path, {"n": 0}, durable=False)
    import resource
    import signal

    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (50, 50))
            try:
                log.append(tmp_path, {"text": "x" * 100}, durable=False)
            except OSError:
                status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert (tmp_path / log.LOG).read_bytes() == b'{"n":0}\n'


def test_a_log_that_is_a_link_is_not_followed(tmp_path: Path):
    (tmp_path / log.LOG).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        log.append(tmp_path, {"n": 0}, durable=False)


@given(
    st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3), min_size=1, max_size=5), st.data()
)
def test_wherever_a_crash_cuts_the_last_line_the_others_stay(tmp_path_factory, records, data):
    folder = tmp_path_factory.mktemp("log")
    for record in records:
        log.append(folder, record, durable=False)
    path = folder / log.LOG
    raw = path.read_bytes()
    last = len(raw) - raw[:-1].rfind(b"\n") - 1
    os.truncate(path, len(raw) - data.draw(st.integers(1, last)))
    log.append(folder, {"after": "x"}, durable=False)
    found = list(log.read(folder))
    assert found[: len(records) - 1] == records[:-1]
    assert found[-1] == {"after": "x"}
