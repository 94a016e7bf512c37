from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from hivemind.runtime.parking import Parking
from hivemind.runtime.waits import Waits

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def never(task):
    return False


def test_seconds_count_from_the_first_time_also_across_a_restart(tmp_path):
    Waits(tmp_path, durable=False).begin("s", {"seconds": 10}, NOW)
    again = Waits(tmp_path, durable=False)
    again.begin("s", {"seconds": 10}, NOW + timedelta(seconds=8))
    with pytest.raises(Parking) as parked:
        again.check("s", NOW + timedelta(seconds=9), never)
    assert parked.value.until == NOW + timedelta(seconds=10)
    assert again.check("s", NOW + timedelta(seconds=10), never).kind == "until"


def test_a_question_is_over_when_its_own_message_is_answered(tmp_path):
    waits = Waits(tmp_path, durable=False)
    waits.begin("s", {"human": "Which one?"}, NOW)
    waits.asked("s", "q@hive")
    assert not waits.heard("human", "other@hive", "something@else", about=False)
    with pytest.raises(Parking, match="asks a person"):
        waits.check("s", NOW, never)
    assert waits.heard("human", "a@hive", "q@hive", about=True)
    assert Waits(tmp_path, durable=False).check("s", NOW, never).answer == "a@hive"


def test_mail_about_the_task_that_comes_before_its_step_waits_is_remembered_once(tmp_path):
    waits = Waits(tmp_path, durable=False)
    assert not waits.heard("ada", "early@hive", None, about=True)
    again = Waits(tmp_path, durable=False)
    again.begin("s1", {"mail": "ada"}, NOW)
    assert again.check("s1", NOW, never).answer == "early@hive"
    again.begin("s2", {"mail": "ada"}, NOW)
    with pytest.raises(Parking, match="mail from ada"):
        again.check("s2", NOW, never)


def test_another_task_is_waited_for_until_it_is_done(tmp_path):
    waits = Waits(tmp_path, durable=False)
    waits.begin("s", {"task": "first"}, NOW)
    with pytest.raises(Parking, match="the task first"):
        waits.check("s", NOW, never)
    assert waits.for_task()
    assert waits.check("s", NOW, lambda task: task == "first").what == "first"
