from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from hivemind.taskrun.waits import Parking, StepWaits, question_id

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def never(task):
    return None


@pytest.fixture
def kept():
    """What the task's record keeps of its waits."""
    return {}


def opened(kept, **options):
    """The waits as another process would have them."""
    return StepWaits(kept.get("waits"), lambda fields: kept.update(waits=json.loads(json.dumps(fields))), **options)


def test_seconds_count_from_the_first_time_also_across_a_restart(kept):
    opened(kept).begin("s", {"seconds": 10}, NOW)
    again = opened(kept, monotonic=lambda: 0.0)
    again.begin("s", {"seconds": 10}, NOW + timedelta(seconds=8))
    with pytest.raises(Parking) as parked:
        again.check("s", NOW + timedelta(seconds=9), never)
    assert parked.value.until == NOW + timedelta(seconds=10)
    assert again.check("s", NOW + timedelta(seconds=10), never).kind == "until"


def test_a_question_is_over_when_its_own_message_is_answered(kept):
    waits = opened(kept)
    waits.begin("s", {"human": "Which one?"}, NOW)
    waits.record_question("s", "q@hive")
    assert not waits.take_mail("human", "other@hive", "something@else", about=False)
    with pytest.raises(Parking, match="asks a person"):
        waits.check("s", NOW, never)
    assert waits.take_mail("human", "a@hive", "q@hive", about=True)
    assert opened(kept).check("s", NOW, never).answer == "a@hive"


def test_a_second_question_about_a_step_waits_for_an_answer_of_its_own(kept):
    waits = opened(kept)
    waits.begin("s", {"human": "Which one?"}, NOW)
    waits.record_question("s", "q@hive")
    assert waits.take_mail("human", "a@hive", "q@hive", about=True)
    assert opened(kept).begin("s", {"human": "Which one?"}, NOW).answer == "a@hive", (
        "the call is made again after a crash"
    )
    assert waits.begin("s", {"human": "Which colour?"}, NOW).answer is None
    assert question_id("s", 1, "hive", "Which one?") != question_id("s", 1, "hive", "Which colour?")
    assert opened(kept).begin("s", {"seconds": 5}, NOW).kind == "until"


def test_mail_about_the_task_that_comes_before_its_step_waits_is_remembered_once(kept):
    waits = opened(kept)
    assert not waits.take_mail("ada", "early@hive", None, about=True)
    again = opened(kept)
    again.begin("s1", {"mail": "ada"}, NOW)
    assert again.check("s1", NOW, never).answer == "early@hive"
    again.begin("s2", {"mail": "ada"}, NOW)
    with pytest.raises(Parking, match="mail from ada"):
        again.check("s2", NOW, never)


def test_another_task_is_waited_for_until_it_is_done(kept):
    waits = opened(kept)
    waits.begin("s", {"task": "first"}, NOW)
    with pytest.raises(Parking, match="the task first") as parked:
        waits.check("s", NOW, never)
    assert waits.awaited_task(parked.value.reason) == ("first", None)
    assert waits.awaited_task("asks a person: Which one?") is None
    with pytest.raises(Parking, match="hivemind task retry first") as parked:
        waits.check("s", NOW, lambda task: "failed")
    assert waits.awaited_task(parked.value.reason) == ("first", "failed")
    assert waits.check("s", NOW, lambda task: "done").what == "first"


def test_a_clock_that_is_set_back_lengthens_no_wait(kept):
    ours = [100.0]
    waits = opened(kept, monotonic=lambda: ours[0])
    waits.begin("s", {"seconds": 60}, NOW)
    back = NOW - timedelta(hours=6)
    with pytest.raises(Parking) as parked:
        waits.check("s", NOW, never)
    ours[0] += 50
    with pytest.raises(Parking) as parked:
        waits.check("s", back, never)
    assert parked.value.until == back + timedelta(seconds=10)
    ours[0] += 10
    assert waits.check("s", back, never).kind == "until"
    again = opened(kept, monotonic=lambda: ours[0])
    with pytest.raises(Parking) as parked:
        again.check("s", back, never)
    assert parked.value.until == back + timedelta(seconds=60), "after a restart no longer than it lasts in all"


def test_a_date_is_waited_for_by_the_clock_on_the_wall(kept):
    waits = opened(kept)
    waits.begin("s", {"until": (NOW + timedelta(hours=1)).isoformat()}, NOW)
    with pytest.raises(Parking) as parked:
        waits.check("s", NOW - timedelta(hours=6), never)
    assert parked.value.until == NOW + timedelta(hours=1)


def test_a_question_to_a_person_is_answered_by_the_person_alone(kept):
    waits = opened(kept)
    waits.begin("s", {"human": "Which one?"}, NOW)
    waits.record_question("s", "q@hive")
    assert not waits.take_mail("eve", "a@hive", "q@hive", about=True)
    assert waits.take_mail("human", "b@hive", "q@hive", about=True)
