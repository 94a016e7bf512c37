"""Learned relevance: what tasks used of their openings raises what is like it, and what they never used sinks."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hivemind import Hive
from hivemind.agent.preview import Preview, preview_context
from hivemind.agent.relevance import MAX_TASKS, MAX_TEXTS, MAX_WEIGHT, Feature, ShownText, Weights, learn_use
from hivemind.errors import UserError
from hivemind.layout import Layout
from hivemind.memory import KnowledgeMemoryBlock, MemorySelector, RelevanceScorer
from hivemind.minds import Thought, ToolCall, Turn
from hivemind.taskrun.task_run import TaskRun
from hivemind.tokens import count_tokens
from hivemind.tools.memory import namespaces_of
from tests.agent.conftest import Crew, until_idle
from tests.messages import lines_of
from tests.sample import examples

GUIDE = "# Sails\n\nThe mainsail of the sloop Ondine is sewn with waxed thread of seven strands.\n"
NOTE = "The mainsail of the sloop Ondine was sewn on a Tuesday in the loft of the old harbour."
RECORD = '{"kind": "relevance", "version": 1, "weights": %s}'
TASK = "Mend the mainsail of the sloop Ondine.\n"


@pytest.fixture
def crew(crew: Crew) -> Crew:
    switch(crew, "learn")
    (crew.root / "knowledge/sails.md").write_text(GUIDE)
    hive = Hive.open(crew.root)
    hive.memory.put(namespaces_of(hive, "ada")[-1], "ondine_day", NOTE)
    return crew


def switch(crew: Crew, setting: str) -> None:
    crew.configure(f"embedder: none\nrelevance: {setting}\n")


def work(crew: Crew, name: str = "t", result: str = "Sewn, see knowledge/sails.md.") -> str:
    """Do a task in one turn, and return its opening."""
    openings = list[str]()

    def think(turn: Turn) -> Thought:
        openings.append(turn.messages[1].text)
        return Thought("", (ToolCall("finish_task", {"result": result}),))

    crew.drop(TASK, f"{name}.md")
    agent = crew.start(think)
    until_idle(agent)
    crew.end(agent)
    return openings[0]


def weights(crew: Crew) -> Weights:
    return Weights.load(Layout.at(crew.root))


def preview(crew: Crew) -> Preview:
    crew.drop(TASK, "next.md")
    preview = preview_context(Hive.open(crew.root), "ada", "next")
    (crew.root / "tasks/inbox/next.md").unlink()
    return preview


def test_a_kind_that_tasks_name_rises_and_one_that_they_do_not_sinks(crew: Crew) -> None:
    opening = work(crew)
    assert "waxed thread" in opening
    assert "Tuesday" in opening
    learned = weights(crew)
    assert learned.weights["document"] > 0 > learned.weights["memory"]
    assert learned.texts == {
        "knowledge/sails.md": (1, 0), "knowledge/": (1, 0), "shared/hive/ondine_day": (0, 1), "shared/hive/": (0, 1)
    }  # fmt: skip
    assert learned.tasks == ("t.1",)


def test_a_text_is_used_if_six_of_its_words_in_a_row_are_written(crew: Crew) -> None:
    work(crew, result="It was sewn on a Tuesday in the loft.")
    texts = weights(crew).texts
    assert (texts["knowledge/sails.md"], texts["shared/hive/ondine_day"]) == ((0, 1), (1, 0))


def test_a_task_counts_once_however_often_its_end_is_seen(crew: Crew) -> None:
    work(crew)
    hive = Hive.open(crew.root)
    before = hive.layout.relevance.read_bytes()
    run = TaskRun.of_ended(hive, "t", "ada")
    assert run is not None
    learn_use(hive, run)
    assert hive.layout.relevance.read_bytes() == before


@pytest.mark.parametrize(("setting", "is_shown"), [("off", True), ("learn", True), ("on", False)])
def test_a_text_that_is_never_used_leaves_the_opening_only_if_relevance_is_on(
    crew: Crew, setting: str, is_shown: bool
) -> None:
    for number in range(9):
        work(crew, f"t{number}")
    switch(crew, setting)
    before = weights(crew)
    opening = work(crew, "last")
    assert "waxed thread" in opening
    assert ("Tuesday" in opening) == is_shown
    assert (weights(crew) == before) == (setting == "off")
    has_rows = [bool(line["shown"]) for line in lines_of(crew.root / "tasks/done/last") if "opening" in line]
    assert has_rows == [setting != "off"]


def test_the_reasons_are_said_in_words_whether_it_is_on_or_off(crew: Crew) -> None:
    lines = [*preview(crew).use_lines()]
    assert lines == ["Relevance is learned, and not applied (relevance: learn)."]
    assert {choice["use"] for choice in preview(crew).choices()} == {""}
    for number in range(9):
        work(crew, f"t{number}")
    switch(crew, "off")
    uses = {choice["block"].partition(":")[0]: choice["use"] for choice in preview(crew).choices()}
    assert "used before +" in uses["knowledge"]
    assert "memory -" in uses["memory"]
    switch(crew, "on")
    [nearest, state] = preview(crew).use_lines()
    assert nearest.startswith("not shown: memory:shared/hive/ondine_day, confidence 1.19: ")
    assert "% likely to be used: memory -" in nearest
    assert state == "Relevance is learned and applied (relevance: on)."


@pytest.mark.parametrize("damage", ["{", RECORD % '{"memory": 99}', RECORD % '{"luck": 1}', RECORD % '{"memory": NaN}'])
def test_a_file_that_a_person_has_broken_is_named_and_stays_and_no_weight_counts(crew: Crew, damage: str) -> None:
    switch(crew, "on")
    work(crew)
    file = crew.root / ".hive/relevance.json"
    file.write_text(damage)
    assert "Tuesday" in work(crew, "t2")
    assert file.read_text() == damage
    *_, state = preview(crew).use_lines()
    assert ".hive/relevance.json" in state
    assert "no weight counts" in state


def test_the_file_can_be_edited_by_hand(crew: Crew) -> None:
    work(crew)
    switch(crew, "on")
    file = crew.root / ".hive/relevance.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "weights": {"document": -3, "memory": 1.5}}))
    opening = work(crew, "t2")
    assert "Tuesday" in opening
    assert "waxed thread" not in opening


SHOWN = st.builds(
    ShownText,
    st.tuples(st.text(min_size=1)),
    st.text(),
    st.dictionaries(st.sampled_from(get_args(Feature)), st.floats(0, 1)),
)
STREAM = st.lists(st.tuples(st.text(max_size=3), st.lists(st.tuples(SHOWN, st.booleans()), max_size=6)), max_size=20)


@examples(100, 40)
@given(STREAM)
def test_weights_are_the_same_for_the_same_tasks_finite_and_bounded(
    stream: list[tuple[str, list[tuple[ShownText, bool]]]],
) -> None:
    first, second = Weights(), Weights()
    for task, samples in stream:
        first, second = first.learn(task, samples), second.learn(task, samples)
        assert first.learn(task, samples) == first == second
        assert all(-MAX_WEIGHT <= weight <= MAX_WEIGHT for weight in first.weights.values())
        assert all(0 < first.chance(text.features) < 1 for text, _ in samples)
    assert len(first.tasks) <= MAX_TASKS
    assert len(first.texts) <= MAX_TEXTS


@examples(100, 40)
@given(STREAM, st.integers(100, 2_000))
def test_no_factor_takes_a_selection_over_its_budget(
    stream: list[tuple[str, list[tuple[ShownText, bool]]]], budget: int
) -> None:
    learned = Weights()
    for task, samples in stream:
        learned = learned.learn(task, samples)
    features = [text.features for _, samples in stream for text, _ in samples]
    blocks = [
        KnowledgeMemoryBlock(topic=str(at), location=f"passage:n{at}:0-9", metadata={"tokens": 40 + at})
        for at in range(len(features))
    ]
    scorer = RelevanceScorer(lambda block: 0.5 + learned.chance(features[int(block.topic)]))
    selection = MemorySelector(count_tokens, scorer).select(blocks, budget)
    assert selection.used <= budget
    assert all(0 <= choice.score <= 1 for choice in selection)


def test_an_unknown_weight_is_named(crew: Crew) -> None:
    (crew.root / ".hive/relevance.json").write_text(RECORD % '{"luck": 1}')
    with pytest.raises(UserError, match="luck"):
        weights(crew)
